"""`trapezoid records`: the questions of operators, answered from a spool that may be torn, foreign or hashed."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from protofly.record_segments import (
    MANIFEST_SUFFIX,
    OPEN_SUFFIX,
    SEALED_SUFFIX,
    SegmentFacts,
    SegmentFile,
    SegmentName,
    encode_manifest,
    frame_compressor,
    make_manifest,
)
from protofly.records import (
    AdminEvent,
    DecisionRecord,
    LinkEvent,
    MessageRecord,
    Record,
    RecordKind,
    SessionEvent,
    address_key,
    hash_address,
)
from stubs_cache.store import load_secret
from trapezoid.commands import app

ANA, BOB, EVE = "hyperty://a.example/ana", "hyperty://b.example/bob", "hyperty://c.example/eve"
START_US = 1_780_000_000_000_000
"""2026-05-28T20:26:40Z."""


def message(number: int, sender: str = ANA, recipient: str = BOB, **members: Any) -> MessageRecord:
    whole = {"outcome": "delivered", "decision": "permit", "reason": "default", **members}
    return MessageRecord(
        v=1,
        node="mn-1.a.example",
        boot=1,
        seq=number,
        ts_us=START_US + number * 1_000_000,
        role="out",
        msg_id=f"{number:032x}",
        attempt=1,
        src_domain="a.example",
        dst_domain=recipient.split("/")[2] if "//" in recipient else "b.example",
        src_key=sender,
        dst_key=recipient,
        msg_type="create",
        size_in=100,
        digest="d" * 32,
        **whole,
    )


DENIED = message(
    3,
    recipient=EVE,
    outcome="denied",
    outcome_code="policy",
    decision="deny",
    reason="policy",
    rule_id="border/no-strangers",
    policy_rev="r7",
)
DECISION = DecisionRecord(
    v=1,
    node="mn-1.a.example",
    boot=1,
    seq=1,
    ts_us=DENIED.ts_us,
    hook="out",
    effect="deny",
    permitted=False,
    policy_rev="r7",
    src_domain="a.example",
    dst_domain="c.example",
    msg_id=DENIED.msg_id,
    src_key=ANA,
    dst_key=EVE,
    reason="policy",
    rule_id="border/no-strangers",
)
REFUSED_LINK = LinkEvent(
    v=1,
    node="mn-1.a.example",
    boot=1,
    seq=1,
    ts_us=START_US + 9_000_000,
    domain="c.example",
    event="refused",
    code="tls-failed",
    detail="certificate has expired",
)
SESSION = SessionEvent(
    v=1,
    node="mn-1.a.example",
    boot=1,
    seq=1,
    ts_us=START_US + 10_000_000,
    event="refused",
    runtime_key="runtime://a.example/rt-1",
    code="bad-token",
)


def change(number: int, **members: Any) -> AdminEvent:
    return AdminEvent(v=1, node="mn-1.a.example", boot=1, seq=number, ts_us=START_US + number * 1_000_000, **members)


BLOCKED = change(
    1,
    operation="peer block",
    actor="root",
    way="socket",
    arguments='{"domain":"c.example","reason":"stolen key"}',
    after='{"subject":"c.example"}',
)
REFUSED_CHANGE = change(
    2,
    operation="peer unblock",
    actor="runtime://a.example/op",
    way="message",
    arguments='{"domain":"d.example"}',
    code="not-registered",
    detail="there is no restriction of the peer d.example",
)
ENDED = change(
    3,
    operation="lift",
    actor="the node",
    way="node",
    arguments='{"what":"peer","subject":"c.example"}',
    before='{"subject":"c.example"}',
)


def frame(records: Sequence[Record]) -> bytes:
    import msgspec

    return frame_compressor().compress(b"".join(msgspec.json.encode(one) + b"\n" for one in records))


def write(spool: Path, kind: RecordKind, *frames: bytes, number: int = 1, is_open: bool = False) -> Path:
    name = SegmentName(kind, "mn-1.a.example", 1, number)
    path = spool / f"{name}{OPEN_SUFFIX if is_open else SEALED_SUFFIX}"
    path.write_bytes(b"".join(frames))
    return path


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "records"
    folder.mkdir()
    write(folder, RecordKind.MESSAGE, frame([message(1), message(2, BOB, ANA)]), frame([DENIED]))
    write(folder, RecordKind.DECISION, frame([DECISION]))
    write(folder, RecordKind.LINK, frame([REFUSED_LINK]))
    write(folder, RecordKind.SESSION, frame([SESSION]), is_open=True)
    write(folder, RecordKind.ADMIN, frame([BLOCKED, REFUSED_CHANGE]), frame([ENDED]), is_open=True)
    return folder


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["records", *map(str, arguments)])


def found(*arguments: object) -> list[dict[str, Any]]:
    done = run(*arguments, "--json")
    assert done.exit_code in (0, 1), done.output
    records: list[dict[str, Any]] = json.loads(done.stdout)["records"]
    return records


def test_why_a_message_was_refused_is_reported_by_sender_and_recipient(spool: Path) -> None:
    done = run("find", "--spool", spool, "--from", ANA, "--to", EVE)
    assert done.exit_code == 0
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["time", "kind", "from", "to", "type", "outcome", "why", "id"]
    (row,) = rows  # the decision beside it says nothing new
    assert row.startswith("2026-05-28T20:26:43.000Z  mdr  ")
    for text in ("denied (out)", "policy: Forbidden", "by a rule", "rule border/no-strangers", "policies r7"):
        assert text in row


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        (["--refused"], ["mdr", "decision", "link_event", "session_event"]),
        (["--domain", "c.example"], ["mdr", "decision", "link_event"]),
        (["--domain", "C.Example."], ["mdr", "decision", "link_event"]),
        (["--code", "tls-failed"], ["link_event"]),
        (["--code", "denied"], ["mdr"]),
        (["--from", "runtime://a.example/rt-1"], ["session_event"]),
        (["--rule", "border/no-strangers"], ["mdr", "decision"]),
        (["--id", DENIED.msg_id], ["mdr", "decision"]),
        (["--id", "1/2"], ["mdr"]),
        (["--since", "2026-05-28T20:26:49"], ["link_event", "session_event"]),
        (["--since", "2026-05-28T22:26:49+02:00"], ["link_event", "session_event"]),
        (["--until", "2026-05-28T20:26:41"], ["mdr"]),
        (["--to", "HYPERTY://C.example/eve"], ["mdr", "decision"]),
        (["--domain", "nobody.example"], []),
        (["--since", "1s"], []),
        (["--limit", "1"], ["session_event"]),
    ],
)
def test_records_are_found_by_what_operators_know(spool: Path, arguments: list[str], kinds: list[str]) -> None:
    assert [one["kind"] for one in found("find", "--spool", spool, *arguments)] == kinds


def test_nothing_found_says_so_and_exits_with_1(spool: Path) -> None:
    done = run("find", "--spool", spool, "--domain", "nobody.example")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "no records match" in done.stderr


def test_tail_shows_the_newest_last(spool: Path) -> None:
    done = run("tail", "--spool", spool, "-n", "2")
    assert done.exit_code == 0
    (_, link, session) = done.stdout.splitlines()
    assert "tls-failed" in link
    assert "certificate has expired" in link
    assert "bad-token: Unauthorized" in session


def test_who_talks_with_whom_by_domain_and_by_address(spool: Path) -> None:
    pairs = json.loads(run("who", "--spool", spool, "--json").stdout)["pairs"]
    assert {(one["from"], one["to"]): (one["delivered"], one["refused"], one["bytes"]) for one in pairs} == {
        ("a.example", "b.example"): (1, 0, 100),
        ("a.example", "a.example"): (1, 0, 100),
        ("a.example", "c.example"): (0, 1, 100),
    }
    done = run("who", "--spool", spool, "--by", "address", "--domain", "c.example")
    assert ANA in done.stdout
    assert EVE in done.stdout
    assert BOB not in done.stdout
    assert run("who", "--spool", spool, "--by", "colour").exit_code == 2


def test_who_changed_what_is_shown_with_before_and_after(spool: Path) -> None:
    done = run("changes", "--spool", spool)
    assert done.exit_code == 0
    head, blocked, refused, ended = done.stdout.splitlines()
    assert head.split() == ["time", "by", "operation", "result", "arguments", "before", "after"]
    assert blocked.startswith("2026-05-28T20:26:41.000Z  root by socket")
    for text in ("peer block", "done", '"reason":"stolen key"', '{"subject":"c.example"}'):
        assert text in blocked
    assert "runtime://a.example/op by message" in refused
    assert "not-registered; there is no restriction of the peer d.example" in refused
    assert [one.strip() for one in ended.split("  ") if one.strip()][1:4] == ["the node", "lift", "done"]


@pytest.mark.parametrize(
    ("arguments", "operations"),
    [
        ([], ["peer block", "peer unblock", "lift"]),
        (["--operation", "peer"], ["peer block", "peer unblock"]),
        (["--operation", "peer block"], ["peer block"]),
        (["--operation", "pee"], []),
        (["--by", "root"], ["peer block"]),
        (["--about", "c.example"], ["peer block", "lift"]),
        (["--about", "stolen"], ["peer block"]),
        (["--refused"], ["peer unblock"]),
        (["--since", "2026-05-28T20:26:42"], ["peer unblock", "lift"]),
        (["--until", "2026-05-28T20:26:41"], ["peer block"]),
        (["--limit", "1"], ["lift"]),
    ],
)
def test_changes_are_found_by_what_operators_know(spool: Path, arguments: list[str], operations: list[str]) -> None:
    done = run("changes", "--spool", spool, *arguments, "--json")
    assert done.exit_code == (0 if operations else 1)
    changes = json.loads(done.stdout)["changes"]
    assert [one["operation"] for one in changes] == operations
    assert all(isinstance(one["arguments"], dict) for one in changes)


# Files that are not as they should be.


def test_damaged_frames_and_torn_ends_cost_their_own_lines_and_are_reported(spool: Path) -> None:
    good, bad, last = frame([message(11)]), bytearray(frame([message(12)])), frame([message(13)])
    bad[-1] ^= 1  # its checksum
    write(spool, RecordKind.MESSAGE, good, bytes(bad), last, frame([message(14)])[:-5], number=2)
    records = found("find", "--spool", spool, "--from", ANA)
    assert [one["seq"] for one in records if one["kind"] == "mdr"] == [1, 3, 11, 13]
    done = run("find", "--spool", spool, "--from", ANA)
    assert "damaged frame" in done.stderr
    assert "torn at byte" in done.stderr


def test_the_torn_end_of_a_segment_that_grows_is_normal(spool: Path) -> None:
    write(spool, RecordKind.MESSAGE, frame([message(21)]), frame([message(22)])[:20], number=3, is_open=True)
    done = run("find", "--spool", spool, "--id", "1/21", "--json")
    assert json.loads(done.stdout)["damaged"] == []
    assert [one["seq"] for one in json.loads(done.stdout)["records"]] == [21]


@pytest.mark.parametrize(
    "lines",
    [
        b"not json\n",
        b"[1]\n",
        b'{"node":"x"}\n',
        b'{"node":"x","ts_us":"soon"}\n',
        b'{"node":"x","ts_us":true}\n',
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
        b'{"node":5,"ts_us":1}\n',
    ],
)
def test_lines_that_are_no_records_are_passed_over_and_counted(spool: Path, lines: bytes) -> None:
    write(spool, RecordKind.MESSAGE, frame_compressor().compress(lines), frame([message(31)]), number=4)
    records = found("find", "--spool", spool, "--id", "1/31")
    assert [one["seq"] for one in records] == [31]
    assert "a line is not a record" in run("tail", "--spool", spool).stderr


@pytest.mark.parametrize(
    "members",
    [
        b'"ts_us":99999999999999999999,"outcome":5',
        b'"ts_us":-1,"outcome":["denied"],"facts":[1],"src_key":{}',
        b'"ts_us":1,"shadow":"x","permitted":"no","boot":"x","size_in":"y","msg_id":7,"rule_id":{}',
    ],
)
def test_members_of_wrong_types_break_nothing(spool: Path, members: bytes) -> None:
    write(spool, RecordKind.MESSAGE, frame_compressor().compress(b'{"node":"x",' + members + b"}\n"), number=5)
    for command in (["find"], ["find", "--refused"], ["tail"], ["who"], ["who", "--by", "address"]):
        done = run(*command, "--spool", spool)
        assert done.exit_code == 0, done.output
        assert done.exception is None or isinstance(done.exception, SystemExit)


def test_foreign_files_in_the_folder_are_not_touched(spool: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (spool / "notes.txt").write_text("mdr")
    (spool / "chain.json").write_text("{}")
    (spool / "mdr-x-1-000001.jsonl.zst").mkdir()
    os.mkfifo(spool / "mdr-mn-1.a.example-1-000090.jsonl.zst")
    (spool / "mdr-mn-1.a.example-1-000091.jsonl.zst").symlink_to(secret)
    (spool / "mdr-mn-1.a.example-1-000092.open").write_bytes(b"")
    done = run("find", "--spool", spool, "--from", ANA)
    assert done.exit_code == 0
    assert "not a regular file" in done.stderr
    assert stat.S_ISFIFO((spool / "mdr-mn-1.a.example-1-000090.jsonl.zst").stat().st_mode)


def test_a_frame_that_would_take_all_memory_is_passed_over(spool: Path) -> None:
    from zstandard import ZstdCompressor

    write(spool, RecordKind.MESSAGE, ZstdCompressor().compress(bytes(65 << 20)), frame([message(41)]), number=6)
    assert [one["seq"] for one in found("find", "--spool", spool, "--id", "1/41")] == [41]


def test_what_strangers_wrote_does_not_drive_the_terminal(spool: Path) -> None:
    evil = message(51, recipient="hyperty://b.example/\x1b[2J\u202egnp\u0085x")
    write(spool, RecordKind.MESSAGE, frame([evil]), number=7)
    done = run("find", "--spool", spool, "--id", "1/51")
    assert r"hyperty://b.example/\x1b[2J\u202egnp\x85x" in done.stdout


def test_segments_older_than_asked_for_are_not_read(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = SegmentName(RecordKind.MESSAGE, "mn-1.a.example", 1, 1)
    facts = SegmentFacts(first_seq=1, opened_us=START_US)
    facts.add([START_US], [], [])
    manifest = make_manifest(
        name,
        facts,
        file=SegmentFile(size_bytes=1, sha256="0" * 64, prev_sha256=""),
        closure="time",
        closed_us=START_US,
    )
    (spool / f"{name}{MANIFEST_SUFFIX}").write_bytes(encode_manifest(manifest))
    done = json.loads(run("who", "--spool", spool, "--since", "2026-05-28T20:26:41", "--json").stdout)
    assert (done["pairs"], done["segments"]) == ([], 0)


# Settings, hashes, and a node that goes on.


def settings(tmp_path: Path, *, is_hashed: bool) -> Path:
    config = tmp_path / "node.toml"
    config.write_text(
        '[node]\ndomain = "a.example"\ndata_dir = "data"\n[listen]\nport = 0\ninsecure_plaintext = true\n'
        f"[records]\nhash_addresses = {str(is_hashed).lower()}\n"
    )
    (tmp_path / "data" / "records").mkdir(parents=True)
    return config


def test_an_address_is_found_in_hashed_records_by_the_secret_of_the_node(tmp_path: Path) -> None:
    config = settings(tmp_path, is_hashed=True)
    key = address_key(load_secret(tmp_path / "data" / "secret"))
    hashed = message(1, hash_address(ANA, key), hash_address(BOB, key))
    write(tmp_path / "data" / "records", RecordKind.MESSAGE, frame([hashed]))
    assert [one["seq"] for one in found("find", "--config", config, "--from", ANA, "--to", BOB)] == [1]
    assert found("find", "--config", config, "--from", BOB) == []
    assert [one["seq"] for one in found("find", "--config", config, "--from", hashed.src_key)] == [1]
    assert ANA not in run("who", "--config", config, "--by", "address").stdout


def test_records_from_before_addresses_were_hashed_are_found_and_counted_with_those_from_after(tmp_path: Path) -> None:
    config = settings(tmp_path, is_hashed=True)
    key = address_key(load_secret(tmp_path / "data" / "secret"))
    hashed = message(2, hash_address(ANA, key), hash_address(BOB, key))
    write(tmp_path / "data" / "records", RecordKind.MESSAGE, frame([message(1), hashed]))
    assert [one["seq"] for one in found("find", "--config", config, "--from", ANA, "--to", BOB)] == [1, 2]
    [pair] = json.loads(run("who", "--config", config, "--by", "address", "--json").stdout)["pairs"]
    assert (pair["from"], pair["delivered"]) == (hashed.src_key, 2)


def test_after_hashing_was_switched_off_older_records_are_found_as_well(tmp_path: Path) -> None:
    config = settings(tmp_path, is_hashed=False)
    key = address_key(load_secret(tmp_path / "data" / "secret"))
    write(tmp_path / "data" / "records", RecordKind.MESSAGE, frame([message(1, hash_address(ANA, key)), message(2)]))
    assert [one["seq"] for one in found("find", "--config", config, "--from", ANA)] == [1, 2]
    assert ANA in run("who", "--config", config, "--by", "address").stdout


def test_hash_prints_how_records_name_an_address_however_it_is_written(tmp_path: Path) -> None:
    config = settings(tmp_path, is_hashed=True)
    assert run("hash", ANA, "--config", config).exit_code == 2  # no secret: the node has never run
    key = address_key(load_secret(tmp_path / "data" / "secret"))
    done = json.loads(run("hash", ANA, ANA.replace("a.example", "A.Example"), "--config", config, "--json").stdout)
    assert {one["hash"] for one in done["hashes"]} == {hash_address(ANA, key)}


def test_without_hashes_the_secret_is_not_asked_for(tmp_path: Path) -> None:
    config = settings(tmp_path, is_hashed=False)
    write(tmp_path / "data" / "records", RecordKind.MESSAGE, frame([message(1)]))
    assert [one["seq"] for one in found("find", "--config", config, "--from", ANA)] == [1]
    assert not (tmp_path / "data" / "secret").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["find"],
        ["find", "--spool", "nowhere"],
        ["tail", "--spool", "x", "--config", "y"],
        ["who", "--spool", ".", "--since", "yesterday"],
        ["find", "--spool", ".", "--until", "2026-13-01"],
    ],
)
def test_wrong_questions_are_errors_with_words(tmp_path: Path, arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")


def test_follow_shows_what_comes_once_also_over_the_sealing(spool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = write(spool, RecordKind.MESSAGE, frame([message(61)]), number=8, is_open=True)
    steps = iter([1, 2, 3])

    def happen(_seconds: float) -> None:
        match next(steps):
            case 1:
                with growing.open("ab") as file:
                    file.write(frame([message(62)]))
            case 2:
                with growing.open("ab") as file:
                    file.write(frame([message(63)]))
                growing.rename(growing.with_name(growing.name.removesuffix(OPEN_SUFFIX) + SEALED_SUFFIX))
            case _:
                raise KeyboardInterrupt

    monkeypatch.setattr("trapezoid.commands.records.time.sleep", happen)
    done = run("tail", "--spool", spool, "-n", "1", "--domain", "b.example", "--follow", "--json")
    assert done.exit_code == 0
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == [61, 62, 63]
