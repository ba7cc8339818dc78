"""What a task of Spark does for ingest: reads its share of the segments, decodes and judges every line, writes Parquet.

Runs in Spark's Python workers, with the accepted segments as its input and a report as its output. Whatever a task that
was ended has left behind is named by no report, so nobody takes it for rows.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from pyspark.sql import SparkSession

from pipeline.core.findings import Finding
from pipeline.lake.store_path import Location
from pipeline.schemas import QUARANTINE, bronze_table
from pipeline.segments.claims import Source
from pipeline.segments.content import MACHINE_ERRORS, SEGMENT_DAYS_MAX, ContentError, failure, trace
from pipeline.segments.part_files import PartFile, PartFiles
from pipeline.segments.rows import Rows, SegmentReader, stored_schema
from pipeline.segments.spool import Place, verified_content
from protofly.records import RecordKind, SegmentManifest

_log = logging.getLogger(__name__)
SHARE_BYTES: Final = 64 << 20
"""Compressed segments for a task: a million records, some seconds that are lost when an executor is."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One segment to be loaded, as it was verified. `day` is that of lines without a good time."""

    place: Place
    manifest: SegmentManifest
    day: str


@dataclass(frozen=True, slots=True)
class Loading:
    """Terms on which a task loads segments.

    Attributes:
        kind: Of all segments.
        good: Gets rows of the bronze table, in folders by day.
        bad: Gets rows of quarantine, in folders by day.
        batch: Number that the rows get.
    """

    kind: RecordKind
    good: Location
    bad: Location
    batch: int = 0


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of the lines of one segment, by what became of them."""

    stem: str
    good: int
    bad: int


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A segment of which no rows can be taken: name of the finding, and what else is to be said."""

    place: Place
    finding: str
    remark: str


class Report(msgspec.Struct, kw_only=True):
    """Result of a task.

    When segments are `changed`, `missing` where the task ran, or `refused`, nothing else of the report is to be used.
    """

    counts: list[Counts] = []
    good: list[PartFile] = []
    bad: list[PartFile] = []
    changed: list[Place] = []
    missing: list[Place] = []
    refused: list[Refusal] = []


def run_tasks(spark: SparkSession, load: Loading, work: Sequence[Work]) -> Report:
    """Load segments of one kind in tasks of Spark.

    Args:
        spark: Whose executors see the segments and the folders under the same paths.
        load: How.
        work: What to load.

    Returns:
        What all tasks have reported.
    """
    shares = [msgspec.msgpack.encode(share) for share in _shares(work, spark.sparkContext.defaultParallelism)]

    def task(share: bytes) -> bytes:
        return msgspec.msgpack.encode(load_share(load, msgspec.msgpack.decode(share, type=list[Work])))

    # Nothing is asked of these rows that would be worth planning and compiling a query for.
    reports = spark.sparkContext.parallelize(shares, len(shares)).map(task).collect()
    whole = Report()
    for one in reports:
        report = msgspec.msgpack.decode(one, type=Report)
        whole.counts += report.counts
        whole.good += report.good
        whole.bad += report.bad
        whole.changed += report.changed
        whole.missing += report.missing
        whole.refused += report.refused
    return whole


def load_share(load: Loading, share: Sequence[Work]) -> Report:
    """Read segments and write their rows; see `run_tasks`."""
    is_collecting = gc.isenabled()
    gc.disable()  # millions of small objects come and go, none of them in a cycle
    try:
        report = _load(load, [share])
        if report is None:  # which one it is shows when each is by itself
            report = _load(load, [[work] for work in share])
    finally:
        if is_collecting:
            gc.enable()
    assert report is not None
    return report


def _load_group(
    load: Loading, group: Sequence[Work], report: Report, good_files: PartFiles, bad_files: PartFiles
) -> _FailedError | None:
    """Load a group; what this program failed on, if it did."""
    try:
        for rows in _rows(load, group, report):
            good_files.add(rows.good)
            for source, bad in rows.bad:
                bad_files.add(bad, source.day)
    except _FailedError as exc:
        return exc
    return None


def _load(load: Loading, groups: Sequence[Sequence[Work]]) -> Report | None:
    """Load segments, those of a group together. None: this program fails on something in a group of several."""
    report = Report()
    with (
        PartFiles(load.good, stored_schema(bronze_table(load.kind))) as good_files,
        PartFiles(load.bad, stored_schema(QUARANTINE)) as bad_files,
    ):
        for group in groups:
            failure = _load_group(load, group, report, good_files, bad_files)
            if failure is not None and len(group) > 1:
                return None
            if failure is not None:
                report.refused.append(Refusal(place=group[0].place, finding=Finding.FAILED.name, remark=failure.remark))
    report.good, report.bad = good_files.written, bad_files.written
    return report


class _FailedError(Exception):
    """This program fails on what is in there; `remark` says how."""

    def __init__(self, remark: str) -> None:
        super().__init__(remark)
        self.remark = remark


def _rows(load: Loading, group: Sequence[Work], report: Report) -> Iterator[Rows]:
    """Rows of segments; everything else goes into the report. Raises _FailedError."""
    try:
        yield from _read(load, group, report)
    except MACHINE_ERRORS:
        raise
    except Exception as exc:  # a defect of ours may cost a segment, never the run
        if len(group) > 1:
            _log.warning("%d segments together, so each is tried alone: %s", len(group), trace(exc))
        else:
            _log.error("segment %r: %s", group[0].place.stem, trace(exc))
        raise _FailedError(failure(exc)) from exc


def _read(load: Loading, group: Sequence[Work], report: Report) -> Iterator[Rows]:
    reader = SegmentReader(load.kind, [work.manifest for work in group], batch=load.batch)
    read: list[tuple[Work, Source]] = []
    for work in group:
        source = Source(work.manifest, work.day)
        try:
            yield from reader.read(verified_content(work.place, work.manifest), source)
        except ContentError as exc:
            (report.missing if exc.finding is Finding.MISSING else report.changed).append(work.place)
        else:
            read.append((work, source))
    yield from reader.rest()
    for work, source in read:
        if len(source.days) > SEGMENT_DAYS_MAX:
            remark = f"more than {SEGMENT_DAYS_MAX}"
            report.refused.append(Refusal(place=work.place, finding=Finding.DAYS.name, remark=remark))
        else:
            report.counts.append(Counts(stem=work.place.stem, good=source.good, bad=source.bad))


def _shares(work: Sequence[Work], cores: int) -> list[list[Work]]:
    """Segments dealt out to tasks, about as much to each; within a task in the order of time, so that days follow."""
    total_bytes = sum(one.manifest.size_bytes for one in work)
    count = min(len(work), max(cores, -(-total_bytes // SHARE_BYTES)))
    shares: list[list[Work]] = [[] for _ in range(count)]
    taken = [0] * count
    for one in sorted(work, key=lambda one: (-one.manifest.size_bytes, one.place)):
        least = taken.index(min(taken))
        shares[least].append(one)
        taken[least] += one.manifest.size_bytes + 1
    return [sorted(share, key=lambda one: (one.manifest.min_ts_us, one.place)) for share in shares]
