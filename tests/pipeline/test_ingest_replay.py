"""A run that ends anywhere is carried on by the next; what was stored is entered, what was not is stored."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipeline.jobs import ingest
from pipeline.jobs.ingest import Ingest
from pipeline.jobs.result import ExitCode
from pipeline.lake.table_log import LakeError
from pipeline.lake.tables import Lake
from pipeline.schemas import BRONZE_LINK_EVENT, BRONZE_MDR, SEGMENTS
from pipeline.segments import loading as segment_loading
from pipeline.segments.ledger import Ledger
from protofly.records import RecordKind
from tests.pipeline.spools import SegmentWriter, link_event, message

pytestmark = pytest.mark.spark


class Killed(BaseException):
    """Stands for the end of the process."""


def sequence_of(lake: Lake) -> list[int]:
    return sorted(row["seq"] for row in lake.read(BRONZE_MDR).select("seq").collect())


def ledger_of(lake: Lake) -> list[tuple[str, str, int]]:
    rows = lake.read_small(SEGMENTS, ["path", "verdict", "rows_good"]).to_pylist()
    return sorted((row["path"].removesuffix(".manifest.json"), row["verdict"], row["rows_good"]) for row in rows)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(1), message(2)])
    writer.seal([message(3)])
    SegmentWriter(tmp_path / "spool", kind=RecordKind.LINK).seal([link_event(1)])
    return tmp_path / "spool"


def end_before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, when: Callable[..., bool]) -> None:
    """The process ends just before this call."""
    original = getattr(owner, name)

    def call(*args: Any, **options: Any) -> Any:
        if when(*args, **options):
            raise Killed
        return original(*args, **options)

    monkeypatch.setattr(owner, name, call)


def test_segments_that_vanish_after_they_were_stored_are_entered_as_such(
    lake: Lake, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        end_before(patch, Ledger, "write", lambda *_: True)
        with pytest.raises(Killed):
            ingest.run(lake, [spool])
    assert sequence_of(lake) == [1, 2, 3]
    [first, *_] = sorted(spool.glob("mdr-*.zst"))
    first.unlink()

    result = ingest.run(lake, [spool])

    assert sequence_of(lake) == [1, 2, 3]
    assert [(verdict, rows) for _, verdict, rows in ledger_of(lake)] == [
        ("accepted", 1),
        ("accepted", 2),
        ("accepted", 1),
    ]
    vanished = [row for row in lake.read_small(SEGMENTS).to_pylist() if "vanished" in row["findings"]]
    assert [row["segno"] for row in vanished if row["kind"] == "mdr"] == [1]
    assert result.exit_code is ExitCode.FINDINGS


def test_segments_that_come_between_end_and_next_run_wait_for_their_own_batch(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(1)])
    with monkeypatch.context() as patch:
        end_before(patch, Ledger, "write", lambda *_: True)
        with pytest.raises(Killed):
            ingest.run(lake, [writer.spool])
    writer.seal([message(2)])
    shown: list[str] = []
    result = ingest.run(lake, [writer.spool], progress=shown.append)
    assert sequence_of(lake) == [1, 2]
    assert (len(shown), result.rows["bronze_mdr"], Ledger(lake).last_batch) == (2, 1, 2)


def test_kinds_that_were_stored_before_the_end_are_not_stored_again(
    lake: Lake, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        end_before(patch, segment_loading, "_write", lambda _lake, _segments, loading: loading.kind is RecordKind.LINK)
        with pytest.raises(Killed):
            ingest.run(lake, [spool])
    assert (sequence_of(lake), lake.has(BRONZE_LINK_EVENT)) == ([1, 2, 3], False)
    result = ingest.run(lake, [spool])
    assert result.rows == {"bronze_link_event": 1, "segments": 3}
    assert (sequence_of(lake), result.exit_code) == ([1, 2, 3], ExitCode.FINE)


def test_a_segment_that_keeps_changing_while_it_is_read_is_rejected_and_the_others_are_not(
    lake: Lake, spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [_, second] = sorted(spool.glob("mdr-*.zst"))
    content = second.read_bytes()
    write = segment_loading._write

    def run_while_it_is_another(*args: Any) -> Any:
        second.write_bytes(content[::-1])
        try:
            return write(*args)
        finally:
            second.write_bytes(content)

    monkeypatch.setattr(segment_loading, "_write", run_while_it_is_another)
    result = ingest.run(lake, [spool])
    assert sequence_of(lake) == [1, 2]
    assert [verdict for _, verdict, _ in ledger_of(lake)] == ["accepted", "accepted", "rejected"]
    assert result.details["verdicts"] == {"accepted": 2, "rejected": 1}


def test_a_rejected_segment_is_looked_at_again_and_its_row_replaced(lake: Lake, spool: Path, tmp_path: Path) -> None:
    [_, second] = sorted(spool.glob("mdr-*.zst"))
    hidden = shutil.move(second, tmp_path / "hidden")
    job = Ingest(lake, [spool])
    assert job.run().details["verdicts"] == {"accepted": 2, "rejected": 1}
    version = lake.version(SEGMENTS)
    assert job.run().rows == {}
    assert Ingest(lake, [spool]).run().rows == {}
    assert lake.version(SEGMENTS) == version

    shutil.move(hidden, second)
    assert job.run().rows == {"bronze_mdr": 1, "segments": 1}
    assert [verdict for _, verdict, _ in ledger_of(lake)] == ["accepted"] * 3
    assert sequence_of(lake) == [1, 2, 3]


def test_a_manifest_that_is_merely_touched_is_no_news(lake: Lake, spool: Path) -> None:
    ingest.run(lake, [spool])
    for path in spool.glob("*.manifest.json"):
        path.touch()
    assert ingest.run(lake, [spool]).rows == {}
    assert len(ledger_of(lake)) == 3


def test_only_one_ingest_works_on_a_lake(lake: Lake, spool: Path) -> None:
    job = Ingest(lake, [spool])
    with job._alone(), pytest.raises(LakeError, match="another ingest"):
        ingest.run(lake, [spool])


def test_an_empty_spool_is_incomplete_and_says_so(lake: Lake, tmp_path: Path) -> None:
    result = ingest.run(lake, [tmp_path])
    assert result.exit_code is ExitCode.INCOMPLETE
    [shown] = result.warnings
    assert shown.startswith(f"no segments in {tmp_path}: ")


def test_following_takes_in_what_comes_in_between(lake: Lake, tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(1)])
    waits = iter([True, False])

    def wait() -> bool:
        writer.seal([message(2)])
        return next(waits)

    rounds = list(ingest.follow(lake, [writer.spool], wait=wait))
    assert [result.rows.get("bronze_mdr", 0) for result in rounds] == [1, 1]


@pytest.mark.endurance
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_split_order_or_repetition_stores_the_same_rows(
    data: st.DataObject, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("split")
    writer = SegmentWriter(home / "node")
    sizes = data.draw(st.lists(st.integers(0, 3), min_size=2, max_size=5), label="sizes")
    number = 0
    for size in sizes:
        writer.seal([message(number + at) for at in range(1, size + 1)], lost=0 if size else 1)
        number += size
    stems = sorted(path.name.removesuffix(".manifest.json") for path in writer.spool.glob("*.manifest.json"))
    arrivals = data.draw(st.lists(st.sampled_from(stems), max_size=4), label="early")
    lake = Lake(home / "lake", spark)
    for at, batch in enumerate((arrivals, stems[::-1])):
        spool = home / f"arrival {at}"
        spool.mkdir()
        for stem in batch:
            for path in writer.spool.glob(f"{stem}.*"):
                shutil.copy(path, spool)
        ingest.run(lake, [spool])
    rows = lake.read(BRONZE_MDR).select("seq", "msg_id", "segno").collect()
    expected = [
        (row["seq"], row["msg_id"], row["segno"])
        for row in _all_at_once(home, writer.spool, spark).read(BRONZE_MDR).collect()
    ]
    assert sorted(map(tuple, rows)) == sorted(expected)
    assert len(rows) == sum(sizes)


def _all_at_once(home: Path, spool: Path, spark: SparkSession) -> Lake:
    lake = Lake(home / "reference", spark)
    ingest.run(lake, [spool])
    return lake
