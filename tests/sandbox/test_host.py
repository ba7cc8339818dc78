"""The sandbox as its users see it: real zygote, real workers."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trio
import trio.testing

from protofly import limits
from protofly.errors import Code, MisuseError, PeerError, SettingsError, StubFaultError
from sandbox import confinement
from sandbox.core.budget import Budget
from sandbox.core.exchange import Action, Event, GuestEvent
from sandbox.host import Sandbox, StubProcess
from tests.support import guests

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20


def message(number: int, payload: bytes = b"{}") -> GuestEvent:
    return GuestEvent(Event.MESSAGE, number, payload)


async def start(sandbox: Sandbox, module: bytes, budget: Budget | None = None) -> StubProcess:
    return await sandbox.start_worker("b.example", await sandbox.compile(module), budget or Budget())


async def exchange_forever(stub: StubProcess) -> None:
    while True:
        await stub.exchange([message(0)])


async def test_batch_goes_through_a_worker_and_back(sandbox: Sandbox) -> None:
    stub = await start(sandbox, guests.echo())
    reply = await stub.exchange([message(n, b"x" * n) for n in range(100)])
    assert [(action.op, action.arg, action.payload) for action in reply.actions] == [
        (Action.DELIVER, n, b"x" * n) for n in range(100)
    ]
    assert reply.fault is None
    assert reply.fuel > 0
    assert reply.memory_bytes == 16 * MIB
    stub.close()
    stub.close()
    assert sandbox.statistics() == {"starts": 1, "compilations": 1, "zygote_restarts": 0}


async def test_empty_batch_is_no_call(sandbox: Sandbox) -> None:
    stub = await start(sandbox, guests.echo())
    reply = await stub.exchange([])
    assert (reply.actions, reply.fault) == ([], None)


async def test_batch_of_many_calls_and_rounds_keeps_its_order(sandbox: Sandbox) -> None:
    stub = await start(sandbox, guests.echo())
    payloads = [bytes([n % 251]) * 20_000 for n in range(150)]
    reply = await stub.exchange([message(n, payload) for n, payload in enumerate(payloads)])
    assert [action.arg for action in reply.actions] == list(range(150))
    assert [action.payload for action in reply.actions] == payloads


async def test_one_event_of_two_megabytes_goes_through(sandbox: Sandbox) -> None:
    stub = await start(sandbox, guests.echo())
    payload = os.urandom(limits.INPUT_BYTES_MAX - 36)
    # The echo guest keeps its answer behind the window, 2 MiB further up, so both fit.
    reply = await stub.exchange([message(1), message(2, payload), message(3)])
    assert [len(action.payload) for action in reply.actions] == [2, len(payload), 2]
    assert reply.actions[1].payload == payload


async def test_fault_keeps_what_came_before_and_names_the_events(sandbox: Sandbox) -> None:
    stub = await start(sandbox, guests.trap_on(0x58))
    filler = bytes(40_000)
    reply = await stub.exchange([message(0, filler), message(1, filler), message(2, b"X" + filler), message(3, filler)])
    assert reply.fault is not None
    assert (reply.fault.code, reply.fault.first_event, reply.fault.event_count) == (Code.STUB_TRAPPED, 2, 1)


async def test_fault_in_a_later_round_counts_events_from_the_start(sandbox: Sandbox) -> None:
    stub = await start(sandbox, guests.trap_on(0x58))
    filler = bytes(60_000)
    batch = [message(n, filler) for n in range(40)]
    batch[30] = message(30, b"X" + filler)
    reply = await stub.exchange(batch)
    assert reply.fault is not None
    assert (reply.fault.first_event, reply.fault.event_count) == (30, 1)


async def test_after_a_fault_only_another_worker_takes_events(sandbox: Sandbox) -> None:
    stub = await start(sandbox, guests.trap_on(0x58))
    assert (await stub.exchange([message(0, b"X")])).fault is not None
    with pytest.raises(MisuseError):
        await stub.exchange([message(1)])
    again = await start(sandbox, guests.trap_on(0x58))
    assert (await again.exchange([message(1)])).fault is None


async def test_two_batches_at_once_are_our_bug(sandbox: Sandbox, nursery: trio.Nursery) -> None:
    # A guest that never answers by itself: the first batch is surely under way when the second comes.
    slow = Budget(fuel_per_event=2**32 - 1, cpu_milliseconds=1000)
    stub = await start(sandbox, guests.guest(guests.ENDLESS_LOOP), slow)

    async def first_batch() -> None:
        with pytest.raises(StubFaultError):
            await stub.exchange([message(0)])

    nursery.start_soon(first_batch)
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(MisuseError):
        await stub.exchange([message(1)])
    stub.close()


async def test_cancelled_batch_ends_the_worker_because_its_answer_would_come_too_late(sandbox: Sandbox) -> None:
    stub = await start(sandbox, guests.echo())
    with trio.CancelScope() as scope:
        scope.cancel()
        await stub.exchange([message(0)])
    assert scope.cancelled_caught
    with pytest.raises(MisuseError):
        await stub.exchange([message(1)])


async def test_closing_while_a_batch_runs_ends_the_batch(sandbox: Sandbox, nursery: trio.Nursery) -> None:
    slow = Budget(fuel_per_event=2**32 - 1, cpu_milliseconds=1000)
    stub = await start(sandbox, guests.guest(guests.ENDLESS_LOOP), slow)

    async def close_soon() -> None:
        await trio.testing.wait_all_tasks_blocked()
        stub.close()

    nursery.start_soon(close_soon)
    with pytest.raises(StubFaultError) as caught:
        await stub.exchange([message(0)])
    assert caught.value.code is Code.STUB_DIED


async def test_code_for_another_engine_is_refused_and_the_next_start_works(sandbox: Sandbox) -> None:
    with pytest.raises(StubFaultError) as caught:
        await sandbox.start_worker("b.example", b"not code", Budget())
    assert caught.value.code is Code.STUB_FAILED
    await start(sandbox, guests.echo())


async def test_module_is_judged_before_and_by_the_compiler(sandbox: Sandbox) -> None:
    with pytest.raises(PeerError) as caught:
        await sandbox.compile(b"(module)")
    assert caught.value.code is Code.MODULE_MALFORMED
    assert sandbox.statistics()["compilations"] == 0
    with pytest.raises(PeerError) as caught:
        await sandbox.compile(guests.echo().replace(b"\xfc\x0a\0\0", b"\xfc\x7f\0\0"))
    assert caught.value.code is Code.MODULE_MALFORMED
    assert sandbox.statistics()["compilations"] == 1


async def test_zygote_that_dies_is_replaced_and_takes_its_workers_along(sandbox: Sandbox) -> None:
    stub = await start(sandbox, guests.echo())
    before = sandbox.zygote_pid
    os.kill(before, signal.SIGKILL)
    with pytest.raises(StubFaultError) as caught:
        await exchange_forever(stub)
    assert caught.value.code is Code.STUB_DIED
    again = await start(sandbox, guests.echo())
    assert (await again.exchange([message(0)])).fault is None
    assert sandbox.zygote_pid != before
    assert sandbox.statistics()["zygote_restarts"] == 1


async def test_start_that_was_cancelled_leaves_no_worker(sandbox: Sandbox) -> None:
    code = await sandbox.compile(guests.echo())
    with trio.CancelScope() as scope:
        scope.cancel()
        await sandbox.start_worker("b.example", code, Budget())
    assert scope.cancelled_caught
    stub = await sandbox.start_worker("b.example", code, Budget())
    with trio.fail_after(5):
        while others := children_of(sandbox.zygote_pid) - {stub.pid}:
            await trio.lowlevel.checkpoint()
    assert not others


def children_of(pid: int) -> set[int]:
    return {int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


async def test_worker_is_small(sandbox: Sandbox) -> None:
    stub = await start(sandbox, guests.echo())
    await stub.exchange([message(0)])
    assert private_bytes(stub.pid) < 15 * MIB


def private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) << 10


async def test_first_zygote_that_does_not_start_is_an_error_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SettingsError) as caught:
        await Sandbox().run()
    assert "zygote" in caught.value.detail


async def test_other_systems_are_refused_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "plan9")
    with pytest.raises(SettingsError) as caught:
        await Sandbox().run()
    assert "Linux" in caught.value.detail


def test_machine_without_a_filter_is_refused_unless_the_operator_insists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(SettingsError) as caught:
        confinement.require_seccomp(is_unconfined=False)
    assert "insecure_no_seccomp" in caught.value.detail
    confinement.require_seccomp(is_unconfined=True)


NODE = """
import sys, trio
sys.path.insert(0, sys.argv[1])
from sandbox.core.budget import Budget
from sandbox.host import Sandbox

async def main():
    sandbox = Sandbox()
    async with trio.open_nursery() as nursery:
        await nursery.start(sandbox.run)
        code = await sandbox.compile(bytes.fromhex(sys.argv[2]))
        stub = await sandbox.start_worker("b.example", code, Budget())
        print(sandbox.zygote_pid, stub.pid, "wasmtime" in sys.modules, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


def test_node_never_loads_the_engine_and_takes_everything_along_when_it_is_killed() -> None:
    node = subprocess.Popen(
        [sys.executable, "-c", NODE, str(ROOT), guests.echo().hex()], stdout=subprocess.PIPE, text=True
    )
    with node:
        assert node.stdout is not None
        zygote, worker, has_engine = node.stdout.readline().split()
        assert has_engine == "False"
        node.kill()
    deadline = time.monotonic() + 5
    alive = {zygote, worker}
    while alive and time.monotonic() < deadline:
        alive = {pid for pid in alive if Path(f"/proc/{pid}/cmdline").exists() and is_running(pid)}
    assert not alive


def is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
