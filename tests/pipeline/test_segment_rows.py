"""Lines become rows: held line by line against a plain reader that knows the page about the lake and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.columns import words
from pipeline.schemas import BRONZE_DECISION
from pipeline.segments import content as segment_content
from pipeline.segments import record_lines
from pipeline.segments import rows as segment_rows
from pipeline.segments.claims import Source
from pipeline.segments.content import ContentError
from pipeline.segments.part_files import PartFiles
from pipeline.segments.record_lines import LineDecoder
from pipeline.segments.rows import Rows, SegmentReader
from pipeline.segments.spool import Place, find_manifests
from pipeline.segments.tasks import Loading, Work, load_share
from protofly.records import RECORD_TYPES, RecordKind, SegmentManifest, decode_manifest
from tests.pipeline.on_disk import on_disk
from tests.pipeline.spools import NODE, SECOND_US, START_US, SegmentWriter, decision, link_event, message, stub_event

DAY_US = 86_400_000_000
TEXTS = ("node", "msg_id", "src_domain", "dst_domain", "src_key", "dst_key", "msg_type", "digest", "outcome", "role")
NUMBERS = ("boot", "seq", "ts_us", "attempt", "size_in")
MEASURES = ("attempt", "size_in", "size_wire", "d_policy_us", "d_stub_us", "d_peer_us", "d_total_us", "fuel")
WORDS = {
    "role": {"out", "in"},
    "decision": {"permit", "deny"},
    "outcome": {"delivered", "denied", "trapped", "timeout", "rejected", "expired", "duplicate", "undeliverable"},
}
HIGHEST = {"v": 1 << 15, "attempt": 1 << 31}


def content_of(lines: Sequence[bytes]) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(b"".join(line + b"\n" for line in lines))


def manifest_of(lines: Sequence[bytes], **members: Any) -> SegmentManifest:
    facts: dict[str, Any] = {
        "kind": RecordKind.MESSAGE,
        "node": NODE,
        "boot": 1,
        "segno": 7,
        "first_seq": 1,
        "last_seq": 1000,
        "records": len(lines),
        "lost_records": 1000 - len(lines),
        "size_bytes": 0,
        "sha256": "",
        "prev_sha256": "",
        "min_ts_us": START_US,
        "max_ts_us": START_US + 3600 * SECOND_US,
        "opened_us": START_US,
        "closed_us": START_US + 3600 * SECOND_US,
        "closure": "time",
        "schema_version": 1,
    }
    return SegmentManifest(**(facts | members))


def read(lines: Sequence[bytes], **members: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Good and bad rows."""
    rows = rows_of([(lines, manifest_of(lines, **members))])
    return good_of(rows), bad_of(rows)


def good_of(rows: Sequence[Rows]) -> list[dict[str, Any]]:
    return [row for part in rows for row in part.good.to_pylist()]


def bad_of(rows: Sequence[Rows]) -> list[dict[str, Any]]:
    return [row for part in rows for _, bad in part.bad for row in bad.to_pylist()]


def rows_of(segments: Sequence[tuple[Sequence[bytes], SegmentManifest]]) -> list[Rows]:
    """All rows of some segments, read one after the other."""
    reader = SegmentReader(RecordKind.MESSAGE)
    sources = [(content_of(lines), Source(manifest, "2026-03-01")) for lines, manifest in segments]
    return [*chain.from_iterable(reader.read(content, source) for content, source in sources), *reader.rest()]


# The plain reader.


def errors_of(line: bytes, highest: int) -> tuple[list[str], dict[str, Any]]:
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ["not-a-record"], {}
    if not isinstance(record, dict):
        return ["not-a-record"], {}
    if any(not fits(name, value) for name, value in record.items()):
        return ["not-a-record" if record.get("v") == 1 else "schema"], {}
    errors = [] if record.get("v") == 1 else ["schema"]
    if (record.get("node"), record.get("boot")) != (NODE, 1):
        errors.append("identity")
    if not 1 <= (record.get("seq") or 0) <= 1000:
        errors.append("sequence")
    if not START_US <= (record.get("ts_us") or 0) <= START_US + 3600 * SECOND_US:
        errors.append("time")
    required = set(TEXTS + NUMBERS) - {"node", "boot", "seq", "ts_us"}
    errors += [f"missing:{name}" for name in required if record.get(name) is None]
    errors += [f"word:{name}" for name, words in WORDS.items() if record.get(name) not in {None, *words}]
    errors += [f"hex:{name}" for name in ("msg_id", "digest") if not is_id(record.get(name))]
    errors += ["negative"] if any((record.get(name) or 0) < 0 for name in MEASURES) else []
    if not errors and record["seq"] <= highest:
        errors.append("repeated")
    return errors, record


def fits(name: str, value: object) -> bool:
    if name not in {*TEXTS, *NUMBERS, *MEASURES, *WORDS, "v"} or value is None:
        return True
    if name in TEXTS or name in WORDS:
        return isinstance(value, str)
    limit = HIGHEST.get(name, 1 << 63)
    return isinstance(value, int) and not isinstance(value, bool) and -limit < value < limit


def is_id(digits: str | None) -> bool:
    return digits is None or (len(digits) == 32 and set(digits) <= set("0123456789abcdefABCDEF"))


# Lines as nodes write them, and what may become of one.


def line_of(seq: int, /, **members: object) -> bytes:
    record = msgspec.to_builtins(message(seq))
    return json.dumps({"v": 1, "node": NODE, "boot": 1, "seq": seq} | record | members).encode()


odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(1 << 65), 1 << 65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=34),
    st.just([]),
    st.just({"a": [1]}),
)


@st.composite
def some_lines(draw: st.DrawFn) -> list[bytes]:
    lines = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        seq = draw(st.sampled_from([number, number, number, 1, 1000, 1001]))
        line = line_of(seq, ts_us=START_US + number * SECOND_US)
        match draw(st.sampled_from(["whole", "whole", "member", "member", "bytes", "cut", "twice", "text"])):
            case "member":
                name = draw(st.sampled_from([*TEXTS, *NUMBERS, *MEASURES, "decision", "v"]))
                line = line_of(seq, **{name: draw(odd_values)})
            case "bytes":
                place = draw(st.integers(0, len(line) - 1))
                line = line[:place] + draw(st.binary(max_size=3)).replace(b"\n", b"") + line[place + 1 :]
            case "cut":
                line = line[: draw(st.integers(0, len(line)))]
            case "twice":
                line = line + draw(st.sampled_from([b" ", b"\r", b"{}", line]))
            case "text":
                line = line_of(seq, src_key=draw(st.text(max_size=9)), strange=draw(odd_values))
        lines.append(line)
    return lines


@given(
    lines=some_lines(),
    piece_bytes=st.integers(1, 3000),
    decoded_bytes=st.integers(1, 6000),
    unit_lines=st.integers(1, 9),
    learning=st.integers(0, 3),
    words_max=st.sampled_from([1, 2, 5, words.WORDS_MAX]),
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_line_is_what_a_plain_reader_makes_of_it_however_it_is_cut_up_and_whatever_was_learned(
    lines: list[bytes],
    piece_bytes: int,
    decoded_bytes: int,
    unit_lines: int,
    learning: int,
    words_max: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment_content, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(segment_rows, "PIECE_BYTES", decoded_bytes)
    monkeypatch.setattr(segment_rows, "UNIT_LINES", unit_lines)
    monkeypatch.setattr(record_lines, "_LEARNING", learning)
    monkeypatch.setattr(words, "WORDS_MAX", words_max)
    good, bad = read(lines)
    monkeypatch.setattr(record_lines, "_LEARNING", len(lines))
    assert (good, bad) == read(lines)  # nothing was learned
    highest = 0
    expected_good, expected_bad = [], []
    for line in lines:
        errors, record = errors_of(line, highest)
        if errors:
            expected_bad.append((line.decode("utf-8", "replace"), sorted(errors), record.get("seq")))
        else:
            highest = record["seq"]
            expected_good.append((record["seq"], record["ts_us"], record["src_key"], bytes.fromhex(record["msg_id"])))
    assert [(row["seq"], row["ts_us"], row["src_key"], row["msg_id"]) for row in good] == expected_good
    assert [(row["line"], sorted(row["errors"]), row["seq"]) for row in bad] == expected_bad


@given(
    segments=st.lists(
        st.tuples(some_lines(), st.sampled_from([NODE, "mn-2.b.example"]), st.integers(1, 2)), min_size=1, max_size=5
    ),
    unit_lines=st.integers(1, 40),
    words_max=st.sampled_from([2, words.WORDS_MAX]),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_segments_that_are_judged_together_become_what_each_becomes_by_itself(
    segments: list[tuple[list[bytes], str, int]],
    unit_lines: int,
    words_max: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(segment_rows, "UNIT_LINES", unit_lines)
    monkeypatch.setattr(words, "WORDS_MAX", words_max)
    shown = [
        (
            lines,
            manifest_of(
                lines,
                node=node,
                boot=boot,
                segno=place,
                last_seq=900 + place,
                max_ts_us=START_US + (3 + 2 * place) * SECOND_US,
            ),
        )
        for place, (lines, node, boot) in enumerate(segments)
    ]
    alone = [rows_of([one]) for one in shown]
    together = rows_of(shown)
    assert good_of(together) == [row for rows in alone for row in good_of(rows)]
    assert bad_of(together) == [row for rows in alone for row in bad_of(rows)]


def test_each_segment_is_reported_how_many_of_its_own_lines_became_what() -> None:
    reader = SegmentReader(RecordKind.MESSAGE)
    lines = [b"?", line_of(1), line_of(2), b"{}"], [line_of(1)], [b"?"], [line_of(2, node="x"), line_of(3)]
    sources = [Source(manifest_of(of_one, segno=place), "2026-03-01") for place, of_one in enumerate(lines)]
    for source, of_one in zip(sources, lines, strict=True):
        assert not list(reader.read(content_of(of_one), source))
    [rows] = reader.rest()
    assert [(source.good, source.bad) for source in sources] == [(2, 2), (1, 0), (0, 1), (1, 1)]
    assert rows.good["segno"].to_pylist() == [0, 0, 1, 3]
    assert [(source.manifest.segno, bad["line"].to_pylist()[0]) for source, bad in rows.bad] == [
        (0, "?"),
        (2, "?"),
        (3, line_of(2, node="x").decode()),
    ]
    assert {len(source.days) for source in sources} == {0, 1}


def test_members_of_a_record_are_its_columns_and_ours_is_the_writer() -> None:
    [ours, theirs], bad = read([line_of(1, size_wire=None, fuel=3, facts={"auth": True}), line_of(2, role="in")])
    assert not bad
    assert (ours["fuel"], ours["size_wire"], ours["segno"], ours["errors"]) == (3, None, 7, [])
    assert (json.loads(ours["facts"]), theirs["facts"]) == ({"auth": True}, None)
    assert (ours["our_domain"], ours["peer_domain"]) == ("a.example", "b.example")
    assert (theirs["our_domain"], theirs["peer_domain"]) == ("b.example", "a.example")


def test_a_warning_stays_with_its_row_and_bad_lines_around_it_do_not_move_it() -> None:
    good, bad = read([b"{", line_of(1, size_in=-1), line_of(2), line_of(3, dst_domain="a.example"), b"[]"])
    assert [(row["seq"], row["errors"]) for row in good] == [(2, []), (3, ["own-domain"])]
    assert [(row["seq"], row["errors"], row["segno"]) for row in bad] == [
        (None, ["not-a-record"], 7),
        (1, ["negative"], 7),
        (None, ["not-a-record"], 7),
    ]


def test_records_that_do_not_keep_to_their_lines_are_none_though_as_many_as_these() -> None:
    first, second, third = (line_of(number) for number in (1, 2, 3))
    cut = first.index(b" ")
    for lines in ([first[:cut], first[cut:], second + third], [b"{", b"}{}{}"], [first + second, b" "]):
        good, bad = read(lines)
        assert not good
        assert [row["line"].encode() for row in bad] == lines
        assert {error for row in bad for error in row["errors"]} == {"not-a-record"}


def test_who_writes_new_words_all_the_time_is_not_learned_from_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = []
    learn = LineDecoder._learn

    def counted(decoder: LineDecoder) -> None:
        learned.append(decoder)
        learn(decoder)

    monkeypatch.setattr(LineDecoder, "_learn", counted)
    monkeypatch.setattr(segment_content, "PIECE_BYTES", 8000)
    monkeypatch.setattr(segment_rows, "PIECE_BYTES", 8000)
    monkeypatch.setattr(record_lines, "_LEARNING", 3)
    texts = ("src_domain", "dst_domain", "src_key", "dst_key", "msg_type", "peer_node", "channel", "rule_id")
    lines = [line_of(seq, **{texts[seq % 8]: f"word {seq}"}) for seq in range(1, 1001)]
    good, bad = read(lines)
    assert ([row["seq"] for row in good], bad) == (list(range(1, 1001)), [])
    assert all(row[texts[row["seq"] % 8]] == f"word {row['seq']}" for row in good)
    assert len(learned) < 20


def test_a_segment_without_a_good_line_has_no_rows() -> None:
    good, bad = read([b"{}", b"null"])
    assert (good, len(bad)) == ([], 2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: content_of(lines)[:-1] + b"?",
        lambda lines: content_of(lines[:-1]),
        lambda lines: content_of([*lines, b"{}"]),
        lambda lines: zstandard.ZstdCompressor(write_checksum=True).compress(b"\n".join(lines)),
    ],
    ids=["checksum", "short", "long", "no end"],
)
def test_content_that_is_not_what_the_manifest_says_is_refused(damage: Any) -> None:
    lines = [line_of(number) for number in range(1, 30)]
    with pytest.raises(ContentError):
        list(SegmentReader(RecordKind.MESSAGE).read(damage(lines), Source(manifest_of(lines), "2026-03-01")))


@pytest.mark.parametrize(
    ("kind", "record"),
    [(RecordKind.DECISION, decision(1)), (RecordKind.LINK, link_event(1)), (RecordKind.STUB, stub_event(1))],
)
def test_lines_of_every_kind_come_back_as_they_were_written(kind: RecordKind, record: Any) -> None:
    members = msgspec.structs.asdict(record) | {"v": 1}
    if kind is RecordKind.STUB:
        members["exchange_us"] = ((1, 2), (3, 4))
    line = msgspec.json.encode(RECORD_TYPES[kind](**members))
    decoder = LineDecoder(kind)
    columns = decoder.columns([decoder.read(line + b"\n")])
    assert not columns.spoilt
    found = {name: column[0].as_py() for name, column in columns.arrays.items()}
    expected = {name: msgspec.to_builtins(value) for name, value in members.items()}
    assert {name: value for name, value in found.items() if value} == {
        name: [list(one) if isinstance(one, tuple) else one for one in value]
        if isinstance(value, list | tuple)
        else value
        for name, value in expected.items()
        if value
    }


# A task.


def work_in(spool: Path) -> Iterator[Work]:
    for place in find_manifests([spool]):
        yield Work(place=place, manifest=decode_manifest(on_disk(place.manifest_path).read_bytes()), day="2026-03-01")


def test_a_task_writes_its_rows_by_day_and_says_what_became_of_every_line(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(1), message(2, ts_us=START_US + DAY_US)])
    writer.seal_lines(b"{}\n")
    report = load_share(Loading(RecordKind.MESSAGE, tmp_path / "good", tmp_path / "bad"), list(work_in(writer.spool)))
    assert [(one.good, one.bad) for one in report.counts] == [(2, 0), (0, 1)]
    assert sorted((file.day, file.rows) for file in report.good) == [("2026-03-01", 1), ("2026-03-02", 1)]
    assert {Path(file.path).parent for file in report.good} == {
        tmp_path / "good" / f"dt={day}" for day in ("2026-03-01", "2026-03-02")
    }
    [bad] = report.bad
    assert pq.read_table(bad.path, partitioning=None)["line"].to_pylist() == ["{}"]
    assert not report.changed


def test_ids_are_bytes_in_records_of_messages_and_texts_in_others(tmp_path: Path) -> None:
    records = [decision(number) for number in (1, 2)]
    for record in records:
        record.msg_id = "AB" * 16
    SegmentWriter(tmp_path / "spool", kind=RecordKind.DECISION).seal(records)
    [written] = load_share(
        Loading(RecordKind.DECISION, tmp_path / "good", tmp_path / "bad"), list(work_in(tmp_path / "spool"))
    ).good
    rows = pq.read_table(written.path, partitioning=None)
    assert rows.schema.equals(segment_rows.stored_schema(BRONZE_DECISION))
    assert rows["msg_id"].to_pylist() == ["AB" * 16] * 2

    [rows] = rows_of([([line_of(1)], manifest_of([line_of(1)]))])
    assert rows.good.schema.field("msg_id").type == pa.binary()


def test_a_task_says_which_segments_are_not_what_was_verified(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal([message(1)])
    writer.seal([message(2)])
    first, second = work_in(writer.spool)
    other = msgspec.structs.replace(second.manifest, records=2)
    gone = Place(str(tmp_path), "mdr-gone.manifest.json", 1, 1)
    share = [
        first,
        msgspec.structs.replace(second, manifest=other),
        msgspec.structs.replace(first, place=gone),
    ]
    report = load_share(Loading(RecordKind.MESSAGE, tmp_path / "good", tmp_path / "bad"), share)
    assert (report.changed, report.missing) == ([second.place], [gone])
    assert [one.stem for one in report.counts] == [first.place.stem]


def test_more_days_than_files_may_be_open_come_out_whole(tmp_path: Path) -> None:
    times = [START_US + number * DAY_US for number in range(20)] * 2
    rows = pa.table({"ts_us": times})
    with PartFiles(tmp_path, rows.schema) as files:
        files.add(rows)
    assert sorted((file.day, file.rows) for file in files.written) == [
        (f"2026-03-{number + 1:02}", 2) for number in range(20)
    ]
    found = [pq.read_table(file.path, partitioning=None)["ts_us"].to_pylist() for file in files.written]
    assert sorted(time for part in found for time in part) == sorted(times)


def test_texts_are_the_same_whether_they_were_words_or_not(tmp_path: Path) -> None:
    texts = ["a", None, "b", "a", "c"]
    column = pa.array(texts)
    tables = [
        pa.table({"ts_us": [START_US] * len(one), "text": one})
        for one in (column.dictionary_encode(), column.dictionary_encode().slice(1), column, column.dictionary_encode())
    ]
    with PartFiles(tmp_path / "at once", tables[2].schema) as files:
        for table in tables:
            files.add(table)
    [file] = files.written
    assert pq.read_table(file.path, partitioning=None)["text"].to_pylist() == [*texts, *texts[1:], *texts, *texts]

    with PartFiles(tmp_path / "in turn", tables[2].schema) as files:
        for table in tables:
            files.add(table)
            files._flush()
    found = [pq.read_table(file.path, partitioning=None)["text"].to_pylist() for file in files.written]
    assert found == [texts + texts[1:], texts, texts]
    assert {pq.read_schema(file.path).field("text").type for file in files.written} == {pa.string()}


def test_rows_of_another_table_are_not_written(tmp_path: Path) -> None:
    rows = pa.table({"ts_us": [START_US]})
    with pytest.raises(TypeError), PartFiles(tmp_path, pa.schema({"ts_us": pa.string()})) as files:
        files.add(rows)
    assert not list(tmp_path.rglob("*.parquet"))


def test_what_is_in_quarantine_leaves_no_word_in_the_files_of_good_rows(tmp_path: Path) -> None:
    lines = [line_of(1), line_of(2, role="sideways")]
    [part] = rows_of([(lines, manifest_of(lines))])
    assert part.good["role"].chunk(0).dictionary.to_pylist() == ["out"]


def test_files_that_could_not_be_finished_are_named_by_nobody(tmp_path: Path) -> None:
    rows = pa.table({"ts_us": [START_US]})
    files = PartFiles(tmp_path, rows.schema)
    files.add(rows)
    files.__exit__(RuntimeError, RuntimeError(), None)
    assert files.written == []
