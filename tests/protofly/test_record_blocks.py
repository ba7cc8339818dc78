"""Blocks of message records: what is read is what version 1 would have, and nothing that is none is taken for one."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protofly import block_encoding, record_blocks
from protofly.block_encoding import encode_blocks
from protofly.errors import Code, PeerError
from protofly.record_blocks import (
    BLOCK_BYTES_MAX,
    BLOCK_COLUMNS_MAX,
    BLOCK_HEADER_BYTES_MAX,
    BLOCK_LINES_BYTES_MAX,
    BLOCK_MAGIC,
    BLOCK_RECORDS_MAX,
    read_block,
)
from protofly.record_segments import frame_compressor
from protofly.records import GateFacts, MessageRecord
from tests.support.message_records import message_records

NODE = "mn-1.a.example"
PAGE = Path(__file__).parents[2] / "docs" / "records.md"


def record(number: int, **members: Any) -> MessageRecord:
    facts: dict[str, Any] = {
        "ts_us": 1_795_219_200_000_000 + number,
        "role": "out",
        "msg_id": f"{number:032x}",
        "attempt": 1,
        "src_domain": "a.example",
        "dst_domain": "b.example",
        "src_key": "hyperty://a.example/ana",
        "dst_key": f"hyperty://b.example/{number % 3}",
        "msg_type": "create",
        "size_in": number,
        "digest": "cd" * 16,
        "outcome": "delivered",
    }
    return MessageRecord(**(facts | members))


def written(records: Sequence[MessageRecord], first_seq: int = 1) -> list[bytes]:
    return [one.content for one in encode_blocks(records, node=NODE, boot=7, first_seq=first_seq)]


def lines_of(blocks: Sequence[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for block in blocks for line in read_block(block).lines()]


def version_1(records: Sequence[MessageRecord], first_seq: int) -> list[dict[str, Any]]:
    """The lines that version 1 has for the same records, in the order of version 2."""
    in_order = [one for one in records if one.role == "out"] + [one for one in records if one.role != "out"]
    lines = []
    for seq, one in enumerate(in_order, first_seq):
        one.v, one.node, one.boot, one.seq = 2, NODE, 7, seq
        lines.append(json.loads(msgspec.json.encode(one)))
    return lines


@given(records=message_records(), first_seq=st.integers(1, 1 << 40))
@settings(deadline=None, max_examples=60)
def test_records_that_were_written_in_columns_are_read_as_version_1_reads_them(
    records: list[MessageRecord], first_seq: int
) -> None:
    assert lines_of(written(records, first_seq)) == version_1(records, first_seq)


def test_every_member_of_a_record_has_its_column() -> None:
    numbers = {"clock_err_us", "mem_peak_kib", "host_calls", "fuel", "size_wire"}
    members = {field.name for field in msgspec.structs.fields(MessageRecord) if not field.required}
    members -= {"v", "node", "boot", "seq"}
    filled: dict[str, Any] = {
        name: 7 if name in numbers or name.startswith("d_") else f"some {name}" for name in members - {"facts"}
    }
    records = [record(1, **filled, facts=GateFacts(via_length=2)), record(2)]
    lines = lines_of(written(records))
    assert lines == version_1(records, 1)
    assert set(lines[0]) == {field.encode_name for field in msgspec.structs.fields(MessageRecord)}


def test_the_reader_that_the_page_shows_reads_the_same() -> None:
    [code] = re.findall(r"```python\n(import json, zstandard.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    records = [record(number, size_in=number * 99, d_peer_us=number % 2 or None) for number in range(300)]
    shown: list[tuple[int, dict[str, list[Any]]]] = []
    data = frame_compressor().compress(written(records)[0]) + frame_compressor().compress(b"")
    exec(code, {"data": data, "print": lambda *found: shown.append(found)})  # the page's own words
    [(first_seq, columns)] = shown
    assert first_seq == 1
    assert columns["size_in"] == [one.size_in for one in records]
    assert columns["d_peer_us"] == [one.d_peer_us for one in records]
    assert columns["msg_id"] == [one.msg_id for one in records]
    assert columns["dst_key"] == [one.dst_key for one in records]


@pytest.mark.parametrize("count", [1, 255, 256, 257, 600])
def test_many_different_values_take_more_bytes_each_and_come_back(count: int) -> None:
    records = [
        record(number, size_in=number * number * number, src_key=f"x:{number % 300}", d_peer_us=number % 7 or None)
        for number in range(count)
    ]
    assert lines_of(written(records)) == version_1(records, 1)


def test_numbers_that_no_form_takes_come_back_as_they_are() -> None:
    records = [record(number, size_in=(1 << 64) + number % 2) for number in range(4)]
    assert lines_of(written(records)) == version_1(records, 1)


@pytest.mark.parametrize(
    ("different", "form"), [(2, "words"), (256, "words"), (257, "words"), (299, "words"), (300, "words"), (301, "each")]
)
def test_texts_of_which_most_are_different_stand_there_one_by_one(different: int, form: str) -> None:
    records = [record(number, src_key=f"x:{number % different}") for number in range(600)]
    [block] = written(records)
    [found] = re.findall(rb'\{[^{}]*"src_key"[^{}]*\}', block)
    assert f'"{form}"'.encode() in re.sub(rb"\[.*\]", b"", found)
    assert lines_of([block]) == version_1(records, 1)


def test_a_header_that_would_be_too_long_becomes_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_encoding, "BLOCK_HEADER_BYTES_MAX", 2000)
    records = [record(number, src_key=f"x:{number}" * 40) for number in range(50)]
    blocks = written(records)
    assert len(blocks) == 8
    assert lines_of(blocks) == version_1(records, 1)


@pytest.mark.parametrize(("count", "blocks"), [(1, 1), (2, 2), (3, 3)])
def test_records_that_have_no_place_together_have_blocks_of_their_own(
    monkeypatch: pytest.MonkeyPatch, count: int, blocks: int
) -> None:
    monkeypatch.setattr(block_encoding, "BLOCK_HEADER_BYTES_MAX", 1)
    records = [record(number) for number in range(count)]
    assert len(written(records)) == blocks


def test_addresses_are_hashed_where_the_block_has_them() -> None:
    [block] = encode_blocks(
        [record(1), record(2)], node=NODE, boot=7, first_seq=1, hashed=lambda text: f"h:{len(text)}"
    )
    assert {(line["src_key"], line["dst_key"]) for line in lines_of([block.content])} == {("h:23", "h:21")}


def test_what_a_manifest_needs_is_collected_on_the_way() -> None:
    records = [record(5, policy_rev="r1"), record(3, policy_rev="r2", stub_ver="s"), record(4)]
    [block] = encode_blocks(records, node=NODE, boot=7, first_seq=1)
    assert [time_us % 1000 for time_us in block.times_us] == [5, 3, 4]
    assert (set(block.policy_revs), set(block.stub_vers)) == ({"r1", "r2", None}, {"s", None})


# What is no block.


def block_of(data: bytes = b"", **members: Any) -> bytes:
    header = json.dumps({"v": 2, "node": NODE, "boot": 7, "first_seq": 1, "records": 3, "columns": []} | members)
    return BLOCK_MAGIC + len(header).to_bytes(4, "little") + header.encode() + data


def column(form: str, *values: object, **members: object) -> dict[str, object]:
    return {"name": "x", "form": form, "values": list(values)} | members


SOUND = {
    "same": block_of(columns=[column("same", "a")]),
    "words": block_of(b"\0\1\0", columns=[column("words", "a", "b")]),
    "each": block_of(columns=[column("each", "a", "b", None)]),
    "u2": block_of(b"\1\2\3\0\0\1", columns=[column("u2")]),
    "nullable": block_of(b"\1\0\1\7\x08", columns=[column("u1", nullable=True)]),
    "hex": block_of(bytes(range(48)), columns=[column("hex")]),
    "without a column": block_of(),
}
VALUES = {
    "same": ["a", "a", "a"],
    "words": ["a", "b", "a"],
    "each": ["a", "b", None],
    "u2": [1, 2, 259],
    "nullable": [7, None, 8],
    "hex": [bytes(range(start, 48, 3)).hex() for start in range(3)],
    "without a column": [None] * 3,
}


@pytest.mark.parametrize("name", SOUND)
def test_a_block_stands_for_these_lines(name: str) -> None:
    lines = [json.loads(line) for line in read_block(SOUND[name]).lines()]
    assert [line.get("x") for line in lines] == VALUES[name]
    assert [(line["v"], line["node"], line["boot"], line["seq"]) for line in lines] == [
        (2, NODE, 7, n) for n in (1, 2, 3)
    ]


WORDS = list(range(257))
"""More than one byte can number: places have two planes."""


def block_of_places(*places: int) -> bytes:
    planes = bytes(place & 255 for place in places) + bytes(place >> 8 for place in places)
    return block_of(planes, records=len(places), columns=[column("words", *WORDS)])


@pytest.mark.parametrize(
    "content",
    [
        block_of(first_seq=(1 << 63) - 4),
        block_of(columns=[column("same", 1, name=str(n)) for n in range(BLOCK_COLUMNS_MAX)]),
        block_of(b"\0\0\0", columns=[column("words", "a")]),
        block_of_places(*range(257), 256, 0, 1),
    ],
    ids=["the last numbers", "as many columns as may be", "one word", "many words"],
)
def test_a_block_at_its_bounds_is_read(content: bytes) -> None:
    assert len(list(read_block(content).lines())) in (3, 260)


def test_a_long_word_counts_as_often_as_it_is_said() -> None:
    long = "a" * (BLOCK_LINES_BYTES_MAX // BLOCK_RECORDS_MAX)
    places = [0] + [1] * (BLOCK_RECORDS_MAX - 1)
    content = block_of(bytes(places), records=BLOCK_RECORDS_MAX, columns=[column("words", long, "b")])
    found = [len(json.loads(line)["x"]) for line in read_block(content).lines()]
    assert found == [len(long), *places[1:]]
    content = block_of(bytes(BLOCK_RECORDS_MAX), records=BLOCK_RECORDS_MAX, columns=[column("words", long, "b")])
    with pytest.raises(PeerError, check=lambda error: error.code is Code.DOCUMENT_MALFORMED):
        read_block(content)


@pytest.mark.parametrize(("form", "width", "value_bytes"), [("hex", 16, 34), ("i8", 8, 20)])
def test_a_block_stands_for_no_more_bytes_than_its_records_may_have(
    form: str, width: int, value_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids are written as 32 digits in quotes, numbers in at most 20 characters."""
    content = block_of(bytes(3 * width), records=3, columns=[column(form)])
    most = 3 * (len(json.dumps(NODE)) + len('"x"') + value_bytes)
    for bound, is_read in ((most, True), (most - 1, False)):
        monkeypatch.setattr(record_blocks, "BLOCK_LINES_BYTES_MAX", bound)
        if is_read:
            assert len(list(read_block(content).lines())) == 3
            continue
        with pytest.raises(PeerError, check=lambda error: error.code is Code.DOCUMENT_MALFORMED):
            read_block(content)


def test_a_block_and_its_header_may_have_their_most_bytes_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    content = SOUND["words"]
    header_bytes = int.from_bytes(content[len(BLOCK_MAGIC) : len(BLOCK_MAGIC) + 4], "little")
    for name, most in (("BLOCK_BYTES_MAX", len(content)), ("BLOCK_HEADER_BYTES_MAX", header_bytes)):
        with monkeypatch.context() as patched:
            patched.setattr(record_blocks, name, most)
            assert read_block(content)
            patched.setattr(record_blocks, name, most - 1)
            with pytest.raises(PeerError, check=lambda error: error.code is Code.DOCUMENT_MALFORMED):
                read_block(content)


HOSTILE = {
    "place of two bytes that there is not": block_of_places(*range(256), 0, 1, 2, 257),
    "empty": b"",
    "lines": b'{"v":2}\n',
    "no length": BLOCK_MAGIC + b"\1",
    "header longer than the block": BLOCK_MAGIC + b"\xff\xff\0\0{}",
    "header longer than any": BLOCK_MAGIC + (BLOCK_HEADER_BYTES_MAX + 1).to_bytes(4, "little") + b" " * 9_000_000,
    "no header": BLOCK_MAGIC + b"\0\0\0\0",
    "no json": BLOCK_MAGIC + b"\2\0\0\0{]",
    "deep json": BLOCK_MAGIC + (80_000).to_bytes(4, "little") + b"[" * 80_000,
    "no text": block_of(columns=[column("same", "a")]).replace(b'"a"', b'"\xff"'),
    "several lines": block_of(columns=[column("same", {"a": 1})]).replace(b'{"a": 1}', b'{"a":\n1}'),
    "other version": block_of(v=3),
    "no records": block_of(records=0),
    "too many records": block_of(records=BLOCK_RECORDS_MAX + 1),
    "numbers past the last": block_of(first_seq=(1 << 63) - 2),
    "number below the first": block_of(first_seq=0),
    "negative boot": block_of(boot=-1),
    "too many columns": block_of(columns=[column("same", 1, name=str(n)) for n in range(BLOCK_COLUMNS_MAX + 1)]),
    "unknown form": block_of(columns=[column("u9")]),
    "column twice": block_of(columns=[column("same", "a"), column("same", "b")]),
    "column of the header": block_of(columns=[column("same", 7, name="seq")]),
    "data cut": block_of(b"\1\2", columns=[column("u1")]),
    "data left over": block_of(b"\1\2\3\4", columns=[column("u1")]),
    "data without a column": block_of(b"\1"),
    "word that there is not": block_of(b"\0\2\1", columns=[column("words", "a", "b")]),
    "no words": block_of(b"\0\0\0", columns=[column("words")]),
    "more words than records": block_of(b"\0\1\2", columns=[column("words", 1, 2, 3, 4)]),
    "one value of two": block_of(columns=[column("same", "a", "b")]),
    "no value": block_of(columns=[column("same")]),
    "too few values": block_of(columns=[column("each", "a", "b")]),
    "numbers with values": block_of(b"\1\2\3", columns=[column("u1", 7)]),
    "presence that is none": block_of(b"\1\2\1\7\7", columns=[column("u1", nullable=True)]),
    "presence cut": block_of(b"\1", columns=[column("u1", nullable=True)]),
    "words that may be absent": block_of(b"\1\1\1\0\0\0", columns=[column("words", "a", nullable=True)]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_block_is_refused(name: str) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.DOCUMENT_MALFORMED):
        read_block(HOSTILE[name])


@pytest.mark.parametrize(
    "bomb",
    [
        block_of(records=BLOCK_RECORDS_MAX, columns=[column("same", "a" * 2000)]),
        block_of(bytes(BLOCK_RECORDS_MAX), records=BLOCK_RECORDS_MAX, columns=[column("words", "a" * 2000, "b")]),
        block_of(records=BLOCK_RECORDS_MAX, columns=[column("same", 1, name=f"{n:5}" * 9) for n in range(99)]),
        block_of(records=BLOCK_RECORDS_MAX, node="n" * 2000),
        BLOCK_MAGIC + b"\2\0\0\0{}" + bytes(BLOCK_BYTES_MAX),
    ],
    ids=["one value", "one word", "names", "node", "bytes"],
)
def test_few_bytes_that_stand_for_many_are_refused_before_anything_is_made_of_them(bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(PeerError):
            read_block(bomb)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < BLOCK_LINES_BYTES_MAX // 16


@given(
    records=message_records(),
    at=st.integers(0, 1 << 16),
    change=st.binary(max_size=4),
    cut=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_a_changed_block_stands_for_as_many_lines_as_it_says_or_is_refused(
    records: list[MessageRecord], at: int, change: bytes, cut: bool
) -> None:
    content = written(records)[0]
    at %= len(content)
    changed = content[:at] + change + (b"" if cut else content[at + len(change) :])
    try:
        block = read_block(changed)
    except PeerError:
        return
    lines = list(block.lines())
    assert len(lines) == block.header.records
    assert not any(b"\n" in line or b"\r" in line for line in lines)
    assert sum(map(len, lines)) <= BLOCK_LINES_BYTES_MAX + 200 * len(lines)


def test_columns_of_another_kind_are_refused_where_texts_or_numbers_are_asked_for() -> None:
    words = read_block(block_of(b"\0\1\0", columns=[column("words", "a", "b")]))
    numbers = read_block(block_of(b"\0\1\0", columns=[column("words", 1, 2)]))
    name = next(iter(words.columns))
    assert (words.words(name), numbers.numbers(name)) == (["a", "b"], [1, 2, 1])
    for ask in (words.numbers, numbers.words):
        with pytest.raises(PeerError, check=lambda error: error.code is Code.DOCUMENT_MALFORMED):
            ask(name)
