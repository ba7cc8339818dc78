"""`trapezoid pipeline …`: one command for each job, and one for all of them.

Every command prints a line for each job, or with `--json` one object. Exit codes: 0 for success, 1 for more
findings than allowed, 2 for a failure or a wrong call, 3 for input that is not complete.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli import analysts, billing, nodes, partners, serve
from pipeline.cli.option_groups import grouped
from pipeline.cli.options import (
    Allowed,
    Day,
    Json,
    LakeOption,
    Location,
    PolicyOptions,
    SegmentSource,
    SparkOptions,
    Vouched,
    place,
)
from pipeline.cli.runs import Commands, errors_reported, one_job, opened_lake, vouched
from pipeline.cli.terminal import Terminal
from pipeline.core.utc_days import checked_day
from pipeline.lake.store_path import REPORT_NAME

if TYPE_CHECKING:
    from pipeline.columns.replaying import GateSettings
    from pipeline.jobs.result import JobResult
    from pipeline.lake.tables import Lake

app = typer.Typer(
    cls=Commands,
    help="Evaluate audit records with Spark: statements, reconciliation, policy replay, stub health, abuse.",
    no_args_is_help=True,
)


@app.command()
@grouped
def run(
    source: SegmentSource,
    spark: SparkOptions,
    policies: PolicyOptions,
    vouch: Vouched = None,
    out: Annotated[
        Location | None,
        typer.Option(
            "--report", metavar="FILE", help="Report to write. Default: report.html in the lake.", parser=place
        ),
    ] = None,
    allowed: Allowed = 0,
) -> None:
    """Run all jobs: ingest, refine, settle, reconcile, replay (with --policy), stubs, abuse and report."""
    terminal = Terminal(as_json=spark.json)
    with errors_reported(as_json=spark.json):
        from pipeline.segments.node_keys import load_trust

        old, new = _gates(policies)
        trust = load_trust(source.keys, requires_signatures=source.require_signatures)
    report = out or spark.lake / REPORT_NAME
    word = vouched(vouch, as_json=spark.json)
    with opened_lake(spark, spools=source.spool, makes=True) as opened:
        from pipeline.jobs.whole import WholeRun, jobs

        what = WholeRun(
            spools=source.spool, trust=trust, deployed=old, proposed=new, out=report, allowed=allowed, declared=word
        )
        is_reported = False
        for name, work in jobs(opened, what):
            terminal.job(name, work)
            is_reported = name == "report"
    if is_reported:
        hint = {} if spark.json else {"next": f"trapezoid pipeline statements --lake {spark.lake}"}
        terminal.end(report=str(report), **hint)
    terminal.end()


@app.command()
@grouped
def ingest(
    source: SegmentSource,
    spark: SparkOptions,
    follow: Annotated[bool, typer.Option(help="Continue until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(help="Interval in seconds, with --follow.", min=0.1)] = 5.0,
) -> None:
    """Verify record segments and load each once."""
    terminal = Terminal(as_json=spark.json)
    with errors_reported(as_json=spark.json):
        from pipeline.segments.node_keys import load_trust

        trust = load_trust(source.keys, requires_signatures=source.require_signatures)
    with opened_lake(spark, spools=None if follow else source.spool, makes=True) as opened:
        from pipeline.jobs import ingest as job

        if not follow:
            terminal.job("ingest", lambda: job.run(opened, source.spool, trust=trust))
        else:
            _follow(terminal, job.follow(opened, source.spool, trust=trust, wait=lambda: _slept(every)))
    terminal.end()


def _follow(terminal: Terminal, rounds: Iterator[JobResult]) -> None:
    """Report every round that loaded rows, until Ctrl-C."""
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
def pack(
    out: Annotated[Path, typer.Option(metavar="FILE", help="Archive to write.")] = Path("trapezoid-pipeline.tar.gz"),
) -> None:
    """Write one archive with this package and its libraries, for clusters whose machines do not have them."""
    with errors_reported(as_json=False):
        from pipeline.spark.pack import pack as write
        from pipeline.spark.pack import python_version

        files = write(out)
    sys.stderr.write(
        f"{out}: {files:,} files, {out.stat().st_size >> 20} MiB; machines need Spark and Python {python_version()}\n"
        f"next: trapezoid pipeline run --master spark://HOST:7077 --archive {out} …\n"
    )


@app.command()
@grouped
def refine(spark: SparkOptions) -> None:
    """Remove duplicates from ingested message records (bronze to silver)."""

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import refine as job

        return job.run(opened)

    one_job("refine", spark, work)


@app.command()
@grouped
def settle(
    spark: SparkOptions,
    day: Day = "",
    restate: Annotated[bool, typer.Option(help="Write a new version of final days that have changed.")] = False,
    vouch: Vouched = None,
    quarter_hours: Annotated[
        bool,
        typer.Option("--quarter-hours", help="From now on keep traffic by quarters of an hour, too: for some zones."),
    ] = False,
) -> None:
    """Compute hourly traffic and daily statements per domain pair."""
    with errors_reported(as_json=spark.json):
        if day:
            checked_day(day)
    word = vouched(vouch, as_json=spark.json)

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import settle as job

        return job.run(opened, day=day or None, restate=restate, declared=word, quarters=quarter_hours)

    one_job("settle", spark, work)


app.add_typer(nodes.app, name="nodes")
app.command()(serve.serve)
app.command()(serve.exchange)
app.command()(analysts.views)
app.command()(analysts.dictionary)
app.command()(analysts.sql)
app.command()(partners.reconcile)
app.command()(partners.statements)
app.command()(billing.invoice)
app.command("bill-of-theirs")(billing.bill_of_theirs)
app.command("bill-returned")(billing.bill_returned)
app.command("bill-concede")(billing.bill_concede)
app.command()(partners.usage)
app.command("usage-of-ours")(partners.usage_of_ours)
app.command("block-list")(partners.block_list)
app.command()(partners.export)
app.command("import")(partners.import_)


@app.command()
@grouped
def transfers(
    spark: SparkOptions,
    first: Annotated[str, typer.Option("--from", help="First UTC day, YYYY-MM-DD. Default: all days.")] = "",
    last: Annotated[str, typer.Option("--until", help="Last UTC day, YYYY-MM-DD. Default: that one day.")] = "",
    peer: Annotated[str, typer.Option(help="Only what left for this domain.")] = "",
) -> None:
    """Report the data with labels that left for other domains: by day, partner, label, purpose and basis."""
    with errors_reported(as_json=spark.json):
        from pipeline.jobs.transfers import days_between

        days = days_between(first, last)

    terminal = Terminal(as_json=spark.json)
    with opened_lake(spark) as lake:
        from pipeline.cli.row_text import rows_text
        from pipeline.jobs import transfers as job

        result = terminal.job("transfers", lambda: job.run(lake, days=days, peer=peer))
    if not spark.json:
        sys.stdout.write(rows_text(result.details["transfers"]))
    terminal.end()


@app.command()
@grouped
def replay(
    spark: SparkOptions,
    policies: PolicyOptions,
    domain: Annotated[str, typer.Option(help="Only records of this domain.")] = "",
    allowed: Allowed = 0,
) -> None:
    """Evaluate a policy on recorded traffic with the node's own engine, after a self-check of the deployed policy."""

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import replay as job
        from protofly.errors import SettingsError

        old, new = _gates(policies)
        if old is None or new is None:
            raise SettingsError(
                "name the policy to try with --policy, and what was in force with --deployed or --config"
            )
        return job.run(opened, old, new, domain=domain, allowed=allowed)

    one_job("replay", spark, work)


def _gates(policies: PolicyOptions) -> tuple[GateSettings | None, GateSettings | None]:
    """What was in force, and what is proposed; the peers of the proposal are those that were in force."""
    from pipeline.cli.gate_settings import from_node_settings, from_policy_files

    old = from_node_settings(policies.config) if policies.config is not None else None
    if policies.deployed:
        old = from_policy_files(policies.deployed, like=old)
    return old, from_policy_files(policies.policy, like=old) if policies.policy else None


@app.command()
@grouped
def stubs(
    spark: SparkOptions,
    baseline: Annotated[
        str, typer.Option(help="Prefix of the stub version to compare with. Default: the previous one.")
    ] = "",
    candidate: Annotated[str, typer.Option(help="Prefix of the stub version to judge. Default: the newest one.")] = "",
) -> None:
    """Score stub versions, and compare the newest one of each peer with the previous one."""

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import stubs as job

        return job.run(opened, baseline=baseline, candidate=candidate)

    one_job("stubs", spark, work)


@app.command()
@grouped
def abuse(spark: SparkOptions, allowed: Allowed = 0) -> None:
    """Detect fan-out, scanning, spoofing and floods, compared with the usual traffic of each peer."""

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import abuse as job

        return job.run(opened, allowed=allowed)

    one_job("abuse", spark, work)


@app.command()
@grouped
def audit(
    spark: SparkOptions,
    full: Annotated[
        bool, typer.Option("--full", help="Compare all that is stored with the ledger, not only changes.")
    ] = False,
) -> None:
    """Report gaps, lost records and broken chains of the ingested segments, and whether their rows are stored."""

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import audit as job

        return job.run(opened, is_full=full)

    one_job("audit", spark, work)


@app.command()
@grouped
def compact(spark: SparkOptions) -> None:
    """Merge small files of tables, and delete files that no recent version uses."""

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import compact as job

        return job.run(opened)

    one_job("compact", spark, work)


@app.command()
@grouped
def retention(
    spark: SparkOptions,
    days: Annotated[int, typer.Option(help="Number of days before today (UTC) to keep.", min=0)],
) -> None:
    """Delete old days from every table that names senders, receivers or single messages."""

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import retention as job

        return job.run(opened, today=datetime.now(UTC).date(), keep_days=days)

    one_job("retention", spark, work)


@app.command()
@grouped
def erase(
    person: Annotated[
        list[str], typer.Argument(metavar="ADDRESS", help="Address of the person, or its hash. Repeatable.")
    ],
    spark: SparkOptions,
    why: Annotated[str, typer.Option(help="Reason; it is kept with the account that runs the command.")],
    spool: Annotated[
        list[Location] | None,
        typer.Option("--spool", metavar="DIR", help="Folder with segments to remove. Repeatable.", parser=place),
    ] = None,
) -> None:
    """Erase a person's addresses from all tables, and the segments with the person's records from spools."""

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import erase as job

        return job.run(opened, person, why=why, spools=spool or ())

    one_job("erase", spark, work)


@app.command()
def show(
    lake: LakeOption,
    table: Annotated[str, typer.Argument(help="Table to print. Default: list all tables.")] = "",
    day: Annotated[str, typer.Option(help="Only rows of this UTC day, YYYY-MM-DD.")] = "",
    where: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Only rows with this value. Repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of rows.", min=1)] = 20,
    json: Json = False,
) -> None:
    """List the tables of a lake, or print rows of one. Needs no Spark and changes nothing."""
    terminal = Terminal(as_json=json)
    with errors_reported(as_json=json):
        from pipeline.cli.row_text import rows_text, tables_text
        from pipeline.jobs import show as job
        from pipeline.lake.lake_files import LakeFiles

        conditions = _conditions(where or ())
        if day:
            checked_day(day)
        opened = LakeFiles.of(lake)
        if table:
            result = terminal.job("show", lambda: job.rows(opened, table, day=day, where=conditions, limit=limit))
        else:
            result = terminal.job("show", lambda: job.tables(opened))
    if not json:
        sys.stdout.write(rows_text(result.details["rows"]) if table else tables_text(result.details["tables"]))
    terminal.end()


def _conditions(where: Sequence[str]) -> dict[str, str]:
    from protofly.errors import SettingsError

    conditions = {}
    for one in where:
        name, sign, value = one.partition("=")
        if not sign:
            raise SettingsError(f"--where {one} is no condition: write it as COLUMN=VALUE")
        conditions[name] = value
    return conditions


@app.command()
@grouped
def report(
    spark: SparkOptions,
    out: Annotated[
        Location | None,
        typer.Option(metavar="FILE", help="Report to write. Default: report.html in the lake.", parser=place),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3660, help="So many of the newest days.")] = 31,
) -> None:
    """Write an HTML report about the newest days in the lake."""
    target = out or spark.lake / REPORT_NAME

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import report as job

        return job.run(opened, out=target, days=days)

    terminal = Terminal(as_json=spark.json)
    with opened_lake(spark) as opened:
        terminal.job("report", lambda: work(opened))
    terminal.end(report=str(target))
