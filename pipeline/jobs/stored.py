"""Whether bronze holds what the ledger says was stored: segments of changed days, or all of them.

A day is left out while its records are those of the last comparison, by number and by batch, and the ledger has no new
row about it. If anything of the rest is wrong, all is compared, so that what is reported is the same either way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.columns.groups import column, from_zero, group_numbers, lengths_of, numbers, runs, words
from pipeline.columns.side_records import DAY_US
from pipeline.core.findings import SegmentVerdict
from pipeline.core.utc_days import end_us
from pipeline.jobs.retention import kept_from
from pipeline.lake.day_state import done_inputs, inputs_by_day, note_done
from pipeline.lake.tables import Lake
from pipeline.lake.worker_rows import Batches
from pipeline.schemas import LONG, SEGMENTS, TEXT, Table, bronze_table
from pipeline.schemas.columns import columns
from pipeline.segments.content import SEGMENT_DAYS_MAX
from protofly.records import RecordKind

APP: Final = "audit"
_SEGMENT: Final = ("node", "boot", "segno")
_COLUMNS: Final = (*_SEGMENT, "kind", "verdict", "rows_good", "min_ts_us", "max_ts_us")
_COUNTED: Final = (*_SEGMENT, "dt")
_COUNTS: Final = columns(node=TEXT, boot=LONG, segno=LONG, dt=TEXT, rows=LONG)


def wrong_segments(lake: Lake, *, is_full: bool = False) -> list[str]:
    """A line for each segment of which the ledger says something else than is stored, those of dropped days aside.

    What was found to be right is noted in the lake.

    Args:
        lake: Reads `segments` and the bronze tables; writes `day_state`.
        is_full: Compare everything, also what has not changed.

    Raises:
        LakeError: The lake cannot be read or written.
    """
    inputs = _inputs(lake)
    known = {} if is_full else done_inputs(lake, APP)
    changed = _Changed(lake, inputs, known)
    if not known or not changed.is_right():
        ledger = lake.read_small(SEGMENTS, _COLUMNS)
        wrong = [line for kind in RecordKind for line in _wrong(lake, kind, ledger, None)]
        if wrong:
            return wrong
    if inputs != known:
        note_done(lake, APP, inputs, is_all=True)
    return []


def _tables(lake: Lake) -> dict[str, Table]:
    tables = [SEGMENTS, *map(bronze_table, RecordKind)]
    return {table.name: table for table in tables if lake.has(table)}


def _inputs(lake: Lake) -> dict[str, str]:
    """By `<table>/<partition>` what is stored."""
    return {
        f"{name}/{part}": input_
        for name, table in _tables(lake).items()
        for part, input_ in inputs_by_day(lake, lake.version(table), table).items()
    }


@dataclass(frozen=True, slots=True)
class _Changed:
    """Finds out what has changed since the last comparison."""

    lake: Lake
    inputs: Mapping[str, str]
    known: Mapping[str, str]

    def is_right(self) -> bool:
        """True if the segments that this is about are stored as the ledger says."""
        entered = self._parts(SEGMENTS)
        if not entered <= {file.partition["entered"] for file in self.lake.files(SEGMENTS)}:
            return False  # rows of the ledger have gone
        for kind in filter(lambda one: self.lake.has(bronze_table(one)), RecordKind):
            days = self._parts(bronze_table(kind))
            segments = self._segments(kind, entered, days)
            spans_us = zip(
                segments.column("min_ts_us").to_pylist(), segments.column("max_ts_us").to_pylist(), strict=True
            )
            spans = {(first_us // DAY_US, last_us // DAY_US) for first_us, last_us in spans_us}
            if any(last - first > SEGMENT_DAYS_MAX for first, last in spans):
                return False
            near = days | {_day(number) for first, last in spans for number in range(first, last + 1)}
            if _wrong(self.lake, kind, segments, near, strangers_of=days):
                return False
        return True

    def _parts(self, table: Table) -> set[str]:
        """Partitions of a table that have changed, or are no more."""
        oldest = "" if table is SEGMENTS else kept_from(self.lake)
        names = (name for name in self.inputs.keys() | self.known.keys() if name.startswith(f"{table.name}/"))
        changed = {name.rpartition("/")[2] for name in names if self.inputs.get(name) != self.known.get(name)}
        return {part for part in changed if part >= oldest}

    def _segments(self, kind: RecordKind, entered: Collection[str], days: Collection[str]) -> pa.Table:
        """Rows of the ledger: those of these partitions, and all that may have records of these days."""
        begins_us = sorted(end_us(day) - DAY_US for day in days)
        files = [
            file
            for file in self.lake.files(SEGMENTS)
            if file.partition["entered"] in entered
            or any(
                file.may_have("min_ts_us", 0, us + DAY_US - 1) and file.may_have("max_ts_us", us, 1 << 62)
                for us in begins_us
            )
        ]
        rows = self.lake.read_files_small(SEGMENTS, files, (*_COLUMNS, "entered"))
        rows = rows.filter(pc.field("kind") == kind.value).filter(pc.field("verdict") == SegmentVerdict.ACCEPTED.value)
        is_near = pc.is_in(rows.column("entered"), pa.array(sorted(entered), pa.string()))
        for begin_us in begins_us:
            on_day = pc.and_(
                pc.less(rows.column("min_ts_us"), begin_us + DAY_US),
                pc.greater_equal(rows.column("max_ts_us"), begin_us),
            )
            is_near = pc.or_(is_near, on_day)
        return rows.filter(is_near)


def _day(number: int) -> str:
    return datetime.fromtimestamp(number * DAY_US // 1_000_000, UTC).strftime("%Y-%m-%d")


def _wrong(
    lake: Lake, kind: RecordKind, ledger: pa.Table, days: Collection[str] | None, *, strangers_of: Collection[str] = ()
) -> list[str]:
    """Segments of a kind of which the ledger says something else than is stored.

    Args:
        lake: Reads bronze.
        kind: Of the segments.
        ledger: Their rows; others as well.
        days: Which days have all records of these segments; None: all have.
        strangers_of: Segments that are not in `ledger` are wrong on these of the days; with all days, on any.
    """
    table = bronze_table(kind)
    if not lake.has(table):
        return []
    kept = kept_from(lake)
    kept_us = end_us(kept) - DAY_US if kept else 0
    said = ledger.filter(pc.field("kind") == kind.value).filter(pc.field("verdict") == SegmentVerdict.ACCEPTED.value)
    said = said.select([*_SEGMENT, "rows_good", "min_ts_us"])
    counted = lake.read_in_workers(table, columns=_COUNTED, partitions=days).then(_count).frame(_COUNTS).toArrow()
    if days is not None:
        strange = pc.is_in(counted.column("dt"), pa.array(sorted(strangers_of), pa.string()))
        known = counted.join(said.select(list(_SEGMENT)), list(_SEGMENT), join_type="left semi")
        counted = pa.concat_tables([known, counted.filter(strange).join(said, list(_SEGMENT), join_type="left anti")])
    stored = counted.group_by(list(_SEGMENT)).aggregate([("rows", "sum")])
    both = said.join(stored, list(_SEGMENT), join_type="full outer")
    rows_said, rows_stored = (both.column(name).fill_null(0) for name in ("rows_good", "rows_sum"))
    is_kept = pc.greater_equal(both.column("min_ts_us").fill_null(kept_us), kept_us)
    wrong = both.filter(pc.and_(is_kept, pc.not_equal(rows_said, rows_stored)))
    return [
        f"{row['node']}: {kind.value} boot {row['boot']} segment {row['segno']} has {row['rows_sum'] or 0} "
        f"rows in {table.name}, the ledger says {row['rows_good'] or 0}: restore the lake, or ingest anew"
        for row in wrong.sort_by([(name, "ascending") for name in _SEGMENT]).to_pylist()
    ]


def _count(batches: Batches) -> Batches:
    for batch in batches:
        names = [words(column(batch, name)) for name in ("node", "dt")]
        boot, segno = numbers(batch, "boot"), numbers(batch, "segno")
        keys = [(places, len(found)) for found, places in names]
        order, starts = runs(group_numbers([*keys, from_zero(boot), from_zero(segno)])[0])
        segments = pa.Table.from_batches([batch]).take(pa.array(order[starts]))
        yield from segments.append_column("rows", pa.array(lengths_of(starts, len(order)))).to_batches()
