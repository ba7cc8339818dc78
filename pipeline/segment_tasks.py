"""What a task of Spark does for ingest: reads its share of the segments, decodes and judges every line, writes Parquet.

Runs in Spark's Python workers, with the accepted segments as its input and a report as its output. Whatever a task that
was ended has left behind is named by no report, so nobody takes it for rows.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from pipeline.part_files import PartFile, PartFiles
from pipeline.schemas import QUARANTINE, bronze_table
from pipeline.segment_content import ContentError
from pipeline.segment_rows import SegmentReader, stored_schema
from pipeline.segments import Place, verified_content
from protofly.records import Kind, SegmentManifest

SHARE_BYTES: Final = 64 << 20
"""Compressed segments for a task: a million records, some seconds that are lost when an executor is."""
_REPORT: Final = "report binary"


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One segment to be loaded, as it was verified. `day` is that of lines without a good time."""

    place: Place
    manifest: SegmentManifest
    day: str


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the lines of one segment."""

    stem: str
    good: int
    bad: int


class Report(msgspec.Struct, kw_only=True):
    """What a task has done. Of segments that are `changed` nothing is said, and nothing of the report is to be used."""

    counts: list[Counts] = []
    good: list[PartFile] = []
    bad: list[PartFile] = []
    changed: list[Place] = []


def run_tasks(spark: SparkSession, kind: Kind, work: Sequence[Work], folder: Path) -> Report:
    """Load segments of one kind in tasks of Spark.

    Args:
        spark: Whose executors see the segments and the folder under the same paths.
        kind: Of all segments.
        work: What to load.
        folder: Gets `good` with rows of the bronze table and `bad` with rows of quarantine, in folders by day.

    Returns:
        What all tasks have reported. When segments have changed, the others were not necessarily read to the end.
    """
    shares = [msgspec.msgpack.encode(share) for share in _shares(work, spark.sparkContext.defaultParallelism)]

    def tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                share = msgspec.msgpack.decode(shares[number], type=list[Work])
                report = msgspec.msgpack.encode(load_share(kind, share, folder))
                yield pa.RecordBatch.from_pydict({"report": [report]})

    done = spark.range(0, len(shares), 1, len(shares)).mapInArrow(tasks, _REPORT).collect()
    whole = Report()
    for row in done:
        report = msgspec.msgpack.decode(bytes(row["report"]), type=Report)
        whole.counts += report.counts
        whole.good += report.good
        whole.bad += report.bad
        whole.changed += report.changed
    return whole


def load_share(kind: Kind, share: Sequence[Work], folder: Path) -> Report:
    """Read segments and write their rows; see `run_tasks`."""
    report = Report()
    reader = SegmentReader(kind)
    is_collecting = gc.isenabled()
    gc.disable()  # millions of small objects come and go, none of them in a cycle
    try:
        with (
            PartFiles(folder / "good", stored_schema(bronze_table(kind))) as good_files,
            PartFiles(folder / "bad", stored_schema(QUARANTINE)) as bad_files,
        ):
            for work in share:
                content = verified_content(work.place, work.manifest)
                good = bad = 0
                try:
                    for rows in reader.rows(content, work.manifest) if content is not None else ():
                        good_files.add(rows.good)
                        bad_files.add(rows.bad, work.day)
                        good += rows.good.num_rows
                        bad += rows.bad.num_rows
                except ContentError:
                    content = None
                if content is None:
                    report.changed.append(work.place)
                else:
                    report.counts.append(Counts(stem=work.place.stem, good=good, bad=bad))
    finally:
        if is_collecting:
            gc.enable()
    report.good, report.bad = good_files.written, bad_files.written
    return report


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
