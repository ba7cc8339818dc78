"""Commands about partners: statements, reconciliation, export and import of extracts."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.option_groups import grouped
from pipeline.cli.options import Allowed, Day, Domain, Json, LakeOption, OneDay, SparkOptions, Vouched
from pipeline.cli.runs import errors_reported, one_job, vouched
from pipeline.cli.terminal import Terminal
from pipeline.core.utc_days import checked_day
from protofly.errors import SettingsError

if TYPE_CHECKING:
    from pipeline.jobs.result import JobResult
    from pipeline.lake.store_path import Location
    from pipeline.lake.tables import Lake


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeDay:
    """Options that say whose records of which day are exchanged."""

    peer: Annotated[str, typer.Option(help="Domain of the partner.")]
    day: OneDay
    domain: Domain = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerated:
    """Options that say what is no finding."""

    allowed: Allowed = 0
    tolerate: Annotated[
        list[str] | None,
        typer.Option(metavar="CLASS=N", help="So many cases of a class are no finding; can be given several times."),
    ] = None


@grouped
def reconcile(
    spark: SparkOptions,
    tolerated: Tolerated,
    day: Day = "",
    peer: Annotated[str, typer.Option(help="Partner whose extracts of --day were imported.")] = "",
    domain: Domain = "",
    vouch: Vouched = None,
) -> None:
    """Compare the records of sending and receiving domains, and estimate the offsets of their clocks."""
    with errors_reported(as_json=spark.json):
        if day or peer:
            checked_day(day)
        from pipeline.core.tolerance import read_tolerance

        tolerance = read_tolerance(tolerated.allowed, tolerated.tolerate or ())
    word = vouched(vouch, as_json=spark.json)

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import exchange
        from pipeline.jobs import reconcile as job

        if not peer:
            return job.run(opened, day=day or None, tolerance=tolerance, declared=word)
        of = exchange.PartnerDay(exchange.own_domain(opened, domain), peer, day)
        return exchange.reconcile_with(opened, of, tolerance=tolerance, declared=word)

    one_job("reconcile", spark, work)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementDays:
    """Options that choose days of statements."""

    day: Annotated[str, typer.Option(help="UTC day, YYYY-MM-DD.")] = ""
    from_: Annotated[str, typer.Option("--from", help="First day, in place of --day.")] = ""
    until: Annotated[str, typer.Option(help="Last day, inclusive.")] = ""
    month: Annotated[str, typer.Option(help="Month, YYYY-MM, in place of days.")] = ""
    zone: Annotated[
        str, typer.Option(help="Zone whose midnights cut days, such as Europe/Berlin; shows sums. Default: UTC.")
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementKinds:
    """Options that choose among the statements of a day."""

    domain: Annotated[str, typer.Option(help="Only statements of this domain.")] = ""
    peer: Annotated[str, typer.Option(help="Only statements with this partner.")] = ""
    version: Annotated[int | None, typer.Option(help="Version to show. Default: the newest of each day.", min=1)] = None
    drafts: Annotated[bool, typer.Option("--drafts", help="Include drafts, which may still change.")] = False


@grouped
def statements(
    lake: LakeOption,
    days: StatementDays,
    kinds: StatementKinds,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON lines to write; equal statements give equal bytes.")
    ] = None,
    json: Json = False,
) -> None:
    """Show daily statements, or write them to a file to settle by. Needs no Spark and does not change the lake."""
    terminal = Terminal(as_json=json)
    with errors_reported(as_json=json):
        from pipeline.cli.statement_text import statements_text
        from pipeline.core.statement_choice import Wanted
        from pipeline.jobs import statements as job
        from pipeline.lake.lake_files import LakeFiles

        first, last = _named_days(days)
        if days.zone:
            if kinds.version or kinds.drafts or out:
                raise SettingsError("days of a zone have no versions: leave --version, --drafts and --out out")
            _business(lake, (first, last), days.zone, kinds, as_json=json)
            return
        wanted = Wanted(
            from_day=first,
            until_day=last,
            domain=kinds.domain,
            peer=kinds.peer,
            version=kinds.version,
            drafts=kinds.drafts,
        )
        result = terminal.job("statements", lambda: job.run(LakeFiles.of(lake), wanted, out=out))
    found = result.details
    if not json and found["statements"]:
        sys.stdout.write(statements_text(found["statements"], found["totals"]) + "\n")
        where = {"out": found["out"]} if "out" in found else {}
        terminal.end(bytes=f"{found['bytes']:,}", sha256=found["sha256"], **where)
    terminal.end()


def _named_days(days: StatementDays) -> tuple[str, str]:
    """The first and the last day. Raises SettingsError."""
    from pipeline.core.business_time import month_days
    from pipeline.core.statement_choice import wanted_days

    if not days.month:
        return wanted_days(days.day, days.from_, days.until)
    if days.day or days.from_ or days.until:
        raise SettingsError("name either days or a --month")
    return month_days(days.month)


def _business(lake: Location, named: tuple[str, str], zone: str, kinds: StatementKinds, *, as_json: bool) -> None:
    """Show what was exchanged on days of a zone."""
    from pipeline.cli.statement_text import totals_text
    from pipeline.cli.zones import zone_of
    from pipeline.core.business_time import BusinessDays
    from pipeline.jobs import business as job
    from pipeline.lake.lake_files import LakeFiles

    if not all(named):
        raise SettingsError("with --zone name days, or a --month")
    terminal = Terminal(as_json=as_json)
    days = BusinessDays(*named, zone_of(zone))
    result = terminal.job("statements", lambda: job.run(LakeFiles.of(lake), days, domain=kinds.domain, peer=kinds.peer))
    if not as_json and result.details["totals"]:
        sys.stdout.write(totals_text(result.details["totals"], result.outcome))
    terminal.end()


@grouped
def export(
    spark: SparkOptions,
    partner: ExchangeDay,
    key: Annotated[Path, typer.Option(metavar="FILE", help="Our private Ed25519 key (PEM).")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Extract to write; must not exist.")],
    details: Annotated[
        bool, typer.Option(help="Export the records where totals differ, in place of the totals.")
    ] = False,
    vouch: Vouched = None,
) -> None:
    """Write a signed extract of one day for reconciliation by a partner: totals first, then details."""
    with errors_reported(as_json=spark.json):
        from pipeline.partners.keys import load_signing_key

        checked_day(partner.day)
        signing_key = load_signing_key(key)
        if details and vouch:
            raise SettingsError("details say what their totals said: --vouch belongs to the export of totals")
    word = vouched(vouch, as_json=spark.json)

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import exchange as job

        write = job.export_details if details else partial(job.export_totals, declared=word)
        of = job.PartnerDay(job.own_domain(opened, partner.domain), partner.peer, partner.day)
        return write(opened, of, key=signing_key, out=out)

    one_job("export", spark, work)


@grouped
def import_(
    file: Annotated[Path, typer.Argument(help="Extract of the partner.")],
    spark: SparkOptions,
    partner: ExchangeDay,
    peer_key: Annotated[
        str, typer.Option(help="Public key of the partner (base64url), received separately from the extract.")
    ],
) -> None:
    """Verify a partner's extract and import it as a whole, or refuse it."""
    with errors_reported(as_json=spark.json):
        from pipeline.partners.keys import public_key

        checked_day(partner.day)
        trusted = public_key(peer_key)

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import exchange as job

        of = job.PartnerDay(job.own_domain(opened, partner.domain), partner.peer, partner.day)
        return job.import_extract(opened, file, of, peer_key=trusted)

    one_job("import", spark, work)


@dataclass(frozen=True, slots=True, kw_only=True)
class HighUsage:
    """Options that say from where on a sender sent very much."""

    hours: Annotated[float, typer.Option(help="Look so many hours back.")] = 4.0
    messages: Annotated[int, typer.Option(help="Name senders from so many messages on.", min=1)] = 1_000
    bytes_: Annotated[int, typer.Option("--bytes", help="Name senders from so many bytes on, too.", min=0)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTarget:
    """Options that say where a report goes."""

    out: Annotated[Path | None, typer.Option(metavar="FILE", help="File for the report.")] = None
    to: Annotated[str, typer.Option(metavar="URL", help="URL of the partner's that gets the report by POST.")] = ""


@grouped
def usage(
    spark: SparkOptions,
    peer: Annotated[str, typer.Option(help="Domain of the partner.")],
    high: HighUsage,
    key: Annotated[Path, typer.Option(metavar="FILE", help="Our private Ed25519 key (PEM).")],
    target: ReportTarget,
    domain: Domain = "",
) -> None:
    """Report a partner's senders with very high usage in the last hours, signed and without addresses."""
    with errors_reported(as_json=spark.json):
        from pipeline.jobs.usage import watched_period
        from pipeline.partners.keys import load_signing_key

        if target.to and not target.to.startswith("https://"):
            raise SettingsError("--to is an https URL of the partner's")
        signing_key = load_signing_key(key)
        from_us, until_us = watched_period(high.hours)

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import usage as job
        from pipeline.jobs.exchange import own_domain

        of = job.Watched(
            domain=own_domain(opened, domain),
            peer=peer,
            from_us=from_us,
            until_us=until_us,
            messages=high.messages,
            bytes=high.bytes_,
        )
        return job.run(opened, of, key=signing_key, out=target.out, url=target.to)

    one_job("usage", spark, work)


@grouped
def usage_of_ours(
    file: Annotated[Path, typer.Argument(help="Report of the partner.")],
    spark: SparkOptions,
    peer: Annotated[str, typer.Option(help="Domain of the partner.")],
    peer_key: Annotated[
        str, typer.Option(help="Public key of the partner (base64url), received separately from the report.")
    ],
    domain: Domain = "",
) -> None:
    """Find the senders named by a partner's report of high usage in our own records."""
    with errors_reported(as_json=spark.json):
        from pipeline.partners.keys import public_key

        trusted = public_key(peer_key)

    def work(opened: Lake) -> JobResult:
        from pipeline.jobs import usage as job
        from pipeline.jobs.exchange import own_domain
        from pipeline.partners.usage_file import read_usage

        report = read_usage(file, peer_key=trusted, domain=own_domain(opened, domain), peer=peer)
        return job.look_up(opened, report)

    one_job("usage", spark, work)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDomains:
    """Options that say who is on a block list."""

    days: Annotated[int, typer.Option(help="Count alerts of so many days.", min=1, max=366)] = 7
    alerts: Annotated[int, typer.Option(help="List domains with so many severe alerts.", min=1)] = 3
    hours: Annotated[float, typer.Option(help="The list is valid so long.")] = 24.0


@grouped
def block_list(
    lake: LakeOption,
    key: Annotated[Path, typer.Option(metavar="FILE", help="Our private Ed25519 key (PEM).")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="List to write; a web server gives it to subscribers.")],
    domain: Annotated[str, typer.Option(help="Our domain, the author.")],
    listed: ListedDomains,
    json: Json = False,
) -> None:
    """Write a signed list of domains to block, for nodes of other operators that subscribe to it. Needs no Spark."""
    terminal = Terminal(as_json=json)
    with errors_reported(as_json=json):
        from pipeline.jobs import block_list as job
        from pipeline.lake.lake_files import LakeFiles
        from pipeline.partners.keys import load_signing_key

        signing_key, opened = load_signing_key(key), LakeFiles.of(lake)
        rule = job.Listed(days=listed.days, alerts=listed.alerts, hours=listed.hours)
        terminal.job("block-list", lambda: job.run(opened, rule, author=domain, key=signing_key, out=out))
    terminal.end()
