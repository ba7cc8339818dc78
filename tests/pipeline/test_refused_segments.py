"""Segments of which nothing can be taken though they are what their manifests say: the others of a batch are stored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
import zstandard

from pipeline.core.findings import Finding
from pipeline.jobs import ingest
from pipeline.jobs.result import ExitCode
from pipeline.lake.tables import Lake
from pipeline.schemas import BRONZE_MDR, QUARANTINE, SEGMENTS
from pipeline.segments import content as segment_content
from pipeline.segments import loading as segment_loading
from pipeline.segments import rows as segment_rows
from pipeline.segments import spool as segments
from pipeline.segments.content import SEGMENT_DAYS_MAX, pieces_of
from pipeline.segments.node_keys import Trust
from pipeline.segments.record_lines import LineDecoder, Piece
from pipeline.segments.spool import examine, find_manifests
from pipeline.segments.tasks import Loading, Report, Work, load_share
from protofly.records import RecordKind, decode_manifest
from tests.pipeline.on_disk import on_disk
from tests.pipeline.spools import SegmentWriter, link_event, message

DAY_US = 86_400_000_000
HOSTILE = "f" * 32


class UnforeseenError(Exception):
    """What nobody has thought of."""


def work_in(spool: Path) -> list[Work]:
    return [
        Work(place=place, manifest=decode_manifest(on_disk(place.manifest_path).read_bytes()), day="2026-03-01")
        for place in find_manifests([spool])
    ]


def fail_at(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Decoding a hostile line fails."""
    read = LineDecoder.read

    def failing(self: LineDecoder, text: bytes) -> Piece:
        if HOSTILE.encode() in text:
            raise error
        return read(self, text)

    monkeypatch.setattr(LineDecoder, "read", failing)


def run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run in this very process, where they can be made to fail."""

    def tasks(spark: object, loading: Loading, work: Sequence[Work]) -> Report:
        del spark
        return load_share(loading, work)

    monkeypatch.setattr(segment_loading, "run_tasks", tasks)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """Three segments, of which the second has a hostile line, and one of another kind."""
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(1), message(2)])
    writer.seal([message(3), message(4, msg_id=HOSTILE)])
    writer.seal([message(5)])
    SegmentWriter(tmp_path / "spool", kind=RecordKind.LINK).seal([link_event(1)])
    return tmp_path / "spool"


def rows_of(lake: Lake) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["kind"], row["segno"]): row for row in lake.read_small(SEGMENTS).to_pylist()}


@pytest.mark.spark
def test_a_segment_on_which_the_program_fails_is_rejected_and_reported_and_all_others_are_stored(
    lake: Lake, spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_here(monkeypatch)
    with monkeypatch.context() as patch:
        fail_at(patch, UnforeseenError("\x1b[31m"))
        result = ingest.run(lake, [spool])

    segments_found = rows_of(lake)
    assert {key: row["verdict"] for key, row in segments_found.items()} == {
        ("mdr", 1): "accepted",
        ("mdr", 2): "rejected",
        ("mdr", 3): "accepted",
        ("link_event", 1): "accepted",
    }
    failed = segments_found["mdr", 2]
    assert (failed["findings"][0], failed["severity"]) == ("failed", "fatal")
    assert "UnforeseenError in test_refused_segments.py, line " in failed["detail"]
    assert "\x1b" not in failed["detail"]
    assert sorted(lake.read_small(BRONZE_MDR, ["seq"])["seq"].to_pylist()) == [1, 2, 5]
    assert not lake.has(QUARANTINE)
    assert [line for line in result.warnings if "this program failed on it" in line]
    assert "UnforeseenError: ?[31m" in caplog.text  # shown in full, but not so that it acts on a terminal
    assert result.exit_code is ExitCode.INCOMPLETE  # one is missing from the chain

    again = ingest.run(lake, [spool])  # the program was mended
    assert again.exit_code is ExitCode.FINE
    assert sorted(lake.read_small(BRONZE_MDR, ["seq"])["seq"].to_pylist()) == [1, 2, 3, 4, 5]
    assert rows_of(lake)["mdr", 2]["verdict"] == "accepted"


@pytest.mark.parametrize("error", [MemoryError(), OSError(28, "No space left on device")], ids=["memory", "disk"])
def test_what_fails_on_the_machine_ends_the_task_and_is_no_verdict(
    error: Exception, spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(monkeypatch, error)
    work = [one for one in work_in(spool) if one.manifest.kind is RecordKind.MESSAGE]
    with pytest.raises(type(error)):
        load_share(Loading(RecordKind.MESSAGE, tmp_path / "good", tmp_path / "bad"), work)


def test_a_decoder_without_memory_says_nothing_about_the_segment(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Reader:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read(self, _: int) -> bytes:
            raise zstandard.ZstdError("zstd decompress error: Allocation error : not enough memory")

    class Decompressor:
        def stream_reader(self, *_: object, **__: object) -> Reader:
            return Reader()

    monkeypatch.setattr(zstandard, "ZstdDecompressor", lambda **_: Decompressor())
    [work, *_] = work_in(spool)
    with pytest.raises(MemoryError):
        list(pieces_of(on_disk(work.place.segment_path(1)).read_bytes(), work.manifest))


def test_verification_that_fails_in_an_unforeseen_way_rejects_that_segment_only(
    spool: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(error: Exception, *_: object) -> None:
        raise error

    [place, *_] = find_manifests([spool])
    with monkeypatch.context() as patch:
        patch.setattr(segments, "check_file", partial(failing, UnforeseenError()))
        segment = examine(place, Trust())
    assert segment.findings[-1] is Finding.FAILED
    assert segment.is_fatal
    monkeypatch.setattr(segments, "check_file", partial(failing, MemoryError()))
    with pytest.raises(MemoryError):
        examine(place, Trust())


# Days.


def sealed_over_days(spool: Path, days: int) -> SegmentWriter:
    writer = SegmentWriter(spool)
    writer.seal([message(number, ts_us=message(0).ts_us + number * DAY_US) for number in range(days)])
    return writer


@pytest.mark.spark
def test_a_segment_over_thousands_of_days_makes_no_folders_and_costs_nobody_else(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here(monkeypatch)
    sealed_over_days(tmp_path / "spool", 9000).seal([message(1)])
    result = ingest.run(lake, [tmp_path / "spool"])
    found = rows_of(lake)
    assert {segno: row["verdict"] for (_, segno), row in found.items()} == {1: "rejected", 2: "accepted"}
    assert found["mdr", 1]["findings"][0] == "days"
    assert [path.name for path in (on_disk(lake.folder) / BRONZE_MDR.name).glob("dt=*")] == ["dt=2026-03-01"]
    assert result.details["verdicts"] == {"accepted": 1, "rejected": 1}


@pytest.mark.parametrize(("days", "is_refused"), [(SEGMENT_DAYS_MAX, False), (SEGMENT_DAYS_MAX + 1, True)])
def test_as_many_days_as_a_segment_can_have_are_taken_however_its_lines_are_cut_up(
    days: int, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_content, "PIECE_BYTES", 300)
    monkeypatch.setattr(segment_rows, "UNIT_LINES", 2)
    sealed_over_days(tmp_path / "spool", days)
    report = load_share(Loading(RecordKind.MESSAGE, tmp_path / "good", tmp_path / "bad"), work_in(tmp_path / "spool"))
    assert [one.finding for one in report.refused] == ["DAYS"] * is_refused
    assert len(report.counts) == 1 - is_refused
    assert len(list((tmp_path / "stage" / "good").glob("dt=*"))) <= SEGMENT_DAYS_MAX


def test_too_many_days_of_one_segment_are_not_those_of_its_neighbours(tmp_path: Path) -> None:
    writer = sealed_over_days(tmp_path / "spool", 20)
    writer.seal([message(100 + number, ts_us=message(0).ts_us + number * DAY_US) for number in range(40)])
    writer.seal([message(200 + number, ts_us=message(0).ts_us + (50 + number) * DAY_US) for number in range(20)])
    first, second, third = sorted(work_in(tmp_path / "spool"), key=lambda work: work.manifest.segno)
    report = load_share(Loading(RecordKind.MESSAGE, tmp_path / "good", tmp_path / "bad"), [first, second, third])
    assert [(one.place, one.finding) for one in report.refused] == [(second.place, "DAYS")]
    assert [(one.stem, one.good) for one in report.counts] == [(first.place.stem, 20), (third.place.stem, 20)]


def test_a_program_that_fails_only_on_segments_together_takes_them_one_by_one(
    spool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = LineDecoder.read

    def failing(self: LineDecoder, text: bytes) -> Piece:
        if text.count(b"\n") > 2:
            raise UnforeseenError
        return read(self, text)

    monkeypatch.setattr(LineDecoder, "read", failing)
    work = [one for one in work_in(spool) if one.manifest.kind is RecordKind.MESSAGE]
    report = load_share(Loading(RecordKind.MESSAGE, tmp_path / "good", tmp_path / "bad"), work)
    assert ([one.good for one in report.counts], report.refused) == ([2, 2, 1], [])
    assert sum(file.rows for file in report.good) == 5


def test_a_clock_that_was_decades_off_costs_no_records(tmp_path: Path) -> None:
    times = [message(0).ts_us, message(0).ts_us + 20_000 * DAY_US]
    SegmentWriter(tmp_path / "spool").seal([message(number, ts_us=time) for number, time in enumerate(times)])
    report = load_share(Loading(RecordKind.MESSAGE, tmp_path / "good", tmp_path / "bad"), work_in(tmp_path / "spool"))
    assert [(one.good, one.bad) for one in report.counts] == [(2, 0)]
