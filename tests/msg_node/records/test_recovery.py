from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from msg_node.records.recovery import Chain, Crash, last_crash, newest_boot, note_run, note_written, recover
from protofly.block_encoding import encode_blocks
from protofly.record_blocks import BLOCK_MAGIC
from protofly.record_segments import SegmentName, frame_compressor
from protofly.records import MessageRecord, RecordKind, SegmentManifest, decode_manifest

NAME = SegmentName(RecordKind.SESSION, "mn-1.a.example", 7, 3)


def frame(first_seq: int, records: int) -> bytes:
    lines = [{"seq": seq, "ts_us": 1000 + seq, "policy_rev": "r1"} for seq in range(first_seq, first_seq + records)]
    return zstandard.ZstdCompressor(write_checksum=True).compress(msgspec.json.Encoder().encode_lines(lines))


def test_names_survive_their_text_also_with_dashes_and_dots_in_the_node() -> None:
    assert SegmentName.parse(str(NAME)) == NAME
    assert SegmentName.parse("mdr-mn-1-2.b.example-99-000012") == SegmentName(
        RecordKind.MESSAGE, "mn-1-2.b.example", 99, 12
    )
    assert SegmentName.parse("chain") is None
    assert SegmentName.parse("other-mn-1-1") is None


@settings(max_examples=40, deadline=None)
@given(torn_bytes=st.integers(min_value=0, max_value=400))
def test_a_torn_segment_is_cut_to_its_last_whole_frame(
    tmp_path_factory: pytest.TempPathFactory, torn_bytes: int
) -> None:
    spool = tmp_path_factory.mktemp("spool")
    whole = frame(1, 5) + frame(6, 5)
    third = frame(11, 50)
    torn = third[: torn_bytes % len(third)]
    (spool / f"{NAME}.open").write_bytes(whole + torn)

    _, (manifest,) = recover(spool, signer=None)

    assert (spool / f"{NAME}.jsonl.zst").read_bytes() == whole
    assert manifest == decode_manifest((spool / f"{NAME}.manifest.json").read_bytes())
    assert (manifest.closure, manifest.records, manifest.first_seq, manifest.last_seq) == ("recovered", 10, 1, 10)
    assert (manifest.size_bytes, manifest.sha256) == (len(whole), sha256(whole).hexdigest())
    assert (manifest.min_ts_us, manifest.max_ts_us, manifest.policy_revs) == (1001, 1010, ("r1",))
    assert not list(spool.glob("*.open"))


def blocks(first_seq: int, records: int) -> bytes:
    """A frame of messages in columns."""
    found = [
        MessageRecord(
            ts_us=1000 + seq,
            role="out",
            msg_id=f"{seq:032x}",
            attempt=1,
            src_domain="a.example",
            dst_domain="b.example",
            src_key="x:a",
            dst_key="x:b",
            msg_type="create",
            size_in=1,
            digest="cd" * 16,
            outcome="delivered",
            policy_rev="r1",
        )
        for seq in range(first_seq, first_seq + records)
    ]
    encoded = encode_blocks(found, node=NAME.node, boot=NAME.boot, first_seq=first_seq)
    return b"".join(frame_compressor().compress(one.content) for one in encoded)


MESSAGES = NAME._replace(kind=RecordKind.MESSAGE)
DAMAGED = {
    "torn": blocks(11, 50)[:-1],
    "flipped": blocks(11, 50)[:-1] + b"?",
    "no block": frame_compressor().compress(BLOCK_MAGIC + b"nonsense"),
    "without times": frame_compressor().compress(
        BLOCK_MAGIC + (64).to_bytes(4, "little") + b'{"v":2,"node":"n","boot":1,"first_seq":1,"records":1,"columns":[]}'
    ),
    "lines": frame(11, 5),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_blocks_are_kept_up_to_the_first_damage_and_sealed_as_what_they_are(tmp_path: Path, damage: str) -> None:
    whole = blocks(4, 5) + frame_compressor().compress(b"") + blocks(10, 1)
    (tmp_path / f"{MESSAGES}.open").write_bytes(whole + DAMAGED[damage])
    _, (manifest,) = recover(tmp_path, signer=None)
    assert (tmp_path / f"{MESSAGES}.blocks.zst").read_bytes() == whole
    assert (manifest.schema_version, manifest.records, manifest.lost_records) == (2, 6, 1)
    assert (manifest.first_seq, manifest.last_seq) == (4, 10)
    assert (manifest.min_ts_us, manifest.max_ts_us, manifest.policy_revs) == (1004, 1010, ("r1",))
    assert manifest.sha256 == sha256(whole).hexdigest()
    assert recover(tmp_path, signer=None)[1] == []


def test_an_empty_sealed_segment_in_columns_that_has_no_manifest_keeps_its_version_after_a_crash(
    tmp_path: Path,
) -> None:
    (tmp_path / f"{MESSAGES}.blocks.zst").write_bytes(frame_compressor().compress(b""))
    _, (manifest,) = recover(tmp_path, signer=None, crash=Crash(NAME.node, NAME.boot, 5_000_000))
    assert (manifest.schema_version, manifest.records, manifest.uncertain_from_us) == (2, 0, 5_000_000)
    assert [path.name for path in tmp_path.glob("*.zst")] == [f"{MESSAGES}.blocks.zst"]


def test_a_flipped_bit_ends_what_can_be_kept(tmp_path: Path) -> None:
    first, second = frame(1, 5), bytearray(frame(6, 500))
    second[len(second) // 2] ^= 0x10
    (tmp_path / f"{NAME}.open").write_bytes(first + bytes(second) + frame(506, 5))

    _, (manifest,) = recover(tmp_path, signer=None)

    assert manifest.records == 5
    assert (tmp_path / f"{NAME}.jsonl.zst").read_bytes() == first


def test_a_frame_header_that_claims_all_memory_is_damage(tmp_path: Path) -> None:
    claims_much = b"\x28\xb5\x2f\xfd" + bytes([0b1110_0000]) + (1 << 50).to_bytes(8, "little") + b"\x01\x00\x00"
    (tmp_path / f"{NAME}.open").write_bytes(frame(1, 2) + claims_much)
    _, (manifest,) = recover(tmp_path, signer=None)
    assert manifest.records == 2


def test_gaps_in_the_numbers_are_counted_as_lost(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.open").write_bytes(frame(4, 3) + frame(10, 1))
    _, (manifest,) = recover(tmp_path, signer=None)
    assert (manifest.first_seq, manifest.last_seq, manifest.records, manifest.lost_records) == (4, 10, 4, 3)


def test_an_open_segment_without_a_whole_frame_disappears(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.open").write_bytes(frame(1, 5)[:20])
    assert recover(tmp_path, signer=None)[1] == []
    assert [path.name for path in tmp_path.iterdir()] == ["chain.json"]


def test_a_crash_between_rename_and_manifest_is_finished_in_order(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.jsonl.zst").write_bytes(frame(1, 5))
    (tmp_path / f"{NAME._replace(segno=4)}.open").write_bytes(frame(6, 5))
    (tmp_path / f"{NAME}.manifest.json.tmp").write_bytes(b"{")

    chain, (first, second) = recover(tmp_path, signer=None)

    assert (first.segno, second.segno) == (3, 4)
    assert second.prev_sha256 == first.sha256
    assert second.first_seq == first.last_seq + 1
    assert chain.prev_sha256(RecordKind.SESSION) == second.sha256
    assert recover(tmp_path, signer=None)[1] == [], "a second start finds nothing to do"
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.parametrize("spoilt", [b"", b"nonsense", b'{"unheard":{"boot":1,"segno":1,"last_seq":1,"sha256":""}}'])
def test_a_spoilt_chain_file_is_replaced_by_what_the_manifests_say(tmp_path: Path, spoilt: bytes) -> None:
    (tmp_path / f"{NAME}.open").write_bytes(frame(1, 5))
    recover(tmp_path, signer=None)
    (tmp_path / "chain.json").write_bytes(spoilt)
    chain, _ = recover(tmp_path, signer=None)
    assert chain.prev_sha256(RecordKind.SESSION)
    assert json.loads((tmp_path / "chain.json").read_bytes())["session_event"]["segno"] == 3


def test_boots_never_go_backwards_even_when_the_clock_does(tmp_path: Path) -> None:
    assert newest_boot(tmp_path) == 0
    (tmp_path / f"{NAME._replace(boot=1 << 50)}.open").write_bytes(b"")
    assert newest_boot(tmp_path) == 1 << 50


KILLED_WRITER = textwrap.dedent(
    """
    import sys, trio
    from pathlib import Path
    from msg_node.records.writer import RecordsWriter, WriterOptions
    from protofly.records import SessionEvent

    async def main(spool):
        writer = RecordsWriter(spool, "mn-1.a.example", options=WriterOptions(sync_seconds=0.001))
        async with trio.open_nursery() as nursery:
            await nursery.start(writer.run)
            number, is_reported = 0, False
            while True:
                number += 1
                writer.append(SessionEvent(ts_us=number, event="opened", runtime_key=f"runtime://a.example/{number}"))
                if number % 20 == 0:
                    await trio.sleep(0.001)
                if not is_reported and writer.statistics().written > 1000:
                    print("under way", flush=True)
                    is_reported = True

    trio.run(main, Path(sys.argv[1]))
    """
)


def sorted_by_kind(recovered: tuple[Chain, list[SegmentManifest]]) -> tuple[Chain, list[SegmentManifest]]:
    return recovered[0], sorted(recovered[1], key=lambda manifest: manifest.kind.value)


def test_after_kill_9_everything_that_reached_the_disk_is_sealed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED_WRITER, str(tmp_path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"under way\n"
        os.kill(child.pid, signal.SIGKILL)
    (torn,) = tmp_path.glob("*.open")
    with torn.open("ab") as segment:
        segment.write(frame(1, 100)[:-5])  # the tail that the kill did not happen to tear

    killed_us = time.time_ns() // 1000
    crash = last_crash(tmp_path, "mn-1.a.example")
    assert crash is not None
    assert killed_us - 5_000_000 < crash.from_us <= killed_us  # not long before, however slow this machine is
    _, (empty, manifest) = sorted_by_kind(recover(tmp_path, signer=None, crash=crash))
    assert (empty.kind, empty.records, empty.uncertain_from_us) == (RecordKind.MESSAGE, 0, crash.from_us)

    with zstandard.open(tmp_path / f"{torn.stem}.jsonl.zst", "rb") as segment:
        numbers = [json.loads(line)["seq"] for line in segment.read().splitlines()]
    assert numbers == list(range(1, manifest.records + 1))
    assert manifest.records > 0
    assert manifest.closure == "recovered"


def test_after_a_crash_the_last_segment_of_messages_says_which_time_is_uncertain(tmp_path: Path) -> None:
    note_run(tmp_path, 7, is_running=True)
    note_written(tmp_path, 5_000_000_000)
    crash = last_crash(tmp_path, NAME.node)
    assert crash == Crash(NAME.node, 7, 5_000_000)
    name = NAME._replace(kind=RecordKind.MESSAGE)
    for segment in (NAME, name):
        (tmp_path / f"{segment}.open").write_bytes(frame(1, 5))
    before_us = time.time_ns() // 1000
    _, sealed = recover(tmp_path, signer=None, crash=crash)
    by_kind = {manifest.kind: manifest for manifest in sealed}
    assert by_kind[NAME.kind].uncertain_until_us is msgspec.UNSET
    found = by_kind[RecordKind.MESSAGE]
    assert (found.records, found.uncertain_from_us) == (5, 5_000_000)
    assert before_us <= (found.uncertain_until_us or 0) == found.closed_us
    assert decode_manifest((tmp_path / f"{name}.manifest.json").read_bytes()) == found


@pytest.mark.parametrize("torn", [b"", b"torn"])
def test_a_crash_before_any_record_was_written_leaves_an_empty_segment_that_says_so(
    tmp_path: Path, torn: bytes
) -> None:
    name = NAME._replace(kind=RecordKind.MESSAGE)
    (tmp_path / f"{name}.open").write_bytes(frame(1, 5))
    chain, (whole,) = recover(tmp_path, signer=None)
    follower = name._replace(segno=name.segno + 1)
    if torn:
        (tmp_path / f"{follower}.open").write_bytes(torn)
    _, (found,) = recover(tmp_path, signer=None, crash=Crash(NAME.node, NAME.boot, 5_000_000))
    assert (found.boot, found.segno, found.records, found.lost_records) == (7, follower.segno, 0, 0)
    assert (found.first_seq, found.last_seq) == (whole.last_seq + 1, whole.last_seq)
    assert (found.prev_sha256, found.uncertain_from_us) == (chain.prev_sha256(RecordKind.MESSAGE), 5_000_000)
    assert zstandard.ZstdDecompressor().decompress((tmp_path / f"{follower}.jsonl.zst").read_bytes()) == b""


@pytest.mark.parametrize("content", [None, "", "ended 7\n", "running x", "\0\0\0"])
def test_a_run_that_ended_in_order_or_of_which_nothing_is_known_is_no_crash(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / ".lock").write_text(content)
    assert last_crash(tmp_path, NAME.node) is None
