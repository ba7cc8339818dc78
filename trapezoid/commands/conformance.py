"""`trapezoid conformance`: test a running node against the message specification."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interop.conformance.model import Dialect, Profile
from pipeline.cli.option_groups import grouped
from trapezoid.commands import matrix_runs, partner_cases
from trapezoid.commands.matrix_runs import MatrixOptions
from trapezoid.output import FOUND_WANTING, check_writable, errors_reported, print_json

if TYPE_CHECKING:
    import ssl

    from interop.conformance.model import Case
    from interop.conformance.run import Report
    from interop.conformance.stage import Node


@dataclass(frozen=True, kw_only=True)
class NodeOptions:
    """The node under test, and how to reach it."""

    url: Annotated[str, typer.Option(help="Listener of the node, for example wss://mn.example.org:8443.")] = ""
    domain: Annotated[str, typer.Option(help="Domain of the node. Default: taken from the host name.")] = ""
    token: Annotated[
        str, typer.Option(envvar="TRAPEZOID_CONFORMANCE_TOKEN", help="Bearer token for the runtimes of the suite.")
    ] = ""
    runtimes: Annotated[str, typer.Option(metavar="PREFIX", help="Prefix of the names of the suite's runtimes.")] = (
        "conformance-"
    )
    ca: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate authorities to trust.")] = None
    insecure_dev: Annotated[
        bool, typer.Option("--insecure-dev", help="Accept any certificate. For laboratories only.")
    ] = False
    patience: Annotated[float, typer.Option(metavar="SECONDS", help="Longest wait for one reply.", min=0.1)] = 5.0

    def node(self) -> tuple[Node, Sequence[Dialect]]:
        """The node, and the dialects that its URL may have. Raises HostError."""
        from interop.conformance.stage import Node
        from interop.conformance.wire import parse_target

        if not self.url:
            raise _usage("--url is missing, for example --url wss://mn.example.org:8443")
        target, dialects = parse_target(self.url, _tls_context(self.ca, is_insecure=self.insecure_dev))
        node = Node(
            target=target,
            domain=self.domain,
            token=self.token,
            runtime_prefix=self.runtimes,
            patience_seconds=self.patience,
        )
        return node, dialects


@dataclass(frozen=True, kw_only=True)
class CaseOptions:
    """Options that choose the cases to run, and their number at a time."""

    dialect: Annotated[
        list[Dialect] | None, typer.Option(help="Test only this dialect. Repeatable. Default: all of them.")
    ] = None
    profile: Annotated[
        Profile,
        typer.Option(
            help="strict: the specification. reference: what the reference nodes agree on. rethink: the specification "
            "at a node with `compat.profile`."
        ),
    ] = Profile.STRICT
    only: Annotated[
        list[str] | None, typer.Option(metavar="CASE", help="Run cases by id, prefix of an id, or section. Repeatable.")
    ] = None
    parallel: Annotated[int, typer.Option(help="Number of cases to run at the same time.", min=1, max=64)] = 8
    list_: Annotated[bool, typer.Option("--list", help="List the cases without running them.")] = False

    def cases(self) -> list[Case]:
        """The cases selected; never empty. Raises HostError."""
        from interop.conformance.cases import CASES
        from interop.conformance.run import select

        cases = [case for case in select(CASES, self.only or ()) if self.profile in case.profiles]
        if not cases:
            names = " or ".join(self.only or ())
            raise _usage(f"no case of profile {self.profile.value} matches {names}; --list shows all")
        return cases


@dataclass(frozen=True, kw_only=True)
class FederationOptions(MatrixOptions):
    """Options for tests of the side of a node that other domains see, alone or in every pair."""

    partner: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Be domains that federate with the node, honest and hostile ones, as `partner.toml` in DIR says; "
            "make DIR with `trapezoid lab init DIR --partner`. Uses --only, --parallel, --junit, --json and --list.",
        ),
    ] = None
    documents: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write signed documents, genuine and forged, with the verdict on each, into DIR; run nothing.",
        ),
    ] = None


@grouped
def conformance(
    target: NodeOptions,
    chosen: CaseOptions,
    federation: FederationOptions,
    *,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the results as JUnit XML.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the whole conversation of each finding.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Test a running node against the message specification. Exits with 1 if there are findings."""
    with errors_reported(as_json=json):
        if federation.documents is not None:
            partner_cases.write_documents(federation.documents, as_json=json)
            return
        if federation.matrix:
            is_clean = matrix_runs.play(federation, junit, lists=chosen.list_, as_json=json)
            raise typer.Exit(0 if is_clean else FOUND_WANTING)
        if federation.partner is not None:
            is_clean = _play_partner(federation.partner, chosen, _Reports(junit, json, verbose))
            raise typer.Exit(0 if is_clean else FOUND_WANTING)
        cases = chosen.cases()
        if chosen.list_:
            _list(cases, as_json=json)
            return
        node, dialects = target.node()
        check_writable(junit)
        report = _run(node, chosen.dialect or dialects, cases, chosen, is_quiet=json)
        if junit is not None:
            from interop.conformance.report_files import write_junit

            write_junit(report, junit)
        _print(report, as_json=json, verbose=verbose)
    raise typer.Exit(FOUND_WANTING if report.findings else 0)


@dataclass(frozen=True, slots=True)
class _Reports:
    """How results are shown."""

    junit: Path | None
    as_json: bool
    is_verbose: bool


def _play_partner(folder: Path, chosen: CaseOptions, reports: _Reports) -> bool:
    """List or play the cases of a partner; True if there is no finding. Raises HostError."""
    cases = partner_cases.chosen_cases(chosen.only or ())
    if chosen.list_:
        partner_cases.list_cases(cases, as_json=reports.as_json)
        return True
    check_writable(reports.junit)
    report = partner_cases.run_cases(folder, cases, chosen.parallel, is_quiet=reports.as_json)
    if reports.junit is not None:
        from interop.partner.report import write_junit

        write_junit(report, reports.junit)
    partner_cases.show(report, as_json=reports.as_json, verbose=reports.is_verbose)
    return not report.findings


def _usage(detail: str) -> Exception:
    from protofly.errors import Code, HostError

    return HostError(Code.SETTINGS, detail)


def _tls_context(ca: Path | None, *, is_insecure: bool) -> ssl.SSLContext:
    import ssl

    try:
        context = ssl.create_default_context(cafile=ca)
    except OSError as exc:
        raise _usage(f"{ca}: {_why(exc)}") from exc
    if is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _why(exc: OSError) -> str:
    """Why a file of certificate authorities cannot be used; OpenSSL does not say what is missing."""
    import ssl

    return "holds no certificate in PEM form" if isinstance(exc, ssl.SSLError) else exc.strerror or str(exc)


def _list(cases: list[Case], *, as_json: bool) -> None:
    if as_json:
        from interop.conformance.report_files import cases_as_json

        print_json(cases_as_json(cases))
        return
    from interop.conformance.report import print_cases

    print_cases(cases)


def _run(node: Node, dialects: Sequence[Dialect], cases: list[Case], chosen: CaseOptions, *, is_quiet: bool) -> Report:
    import trio
    from rich.console import Console
    from rich.progress import Progress

    from interop.conformance.discover import discover
    from interop.conformance.run import run

    async def discover_and_run() -> Report:
        discovery = await discover(node, dialects, chosen.profile)
        console = Console(file=sys.stderr, quiet=is_quiet)
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("testing", total=len(cases) * len(discovery.offered))
            return await run(
                discovery,
                cases,
                chosen.profile,
                parallel=chosen.parallel,
                on_outcome=lambda _: progress.advance(task),
            )

    return trio.run(discover_and_run)


def _print(report: Report, *, as_json: bool, verbose: bool) -> None:
    if as_json:
        from interop.conformance.report_files import as_json as facts_of

        print_json(facts_of(report))
        return
    from interop.conformance.report import print_report

    print_report(report, verbose=verbose)
