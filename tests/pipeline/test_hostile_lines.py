"""Lines that a signed segment may hold and that are no records: each is in quarantine, as it was, with its reasons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.jobs import ingest
from pipeline.jobs.result import ExitCode
from pipeline.lake.tables import Lake
from pipeline.schemas import BRONZE_MDR, QUARANTINE, SEGMENTS
from tests.pipeline.spools import NODE, SECOND_US, START_US, SegmentWriter

pytestmark = pytest.mark.spark


def line(seq: int, /, **members: object) -> bytes:
    good: dict[str, Any] = {
        "v": 1,
        "node": NODE,
        "boot": 1,
        "seq": seq,
        "ts_us": START_US + seq * SECOND_US,
        "role": "out",
        "msg_id": f"{seq:032x}",
        "attempt": 1,
        "src_domain": "a.example",
        "dst_domain": "b.example",
        "src_key": "alice",
        "dst_key": "bob",
        "msg_type": "text/plain",
        "size_in": 5,
        "digest": f"{seq:032x}",
        "outcome": "delivered",
    }
    good |= members
    return json.dumps({name: value for name, value in good.items() if value is not ...}).encode()


HOSTILE: list[tuple[bytes, str]] = [
    (b"", "not-a-record"),
    (b"   ", "not-a-record"),
    (b"null", "not-a-record"),
    (b"17", "not-a-record"),
    (b'"text"', "not-a-record"),
    (b"[]", "not-a-record"),
    (b"{", "not-a-record"),
    (b"\xff\xfe\x00", "not-a-record"),
    (b"{}{}", "not-a-record"),
    (b"[" * 5000 + b"]" * 5000, "not-a-record"),
    (line(11)[:-1], "not-a-record"),
    (line(12, v=2), "schema"),
    (line(13, v=70_000), "schema"),
    (line(14, node="mn-1.evil.example"), "identity"),
    (line(15, boot=2), "identity"),
    (line(0), "sequence"),
    (line(900_000, ts_us=START_US), "sequence"),
    (line(18, seq="18"), "not-a-record"),
    (line(19, ts_us=0), "time"),
    (line(20, ts_us=(1 << 63) - 1), "time"),
    (line(21, ts_us=1 << 63), "not-a-record"),
    (line(22, ts_us=START_US + 7200 * SECOND_US), "time"),
    (line(23, role="sideways"), "word:role"),
    (line(24, outcome=...), "missing:outcome"),
    (line(25, outcome=None), "missing:outcome"),
    (line(26, msg_id="xyz"), "hex:msg_id"),
    (line(27, digest="0" * 31), "hex:digest"),
    (line(28, size_in=-1), "negative"),
    (line(29, size_in=1.5), "not-a-record"),
    (line(30, size_in=int("9" * 1200)), "not-a-record"),
    (line(31, decision="maybe"), "word:decision"),
    (line(32, src_key={"a": {"b": [1]}}), "not-a-record"),
    (line(33, role=None), "missing:role"),
    (line(34, facts="x"), "object:facts"),
    (line(35, facts={"a": "\ud800"}), "not-a-record"),
    (line(36).replace(b"alice", b"\xff"), "not-a-record"),
    (b'{"v":2,"seq":"37"}', "schema"),
]
"""Lines, and one of the reasons why each is refused."""
GOOD = [
    line(len(HOSTILE) + 1, facts={"auth": "tls", "deep": {"list": [1, 2.50]}}),
    line(len(HOSTILE) + 2, strange_member=[1, 2, {"x": None}]),
    line(len(HOSTILE) + 3, msg_type="\u2028\u0000\ud83d\ude00 \r"),
    line(len(HOSTILE) + 4, dst_domain="a.example"),
    line(len(HOSTILE) + 5).replace(b'{"v"', b'{\r"v"'),
]


def test_every_line_is_stored_once_as_record_or_as_it_was(lake: Lake, tmp_path: Path) -> None:
    spool = tmp_path / "spool with [odd] {name}*"
    SegmentWriter(spool).seal_lines(b"".join(text + b"\n" for text in [*(bad for bad, _ in HOSTILE), *GOOD]))

    result = ingest.run(lake, [spool])

    quarantine = {row["line"]: row for row in lake.read(QUARANTINE).collect()}
    for text, reason in HOSTILE:
        row = quarantine[text.decode("utf-8", "replace")]
        assert reason in row["errors"], text[:60]
        assert (row["severity"], row["node"], row["boot"], row["segno"], row["dt"]) == (
            "severe",
            NODE,
            1,
            1,
            "2026-03-01",
        )
    records = {row["seq"] - len(HOSTILE): row for row in lake.read(BRONZE_MDR).collect()}
    assert sorted(records) == [1, 2, 3, 4, 5]
    assert json.loads(records[1]["facts"]) == {"auth": "tls", "deep": {"list": [1, 2.5]}}
    assert records[3]["msg_type"] == "\u2028\u0000\U0001f600 \r"
    assert [records[number]["errors"] for number in (3, 4)] == [[], ["own-domain"]]
    [segment] = lake.read_small(SEGMENTS).to_pylist()
    assert (segment["rows_good"], segment["rows_quarantined"], segment["records"]) == (
        5,
        len(HOSTILE),
        len(HOSTILE) + 5,
    )
    assert (segment["verdict"], segment["severity"]) == ("accepted", "severe")
    assert "quarantined" in segment["findings"]
    assert (result.findings, result.exit_code) == (1, ExitCode.FINDINGS)


def test_of_lines_with_the_same_number_one_is_a_record(lake: Lake, tmp_path: Path) -> None:
    twice = [line(1), line(1, msg_id="f" * 32), line(2)]
    writer = SegmentWriter(tmp_path / "spool")
    writer.seal_lines(b"".join(text + b"\n" for text in twice))
    ingest.run(lake, [writer.spool])
    assert sorted(row["seq"] for row in lake.read(BRONZE_MDR).collect()) == [1, 2]
    [bad] = lake.read(QUARANTINE).collect()
    assert bad["errors"] == ["repeated"]
    assert bad["line"].encode() in twice
