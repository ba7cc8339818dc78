"""`trapezoid records` on spools that somebody else has written: odd members and odd file names blind nobody."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from protofly.record_segments import SEALED_SUFFIX, frame_compressor
from protofly.records import AdminEvent, DecisionRecord, LinkEvent, MessageRecord, Record, RecordKind, SessionEvent
from trapezoid.commands import app

SPEAKING = "\x1b[2J\u202e\u2028\x85"
ODD = [[], {}, {"a": [1]}, None, True, -1, 10**30, 1e308, -(1 << 63), (1 << 64) - 1, "", "x" * 5000, SPEAKING, ["a"]]
COMMON: dict[str, Any] = {"v": 1, "node": "mn-1.a.example", "boot": 1, "seq": 1, "ts_us": 1_780_000_000_000_000}
PAIR: dict[str, Any] = {
    "src_domain": "a.example",
    "dst_domain": "c.example",
    "src_key": "hyperty://a.example/ana",
    "policy_rev": "r7",
}
RECORDS: dict[RecordKind, Record] = {
    RecordKind.MESSAGE: MessageRecord(
        **COMMON,
        **PAIR,
        role="out",
        msg_id="3" * 32,
        attempt=1,
        dst_key="hyperty://c.example/eve",
        msg_type="create",
        size_in=100,
        digest="d" * 32,
        outcome="denied",
        outcome_code="policy",
        decision="deny",
        reason="policy",
    ),
    RecordKind.DECISION: DecisionRecord(**COMMON, **PAIR, hook="out", effect="deny", permitted=False, msg_id="3" * 32),
    RecordKind.LINK: LinkEvent(**COMMON, domain="c.example", event="refused", code="tls-failed"),
    RecordKind.SESSION: SessionEvent(
        **COMMON, event="refused", runtime_key="runtime://a.example/rt-1", code="bad-token"
    ),
    RecordKind.ADMIN: AdminEvent(
        **COMMON, operation="peer block", actor="root", way="socket", arguments="{}", before="null", after="{}"
    ),
}
QUESTIONS = [
    ["find"],
    ["find", "--refused"],
    ["find", "--code", "policy", "--since", "2020-01-01", "--until", "2100-01-01"],
    ["find", "--from", "hyperty://a.example/ana"],
    ["find", "--to", "hyperty://c.example/eve"],
    ["find", "--id", "3" * 32],
    ["find", "--rule", "x"],
    ["find", "--domain", "c.example"],
    ["tail", "--refused"],
    ["who"],
    ["changes", "--by", "root", "--about", "x", "--operation", "peer"],
    ["changes"],
    ["who", "--by", "address", "--domain", "c.example"],
]


def answered(*arguments: str) -> Result:
    """The answer of a command that came to its end."""
    done = CliRunner().invoke(app, ["records", *arguments])
    assert done.exit_code in (0, 1), done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert not set(SPEAKING) - {"[", "2", "J"} & set(done.output)
    return done


@pytest.mark.parametrize("kind", RECORDS)
def test_no_value_of_any_member_ends_a_command(tmp_path: Path, kind: RecordKind) -> None:
    whole = msgspec.to_builtins(RECORDS[kind])
    lines = [json.dumps({**whole, name: value}) for name in whole for value in ODD]
    path = tmp_path / f"{kind.value}-mn-1-1-000001{SEALED_SUFFIX}"
    path.write_bytes(frame_compressor().compress("\n".join([*lines, json.dumps(whole)]).encode()))
    for question in QUESTIONS:
        answered(*question, "--spool", str(tmp_path))
        json.loads(answered(*question, "--spool", str(tmp_path), "--json").stdout)
    command, member = ("changes", "changes") if kind is RecordKind.ADMIN else ("tail", "records")
    assert json.loads(answered(command, "-n", "1", "--spool", str(tmp_path), "--json").stdout)[member]


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_names_of_files_that_are_no_text_end_no_command(tmp_path: Path, as_json: list[str]) -> None:
    name = b"mdr-n\xff\x1b[2J-1-000001" + SEALED_SUFFIX.encode()
    Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_bytes(b"no frame")  # noqa: PTH118 - bytes
    done = answered("find", "--spool", str(tmp_path), *as_json)
    assert "torn at byte 0" in done.output
