"""Compact: few large files instead of many small ones, day by day, and away with what nobody names any more.

Files of half the target or more stay as they are. So a byte is written again only as its files grow, a few times in
all, however often days are looked at, and a day has no more small files than that job allows which looks at it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from pipeline.jobs.result import JobResult
from pipeline.lake.lake_files import partition_of
from pipeline.lake.table_log import ConflictError, DataFile
from pipeline.lake.tables import Change, Lake
from pipeline.schemas import QUARANTINE, SILVER_MDR, TABLES, Table, bronze_table
from protofly.records import RecordKind

TARGET_BYTES: Final = 128 << 20
SMALL_BYTES: Final = TARGET_BYTES // 2
FILES_MIN: Final = 8
"""Days with fewer small files are left alone."""
FILES_MAX: Final = 64
"""So many are merged at once by those who add to a day round after round."""
KEEP_SECONDS: Final = 7 * 86_400.0
"""How long replaced files stay, for readers that have begun and for looking back."""
KEEP_VERSIONS: Final = 10


def run(
    lake: Lake,
    *,
    tables: Collection[str] | None = None,
    files_min: int = FILES_MIN,
    keep_s: float = KEEP_SECONDS,
) -> JobResult:
    """Rewrite days that consist of many small files, one commit per table, and remove old unnamed files.

    Args:
        lake: Rows stay what they are; versions grow.
        tables: Names; None means all.
        files_min: Rewrite what is small of a day from so many such files on.
        keep_s: Remove files that no recent version names once they are so old, in seconds.

    Raises:
        ConflictError: Somebody wrote to a day while it was rewritten; nothing was done to that table.
        LakeError: The lake cannot be read or written.
    """
    result = JobResult("compact")
    removed = 0
    for name in sorted(tables if tables is not None else TABLES):
        table = TABLES[name]
        if not lake.has(table):
            continue
        with result.timed(name):
            _compact(lake, table, files_min, result)
            removed += lake.vacuum(table, older_than_s=keep_s, keep_versions=KEEP_VERSIONS)
    written = ", ".join(f"{name} {rows:,}" for name, rows in result.rows.items())
    result.outcome = f"{f'rewritten: {written}' if written else 'nothing to rewrite'}; {removed:,} files removed"
    result.details["removed_files"] = removed
    return result


def bound(lake: Lake) -> None:
    """Merge what is small of days with very many such files, of the tables to which rounds of ingest add.

    When somebody else writes to the same table at the moment, it is left for the next round.

    Raises:
        LakeError: The lake cannot be read or written.
    """
    for table in (*map(bronze_table, RecordKind), QUARANTINE, SILVER_MDR):
        with suppress(ConflictError):
            _compact(lake, table, FILES_MAX, JobResult("compact"))


def _compact(lake: Lake, table: Table, files_min: int, result: JobResult) -> None:
    version = lake.version(table)
    days: dict[str, list[DataFile]] = defaultdict(list)
    for file in lake.files(table, version):
        if file.size_bytes < SMALL_BYTES:
            days[partition_of(table, file)].append(file)
    files = [file for small in days.values() if len(small) >= files_min for file in small]
    if not files:
        return
    parts = max(1, sum(file.size_bytes for file in files) // TARGET_BYTES)
    rows = lake.read_files(table, files)
    rows = rows.repartitionByRange(parts, *table.partition, *table.key) if parts > 1 else rows.coalesce(1)
    order = [*table.partition, "msg_id"] if table is SILVER_MDR else [*table.partition]
    commit = lake.commit(
        rows.sortWithinPartitions(*order) if order else rows,
        table,
        Change("replace_files", files=[file.path for file in files], base_version=version, has_news=False),
    )
    result.wrote(table.name, commit.rows, commit.version)
