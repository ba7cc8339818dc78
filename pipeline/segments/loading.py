"""Accepted segments of one kind become rows of bronze and quarantine, one commit each.

Tasks of Spark read the segments and write the files (`pipeline.segments.tasks`); here they are counted and committed.
Tasks decode exactly the bytes whose hash is in the manifest, count the lines, and say for each segment how many became
good rows and how many went into quarantine: that must be all of them, or nothing is committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from pipeline.lake import storage
from pipeline.lake.stages import StagedFile
from pipeline.lake.store_path import location
from pipeline.lake.table_log import LakeError
from pipeline.lake.tables import Change, Commit, Lake
from pipeline.schemas import QUARANTINE, Table, bronze_table
from pipeline.segments.part_files import PartFile
from pipeline.segments.rows import DAY
from pipeline.segments.spool import Place, Segment
from pipeline.segments.tasks import Loading, Refusal, Report, Work, run_tasks
from protofly.records import RecordKind, SegmentManifest


class ChangedError(Exception):
    """Files changed while they were read; `places` says which."""

    def __init__(self, places: Sequence[Place]) -> None:
        super().__init__(f"{len(places)} segments changed while they were read")
        self.places = frozenset(places)


class RefusedSegmentsError(Exception):
    """Of some segments no rows can be taken; `refusals` says why."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__(f"{len(refusals)} segments cannot be taken")
        self.refusals = {refusal.place: refusal for refusal in refusals}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Committed rows of one kind: good and bad ones by segment (stem of its name), and the commits."""

    rows: Mapping[str, tuple[int, int]]
    commits: tuple[Commit, ...] = ()


def loaded_before(lake: Lake, kind: RecordKind, batch: int, pinned: Mapping[str, SegmentManifest]) -> Loaded | None:
    """Find what an earlier run committed of this batch before it ended; None if it committed nothing.

    Args:
        lake: Where to.
        kind: Of which kind.
        batch: Number of the batch.
        pinned: Manifests that were about to be loaded with it, by the stem of their names.
    """
    seen = lake.transaction_version(bronze_table(kind), _app_id(kind))
    if seen is None or seen < batch:
        return None
    good, bad = (_rows_of_batch(lake, table, batch, kind) for table in (bronze_table(kind), QUARANTINE))
    found = {}
    for stem, manifest in pinned.items():
        segment = (manifest.node, manifest.boot, manifest.segno)
        # One that was refused while it was loaded is pinned as well, but has no rows.
        if not manifest.records or segment in good or segment in bad:
            found[stem] = good[segment], bad[segment]
    return Loaded(found)


def _rows_of_batch(lake: Lake, table: Table, batch: int, kind: RecordKind) -> Counter[tuple[str, int, int]]:
    files = [file for file in lake.files(table) if file.may_have("batch", batch, batch)]
    names = ["node", "boot", "segno"]
    rows = lake.read_files_small(table, files, [*names, "batch", *(["kind"] if table is QUARANTINE else [])])
    rows = rows.filter(pc.equal(rows.column("batch"), batch))
    if table is QUARANTINE:
        rows = rows.filter(pc.equal(rows.column("kind"), kind.value))
    counted = rows.group_by(names).aggregate([([], "count_all")]).to_pylist()
    return Counter({tuple(row[name] for name in names): row["count_all"] for row in counted})


def load(lake: Lake, kind: RecordKind, segments: Sequence[Segment], batch: int) -> Loaded:
    """Read the lines of verified segments and commit their rows.

    Raises:
        ChangedError: A file is not what its manifest says, or not any more; nothing was committed.
        RefusedSegmentsError: There are segments of which nothing can be taken; nothing was committed.
        LakeError: The lake cannot be written, or a worker does not see a segment that is there.
    """
    full = [segment for segment in segments if segment.manifest is not None and segment.manifest.records]
    empty = {segment.place.stem: (0, 0) for segment in segments if segment not in full}
    if not full:
        return Loaded(empty)
    with lake.stage() as stage:
        folders = stage.of(bronze_table(kind), "good"), stage.of(QUARANTINE, "bad")
        report = _write(lake, full, Loading(kind, *folders, batch))
        unseen = [path for place in report.missing for path in place.segment_paths if storage.exists(path)]
        if unseen:
            raise LakeError(
                f"a worker does not see {unseen[0]}, which is there: mount spools and lake under the same "
                "paths on all machines; nothing was committed"
            )
        if report.changed or report.missing:
            raise ChangedError([*report.changed, *report.missing])
        if report.refused:
            raise RefusedSegmentsError(report.refused)
        rows = {counts.stem: (counts.good, counts.bad) for counts in report.counts}
        for segment in full:
            read = sum(rows.get(segment.place.stem, (0,)))
            if read != _records(segment):
                raise LakeError(
                    f"{segment.place.stem}: {read} of {_records(segment)} lines were read; nothing was committed, "
                    "please report this"
                )
        commits = _commit(lake, kind, report, batch)
    return Loaded({**rows, **empty}, commits)


def _app_id(kind: RecordKind) -> str:
    return f"ingest-{kind.value}"


def _write(lake: Lake, segments: Iterable[Segment], loading: Loading) -> Report:
    work = [
        Work(place=segment.place, manifest=segment.manifest, day=segment.day)
        for segment in segments
        if segment.manifest is not None
    ]
    return run_tasks(lake.spark, loading, work)


def _records(segment: Segment) -> int:
    return segment.manifest.records if segment.manifest is not None else 0


def _commit(lake: Lake, kind: RecordKind, report: Report, batch: int) -> tuple[Commit, ...]:
    """Quarantine first: once bronze has the batch, all of it is done but the ledger."""
    txn = (_app_id(kind), batch)
    meta = {"batch": batch}
    commits = []
    if report.bad:
        commits.append(lake.adopt(_staged(report.bad), QUARANTINE, Change(txn=txn, meta=meta)))
    commits.append(lake.adopt(_staged(report.good), bronze_table(kind), Change(txn=txn, meta=meta)))
    return tuple(commits)


def _staged(files: Iterable[PartFile]) -> list[StagedFile]:
    return [StagedFile(location(file.path), file.rows, {DAY: file.day}) for file in files]
