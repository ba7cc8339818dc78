"""Accepted segments of one kind become rows of bronze and quarantine, one commit each.

Parsing is what costs, so it is done the cheap way first: Spark's reader of JSON, which does not keep the lines and
takes liberties with odd ones, and only those records with which nothing at all is wrong. Segments of which every line
is such a record, which is nearly all, are done with that.
The others are read again as text, a row per line whatever is in it: every line is either a record or in quarantine.

Before anything is committed, rows are counted per segment and compared with the manifests, and the files are hashed
once more: what Spark has read is what was verified, or nothing happens.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from pipeline.local_rows import local_frame
from pipeline.schemas import QUARANTINE
from pipeline.segments import Place, Segment, is_unchanged
from pipeline.stages import list_staged
from pipeline.table_log import LakeError
from pipeline.tables import Commit, Lake
from pipeline.transforms.lines import (
    SEGMENT_FACTS,
    SPOILT,
    bronze_table,
    judged_records,
    parsed_lines,
    quarantined,
    record_schema,
    sound_records,
)
from protofly.record_segments import SEALED_SUFFIX
from protofly.records import Kind

_ROWS = "rows"
_IS_GOOD, _IS_BAD = "is_good=true", "is_good=false"
_PARQUET = {
    "parquet.enable.dictionary#msg_id": "false",
    "parquet.enable.dictionary#digest": "false",
    "parquet.enable.dictionary#seq": "false",
    "parquet.enable.dictionary#ts_us": "false",
}
"""Of columns in which no value comes twice a dictionary is made for nothing."""
_BAD_LINES = (
    "m_node string, m_boot long, segno long, seq long, line string, errors array<string>, severity string, dt string"
)


class ChangedError(Exception):
    """Files changed while they were read; `places` says which."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(f"{len(places)} segments changed while they were read")
        self.places = frozenset(places)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was committed of one kind: good and bad rows by segment (stem of its name), and the commits."""

    rows: Mapping[str, tuple[int, int]]
    commits: tuple[Commit, ...] = ()


def loaded_before(lake: Lake, kind: Kind, batch: int) -> Loaded | None:
    """What an earlier run has committed of this batch before it ended; None when it did not come that far."""
    table = bronze_table(kind)
    seen = lake.transaction_version(table, _app_id(kind))
    if seen is None or seen < batch:
        return None
    for note in lake.history(table):
        if note.meta.get("batch") == batch:
            return Loaded({stem: (good, bad) for stem, (good, bad) in note.meta["segments"].items()})
    raise LakeError(f"table {table.name} has batch {batch}, but no commit of it says what is in it")


def load(lake: Lake, kind: Kind, segments: Sequence[Segment], batch: int) -> Loaded:
    """Read the lines of verified segments and commit their rows.

    Raises:
        ChangedError: A file is not what was verified any more; nothing was committed.
        LakeError: The lake cannot be written.
    """
    full = [segment for segment in segments if segment.manifest is not None and segment.manifest.records]
    empty = {segment.place.stem: (0, 0) for segment in segments if segment not in full}
    if not full:
        return Loaded(empty)
    with lake.stage() as stage:
        rows = _write_all(lake, kind, full, stage)
        changed = [segment.place for segment in full if not is_unchanged(segment)]
        if changed:
            raise ChangedError(changed)
        for segment in full:
            if sum(rows[segment.place.stem]) != _records(segment):
                raise LakeError(
                    f"{segment.place.stem}: Spark has read {sum(rows[segment.place.stem])} of {_records(segment)} "
                    "lines; nothing was committed, please report this"
                )
        commits = _commit(lake, kind, stage, {**rows, **empty}, batch)
    return Loaded({**rows, **empty}, commits)


def _app_id(kind: Kind) -> str:
    return f"ingest-{kind.value}"


def _write_all(lake: Lake, kind: Kind, segments: Sequence[Segment], stage: Path) -> dict[str, tuple[int, int]]:
    """Write the rows of all segments below `rows` of the stage; says good and bad rows by stem."""
    rows = _write(lake, kind, segments, stage, is_fast=True)
    spoilt = [segment for segment in segments if rows[segment.place.stem] != (_records(segment), 0)]
    if not spoilt:
        return rows
    shutil.rmtree(stage / _ROWS)
    clean = [segment for segment in segments if segment not in spoilt]
    rows = _write(lake, kind, clean, stage, is_fast=True) if clean else {}
    return {**rows, **_write(lake, kind, spoilt, stage, is_fast=False)}


def _write(
    lake: Lake, kind: Kind, segments: Sequence[Segment], stage: Path, *, is_fast: bool
) -> dict[str, tuple[int, int]]:
    # Spark takes paths for patterns, and these come from strangers: it gets links with names of our own making.
    links = stage / f"segments-{is_fast}"
    shutil.rmtree(links, ignore_errors=True)
    links.mkdir()
    for segment in segments:
        (links / f"{segment.place.stem}{SEALED_SUFFIX}").symlink_to(segment.place.segment_path)
    file = F.col("_metadata.file_name").alias("file")
    reader = lake.spark.read.option("lineSep", "\n")
    if is_fast:
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": SPOILT}
        records = reader.options(**options).schema(record_schema(kind)).json(str(links))
        parsed = records.select("*", file, F.lit(None).cast("string").alias("line"), F.lit(False).alias("repeated"))
    else:
        parsed = parsed_lines(reader.text(str(links)).select(F.col("value").alias("line"), file), kind)
    facts = local_frame(lake.spark, [_facts(segment) for segment in segments], SEGMENT_FACTS)
    if is_fast:
        sound = sound_records(parsed, facts, kind).write.options(**_PARQUET)
        sound.mode("append").partitionBy("dt").parquet(str(stage / _ROWS / _IS_GOOD))
    else:
        judged = judged_records(parsed, facts, kind).write.options(**_PARQUET)
        judged.mode("append").partitionBy("is_good", "dt").parquet(str(stage / _ROWS))
    return _count(stage / _ROWS, segments)


def _records(segment: Segment) -> int:
    return segment.manifest.records if segment.manifest is not None else 0


def _facts(segment: Segment) -> tuple[object, ...]:
    manifest = segment.manifest
    assert manifest is not None
    return (
        f"{segment.place.stem}{SEALED_SUFFIX}",
        manifest.node,
        manifest.boot,
        manifest.segno,
        manifest.first_seq,
        manifest.last_seq,
        manifest.min_ts_us,
        manifest.max_ts_us,
        manifest.opened_us,
        manifest.closed_us,
        segment.day,
    )


def _count(folder: Path, segments: Iterable[Segment]) -> dict[str, tuple[int, int]]:
    """Good and bad rows by stem, from a few columns of what was written; far cheaper than another job of Spark.

    Of good rows with the same number one is counted, so that a segment which repeats one does not add up.
    """
    good = _group(folder / _IS_GOOD, ("node", "boot", "segno"), [("seq", "count_distinct")])
    bad = _group(folder / _IS_BAD, ("m_node", "m_boot", "segno"), [([], "count_all")])
    found = {}
    for segment in segments:
        assert segment.manifest is not None
        key = (segment.manifest.node, segment.manifest.boot, segment.manifest.segno)
        found[segment.place.stem] = (good.get(key, 0), bad.get(key, 0))
    return found


def _group(folder: Path, by: Sequence[str], aggregation: list[tuple[Any, str]]) -> dict[tuple[str, int, int], int]:
    parts = [
        pq.read_table(path, columns=[*by, "seq"], partitioning=None, read_dictionary=[by[0]])
        for path in folder.rglob("*.parquet")
    ]
    if not parts:
        return {}
    groups = pa.concat_tables(parts).unify_dictionaries().group_by(list(by)).aggregate(aggregation).to_pydict()
    [counts] = [groups[name] for name in groups if name not in by]
    return dict(zip(zip(*[groups[name] for name in by], strict=True), counts, strict=True))


def _commit(lake: Lake, kind: Kind, stage: Path, rows: Mapping[str, tuple[int, int]], batch: int) -> tuple[Commit, ...]:
    """Quarantine first: once bronze has the batch, all of it is done but the ledger."""
    txn = (_app_id(kind), batch)
    meta = {"batch": batch, "segments": {stem: list(counts) for stem, counts in sorted(rows.items())}}
    commits = []
    if any(bad for _, bad in rows.values()):
        bad_lines = lake.spark.read.option("basePath", str(stage / _ROWS / _IS_BAD)).schema(_BAD_LINES)
        bad_rows = quarantined(bad_lines.parquet(str(stage / _ROWS / _IS_BAD)), kind)
        commits.append(lake.commit(bad_rows, QUARANTINE, txn=txn, meta={"batch": batch}))
    commits.append(lake.adopt(list_staged(stage / _ROWS / _IS_GOOD), bronze_table(kind), txn=txn, meta=meta))
    return tuple(commits)
