"""A lake as if it had its newest days only: a report costs the same after a year as after a month."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, date, datetime

import pyarrow as pa

from pipeline.core.utc_days import end_us
from pipeline.lake.table_log import DataFile
from pipeline.lake.tables import Lake
from pipeline.lake.worker_rows import WorkerRows
from pipeline.schemas import SEGMENTS, SILVER_MDR, TRAFFIC_HOURLY, Table


class RecentDays:
    """The newest days of a lake, for reading.

    Tables without days are there as a whole, but the ledger: of that only what may have been closed then.

    Args:
        lake: Which.
        days: So many, up to the newest day with records. Days later than tomorrow, by this machine's clock, do not
            count as the newest: a clock that is years ahead hides nothing.
    """

    def __init__(self, lake: Lake, days: int) -> None:
        self._lake = lake
        tomorrow = date.fromordinal(datetime.now(UTC).date().toordinal() + 1).isoformat()
        there = {file.partition["dt"] for table in (SILVER_MDR, TRAFFIC_HOURLY) for file in lake.files(table)}
        newest = max((day for day in there if day <= tomorrow), default=tomorrow)
        self.first_day = date.fromordinal(date.fromisoformat(newest).toordinal() - days + 1).isoformat()

    def has(self, table: Table) -> bool:
        """True if a table has ever been written."""
        return self._lake.has(table)

    def version(self, table: Table) -> int:
        """The number of its newest version."""
        return self._lake.version(table)

    def read_in_workers(self, table: Table, *, columns: Collection[str]) -> WorkerRows:
        """Columns of these days of its newest version, in workers; of tables by day."""
        days = {file.partition["dt"] for file in self._files(table)}
        return self._lake.read_in_workers(table, columns=columns, partitions=days)

    def read_small(self, table: Table, columns: Collection[str] | None = None) -> pa.Table:
        """Columns of these days."""
        return self._lake.read_files_small(table, self._files(table), columns)

    def _files(self, table: Table) -> list[DataFile]:
        files = self._lake.files(table)
        if table.partition == ("dt",):
            return [file for file in files if file.partition["dt"] >= self.first_day]
        if table is SEGMENTS:
            begin_us = end_us(self.first_day) - 86_400_000_000
            return [file for file in files if file.may_have("closed_us", begin_us, 1 << 62)]
        return list(files)
