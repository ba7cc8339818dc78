"""What the settings of `serve` mean for jobs that other operators notice: exchange, reports of usage, block list."""

from __future__ import annotations

from pathlib import Path

from pipeline.jobs import block_list, usage
from pipeline.jobs.partners import Exchanging
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake.lake_files import LakeFiles
from pipeline.lake.tables import Lake
from pipeline.partners.folders import PartnerFolders
from pipeline.partners.keys import load_signing_key
from pipeline.serving.settings import ServeSettings
from protofly.errors import SettingsError


def exchange_of(settings: ServeSettings, peer: str = "") -> Exchanging:
    """Collect the terms of the exchange from the settings; `peer` selects one partner.

    Raises:
        SettingsError: There is nobody, or our key cannot be used.
    """
    if settings.exchange is None:
        raise SettingsError("the settings have no [exchange]: add it, with our domain and key")
    partners = [one for one in settings.partner if peer in {"", one.domain}]
    if not partners:
        raise SettingsError(f"the settings have no [[partner]]{f' {peer}' if peer else ''}")
    return Exchanging(settings=settings.exchange, partners=partners, key=load_signing_key(Path(settings.exchange.key)))


def report_usage(lake: Lake, what: Exchanging) -> JobResult:
    """Make the reports of high usage that are due, for the next exchange to hand over.

    Raises:
        LakeError: As the lake does.
        OSError: A report cannot be written.
    """
    result = JobResult(usage.APP)
    named = 0
    for partner in what.partners:
        if partner.usage is None:
            continue
        from_us, until_us = usage.watched_period(partner.usage.hours, int(what.clock() * 1e6))
        of = usage.Watched(
            domain=what.settings.domain,
            peer=partner.domain,
            from_us=from_us,
            until_us=until_us,
            messages=partner.usage.messages,
            bytes=partner.usage.bytes,
        )
        put = PartnerFolders.of(what.settings, partner.domain).put_content
        done = usage.report_news(lake, of, key=what.key, put=put)
        for table, rows in done.rows.items():
            result.wrote(table, rows, done.versions[table])
        named += done.findings
        result.warnings += [f"{partner.domain}: {line}" for line in done.warnings]
    result.findings = named
    result.outcome = f"{named:,} senders reported to their domains"
    if named:
        result.exit_code = ExitCode.FINDINGS
    return result


def publish_list(lake: LakeFiles, settings: ServeSettings) -> JobResult:
    """Publish our block list.

    Raises:
        SettingsError: There is none in the settings, or our key cannot be used.
        LakeError: As the lake does.
        OSError: It cannot be written.
    """
    if settings.block_list is None or settings.exchange is None:
        raise SettingsError("the settings have no [block_list] or no [exchange]: both are needed to publish one")
    listing, exchange = settings.block_list, settings.exchange
    rule = block_list.Listed(days=listing.days, alerts=listing.alerts, hours=listing.hours)
    key = load_signing_key(Path(exchange.key))
    return block_list.run(lake, rule, author=exchange.domain, key=key, out=Path(listing.out))
