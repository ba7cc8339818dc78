from __future__ import annotations

import contextlib
import json
import logging
import stat
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import trio
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from interop.lab.spool import lines_of
from msg_node.records.recovery import last_crash
from msg_node.records.segment_writer import SegmentOptions
from msg_node.records.writer import RecordsWriter, WriterOptions, WriterState
from protofly import limits
from protofly.errors import SettingsError
from protofly.record_runs import MessageRun
from protofly.record_segments import SEALED_SUFFIXES, Signer
from protofly.records import (
    AdminEvent,
    DecisionRecord,
    LinkEvent,
    MessageRecord,
    Record,
    RecordKind,
    SegmentManifest,
    SessionEvent,
    StubEvent,
    decode_manifest,
    hash_address,
)
from tests.support.message_records import A_MESSAGE
from tests.support.services import PATIENCE_SECONDS

NODE = "mn-1.a.example"
TEMPLATE = msgspec.structs.replace(A_MESSAGE, policy_rev="rev1")


def message(number: int) -> MessageRecord:
    record = TEMPLATE.__copy__()
    record.ts_us += number
    record.size_in = number
    return record


@contextlib.asynccontextmanager
async def running(writer: RecordsWriter) -> AsyncIterator[RecordsWriter]:
    async with trio.open_nursery() as nursery:
        await nursery.start(writer.run)
        yield writer
        nursery.cancel_scope.cancel()


async def wait_until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - what another thread does can only be watched
            await trio.sleep(0.005)


async def wait_written(writer: RecordsWriter, records: int) -> None:
    await wait_until(lambda: writer.statistics().written >= records)


def options(
    *, queue_records: int = limits.RECORD_QUEUE_RECORDS, is_strict: bool = False, **segments: Any
) -> WriterOptions:
    return WriterOptions(
        sync_seconds=0.005,
        retry_seconds=0.01,
        queue_records=queue_records,
        is_strict=is_strict,
        segments=SegmentOptions(**segments),
    )


def manifests(spool: Path, kind: RecordKind = RecordKind.MESSAGE) -> list[SegmentManifest]:
    return [decode_manifest(path.read_bytes()) for path in sorted(spool.glob(f"{kind.value}-*.manifest.json"))]


def take_segments(spool: Path) -> None:
    for path in spool.glob("mdr-*"):
        path.unlink()


def file_suffixes(spool: Path) -> set[str]:
    names = {path.name for path in spool.iterdir() if path.name != ".lock"}
    return {next((one for one in SEALED_SUFFIXES if name.endswith(one)), Path(name).suffix) for name in names}


def lines(spool: Path, kind: RecordKind = RecordKind.MESSAGE) -> list[dict[str, object]]:
    return [json.loads(line) for path in sorted(spool.glob(f"{kind.value}-*.zst")) for line in lines_of(path)]


@pytest.mark.parametrize("has_blocks", [True, False])
async def test_records_are_sealed_with_a_manifest_when_the_node_stops(tmp_path: Path, has_blocks: bool) -> None:
    async with running(RecordsWriter(tmp_path, NODE, options=options(has_blocks=has_blocks))) as writer:
        for number in range(2500):
            writer.append(message(number))

    (manifest,) = manifests(tmp_path)
    written = lines(tmp_path)
    assert [line["seq"] for line in written] == list(range(1, 2501))
    assert [line["size_in"] for line in written] == list(range(2500))
    assert {(line["v"], line["node"], line["boot"]) for line in written} == {
        (manifest.schema_version, NODE, manifest.boot)
    }
    assert manifest.schema_version == (2 if has_blocks else 1)
    assert (manifest.first_seq, manifest.last_seq, manifest.records, manifest.lost_records) == (1, 2500, 2500, 0)
    assert (manifest.min_ts_us, manifest.max_ts_us) == (TEMPLATE.ts_us, TEMPLATE.ts_us + 2499)
    assert manifest.closure == "shutdown"
    assert manifest.policy_revs == ("rev1",)
    assert file_suffixes(tmp_path) == {".json", ".blocks.zst" if has_blocks else ".jsonl.zst"}
    assert writer.statistics().state is WriterState.CLOSED


def run(first: int, count: int) -> MessageRun:
    """The records `message(first)` and following."""
    numbers = range(first, first + count)
    return MessageRun(
        TEMPLATE,
        {
            "msg_id": [TEMPLATE.msg_id] * count,
            "ts_us": [TEMPLATE.ts_us + number for number in numbers],
            "size_in": list(numbers),
        },
    )


@pytest.mark.parametrize("has_blocks", [True, False])
async def test_runs_are_numbered_and_written_as_their_records(tmp_path: Path, has_blocks: bool) -> None:
    async with running(RecordsWriter(tmp_path, NODE, options=options(has_blocks=has_blocks))) as writer:
        writer.append(message(0))
        for number in range(60):
            writer.append_run(run(1 + 100 * number, 100))
        writer.append(message(6001))

    (manifest,) = manifests(tmp_path)
    written = lines(tmp_path)
    assert [line["seq"] for line in written] == list(range(1, 6003))
    assert [line["size_in"] for line in written] == list(range(6002))
    assert (manifest.records, manifest.max_ts_us) == (6002, TEMPLATE.ts_us + 6001)
    assert (writer.statistics().written, writer.statistics().waiting) == (6002, 0)


async def test_a_run_longer_than_a_frame_is_written(tmp_path: Path) -> None:
    async with running(RecordsWriter(tmp_path, NODE, options=options())) as writer:
        writer.append_run(run(0, limits.RECORD_FRAME_RECORDS + 1))
    assert len(lines(tmp_path)) == limits.RECORD_FRAME_RECORDS + 1


async def test_a_run_that_finds_no_room_is_lost_as_a_whole_and_counted(tmp_path: Path) -> None:
    writer = RecordsWriter(tmp_path, NODE, options=options(queue_records=10))
    writer.append_run(run(0, 10))
    writer.append_run(run(10, 7))
    writer.append(message(17))
    assert (writer.statistics().waiting, writer.statistics().lost) == (10, 8)
    async with running(writer):
        await wait_written(writer, 10)
    (manifest,) = manifests(tmp_path)
    assert (manifest.records, manifest.lost_records) == (10, 8)


async def test_a_strict_writer_takes_no_more_while_a_run_fills_its_queue(tmp_path: Path) -> None:
    writer = RecordsWriter(tmp_path, NODE, options=options(queue_records=10, is_strict=True))
    accepting = []
    for first in (0, 9):
        writer.append_run(run(first, 9))
        accepting.append(writer.is_accepting)
    assert accepting == [True, False]
    async with running(writer):
        await wait_written(writer, 18)
    assert writer.statistics().lost == 0


async def test_kinds_have_their_own_segments_and_numbers(tmp_path: Path) -> None:
    async with running(RecordsWriter(tmp_path, NODE, options=options())) as writer:
        writer.append(message(1))
        writer.append(StubEvent(ts_us=5, domain="b.example", event="started", stub_ver="f" * 64))
        writer.append(SessionEvent(ts_us=6, event="opened", runtime_key="runtime://a.example/r1"))

    assert [line["seq"] for line in lines(tmp_path, RecordKind.STUB)] == [1]
    assert manifests(tmp_path, RecordKind.STUB)[0].stub_vers == ("f" * 64,)
    assert manifests(tmp_path, RecordKind.SESSION)[0].records == 1
    assert not manifests(tmp_path, RecordKind.LINK)


async def test_segments_are_sealed_by_size_and_form_a_signed_chain(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    writer = RecordsWriter(tmp_path, NODE, signer=Signer("N1", key.sign), options=options(segment_bytes=2_000))
    async with running(writer):
        for batch in range(4):
            for number in range(100):
                writer.append(message(number))
            await wait_written(writer, (batch + 1) * 100)

    chain = manifests(tmp_path)
    assert [manifest.closure for manifest in chain] == ["size"] * len(chain)
    assert len(chain) == 4
    previous = ""
    expected_seq = 1
    for manifest in chain:
        assert manifest.prev_sha256 == previous
        assert manifest.first_seq == expected_seq
        key.public_key().verify(_signature(manifest), manifest.signed_bytes())
        previous, expected_seq = manifest.sha256, manifest.last_seq + 1


def _signature(manifest: SegmentManifest) -> bytes:
    import base64

    return base64.urlsafe_b64decode(manifest.signature + "==")


async def test_an_old_segment_is_sealed_even_when_nothing_more_comes(tmp_path: Path) -> None:
    async with running(RecordsWriter(tmp_path, NODE, options=options(segment_seconds=0.02))) as writer:
        writer.append(message(1))
        await wait_until(lambda: writer.statistics().sealed_segments > 0)
        assert [manifest.closure for manifest in manifests(tmp_path)] == ["time"]


async def test_a_node_without_messages_seals_empty_segments_that_go_on_with_the_chain(tmp_path: Path) -> None:
    async with running(
        RecordsWriter(tmp_path, NODE, options=options(idle_seconds=0.01, segment_seconds=0.01))
    ) as writer:
        writer.append(message(1))
        await wait_until(lambda: len(manifests(tmp_path)) >= 3)
    first, *idle = manifests(tmp_path)
    assert (first.records, [one.records for one in idle[:2]]) == (1, [0, 0])
    assert {(one.first_seq, one.last_seq, one.closure) for one in idle[:2]} == {(2, 1, "time")}
    assert [one.prev_sha256 for one in idle[:2]] == [first.sha256, idle[0].sha256]
    assert manifests(tmp_path, RecordKind.SESSION) == []


async def test_a_run_that_ends_in_order_is_no_crash_and_one_under_way_would_be(tmp_path: Path) -> None:
    async with running(RecordsWriter(tmp_path, NODE, options=options())) as writer:
        writer.append(message(1))
        await wait_written(writer, 1)
        assert last_crash(tmp_path, NODE) is not None
    assert last_crash(tmp_path, NODE) is None
    assert [one.uncertain_until_us for one in manifests(tmp_path)] == [msgspec.UNSET]


async def test_the_chain_goes_on_after_a_restart_and_after_the_pipeline_took_the_files(tmp_path: Path) -> None:
    hashes: list[str] = []
    boots: list[int] = []
    for _ in range(3):
        async with running(RecordsWriter(tmp_path, NODE, options=options())) as writer:
            writer.append(message(1))
        (manifest,) = manifests(tmp_path)
        assert manifest.prev_sha256 == (hashes[-1] if hashes else "")
        hashes.append(manifest.sha256)
        boots.append(manifest.boot)
        take_segments(tmp_path)
    assert boots == sorted(set(boots))


async def test_a_full_queue_loses_the_newest_and_the_manifest_says_how_many(tmp_path: Path) -> None:
    writer = RecordsWriter(tmp_path, NODE, options=options(queue_records=10))
    for number in range(25):
        writer.append(message(number))
    assert writer.statistics().lost == 15
    async with running(writer):
        await wait_written(writer, 10)
        writer.append(message(99))

    (manifest,) = manifests(tmp_path)
    assert (manifest.records, manifest.lost_records, manifest.last_seq) == (11, 15, 26)
    assert [line["seq"] for line in lines(tmp_path)] == [*range(1, 11), 26]


async def test_losses_without_any_later_record_still_reach_a_manifest(tmp_path: Path) -> None:
    writer = RecordsWriter(tmp_path, NODE, options=options(queue_records=1, segment_bytes=1))
    writer.append(message(1))
    writer.append(SessionEvent(ts_us=6, event="opened", runtime_key="runtime://a.example/r1"))
    async with running(writer):
        pass

    (manifest,) = manifests(tmp_path, RecordKind.SESSION)
    assert (manifest.records, manifest.lost_records, manifest.first_seq, manifest.last_seq) == (0, 1, 1, 1)


async def test_a_strict_writer_drops_nothing_and_says_when_to_wait(tmp_path: Path) -> None:
    writer = RecordsWriter(tmp_path, NODE, options=options(queue_records=10, is_strict=True))
    accepting_before = writer.is_accepting
    for number in range(25):
        writer.append(message(number))
    assert (accepting_before, writer.is_accepting) == (True, False)
    async with running(writer):
        with trio.fail_after(10):
            await writer.wait_accepting()
    assert len(lines(tmp_path)) == 25
    assert writer.statistics().lost == 0


async def test_messages_of_one_pair_lie_together_in_their_order_and_numbers_have_no_gap(tmp_path: Path) -> None:
    async with running(RecordsWriter(tmp_path, NODE, options=options(has_blocks=False))) as writer:
        for number in range(1, 31):
            record = message(number)
            record.dst_domain = f"{'bcd'[number % 3]}.example"
            writer.append(record)
    written = lines(tmp_path)
    assert [line["seq"] for line in written] == list(range(1, 31))
    for peer in "bcd":
        own = [int(str(line["size_in"])) for line in written if line["dst_domain"] == f"{peer}.example"]
        assert own == sorted(own)
        assert len(own) == 10


async def test_addresses_are_hashed_when_the_operator_asks(tmp_path: Path) -> None:
    key = b"s" * 32
    async with running(RecordsWriter(tmp_path, NODE, options=options(address_key=key))) as writer:
        writer.append(message(1))

    (line,) = lines(tmp_path)
    assert line["src_key"] == hash_address("hyperty://a.example/ana", key)
    assert "ana" not in json.dumps(line)


def raw_lines(spool: Path) -> bytes:
    return b"".join(line + b"\n" for path in spool.glob("*.zst") for line in lines_of(path))


async def test_where_addresses_are_hashed_no_kind_of_record_keeps_an_address_or_the_words_of_others(
    tmp_path: Path,
) -> None:
    eve = "hyperty://c.example/evelyn"
    records: list[Record] = [
        message(1),
        DecisionRecord(
            ts_us=1,
            hook="in",
            effect="deny",
            permitted=False,
            policy_rev="r",
            src_domain="c.example",
            dst_domain="a.example",
            src_key=eve,
            dst_key=eve,
        ),
        LinkEvent(ts_us=1, domain="c.example", event="spoofed", src_key=eve, detail=f"in the name of {eve}"),
        StubEvent(ts_us=1, domain="c.example", event="state", detail=f"a stub that repeats what it carries: {eve}"),
        SessionEvent(
            ts_us=1, event="opened", runtime_key="runtime://a.example/evelyn", remote="192.0.2.7", detail="evelyn"
        ),
        AdminEvent(
            ts_us=1,
            operation="kick",
            actor="root",
            way="socket",
            arguments='{"runtime":"runtime://a.example/evelyn","reason":"floods (runtime://a.example/evelyn)"}',
            before='{"sessions":[7]}',
            detail="evelyn",
        ),
    ]
    async with running(RecordsWriter(tmp_path, NODE, options=options(address_key=b"s" * 32))) as writer:
        for record in records:
            writer.append(record)
    content = raw_lines(tmp_path)
    assert content.count(b"\n") == len(records)
    assert b"evelyn" not in content
    assert b"192.0.2.7" not in content
    assert b'"src_key":"hyperty:' in content
    [admin] = [line for line in content.splitlines() if b'"kick"' in line]
    assert json.loads(json.loads(admin)["arguments"])["runtime"].startswith("runtime:")  # what was done is still there
    assert json.loads(admin)["before"] == '{"sessions":[7]}'


@pytest.mark.parametrize("has_blocks", [True, False])
async def test_a_record_that_is_not_json_does_not_take_its_neighbours_along(tmp_path: Path, has_blocks: bool) -> None:
    broken = message(2)
    broken.reason = "\ud800"
    async with running(RecordsWriter(tmp_path, NODE, options=options(has_blocks=has_blocks))) as writer:
        for record in (message(1), broken, message(3)):
            writer.append(record)

    assert [line["size_in"] for line in lines(tmp_path)] == [1, 3]
    assert manifests(tmp_path)[0].lost_records == 1
    assert writer.statistics().lost == 1


async def test_two_nodes_cannot_share_a_spool(tmp_path: Path) -> None:
    async with running(RecordsWriter(tmp_path, NODE, options=options())):
        with pytest.raises(SettingsError, match="in use by another node"):
            await RecordsWriter(tmp_path, "mn-2.a.example").run()


async def test_a_spool_that_cannot_be_made_is_a_settings_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="records spool"):
        await RecordsWriter(tmp_path / "file" / "spool", NODE).run()


async def test_files_are_not_readable_for_everybody(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    async with running(RecordsWriter(spool, NODE, options=options())) as writer:
        writer.append(message(1))
    assert not any(stat.S_IMODE(path.stat().st_mode) & 0o007 for path in [spool, *spool.iterdir()])


async def test_a_record_with_random_ids_takes_no_more_than_70_bytes_on_disk(tmp_path: Path) -> None:
    random = Random(7)
    async with running(RecordsWriter(tmp_path, NODE, options=options())) as writer:
        for number in range(5000):
            record = message(number * 27)
            record.msg_id = f"{1_795_219_200_000 + number // 20:012x}{random.randbytes(10).hex()}"
            record.digest = random.randbytes(16).hex()
            record.size_in = random.randint(280, 320)
            record.d_total_us = random.randint(500, 2_000)
            record.d_stub_us = random.randint(20, 200)
            record.fuel = random.randint(19_000, 21_000)
            record.src_key = f"hyperty://a.example/h-{number % 50}"
            writer.append(record)
    statistics = writer.statistics()
    assert statistics.written == 5000
    assert statistics.sealed_bytes / statistics.written <= 70


FULL_DISK = textwrap.dedent(
    """
    import resource, sys, trio
    from pathlib import Path
    from msg_node.records.writer import RecordsWriter, WriterOptions, WriterState
    from protofly.records import SessionEvent

    async def wait_for(condition):
        with trio.fail_after(20):
            while not condition():
                await trio.sleep(0.005)

    def event(number):
        import os
        return SessionEvent(ts_us=number, event="opened", runtime_key=os.urandom(20).hex())

    async def main(spool, is_strict):
        options = WriterOptions(sync_seconds=0.002, retry_seconds=0.01, queue_records=100, is_strict=is_strict)
        writer = RecordsWriter(spool, "mn-1.a.example", options=options)
        async with trio.open_nursery() as nursery:
            await nursery.start(writer.run)
            for number in range(50):
                writer.append(event(number))
            await wait_for(lambda: writer.statistics().written == 50)
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
            appended = 50
            while writer.statistics().state is not WriterState.DISK_FAILING:
                writer.append(event(appended))
                appended += 1
                await trio.sleep(0.001)
            assert writer.statistics().error, "the state has a reason"
            assert writer.is_accepting is not is_strict
            for _ in range(150):
                writer.append(event(appended))
                appended += 1
            assert writer.statistics().waiting == (100 if not is_strict else writer.statistics().waiting)
            assert (writer.statistics().lost > 0) is not is_strict
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            if is_strict:
                with trio.fail_after(20):
                    await writer.wait_accepting()
            await wait_for(lambda: writer.statistics().written + writer.statistics().lost == appended)
            await wait_for(lambda: writer.statistics().state is WriterState.WRITING)
            nursery.cancel_scope.cancel()
        print(appended, writer.statistics().written, writer.statistics().lost)

    trio.run(main, Path(sys.argv[1]), sys.argv[2] == "strict")
    """
)


@pytest.mark.parametrize("durability", ["counted", "strict"])
def test_a_full_disk_is_visible_counted_and_survived(tmp_path: Path, durability: str) -> None:
    # A child process whose files may not grow: the kernel really refuses the write, as it does on a full disk.
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path), durability],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    appended, written, lost = map(int, done.stdout.split())
    (manifest,) = manifests(tmp_path, RecordKind.SESSION)
    assert written + lost == appended
    assert (manifest.records, manifest.lost_records) == (written, lost)
    assert (lost == 0) is (durability == "strict")
    assert len(lines(tmp_path, RecordKind.SESSION)) == written
    assert "records cannot be written" in done.stderr


async def test_a_disk_that_fails_to_the_end_does_not_hold_the_node_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spool = tmp_path / "spool"
    with caplog.at_level(logging.ERROR):
        async with running(RecordsWriter(spool, NODE, options=options())) as writer:
            writer.append(message(1))
            await wait_written(writer, 1)
            for path in spool.iterdir():
                path.unlink()
            spool.rmdir()
            spool.write_text("no folder any more")
            writer.append(message(2))
    assert writer.statistics().state is WriterState.CLOSED
    assert "until the end" in caplog.text
