"""Flight recorders: bounded, sealed, written on a fault, and played again with the same end."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import zstandard
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
from sandbox.core.budget import Budget
from sandbox.core.exchange import Event, GuestEvent
from sandbox.core.recording import FlightLog, RecordedStub, Recording
from sandbox.host import Sandbox
from stubkit.build import build
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
    ):
        path.write_bytes(content)
        with pytest.raises(PeerError) as caught:
            reader.read(path)
        assert caught.value.code is Code.RECORDING_KEY


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
