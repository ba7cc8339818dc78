"""Commands for what one has with a partner: statements, reconciliation, extracts out and in."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.command_options import Allowed, Day, Domain, Json, LakeOption, Master, Memory, OneDay, Vouched
from pipeline.command_runs import errors_told, one_job, vouched
from pipeline.core.utc_days import checked_day
from pipeline.terminal import Terminal
from protofly.errors import SettingsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.jobs.result import JobResult
    from pipeline.tables import Lake


def reconcile(
    lake: LakeOption,
    day: Day = "",
    peer: Annotated[str, typer.Option(help="Partner whose extracts of the day were imported.")] = "",
    domain: Domain = "",
    vouch: Vouched = None,
    allowed: Allowed = 0,
    master: Master = "",
    memory: Memory = "2g",
    json: Json = False,
) -> None:
    """Compare what one domain sent with what the other received, and estimate the offsets of their clocks."""
    with errors_told(as_json=json):
        if day or peer:
            checked_day(day)
    word = vouched(vouch, as_json=json)

    def work(opened: Lake, session: SparkSession) -> JobResult:
        from pipeline.jobs import exchange
        from pipeline.jobs import reconcile as job

        if not peer:
            return job.run(opened, session, day=day or None, allowed=allowed, declared=word)
        ours = exchange.own_domain(opened, domain)
        return exchange.reconcile_with(opened, session, domain=ours, peer=peer, day=day, allowed=allowed, declared=word)

    one_job("reconcile", work, lake, master, memory, as_json=json)


def statements(
    lake: LakeOption,
    day: Annotated[str, typer.Option(help="UTC day, YYYY-MM-DD.")] = "",
    from_: Annotated[str, typer.Option("--from", help="First day, instead of --day.")] = "",
    until: Annotated[str, typer.Option(help="Last day, itself included.")] = "",
    domain: Annotated[str, typer.Option(help="Only the statements of this domain.")] = "",
    peer: Annotated[str, typer.Option(help="Only those with this partner.")] = "",
    version: Annotated[int | None, typer.Option(help="This version; otherwise the newest of each day.", min=1)] = None,
    drafts: Annotated[bool, typer.Option("--drafts", help="Drafts, too; they may still change.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write them as JSON lines, the same bytes everywhere.")
    ] = None,
    json: Json = False,
) -> None:
    """Show the daily statements, or write those that one settles by. Needs no Spark and changes nothing in the lake."""
    terminal = Terminal(as_json=json)
    with errors_told(as_json=json):
        from pipeline.core.statement_choice import Wanted, wanted_days
        from pipeline.jobs import statements as job
        from pipeline.lake_files import LakeFiles
        from pipeline.statement_text import statements_text

        first, last = wanted_days(day, from_, until)
        wanted = Wanted(from_day=first, until_day=last, domain=domain, peer=peer, version=version, drafts=drafts)
        result = terminal.job("statements", lambda: job.run(LakeFiles.of(lake), wanted, out=out))
    told = result.details
    if not json and told["statements"]:
        sys.stdout.write(statements_text(told["statements"], told["totals"]) + "\n")
        where = {"out": told["out"]} if "out" in told else {}
        terminal.end(bytes=f"{told['bytes']:,}", sha256=told["sha256"], **where)
    terminal.end()


def export(
    lake: LakeOption,
    peer: Annotated[str, typer.Option(help="The partner's domain.")],
    day: OneDay,
    key: Annotated[Path, typer.Option(metavar="FILE", help="Our private Ed25519 key, PEM.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The extract to write.")],
    details: Annotated[bool, typer.Option(help="The records where totals differ; else the totals.")] = False,
    domain: Domain = "",
    vouch: Vouched = None,
    master: Master = "",
    memory: Memory = "2g",
    json: Json = False,
) -> None:
    """Write a signed extract of one day with which a partner can reconcile: totals first, then details."""
    with errors_told(as_json=json):
        from pipeline.partner_keys import load_signing_key

        checked_day(day)
        signing_key = load_signing_key(key)
        if details and vouch:
            raise SettingsError("details say what their totals said: --vouch belongs to the export of totals")
    word = vouched(vouch, as_json=json)

    def work(opened: Lake, _session: SparkSession) -> JobResult:
        from pipeline.jobs import exchange as job

        write = job.export_details if details else partial(job.export_totals, declared=word)
        return write(opened, domain=job.own_domain(opened, domain), peer=peer, day=day, key=signing_key, out=out)

    one_job("export", work, lake, master, memory, as_json=json)


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
    with errors_told(as_json=json):
        from pipeline.partner_keys import public_key

        checked_day(day)
        trusted = public_key(peer_key)

    def work(opened: Lake, _session: SparkSession) -> JobResult:
        from pipeline.jobs import exchange as job

        ours = job.own_domain(opened, domain)
        return job.import_extract(opened, file, domain=ours, peer=peer, day=day, peer_key=trusted)

    one_job("import", work, lake, master, memory, as_json=json)
