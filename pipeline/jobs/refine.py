"""Refine: new rows of bronze become rows of silver, each record once.

Nearly always every new record is there once, and then silver gets copies of the files of bronze, which have all its
columns: nothing is read, sorted or encoded again. Otherwise the rows that are new are written. See
docs/adr/0015.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.groups import lengths_of, numbers, words
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.jobs.retention import kept_from
from pipeline.lake import storage
from pipeline.lake.day_state import newest_batch
from pipeline.lake.stages import StagedFile
from pipeline.lake.table_log import DataFile
from pipeline.lake.tables import Change, Commit, Lake
from pipeline.schemas import BRONZE_MDR, NODE_OWNER, SILVER_MDR
from pipeline.transforms.dedupe import KEY, first_of_each, without_known

APP_ID: Final = "refine"
_OWNERS: Final = ("our_domain", "node")
_SEGMENT: Final = ("node", "boot", "segno")
_BATCH_ROWS: Final = 1 << 17


def run(lake: Lake) -> JobResult:
    """Refine what has come into bronze since the last time.

    Rows say with which batch they came, and the newest batch that silver reaches up to is the transaction number of
    silver's commits. So a run that was killed repeats nothing, and it does not matter who rewrites files of bronze.

    Args:
        lake: Reads `bronze_mdr`; adds to `silver_mdr`.

    Raises:
        LakeError: The lake cannot be read or written.
    """
    result = JobResult("refine")
    result.versions = {table.name: lake.version(table) for table in (BRONZE_MDR, SILVER_MDR)}
    if result.versions[BRONZE_MDR.name] < 0:
        result.warnings.append("nothing was ingested yet")
        result.exit_code = ExitCode.INCOMPLETE
        return result
    done, news, newest = _news(lake, result.versions[BRONZE_MDR.name])
    if newest == done:
        return result
    oldest = kept_from(lake)
    files = [file for file in news if file.partition["dt"] >= oldest]
    late = sum(_new_rows(lake, file, done) for file in news if file not in files)
    if late:
        # The few that come late would take the place of all that a statement of their day was made of.
        result.warnings.append(
            f"{late:,} records are of days before {oldest}, which retention has dropped: they are left out, "
            "and the statements of these days stay as they are"
        )
    notes = {"bronze_version": result.versions[BRONZE_MDR.name], "batch": newest, "batch_before": done}
    change = Change(txn=(APP_ID, newest), meta=notes)
    if not files:  # days were dropped, or all of it came too late
        result.versions[SILVER_MDR.name] = lake.adopt([], SILVER_MDR, change).version
        return result
    rows_in = sum(_new_rows(lake, file, done) for file in files)
    with result.timed("refine"):
        spans = _spans(lake, files, done)
        known = _known(lake, spans, {file.partition["dt"] for file in files})
        _note_owners(lake, files)
        if all(_is_new(file, done) for file in files) and _is_surely_once(spans) and known is None:
            commit = _adopt_copies(lake, files, change)
        else:
            news_only = lake.read_files(BRONZE_MDR, files).where(F.col("batch") > done)
            silver = first_of_each(news_only).select(*SILVER_MDR.schema.names)
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


def _adopt_copies(lake: Lake, files: Collection[DataFile], change: Change) -> Commit:
    """Copy files of bronze into silver."""
    with lake.stage() as stage:
        staged = []
        for file in files:
            path = stage.new_file(SILVER_MDR, file.partition)
            storage.copy(lake.path_of(BRONZE_MDR, file), path)
            staged.append(StagedFile(path, file.rows, file.partition))
        return lake.adopt(staged, SILVER_MDR, change)


def _news(lake: Lake, version: int) -> tuple[int, list[DataFile], int]:
    """Up to which batch silver reaches, files of bronze that have rows of newer ones, and the newest of these."""
    done = lake.transaction_version(SILVER_MDR, APP_ID) or 0
    files = lake.files(BRONZE_MDR, version)
    batches = [newest_batch(lake, BRONZE_MDR, file) for file in files]
    news = [file for file, batch in zip(files, batches, strict=True) if batch > done]
    return done, news, max([done, *batches])


def _is_new(file: DataFile, done: int) -> bool:
    """True if all rows of a file came after this batch, as far as the log says."""
    known = file.bounds.get("batch")
    return known is not None and known[0] > done


def _new_rows(lake: Lake, file: DataFile, done: int) -> int:
    """How many rows of a file came after this batch."""
    if _is_new(file, done):
        return file.rows
    return int(np.sum(np.asarray(lake.read_files_small(BRONZE_MDR, [file], ("batch",)).column("batch")) > done))


def _note_owners(lake: Lake, files: Collection[DataFile]) -> None:
    """Add to `node_owner` whose records these are. It may run ahead of silver: these records will be there."""
    found: set[tuple[str, str]] = set()
    for file in files:
        with storage.open_parquet(lake.path_of(BRONZE_MDR, file), read_dictionary=_OWNERS) as parquet:
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=list(_OWNERS)):
                (domains, domain), (nodes, node) = (words(batch.column(name)) for name in _OWNERS)
                pairs = np.unique(domain.astype(np.int64) * len(nodes) + node).tolist()
                found |= {(str(domains[one // len(nodes)]), str(nodes[one % len(nodes)])) for one in pairs}
    new = sorted(found - {tuple(row.values()) for row in lake.read_small(NODE_OWNER, _OWNERS).to_pylist()})
    if new:
        rows = [dict(zip(_OWNERS, pair, strict=True)) for pair in new]
        lake.commit(pa.Table.from_pylist(rows, to_arrow_schema(NODE_OWNER.schema)), NODE_OWNER)


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


def _spans(lake: Lake, files: Collection[DataFile], done: int) -> list[_Span]:
    """What is in these files of later batches, from few of their columns: a job of Spark would cost ten times as much.

    Rows of a segment mostly lie one behind the other, so each run of them is looked at once.
    """
    spans: dict[tuple[str, int, int], _Span] = {}
    for file in files:
        with storage.open_parquet(lake.path_of(BRONZE_MDR, file), read_dictionary=["node"]) as parquet:
            batches = parquet.iter_batches(_BATCH_ROWS, columns=[*_SEGMENT, "seq", "batch"])
            news = (batch.filter(pc.greater(batch.column("batch"), done)) for batch in batches)
            for segment, span in (run for batch in news if batch.num_rows for run in _runs(batch)):
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


def _known(lake: Lake, spans: Sequence[_Span], days: Collection[str]) -> DataFrame | None:
    """Keys that silver has where new rows are; None when it has none.

    A record that comes again has the time that it had, so only these days are asked. Segments with the same numbers in
    other days are none that ingest takes in.
    """
    files = [
        file
        for file in lake.files(SILVER_MDR)
        if file.partition["dt"] in days and any(_may_meet(file, span) for span in spans)
    ]
    if not files:
        return None
    known = lake.read_files(SILVER_MDR, files).select(*KEY).where(_in_any(spans))
    return None if known.isEmpty() else known


def _may_meet(file: DataFile, span: _Span) -> bool:
    return (
        file.may_have("node", span.node, span.node)
        and file.may_have("boot", span.boot, span.boot)
        and file.may_have("seq", span.first, span.last)
    )


def _is_surely_once(spans: Sequence[_Span]) -> bool:
    """True if no record can be there twice: within a segment ingest sees to it, and these do not overlap."""
    is_dense = all(span.rows <= span.last - span.first + 1 for span in spans)
    return is_dense and all(
        (one.node, one.boot) != (other.node, other.boot) or one.last < other.first
        for one, other in pairwise(sorted(spans))
    )


def _in_any(spans: Sequence[_Span]) -> Column:
    """True if a key lies where new rows are; by these ranges whole files of silver are left out."""
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
