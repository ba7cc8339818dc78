"""Compact: few large files instead of many small ones, day by day, and away with what nobody names any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Final

from pipeline.jobs.result import JobResult
from pipeline.lake.table_log import DataFile
from pipeline.lake.tables import Change, Lake
from pipeline.schemas import SILVER_MDR, TABLES, Table

TARGET_BYTES: Final = 128 << 20
FILES_MIN: Final = 8
"""Days with fewer files are left alone."""
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
        files_min: Rewrite a day from so many files on.
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


def _compact(lake: Lake, table: Table, files_min: int, result: JobResult) -> None:
    version = lake.version(table)
    days: dict[str, list[DataFile]] = defaultdict(list)
    for file in lake.files(table, version):
        days[file.partition[table.partition[0]] if table.partition else ""].append(file)
    scattered = {day: files for day, files in days.items() if len(files) >= files_min}
    if not scattered:
        return
    files = [file for many in scattered.values() for file in many]
    parts = max(1, sum(file.size_bytes for file in files) // TARGET_BYTES)
    rows = lake.read_files(table, files)
    rows = rows.repartitionByRange(parts, *table.partition, *table.key) if parts > 1 else rows.coalesce(1)
    order = [*table.partition, "msg_id"] if table is SILVER_MDR else [*table.partition]
    commit = lake.commit(
        rows.sortWithinPartitions(*order) if order else rows,
        table,
        Change(
            "replace_partitions" if table.partition else "overwrite",
            partitions=set(scattered) if table.partition else None,
            base_version=version,
            has_news=False,
        ),
    )
    result.wrote(table.name, commit.rows, commit.version)
