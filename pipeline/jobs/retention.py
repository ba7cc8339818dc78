"""Retention: days older than allowed go, from every table that names senders, receivers or single messages.

Together with rotating the key with which nodes hash addresses this is what makes old traffic forgotten: hashes of
before a rotation cannot be linked to those after it, and the days on which both were used are gone after `keep_days`.
Statements, totals and the ledger stay; they name domains and segments, not people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Final

from pipeline.jobs.result import JobResult
from pipeline.lake.tables import Change, Lake
from pipeline.schemas import (
    ALERT,
    BRONZE_ADMIN_EVENT,
    BRONZE_DECISION,
    BRONZE_LINK_EVENT,
    BRONZE_MDR,
    BRONZE_SESSION_EVENT,
    BRONZE_STUB_EVENT,
    PEER_RECORD,
    PEER_RETURN,
    QUARANTINE,
    RECON_CASE,
    SILVER_MDR,
    USAGE_NAMED,
    Table,
)

PERSONAL: Final[tuple[Table, ...]] = (
    BRONZE_MDR,
    BRONZE_DECISION,
    BRONZE_STUB_EVENT,
    BRONZE_LINK_EVENT,
    BRONZE_SESSION_EVENT,
    BRONZE_ADMIN_EVENT,
    QUARANTINE,
    SILVER_MDR,
    PEER_RECORD,
    RECON_CASE,
    ALERT,
    PEER_RETURN,
    USAGE_NAMED,
)
"""Tables with addresses or their hashes, or with rows about single messages."""
APP_ID: Final = "retention"
WRITERS_SECONDS: Final = 3600.0
"""Files younger than this may belong to somebody who is about to commit them."""


def run(lake: Lake, *, today: date, keep_days: int, vacuum_after_s: float = WRITERS_SECONDS) -> JobResult:
    """Drop old days, and remove their files from the disk. Looking back at versions that had them ends with that.

    Args:
        lake: All its `PERSONAL` tables.
        today: UTC day that `keep_days` counts back from.
        keep_days: Days before today that stay.
        vacuum_after_s: Files that no version but the newest names are removed once they are so old, in seconds.

    Raises:
        ConflictError: Somebody wrote to the table at the same moment; run it again.
        LakeError: The lake cannot be written.
    """
    result = JobResult("retention")
    oldest = (today - timedelta(days=keep_days)).isoformat()
    dropped: dict[str, list[str]] = {}
    removed = 0
    for table in PERSONAL:
        if not lake.has(table):
            continue
        with result.timed(table.name):
            column = table.partition[0]
            days = sorted({value for file in lake.files(table) if _day(value := file.partition[column]) < oldest})
            if days:
                meta = {"retention": {"keep_days": keep_days, "days": days}}
                mark = (APP_ID, date.fromisoformat(oldest).toordinal())
                txn = mark if table is SILVER_MDR and oldest > kept_from(lake) else None
                commit = lake.adopt([], table, Change("replace_partitions", partitions=days, meta=meta, txn=txn))
                result.wrote(table.name, 0, commit.version)
                dropped[table.name] = days
            removed += lake.vacuum(table, older_than_s=vacuum_after_s)
    result.outcome = _summary(oldest, dropped, removed)
    result.details = {"oldest_day": oldest, "dropped": dropped, "removed_files": removed}
    return result


def kept_from(lake: Lake) -> str:
    """First day of which records may still be all there; empty when no retention has dropped any. Raises LakeError.

    It is the transaction number of the job in the log of `silver_mdr`, which outlives the notes of old commits.
    """
    ordinal = lake.transaction_version(SILVER_MDR, APP_ID)
    return date.fromordinal(ordinal).isoformat() if ordinal is not None else ""


def _summary(oldest: str, dropped: Mapping[str, Sequence[str]], removed: int) -> str:
    days = sorted({_day(partition) for of_table in dropped.values() for partition in of_table})
    text = f"nothing is older than {oldest}"
    if days:
        text = f"dropped {' to '.join(dict.fromkeys((days[0], days[-1])))} from {len(dropped)} tables"
    return f"{text}; {removed:,} files removed"


def _day(partition: str) -> str:
    """The day that a partition is about: `dt`, or what `<author>_<day>` of an extract ends with."""
    return partition.rpartition("_")[2]
