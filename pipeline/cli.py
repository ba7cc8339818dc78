"""`trapezoid pipeline …`: one command for each job, and one for all of them.

Every command prints a line when a job is done, or with `--json` one object; it ends with 0 when all is fine, 1 when it
failed, 2 when there are more findings than allowed, 3 when the input does not reach far enough.
"""

from __future__ import annotations

import json as json_library
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.terminal import FAILURE, Terminal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.jobs.result import JobResult
    from pipeline.replaying import GateSettings
    from pipeline.tables import Lake

LakeOption = Annotated[Path, typer.Option("--lake", metavar="DIR", help="Where the tables are; made when missing.")]
Spools = Annotated[list[Path], typer.Option("--spool", metavar="DIR", help="Folder with sealed segments; repeatable.")]
Master = Annotated[str, typer.Option(help="Spark master; empty: what spark-submit says, else local[*].")]
Memory = Annotated[str, typer.Option(help="Heap of the Spark driver.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Allowed = Annotated[int, typer.Option(help="Findings that are no reason for exit code 2.", min=0)]
Day = Annotated[str, typer.Option(help="UTC day, YYYY-MM-DD; empty: every day that needs it.")]
OneDay = Annotated[str, typer.Option(help="UTC day, YYYY-MM-DD.")]
Domain = Annotated[str, typer.Option(help="Our domain, where the lake has books of several.")]
Keys = Annotated[Path | None, typer.Option(metavar="FILE", help="Public keys of the nodes, JSON; or a folder of such.")]
Signed = Annotated[bool, typer.Option(help="Refuse segments whose signature cannot be checked.")]
Policy = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Policy file to try; repeatable.")]
Deployed = Annotated[list[Path] | None, typer.Option(metavar="FILE", help="Policy file that was in force; repeatable.")]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Settings of the node, for policies and peers that were in force.")
]

_EXTRA = frozenset({"deltalake", "jinja2", "matplotlib", "numpy", "pandas", "pyarrow", "pyspark"})
"""What the extra `pipeline` brings; anything else that is missing is a defect of ours."""

app = typer.Typer(
    help="What nodes wrote down: statements, reconciliation, policy replay, stub health, abuse.", no_args_is_help=True
)


@contextmanager
def _errors_told(*, as_json: bool) -> Iterator[None]:
    """What went wrong, as one line and exit code 1; defects of ours keep their traceback."""
    from pipeline.extract_file import ExtractError
    from pipeline.table_log import LakeError
    from protofly.errors import HostError

    try:
        yield
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.stderr.write(f"error: {exc.name} is not installed; `pip install 'trapezoid[pipeline]'` brings it\n")
        raise typer.Exit(FAILURE) from exc
    except (LakeError, ExtractError, HostError, OSError) as exc:
        detail = exc.detail if isinstance(exc, HostError) else str(exc)
        if as_json:
            sys.stdout.write(json_library.dumps({"exit_code": FAILURE, "error": detail}) + "\n")
        sys.stderr.write(f"error: {detail}\n")
        raise typer.Exit(FAILURE) from exc


@contextmanager
def _spark(
    folder: Path, master: str, memory: str, *, as_json: bool, spools: Sequence[Path] | None = ()
) -> Iterator[tuple[Lake, SparkSession]]:
    """A session and the lake. Spark is an extra of the distribution, and who has not got it is told how to.

    `spools` will be read, too; None: nobody knows how much there will be.
    """
    with _errors_told(as_json=as_json):
        from pipeline.session import bytes_in, start_session
        from pipeline.tables import Lake

        input_bytes = None if spools is None else bytes_in([folder, *spools])
        session = start_session(master or None, memory=memory, input_bytes=input_bytes)
        try:
            yield Lake(folder, session), session
        finally:
            session.stop()


def _one(
    name: str,
    work: Callable[[Lake, SparkSession], JobResult],
    lake: Path,
    master: str,
    memory: str,
    *,
    as_json: bool,
) -> None:
    """Run one job by itself."""
    terminal = Terminal(as_json=as_json)
    with _spark(lake, master, memory, as_json=as_json) as (opened, session):
        terminal.job(name, lambda: work(opened, session))
    terminal.end()


@app.command()
def synth(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to make; refused when there is something in it.")],
    rows: Annotated[int, typer.Option(help="Message records of all nodes together, about.")] = 200_000,
    domains: Annotated[int, typer.Option(help="Domains.")] = 50,
    faults: Annotated[bool, typer.Option(help="Plant faults, and write down which.")] = True,
    seed: Annotated[int, typer.Option(help="The same seed makes the same traffic.")] = 1,
    days: Annotated[int, typer.Option(help="Days of traffic.")] = 3,
    json: Json = False,
) -> None:
    """Make realistic traffic of several domains, sealed as nodes seal it, with a truth file to hold a pipeline to."""
    from rich.console import Console
    from rich.progress import Progress

    with _errors_told(as_json=json):
        from pipeline.synth.run import synth as make
        from pipeline.synth.world import SynthOptions

        options = SynthOptions(rows=rows, domains=domains, has_faults=faults, seed=seed, days=days)
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("messages", total=None)
            truth = make(
                options, out, on_progress=lambda done, total: progress.update(task, completed=done, total=total)
            )
    facts = {"folder": str(out), "records": truth.records, "cases": truth.cases, "matched": truth.matched}
    if json:
        sys.stdout.write(json_library.dumps(facts, indent=2) + "\n")
        return
    Console(stderr=True, highlight=False).print(
        f"{truth.records.get('mdr', 0):,} message records of {domains} domains in {out}\n"
        f"next: trapezoid pipeline run --spool {out / 'spool'} --keys {out / 'keys.json'} --lake LAKE",
        markup=False,
        soft_wrap=True,
    )


@app.command()
def run(
    spool: Spools,
    lake: LakeOption,
    keys: Keys = None,
    require_signatures: Signed = False,
    policy: Policy = None,
    deployed: Deployed = None,
    config: Config = None,
    out: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Default: report.html in the lake.")
    ] = None,
    allowed: Allowed = 0,
    master: Master = "",
    memory: Memory = "2g",
    json: Json = False,
) -> None:
    """Do all of it: ingest, refine, settle, reconcile, replay (with --policy), score, and write the report."""
    terminal = Terminal(as_json=json)
    with _errors_told(as_json=json):
        from pipeline.node_keys import load_trust

        old, new = _gates(config, deployed, policy)
        trust = load_trust(keys, requires_signatures=require_signatures)
    report = out or lake / "report.html"
    with _spark(lake, master, memory, as_json=json, spools=spool) as (opened, session):
        from pipeline.whole import WholeRun, jobs

        what = WholeRun(spools=spool, trust=trust, deployed=old, proposed=new, out=report, allowed=allowed)
        for name, work in jobs(opened, session, what):
            terminal.job(name, work)
    if report.is_file():
        terminal.end(report=str(report))
    terminal.end()


@app.command()
def ingest(
    spool: Spools,
    lake: LakeOption,
    keys: Keys = None,
    require_signatures: Signed = False,
    follow: Annotated[bool, typer.Option(help="Go on, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks with --follow.", min=0.1)] = 5.0,
    master: Master = "",
    memory: Memory = "2g",
    json: Json = False,
) -> None:
    """Verify segments and take them in, each once."""
    terminal = Terminal(as_json=json)
    with _errors_told(as_json=json):
        from pipeline.node_keys import load_trust

        trust = load_trust(keys, requires_signatures=require_signatures)
    with _spark(lake, master, memory, as_json=json, spools=None if follow else spool) as (opened, session):
        from pipeline.jobs import ingest as job

        if not follow:
            terminal.job("ingest", lambda: job.run(opened, session, spool, trust=trust))
        else:
            _follow(terminal, job.follow(opened, spool, trust=trust, wait=lambda: _slept(every)))
    terminal.end()


def _follow(terminal: Terminal, rounds: Iterator[JobResult]) -> None:
    """Tell of every round that brought something, until Ctrl-C."""
    try:
        for result in rounds:
            if result.rows:
                terminal.job("ingest", lambda result=result: result)  # type: ignore[misc]
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")


def _slept(seconds: float) -> bool:
    time.sleep(seconds)
    return True


@app.command()
def refine(lake: LakeOption, master: Master = "", memory: Memory = "2g", json: Json = False) -> None:
    """Make of ingested records good ones, each once."""

    def work(opened: Lake, session: SparkSession) -> JobResult:
        from pipeline.jobs import refine as job

        return job.run(opened, session)

    _one("refine", work, lake, master, memory, as_json=json)


@app.command()
def settle(
    lake: LakeOption,
    day: Day = "",
    restate: Annotated[bool, typer.Option(help="Give final days that have changed a new version.")] = False,
    master: Master = "",
    memory: Memory = "2g",
    json: Json = False,
) -> None:
    """Write hourly traffic and daily statements per domain pair."""

    def work(opened: Lake, session: SparkSession) -> JobResult:
        from pipeline.jobs import settle as job

        return job.run(opened, session, day=day or None, restate=restate)

    _one("settle", work, lake, master, memory, as_json=json)


@app.command()
def reconcile(
    lake: LakeOption,
    day: Day = "",
    peer: Annotated[str, typer.Option(help="Partner whose extracts of the day were imported.")] = "",
    domain: Domain = "",
    allowed: Allowed = 0,
    master: Master = "",
    memory: Memory = "2g",
    json: Json = False,
) -> None:
    """Compare what one domain sent with what the other received, and estimate the offsets of their clocks."""

    def work(opened: Lake, session: SparkSession) -> JobResult:
        from pipeline.jobs import exchange
        from pipeline.jobs import reconcile as job

        if not peer:
            return job.run(opened, session, day=day or None, allowed=allowed)
        ours = exchange.own_domain(opened, domain)
        return exchange.reconcile_with(
            opened, session, domain=ours, peer=peer, day=exchange.checked_day(day), allowed=allowed
        )

    _one("reconcile", work, lake, master, memory, as_json=json)


@app.command()
def export(
    lake: LakeOption,
    peer: Annotated[str, typer.Option(help="The partner's domain.")],
    day: OneDay,
    key: Annotated[Path, typer.Option(metavar="FILE", help="Our private Ed25519 key, PEM.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The extract to write.")],
    details: Annotated[bool, typer.Option(help="The records where totals differ; else the totals.")] = False,
    domain: Domain = "",
    master: Master = "",
    memory: Memory = "2g",
    json: Json = False,
) -> None:
    """Write a signed extract of one day with which a partner can reconcile: totals first, then details."""

    def work(opened: Lake, _session: SparkSession) -> JobResult:
        from pipeline.jobs import exchange as job
        from pipeline.partner_keys import load_signing_key

        write = job.export_details if details else job.export_totals
        ours = job.own_domain(opened, domain)
        return write(opened, domain=ours, peer=peer, day=job.checked_day(day), key=load_signing_key(key), out=out)

    _one("export", work, lake, master, memory, as_json=json)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="The partner's extract.")],
    lake: LakeOption,
    peer: Annotated[str, typer.Option(help="The partner's domain.")],
    day: OneDay,
    peer_key: Annotated[str, typer.Option(help="The partner's public key, base64url; not from the partner's file.")],
    domain: Domain = "",
    master: Master = "",
    memory: Memory = "2g",
    json: Json = False,
) -> None:
    """Verify a partner's extract and take it in, whole or not at all."""

    def work(opened: Lake, _session: SparkSession) -> JobResult:
        from pipeline.jobs import exchange as job
        from pipeline.partner_keys import public_key

        ours = job.own_domain(opened, domain)
        checked = job.checked_day(day)
        return job.import_extract(opened, file, domain=ours, peer=peer, day=checked, peer_key=public_key(peer_key))

    _one("import", work, lake, master, memory, as_json=json)


@app.command()
def replay(
    lake: LakeOption,
    policy: Policy = None,
    deployed: Deployed = None,
    config: Config = None,
    domain: Annotated[str, typer.Option(help="Only the books of this domain.")] = "",
    allowed: Allowed = 0,
    master: Master = "",
    memory: Memory = "2g",
    json: Json = False,
) -> None:
    """Try a policy on recorded traffic, with the node's own engine, after a self-check of the deployed one."""

    def work(opened: Lake, session: SparkSession) -> JobResult:
        from pipeline.jobs import replay as job
        from protofly.errors import SettingsError

        old, new = _gates(config, deployed, policy)
        if old is None or new is None:
            raise SettingsError(
                "name the policy to try with --policy, and what was in force with --deployed or --config"
            )
        return job.run(opened, session, old, new, domain=domain, allowed=allowed)

    _one("replay", work, lake, master, memory, as_json=json)


def _gates(
    config: Path | None, deployed: Sequence[Path] | None, policy: Sequence[Path] | None
) -> tuple[GateSettings | None, GateSettings | None]:
    """What was in force, and what is proposed; the peers of the proposal are those that were in force."""
    from pipeline.gate_settings import from_node_settings, from_policy_files

    old = from_node_settings(config) if config is not None else None
    if deployed:
        old = from_policy_files(deployed, like=old)
    return old, from_policy_files(policy, like=old) if policy else None


@app.command()
def stubs(
    lake: LakeOption,
    baseline: Annotated[str, typer.Option(help="Beginning of the stub version to compare with.")] = "",
    candidate: Annotated[str, typer.Option(help="Beginning of the stub version to judge.")] = "",
    master: Master = "",
    memory: Memory = "2g",
    json: Json = False,
) -> None:
    """Score stub versions, and say whether the newest one is worse than the one before it."""

    def work(opened: Lake, session: SparkSession) -> JobResult:
        from pipeline.jobs import stubs as job

        return job.run(opened, session, baseline=baseline, candidate=candidate)

    _one("stubs", work, lake, master, memory, as_json=json)


@app.command()
def abuse(
    lake: LakeOption, allowed: Allowed = 0, master: Master = "", memory: Memory = "2g", json: Json = False
) -> None:
    """Look for fan-out, scanning, spoofing and floods against what is usual for each peer."""

    def work(opened: Lake, session: SparkSession) -> JobResult:
        from pipeline.jobs import abuse as job

        return job.run(opened, session, allowed=allowed)

    _one("abuse", work, lake, master, memory, as_json=json)


@app.command()
def audit(lake: LakeOption, master: Master = "", memory: Memory = "2g", json: Json = False) -> None:
    """Look for gaps, lost records and broken chains in the books themselves."""

    def work(opened: Lake, session: SparkSession) -> JobResult:
        from pipeline.jobs import audit as job

        return job.run(opened, session)

    _one("audit", work, lake, master, memory, as_json=json)


@app.command()
def compact(lake: LakeOption, master: Master = "", memory: Memory = "2g", json: Json = False) -> None:
    """Make few large files of many small ones, and remove files that no version names any more."""

    def work(opened: Lake, session: SparkSession) -> JobResult:
        from pipeline.jobs import compact as job

        return job.run(opened, session)

    _one("compact", work, lake, master, memory, as_json=json)


@app.command()
def retention(
    lake: LakeOption,
    days: Annotated[int, typer.Option(help="Days before today (UTC) that stay.", min=0)],
    master: Master = "",
    memory: Memory = "2g",
    json: Json = False,
) -> None:
    """Drop old days from every table that names senders, receivers or single messages."""

    def work(opened: Lake, session: SparkSession) -> JobResult:
        from pipeline.jobs import retention as job

        return job.run(opened, session, today=datetime.now(UTC).date(), keep_days=days)

    _one("retention", work, lake, master, memory, as_json=json)


@app.command()
def report(
    lake: LakeOption,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Default: report.html in the lake.")] = None,
    master: Master = "",
    memory: Memory = "2g",
    json: Json = False,
) -> None:
    """Write one HTML file about everything that the lake holds."""
    target = out or lake / "report.html"

    def work(opened: Lake, session: SparkSession) -> JobResult:
        from pipeline.jobs import report as job

        return job.run(opened, session, out=target)

    terminal = Terminal(as_json=json)
    with _spark(lake, master, memory, as_json=json) as (opened, session):
        terminal.job("report", lambda: work(opened, session))
    terminal.end(report=str(target))
