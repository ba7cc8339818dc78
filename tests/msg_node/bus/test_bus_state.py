"""The bus when its state cannot be kept, and when a session is over."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from msg_node.bus import sweeper
from msg_node.kernel.session import Opener
from msg_node.registries.core.registry_entry import RegistryEntry
from msg_node.storage import state_store
from msg_node.storage.state_file import StateFile
from msg_node.storage.state_store import OnDurable, OnFailed
from protofly.errors import Code, HostError
from protofly.limits import REGISTRY_SWEPT_AT_ONCE, RELEASED_AT_ONCE
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    SESSION,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_address,
    runtime_rig,
)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


# State that cannot be kept.


class FullDisk:
    """In front of a real store: refuses, or passes on."""

    def __init__(self, rig: RuntimeRig) -> None:
        self._submit = rig.store.submit
        self.is_full = True

    def submit(self, changes: object, on_durable: OnDurable, on_failed: OnFailed, *, is_awaited: bool) -> None:
        if self.is_full:
            raise HostError(Code.STORAGE, "no space left")
        self._submit(changes, on_durable, on_failed, is_awaited=is_awaited)  # type: ignore[arg-type]


async def test_what_cannot_be_stored_is_answered_so_and_the_node_goes_on(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    disk = FullDisk(rig)
    monkeypatch.setattr(rig.store, "submit", disk.submit)
    reply = await ana.ask("create", ALLOCATION, {"scheme": "comm", "value": {"number": 1}})
    assert code_and_reason(reply) == (500, "storage")
    assert "value" not in reply["body"]
    await ana.say(a_message("event", ana.address, bo.address))
    await ana.heard()
    assert len(await bo.heard()) == 1
    disk.is_full = False
    assert (await ana.ask("create", ALLOCATION, {"scheme": "comm"}))["body"]["code"] == 200
    assert rig.counters["storage failures"] == 1
    assert "cannot be stored" in caplog.text


async def test_a_full_disk_is_reported_and_what_was_refused_is_kept_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(state_store, "STATE_RETRY_SECONDS", 0.02)
    async with runtime_rig(tmp_path) as rig:
        ana = await rig.opened("ana")
        file = rig.store._rows
        assert isinstance(file, StateFile)
        pages = file._connection.execute("PRAGMA page_count").fetchone()[0]
        file._connection.execute(f"PRAGMA max_page_count = {pages}")  # a real SQLITE_FULL
        allocation = {"scheme": "comm", "value": {"number": 100}}
        for _ in range(50):
            reply = await ana.ask("create", ALLOCATION, allocation)
            if reply["body"]["code"] != 200:
                break
        assert code_and_reason(reply) == (500, "storage")
        assert (await ana.ask("read", runtime_address("nobody")))["body"]["code"] == 404
        with trio.fail_after(10):
            while rig.store.statistics().last_error:
                file._connection.execute("PRAGMA max_page_count = 1073741823")
                await trio.sleep(0.01)
        assert (await ana.ask("create", ALLOCATION, allocation))["body"]["code"] == 200
        assert "full" in caplog.text


async def test_a_runtime_that_opened_on_a_full_disk_opens_again_when_there_is_room(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FullDisk(rig)
    monkeypatch.setattr(rig.store, "submit", disk.submit)
    ana = await rig.runtime()
    assert code_and_reason(await ana.open("ana")) == (500, "storage")
    assert ana.token == ""
    disk.is_full = False
    assert (await ana.open("ana"))["body"]["code"] == 200


# A session that has ended.


async def test_what_follows_a_close_in_the_same_read_changes_nothing(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    await ana.say(
        a_message("close", ana.session_address, SESSION, id_=1),
        a_message("create", ana.address, ALLOCATION, {"scheme": "comm"}, id_=2),
        a_message("event", "hyperty://alpha.example/ghost", bo.address),
    )
    assert await ana.close_code() == 1000
    assert await bo.heard() == []
    assert code_and_reason(await bo.ask("read", "hyperty://alpha.example/ghost")) == (404, "no-route")
    assert [one.sid for one in rig.state.sessions] == [rig.port_of("bo").sid]
    assert rig.state.owners._owned.keys() <= {rig.port_of("bo").sid}


async def test_everything_that_was_lost_together_ends_in_one_sweep_and_is_counted(tmp_path: Path) -> None:
    count = 2 * RELEASED_AT_ONCE + 1
    async with runtime_rig(tmp_path) as rig, trio.open_nursery() as nursery:
        for number in range(count):
            address = runtime_address(f"x{number}")
            rig.state.lifecycle.open(Opener(address, address, -number), f"token-{number}", now=0.0)
            rig.state.lifecycle.lost(-number, now=0.0)
        nursery.start_soon(rig.bus.sweeper.run)
        await rig.until("sessions expired", count)
        assert len(rig.state.sessions) == 0
        nursery.cancel_scope.cancel()


async def test_the_bus_goes_on_between_slices_of_a_great_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "SWEEP_SECONDS", 0.01)
    async with runtime_rig(tmp_path) as rig, trio.open_nursery() as nursery:
        registry = rig.state.registry
        for number in range(5 * REGISTRY_SWEPT_AT_ONCE):
            url, past = f"hyperty://{DOMAIN}/h-{number}", time.time() - 10
            registry.adopt(RegistryEntry(url=url, sid=0, runtime="", expires_seconds=1, refreshed_at=past))
        nursery.start_soon(rig.bus.sweeper.run)
        left, steps = len(registry), []
        while left:
            await trio.lowlevel.checkpoint()
            before, left = left, sum(entry.is_connected for entry in registry._entries.values())
            steps.append(before - left)
        assert max(steps) == REGISTRY_SWEPT_AT_ONCE
        nursery.cancel_scope.cancel()


async def test_every_connection_is_looked_after_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeper, "PORTS_AT_ONCE", 2)
    monkeypatch.setattr(sweeper, "SWEEP_SECONDS", 0.01)
    async with runtime_rig(tmp_path, ping_seconds=0.0) as rig, trio.open_nursery() as nursery:
        runtimes = [await rig.opened(f"r{number}") for number in range(5)]
        nursery.start_soon(rig.bus.sweeper.run)
        await rig.until("silent runtimes", len(runtimes))
        nursery.cancel_scope.cancel()
