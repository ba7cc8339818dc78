"""`trapezoid conformance`: hold a running node against the message specification."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from interop.conformance.model import Dialect, Profile
from trapezoid.output import FOUND_WANTING, errors_reported, print_json

if TYPE_CHECKING:
    import ssl

    from interop.conformance.model import Case
    from interop.conformance.run import Report
    from interop.conformance.stage import Node


def conformance(
    url: Annotated[str, typer.Option(help="Where the node listens, for example wss://mn.example.org:8443.")] = "",
    domain: Annotated[str, typer.Option(help="The node's own domain; absent: from the host's name.")] = "",
    dialect: Annotated[
        list[Dialect] | None, typer.Option(help="Only this one; may be given several times; absent: all.")
    ] = None,
    profile: Annotated[
        Profile, typer.Option(help="strict: the specification. reference: what the reference nodes agree on.")
    ] = Profile.STRICT,
    only: Annotated[
        list[str] | None, typer.Option(metavar="WORD", help="Cases by id, by its first words, or by section.")
    ] = None,
    token: Annotated[
        str, typer.Option(envvar="TRAPEZOID_CONFORMANCE_TOKEN", help="Bearer token for the suite's runtimes.")
    ] = "",
    runtimes: Annotated[
        str, typer.Option(metavar="PREFIX", help="How the names of the suite's runtimes begin.")
    ] = "conformance-",
    ca: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate authority to believe.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write JUnit XML there.")] = None,
    parallel: Annotated[int, typer.Option(help="Cases at the same time.", min=1, max=64)] = 8,
    patience: Annotated[float, typer.Option(metavar="SECONDS", help="Longest wait for one answer.", min=0.1)] = 5.0,
    *,
    insecure_dev: Annotated[
        bool, typer.Option("--insecure-dev", help="Believe any certificate. For laboratories.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the conversation of every finding.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the cases, and play none.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Play conversations of the message specification against a node, and check every reply as a whole."""
    with errors_reported(as_json=json):
        from interop.conformance.cases import CASES
        from interop.conformance.run import select
        from interop.conformance.stage import Node
        from interop.conformance.wire import parse_target

        cases = [case for case in select(CASES, only or ()) if profile in case.profiles]
        if not cases:
            raise _usage(f"no case of profile {profile.value} is called {' or '.join(only or ())}; --list shows them")
        if list_:
            _list(cases, as_json=json)
            return
        if not url:
            raise _usage("say where the node listens, for example --url wss://mn.example.org:8443")
        target, dialects = parse_target(url, _tls_context(ca, is_insecure=insecure_dev))
        node = Node(target=target, domain=domain, token=token, runtime_prefix=runtimes, patience_seconds=patience)
        if junit is not None:
            _check_writable(junit)
        report = _play(node, dialect or dialects, cases, profile, parallel=parallel, is_quiet=json)
        if junit is not None:
            from interop.conformance.report_files import write_junit

            write_junit(report, junit)
        _print(report, as_json=json, verbose=verbose)
    raise typer.Exit(FOUND_WANTING if report.findings else 0)


def _usage(detail: str) -> Exception:
    from protofly.errors import Code, HostError

    return HostError(Code.SETTINGS, detail)


def _check_writable(file: Path) -> None:
    """Before the cases are played: a report that cannot be written is worth nothing after it."""
    try:
        file.touch()
    except OSError as exc:
        raise _usage(f"{file}: {exc.strerror}") from exc


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
    """A file of authorities cannot be used; OpenSSL does not name what is missing."""
    import ssl

    return "holds no certificate in PEM form" if isinstance(exc, ssl.SSLError) else exc.strerror or str(exc)


def _list(cases: list[Case], *, as_json: bool) -> None:
    if as_json:
        from interop.conformance.report_files import cases_as_json

        print_json(cases_as_json(cases))
        return
    from interop.conformance.report import print_cases

    print_cases(cases)


def _play(
    node: Node, dialects: Sequence[Dialect], cases: list[Case], profile: Profile, *, parallel: int, is_quiet: bool
) -> Report:
    import trio
    from rich.console import Console
    from rich.progress import Progress

    from interop.conformance.discover import discover
    from interop.conformance.run import run

    async def look_and_play() -> Report:
        discovery = await discover(node, dialects, profile)
        console = Console(file=sys.stderr, quiet=is_quiet)
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("playing", total=len(cases) * len(discovery.offered))
            return await run(discovery, cases, profile, parallel=parallel, on_outcome=lambda _: progress.advance(task))

    return trio.run(look_and_play)


def _print(report: Report, *, as_json: bool, verbose: bool) -> None:
    if as_json:
        from interop.conformance.report_files import as_json as facts_of

        print_json(facts_of(report))
        return
    from interop.conformance.report import print_report

    print_report(report, verbose=verbose)
