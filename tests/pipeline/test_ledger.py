"""The ledger: each question opens the files that can have the answer, and no others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from pipeline.core.findings import Finding, SegmentVerdict
from pipeline.lake.table_log import LakeError
from pipeline.lake.tables import Change, Lake
from pipeline.schemas import SEGMENT_STRETCH, SEGMENTS
from pipeline.segments.ledger import REJECTED, Ledger, read_stretches
from pipeline.segments.node_keys import Trust
from pipeline.segments.spool import Place, Segment, examine, find_manifests
from tests.pipeline.on_disk import on_disk
from tests.pipeline.spools import SegmentWriter, message


def lake_in(folder: Path) -> Lake:
    """A lake of which no job asks Spark for anything."""
    return Lake(folder, cast("SparkSession", None))


def enter(lake: Lake, places: Iterable[Place], batch: int, day: str) -> list[Segment]:
    """What ingest does with a batch, without its records."""
    ledger = Ledger(lake)
    segments = [examine(place, trust=Trust()) for place in places]
    judged = ledger.chains_for(segments).judge(segments)
    ledger.write(judged, batch, day)
    return judged


def news(lake: Lake, *spools: Path) -> list[Place]:
    return Ledger(lake).news(list(find_manifests(spools)))


def test_new_segments_are_judged_without_opening_what_was_entered_on_other_days(tmp_path: Path) -> None:
    lake, writer = lake_in(tmp_path / "lake"), SegmentWriter(tmp_path / "spool")
    for number in range(3):
        writer.seal([message(number)])
    enter(lake, news(lake, writer.spool), 1, "2026-03-01")
    copies = SegmentWriter(tmp_path / "copies").spool
    for path in writer.spool.glob("*-000002.*"):
        (copies / path.name).write_bytes(path.read_bytes())
        path.unlink()
    for path in (on_disk(lake.folder) / SEGMENTS.name / "entered=2026-03-01").glob("*.parquet"):
        path.unlink()
    for path in writer.spool.iterdir():
        path.unlink()
    writer.seal([message(4)])
    [segment] = enter(lake, news(lake, writer.spool), 2, "2026-03-02")
    assert (segment.verdict, segment.findings) == (SegmentVerdict.ACCEPTED, [Finding.UNCHECKED])
    [whole] = read_stretches(lake)
    assert (whole.first.segno, whole.last.segno, whole.segments) == (1, 4, 4)
    # Whether a number that was accepted before comes with the same content, only its row can say.
    with pytest.raises(LakeError):
        enter(lake, find_manifests([copies]), 3, "2026-03-02")


def test_a_settled_segment_is_no_news_and_a_rejected_one_is_until_it_is_accepted(tmp_path: Path) -> None:
    lake, writer = lake_in(tmp_path / "lake"), SegmentWriter(tmp_path / "spool")
    writer.seal([message(1)])
    writer.seal([message(2)])
    [torn] = writer.spool.glob("*-000002.jsonl.zst")
    whole = torn.read_bytes()
    torn.write_bytes(whole[:-3])
    enter(lake, news(lake, writer.spool), 1, "2026-03-01")
    assert {file.partition["entered"]: file.rows for file in lake.files(SEGMENTS)} == {"2026-03-01": 1, REJECTED: 1}
    [again] = news(lake, writer.spool)
    assert again.stem.endswith("-000002")
    torn.write_bytes(whole)
    [segment] = enter(lake, [again], 2, "2026-03-02")
    assert segment.verdict is SegmentVerdict.ACCEPTED
    assert news(lake, writer.spool) == []
    assert sorted((row["segno"], row["verdict"]) for row in lake.read_small(SEGMENTS).to_pylist()) == [
        (1, "accepted"),
        (2, "accepted"),
    ]
    assert [one.segments for one in read_stretches(lake)] == [2]


def test_the_same_number_again_is_a_copy_or_a_fork_however_far_inside_a_stretch_it_is(tmp_path: Path) -> None:
    lake, writer = lake_in(tmp_path / "lake"), SegmentWriter(tmp_path / "spool")
    for number in range(5):
        writer.seal([message(number)])
    enter(lake, news(lake, writer.spool), 1, "2026-03-01")
    fork = SegmentWriter(tmp_path / "fork")
    for number in (0, 1, 77):
        fork.seal([message(number)])
    same, forked = sorted(find_manifests([fork.spool]), key=lambda place: place.stem)[1:]
    verdicts = {one.place: (one.verdict, Finding.REUSED in one.findings) for one in enter(lake, [same, forked], 2, "d")}
    assert verdicts == {same: (SegmentVerdict.COPY, False), forked: (SegmentVerdict.REJECTED, True)}


def test_many_small_files_of_a_day_become_one(tmp_path: Path) -> None:
    lake, writer = lake_in(tmp_path / "lake"), SegmentWriter(tmp_path / "spool")
    for number in range(1, 36):
        writer.seal([message(number)])
        enter(lake, news(lake, writer.spool), number, "2026-03-01")
    assert len(lake.files(SEGMENTS)) <= 17
    assert sorted(lake.read_small(SEGMENTS, ("segno",)).column("segno").to_pylist()) == list(range(1, 36))


def test_a_run_that_ended_between_ledger_and_stretches_is_made_up_for(tmp_path: Path) -> None:
    lake, writer = lake_in(tmp_path / "lake"), SegmentWriter(tmp_path / "spool")
    for number in range(1, 4):
        writer.seal([message(number)])
        places = news(lake, writer.spool)
        if number < 3:
            enter(lake, places, number, "2026-03-01")
    segments = [examine(place, trust=Trust()) for place in places]
    Ledger(lake).chains_for(segments).judge(segments)
    schema = lake.read_small(SEGMENTS).schema
    rows = pa.Table.from_pylist([segments[0].row(3) | {"entered": "2026-03-01"}], schema)
    lake.commit(rows, SEGMENTS, Change(txn=("ingest", 3)))
    assert lake.read_small(SEGMENT_STRETCH, ("last_segno",)).column("last_segno").to_pylist() == [2]
    assert [one.segments for one in read_stretches(lake)] == [3]
