"""Refine: new rows of bronze become rows of silver, each record once.

Nearly always every new record is there once, and then there is nothing to write: silver gets the files of bronze, which
have all its columns, under names of its own (hard links). Otherwise the rows that are new are written. See
docs/adr/0015.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.core.groups import lengths_of, numbers, words
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.jobs.retention import kept_from
from pipeline.schemas import BRONZE_MDR, SILVER_MDR
from pipeline.stages import StagedFile
from pipeline.table_log import DataFile
from pipeline.tables import Change, Commit, Lake
from pipeline.transforms.dedupe import KEY, first_of_each, without_known

APP_ID: Final = "refine"
_SEGMENT: Final = ("node", "boot", "segno")
_BATCH_ROWS: Final = 1 << 17


def run(lake: Lake) -> JobResult:
    """Refine what has come into bronze since the last time.

    The version of bronze up to which silver reaches is the transaction number of silver's commits, so a run that was
    killed repeats nothing.

    Args:
        lake: Reads `bronze_mdr`; adds to `silver_mdr`.

    Raises:
        LakeError: The lake cannot be read or written.
    """
    result = JobResult("refine")
    done, newest = refined_version(lake), lake.version(BRONZE_MDR)
    result.versions = {BRONZE_MDR.name: newest, SILVER_MDR.name: lake.version(SILVER_MDR)}
    if newest < 0:
        result.warnings.append("nothing was ingested yet")
        result.exit_code = ExitCode.INCOMPLETE
        return result
    if newest == done:
        return result
    added = lake.added_between(BRONZE_MDR, done, newest)
    oldest = kept_from(lake)
    files = [file for file in added if file.partition["dt"] >= oldest]
    rows_in = sum(file.rows for file in files)
    if len(files) < len(added):
        # The few that come late would take the place of all that a statement of their day was made of.
        late = sum(file.rows for file in added) - rows_in
        result.warnings.append(
            f"{late:,} records are of days before {oldest}, which retention has dropped: they are left out, "
            "and the statements of these days stay as they are"
        )
    change = Change(txn=(APP_ID, newest), meta={"bronze_version": newest, "bronze_version_before": done})
    if not files:  # days were dropped, files rewritten, or all of it came too late
        result.versions[SILVER_MDR.name] = lake.adopt([], SILVER_MDR, change).version
        return result
    with result.timed("refine"):
        spans = _spans(lake, files)
        known = _known(lake, spans)
        if _is_surely_once(spans) and known is None:
            commit = _adopt_linked(lake, files, change)
        else:
            silver = first_of_each(lake.read_files(BRONZE_MDR, files)).select(*SILVER_MDR.schema.names)
            if known is not None:
                silver = without_known(silver, known)
            # By day first, because the writer would sort by it and undo the rest.
            commit = lake.commit(silver.sortWithinPartitions("dt", "msg_id"), SILVER_MDR, change)
    result.wrote(SILVER_MDR.name, commit.rows, commit.version)
    result.findings = rows_in - commit.rows
    result.details = {"bronze_rows": rows_in, "duplicates": result.findings, "days": list(commit.partitions)}
    if result.findings:
        result.warnings.append(f"{result.findings} records came more than once and were left out")
        result.exit_code = ExitCode.FINDINGS
    return result


def _adopt_linked(lake: Lake, files: Collection[DataFile], change: Change) -> Commit:
    """Make files of bronze files of silver as well."""
    with lake.stage() as stage:
        staged = []
        for number, file in enumerate(files):
            path = stage / f"{number}.parquet"
            os.link(lake.folder / BRONZE_MDR.name / file.path, path)
            staged.append(StagedFile(path, file.rows, file.partition))
        return lake.adopt(staged, SILVER_MDR, change)


def refined_version(lake: Lake) -> int:
    """Up to which version of bronze silver reaches; -1 for none."""
    version = lake.transaction_version(SILVER_MDR, APP_ID)
    return -1 if version is None else version


@dataclass(frozen=True, slots=True, order=True)
class _Span:
    """Rows of one segment, and between which numbers they are."""

    node: str
    boot: int
    first: int
    last: int
    rows: int

    def with_more(self, other: _Span) -> _Span:
        """This one and other rows of the same segment."""
        first, last = min(self.first, other.first), max(self.last, other.last)
        return replace(self, first=first, last=last, rows=self.rows + other.rows)


def _spans(lake: Lake, files: Collection[DataFile]) -> list[_Span]:
    """What is in these files, from four of their columns: a job of Spark would cost ten times as much.

    Rows of a segment mostly lie one behind the other, so each run of them is looked at once.
    """
    spans: dict[tuple[str, int, int], _Span] = {}
    for file in files:
        with pq.ParquetFile(lake.folder / BRONZE_MDR.name / file.path, read_dictionary=["node"]) as parquet:
            batches = parquet.iter_batches(_BATCH_ROWS, columns=[*_SEGMENT, "seq"])
            for segment, span in (run for batch in batches for run in _runs(batch)):
                known = spans.get(segment)
                spans[segment] = span if known is None else known.with_more(span)
    return list(spans.values())


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int, int], _Span]]:
    """Rows of one segment that follow each other."""
    nodes, number = words(batch.column("node"))
    boot, segno, seq = (numbers(batch, name) for name in ("boot", "segno", "seq"))
    is_first = np.ones(len(seq), np.bool_)
    is_first[1:] = (np.diff(number) != 0) | (np.diff(boot) != 0) | (np.diff(segno) != 0)
    starts = np.flatnonzero(is_first)
    low, high = np.minimum.reduceat(seq, starts).tolist(), np.maximum.reduceat(seq, starts).tolist()
    counts = lengths_of(starts, len(seq)).tolist()
    for start, first, last, rows in zip(starts.tolist(), low, high, counts, strict=True):
        node = str(nodes[number[start]])
        yield (node, int(boot[start]), int(segno[start])), _Span(node, int(boot[start]), first, last, rows)


def _known(lake: Lake, spans: Sequence[_Span]) -> DataFrame | None:
    """Keys that silver has where new rows are; None when it has none."""
    if not lake.files(SILVER_MDR):
        return None
    known = lake.read(SILVER_MDR).select(*KEY).where(_in_any(spans))
    return None if known.isEmpty() else known


def _is_surely_once(spans: Sequence[_Span]) -> bool:
    """Whether no record can be there twice: within a segment ingest sees to it, and these do not overlap."""
    is_dense = all(span.rows <= span.last - span.first + 1 for span in spans)
    return is_dense and all(
        (one.node, one.boot) != (other.node, other.boot) or one.last < other.first
        for one, other in pairwise(sorted(spans))
    )


def _in_any(spans: Sequence[_Span]) -> Column:
    """Whether a key lies where new rows are; by these ranges whole files of silver are left out."""
    ranges: dict[tuple[str, int], tuple[int, int]] = {}
    for span in spans:
        first, last = ranges.get((span.node, span.boot), (span.first, span.last))
        ranges[span.node, span.boot] = (min(first, span.first), max(last, span.last))
    return reduce(
        or_,
        [
            (F.col("node") == node) & (F.col("boot") == boot) & F.col("seq").between(first, last)
            for (node, boot), (first, last) in sorted(ranges.items())
        ],
        F.lit(False),
    )
