"""Accepted segments of one kind become rows of bronze and quarantine: one pass of Spark, one commit each.

The rows of both are written in one go, apart by folder, because parsing is what costs. Before anything is committed,
rows are counted per segment and compared with the manifests, and the files are hashed once more: what Spark has read is
what was verified, or nothing happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import functions as F

from pipeline.schemas import QUARANTINE
from pipeline.segments import Place, Segment, is_unchanged
from pipeline.stages import list_staged
from pipeline.table_log import LakeError
from pipeline.tables import Commit, Lake
from pipeline.transforms.lines import SEGMENT_FACTS, bronze_table, judged_lines, quarantined
from protofly.record_segments import SEALED_SUFFIX
from protofly.records import Kind

_IS_GOOD, _IS_BAD = "is_good=true", "is_good=false"
_COUNTED = ("m_node", "m_boot", "segno")
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
        _write(lake, kind, full, stage)
        rows = _count(stage / "rows", full)
        changed = [segment.place for segment in full if not is_unchanged(segment)]
        if changed:
            raise ChangedError(changed)
        for segment in full:
            assert segment.manifest is not None
            if sum(rows[segment.place.stem]) != segment.manifest.records:
                raise LakeError(
                    f"{segment.place.stem}: Spark has read {sum(rows[segment.place.stem])} of "
                    f"{segment.manifest.records} lines; nothing was committed, please report this"
                )
        commits = _commit(lake, kind, stage, {**rows, **empty}, batch)
    return Loaded({**rows, **empty}, commits)


def _app_id(kind: Kind) -> str:
    return f"ingest-{kind.value}"


def _write(lake: Lake, kind: Kind, segments: Sequence[Segment], stage: Path) -> None:
    # Spark takes paths for patterns, and these come from strangers: it gets links with names of our own making.
    links = stage / "segments"
    links.mkdir()
    for segment in segments:
        (links / f"{segment.place.stem}{SEALED_SUFFIX}").symlink_to(segment.place.segment_path)
    lines = (
        lake.spark.read.option("lineSep", "\n")
        .text(str(links))
        .select(F.col("value").alias("line"), F.col("_metadata.file_name").alias("file"))
    )
    facts = lake.spark.createDataFrame([_facts(segment) for segment in segments], SEGMENT_FACTS)
    judged_lines(lines, facts, kind).write.partitionBy("is_good", "dt").parquet(str(stage / "rows"))


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
    """Good and bad rows by stem, from three columns of what was written; far cheaper than another job of Spark."""
    counts: dict[str, Counter[tuple[str, int, int]]] = {part: Counter() for part in (_IS_GOOD, _IS_BAD)}
    for part, counter in counts.items():
        for path in (folder / part).rglob("*.parquet"):
            groups = pq.read_table(path, columns=list(_COUNTED), partitioning=None).group_by(list(_COUNTED))
            for row in groups.aggregate([([], "count_all")]).to_pylist():
                counter[row["m_node"], row["m_boot"], row["segno"]] += row["count_all"]
    found = {}
    for segment in segments:
        assert segment.manifest is not None
        key = (segment.manifest.node, segment.manifest.boot, segment.manifest.segno)
        found[segment.place.stem] = (counts[_IS_GOOD][key], counts[_IS_BAD][key])
    return found


def _commit(lake: Lake, kind: Kind, stage: Path, rows: Mapping[str, tuple[int, int]], batch: int) -> tuple[Commit, ...]:
    """Quarantine first: once bronze has the batch, all of it is done but the ledger."""
    txn = (_app_id(kind), batch)
    meta = {"batch": batch, "segments": {stem: list(counts) for stem, counts in sorted(rows.items())}}
    commits = []
    if any(bad for _, bad in rows.values()):
        bad_lines = lake.spark.read.option("basePath", str(stage / "rows" / _IS_BAD)).schema(_BAD_LINES)
        bad_rows = quarantined(bad_lines.parquet(str(stage / "rows" / _IS_BAD)), kind)
        commits.append(lake.commit(bad_rows, QUARANTINE, txn=txn, meta={"batch": batch}))
    commits.append(lake.adopt(list_staged(stage / "rows" / _IS_GOOD), bronze_table(kind), txn=txn, meta=meta))
    return tuple(commits)
