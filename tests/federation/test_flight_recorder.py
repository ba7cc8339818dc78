"""Flight recorders: bounded, sealed, written on a fault, and played again with the same end."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from typer.testing import CliRunner

from catalogue_client.core.operator_stub import ModuleStatement, make_operator_stub
from federation.stubs.flight_recorder import (
    FILES_PER_DOMAIN,
    RECORDING_BYTES,
    FlightRecorders,
    Recordings,
    packed,
    unpacked,
)
from federation.stubs.stub_host import StubHost
from protofly.errors import Code, HostError, PeerError
from protofly.limits import INPUT_BYTES_MAX
from sandbox.core.budget import Budget
from sandbox.core.exchange import Event, GuestEvent, count_events, encode_events
from sandbox.core.recording import Exchange, FlightLog, RecordedStub, Recording
from sandbox.host import Sandbox
from stubkit.build import build
from stubkit.record_facts import decode_events
from stubkit.replay import replay
from stubkit.trace import Trace
from stubs_cache.store import load_secret
from trapezoid.commands import app

SOURCE = """#define STUB_NAME "frail"
#define STUB_VERSION "1"
#include "trapezoid_stub.h"
static uint32_t heard;
__attribute__((noinline)) static void break_down(void) { __builtin_trap(); }
static void stub_on_event(const stub_event *event) {
    if (event->op == STUB_START) stub_status(STUB_TEXT("live"));
    if (event->op == STUB_MESSAGE && ++heard == 3) break_down();
    if (event->op != STUB_MESSAGE || !stub_begin(STUB_ACT_LOG, 0, 1)) return;
    stub_put_decimal(stub_random_u32());
    stub_end();
}
"""
STUB = RecordedStub(domain="b.example", name="x", version="1", sha256="ab" * 32, budget=Budget().to_bytes())


def log_of(max_bytes: int, *sizes: int) -> Recording:
    log = FlightLog(max_bytes)
    for size in sizes:
        log.handed([(1, bytes(size))])
        log.answered([bytes(size)])
    return log.recording(STUB, fault="", at=0.0)


def test_log_keeps_the_first_exchange_and_the_last_ones_within_its_bound() -> None:
    kept = log_of(10_000, 10, *range(11, 60))
    sizes = [len(exchange.calls[0][1]) for exchange in kept.exchanges]
    assert not kept.is_whole
    assert sizes[0] == 10
    assert sizes[1:] == list(range(60 - len(sizes[1:]), 60))
    assert sum(exchange.size_bytes for exchange in kept.exchanges) <= 10_000
    assert log_of(10_000, 10, 11).is_whole
    assert [len(one.calls[0][1]) for one in log_of(10, 100, 200, 300).exchanges] == [100, 300]  # never less than these


@pytest.mark.parametrize("calls", [1, 8])
def test_far_end_that_sends_byte_by_byte_occupies_no_more_than_the_bound(calls: int) -> None:
    """What exchanges occupy besides their buffers is many times their buffers then."""
    tracemalloc.start()
    try:
        log = FlightLog(1 << 20)
        for number in range(6000):
            log.handed([(1, b"%037d" % (8 * number + call)) for call in range(calls)])
            log.answered([b"%016d" % number] * calls)
        occupied, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert occupied < 1.1 * (1 << 20)
    assert len(log.recording(STUB, fault="", at=0).exchanges) > 200


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "frail.c").write_text(SOURCE)
    build(tmp_path / "frail.c", tmp_path / "frail.wasm")
    return tmp_path / "frail.wasm"


async def crash(module: Path, recorders: FlightRecorders) -> None:
    """One instance, hosted as a node does, that traps at its third message."""
    code = await trio.Path(module).read_bytes()
    stub = make_operator_stub("b.example", code, ModuleStatement(name="frail", version="1"))
    sandbox = Sandbox()
    async with trio.open_nursery() as nursery:
        await nursery.start(sandbox.run)
        package: Any = SimpleNamespace(
            stub=stub, code=await sandbox.compile(code), terms=SimpleNamespace(budget=Budget())
        )
        nothing = cast("Any", None)
        process = await StubHost(sandbox, nothing, nothing, nothing, nothing, recorders).start_worker(package)
        await process.exchange([GuestEvent(Event.START, 0, b"{}")])
        for number in (1, 2, 3):
            reply = await process.exchange([GuestEvent(Event.MESSAGE, number, b'{"secret":"of a user"}')])
        assert reply.fault is not None
        process.close()
        nursery.cancel_scope.cancel()


def test_trap_is_recorded_sealed_and_played_again_with_the_name_of_the_function(module: Path, tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(
        '[node]\ndomain = "a.example"\ndata_dir = "data"\n[listen]\nport = 0\ninsecure_plaintext = true\n'
    )
    recordings = Recordings(tmp_path / "data" / "stub_recordings", secret=load_secret(tmp_path / "data" / "secret"))
    trio.run(crash, module, FlightRecorders(recordings, {"b.example": 1 << 20}))
    [file] = recordings.files("b.example")
    assert b"of a user" not in file.read_bytes()
    assert file.stat().st_mode & 0o077 == 0

    runner, opened = CliRunner(), str(tmp_path / "opened")
    listed = json.loads(runner.invoke(app, ["stub", "record", "--config", str(config), "--json"]).stdout)
    assert [(row["domain"], row["stub"], row["exchanges"], row["whole"]) for row in listed] == [
        ("b.example", "frail 1", 4, True)
    ]
    assert runner.invoke(app, ["stub", "replay", str(file), str(module)]).exit_code == 2  # sealed
    assert runner.invoke(app, ["stub", "record", "--config", str(config), "--output", opened]).exit_code == 0
    build(module.with_suffix(".c"), tmp_path / "names.wasm", has_names=True)
    assert (tmp_path / "opened").stat().st_mode & 0o077 == 0
    done = runner.invoke(app, ["stub", "replay", opened, str(tmp_path / "names.wasm"), "--json", "--trace"])
    facts = json.loads(done.stdout)
    assert (done.exit_code, facts["same"], facts["difference"], facts["is_same_module"]) == (0, True, "", False)
    assert "break_down" in facts["fault"]
    assert facts["trace"][-1]["events"][0]["number"] == 3


def test_other_code_is_found_to_answer_otherwise(module: Path, tmp_path: Path) -> None:
    recordings = Recordings(tmp_path / "r", secret=bytes(32))
    trio.run(crash, module, FlightRecorders(recordings, {"b.example": 1 << 20}))
    recording = recordings.read(recordings.files()[0])
    module.with_suffix(".c").write_text(SOURCE.replace("++heard == 3", "++heard == 4"))
    build(module.with_suffix(".c"), module)
    result = replay(module, recording, Trace())
    assert not result.is_same
    assert "exchange 4 of 4" in result.difference


def test_domain_that_is_not_recorded_leaves_nothing(module: Path, tmp_path: Path) -> None:
    recordings = Recordings(tmp_path / "r", secret=bytes(32))
    trio.run(crash, module, FlightRecorders(recordings, {"c.example": 1 << 20}))
    assert recordings.files() == []


def test_files_of_a_domain_are_bounded_and_those_of_others_stay(tmp_path: Path) -> None:
    recordings = Recordings(tmp_path / "r", secret=bytes(32))
    other = RecordedStub(domain="c.example", name="x", version="1", sha256="", budget=b"")
    recordings.write(Recording(spec="rmn-stub-recording/1", stub=other, exchanges=[], is_whole=True, fault="", at=1.0))
    for number in range(2 * FILES_PER_DOMAIN):
        recordings.write(FlightLog(10).recording(STUB, fault="x", at=float(number)))
    assert len(recordings.files("b.example")) == FILES_PER_DOMAIN
    assert len(recordings.files("c.example")) == 1
    assert recordings.read(recordings.files("b.example")[-1]).at == 2 * FILES_PER_DOMAIN - 1


def test_file_that_another_node_sealed_or_that_was_changed_is_not_believed(tmp_path: Path) -> None:
    recordings = Recordings(tmp_path / "r", secret=bytes(32))
    path = recordings.write(FlightLog(10).recording(STUB, fault="x", at=1.0))
    for reader, content in (
        (Recordings(tmp_path, secret=b"1" * 32), path.read_bytes()),
        (recordings, path.read_bytes()[:-1]),
        *[(recordings, path.read_bytes()[:length]) for length in range(21, 53, 4)],
    ):
        path.write_bytes(content)
        with pytest.raises(PeerError) as caught:
            reader.read(path)
        assert caught.value.code is Code.RECORDING_KEY
        assert str(path) in caught.value.detail


def test_a_file_that_cannot_be_read_leaves_the_others_in_the_list(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(
        '[node]\ndomain = "a.example"\ndata_dir = "data"\n[listen]\nport = 0\ninsecure_plaintext = true\n'
    )
    recordings = Recordings(tmp_path / "data" / "stub_recordings", secret=load_secret(tmp_path / "data" / "secret"))
    broken, _ = [recordings.write(FlightLog(10).recording(STUB, fault="x", at=float(at))) for at in (1, 2)]
    broken.write_bytes(broken.read_bytes()[:25])
    done = CliRunner().invoke(app, ["stub", "record", "--config", str(config), "--json"])
    assert done.exit_code == 1
    first, second = json.loads(done.stdout)
    assert (first["domain"], second["domain"]) == ("", "b.example")
    assert "recording-key" in first["fault"]


def an_exchange(*events: GuestEvent, count: int | None = None, more: bytes = b"") -> Exchange:
    buffer = encode_events(list(events), 1, bytes(16)) + more
    return Exchange(calls=[(len(events) if count is None else count, buffer)])


START = GuestEvent(Event.START, 0, b"{}")
HOSTILE: dict[str, dict[str, Any]] = {
    "an exchange without calls": {"exchanges": [an_exchange(START), Exchange(calls=[])]},
    "bytes that are no events": {"exchanges": [Exchange(calls=[(1, b"x")])]},
    "an unknown event": {"exchanges": [an_exchange(START._replace(op=77))]},
    "a record that is cut short": {"exchanges": [an_exchange(START, more=b"x")]},
    "more events than there are": {"exchanges": [an_exchange(START, count=1 << 40)]},
    "fewer than none": {"exchanges": [an_exchange(START, count=-1)]},
    "no events": {"exchanges": [an_exchange()]},
    "an event longer than any call": {"exchanges": [an_exchange(START._replace(payload=bytes(INPUT_BYTES_MAX)))]},
    "no budget": {"budget": b"x"},
    "a budget of nothing but ones": {"budget": b"\xff" * len(STUB.budget)},
    "weeks for a call": {"budget": replace(Budget(), cpu_milliseconds=(1 << 32) - 1).to_bytes()},
    "a wait without end": {"budget": replace(Budget(), batch_seconds=inf).to_bytes()},
    "a wait that is no number": {"budget": replace(Budget(), batch_seconds=nan).to_bytes()},
    "more memory than any node grants": {"budget": replace(Budget(), memory_bytes=1 << 31).to_bytes()},
    "a time that never comes": {"at": inf},
    "a time that is no number": {"at": nan},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_recording_that_no_node_makes_is_refused_and_nothing_of_it_runs(
    name: str, module: Path, tmp_path: Path
) -> None:
    changed = HOSTILE[name]
    stub = structs.replace(STUB, budget=changed.get("budget", STUB.budget))
    log = FlightLog(1).recording(stub, fault="", at=changed.get("at", 0.0))
    file = tmp_path / "hostile"
    file.write_bytes(packed(structs.replace(log, exchanges=changed.get("exchanges", [an_exchange(START)]))))
    done = CliRunner().invoke(app, ["stub", "replay", str(file), str(module), "--trace"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "[document-malformed]" in done.stderr


@given(st.lists(st.tuples(st.sampled_from([*Event, 0, 13, 255]), st.binary(max_size=40)), max_size=5), st.binary())
def test_events_are_counted_as_they_were_made_and_other_bytes_are_none(
    made: list[tuple[int, bytes]], more: bytes
) -> None:
    buffer = encode_events([GuestEvent(op, 7, payload) for op, payload in made], 1, bytes(16))
    is_known = all(op in set(Event) for op, _ in made)
    assert count_events(buffer) == (len(made) if is_known else -1)
    assert count_events(buffer[:-1]) == -1
    assert count_events(more) == -1 or len(decode_events(more)[1]) == count_events(more)


@pytest.mark.parametrize("raw", [b"", b"x" * 100, packed(FlightLog(1).recording(STUB, fault="", at=0))[:-3]])
def test_any_other_bytes_are_no_recording(raw: bytes) -> None:
    with pytest.raises(PeerError):
        unpacked(raw)


def test_recording_that_unpacks_to_more_than_any_recording_has_is_refused_unread() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(RECORDING_BYTES + 1))
    tracemalloc.start()
    try:
        with pytest.raises(PeerError) as caught:
            unpacked(bomb)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.code is Code.DOCUMENT_MALFORMED
    assert most < 1 << 20


def test_folder_that_cannot_be_written_costs_the_recording_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError) as caught:
        Recordings(tmp_path / "file" / "r", secret=bytes(32)).write(FlightLog(1).recording(STUB, fault="", at=0))
    assert caught.value.code is Code.STORAGE
