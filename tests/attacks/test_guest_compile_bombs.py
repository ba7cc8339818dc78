"""Threat 25, compile bombs: small modules that would cost the compiler minutes and gigabytes."""

from __future__ import annotations

import resource

import pytest
import trio

from protofly import limits
from protofly.errors import Code, PeerError
from sandbox.core import scripts
from sandbox.core.budget import Budget
from sandbox.core.exchange import Event, GuestEvent
from sandbox.core.module_check import MAGIC, inspect_module
from sandbox.core.scripts import script_events
from sandbox.host import Sandbox
from tests.support import guests
from tests.support.guests import leb, stub_section


def section(number: int, payload: bytes) -> bytes:
    return bytes([number]) + leb(len(payload)) + payload


def with_bodies(bodies: list[bytes]) -> bytes:
    """A stub that keeps the contract, with these function bodies behind its own two."""
    types = section(1, leb(3) + b"\x60\1\x7f\1\x7f" + b"\x60\2\x7f\x7f\1\x7e" + b"\x60\0\0")
    functions = section(3, leb(2 + len(bodies)) + b"\0\1" + b"\2" * len(bodies))
    memory = section(5, b"\1\1\1\x10")
    exports = section(7, b"\3\6memory\2\0\6window\0\0\6handle\0\1")
    all_bodies = [b"\0\x41\x80\x20\x0b", b"\0\x42\0\x0b", *bodies]
    code = section(10, leb(len(all_bodies)) + b"".join(leb(len(body)) + body for body in all_bodies))
    return MAGIC + types + functions + memory + exports + code + stub_section()


def nested_loops(depth: int, local_count: int) -> bytes:
    return b"\1" + leb(local_count) + b"\x7f" + b"\x03\x40" * depth + b"\x0b" * depth + b"\x0b"


def crowd_of_sections() -> bytes:
    """A stub behind as many empty custom sections as fit."""
    stub = with_bodies([])
    return MAGIC + b"\0\1\0" * ((limits.MODULE_BYTES - len(stub)) // 3) + stub[len(MAGIC) :]


async def test_bomb_that_passes_the_gate_is_stopped_and_the_next_module_compiles(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMPILE_WALL_SECONDS", 1.0)
    with pytest.raises(PeerError) as caught:
        await sandbox.compile(with_bodies([nested_loops(20_000, 500)] * 20))
    assert (caught.value.code, caught.value.detail) == (Code.COMPILE_LIMITS, "not compiled in 1 s")
    monkeypatch.undo()
    stub = await sandbox.start_worker("b.example", await sandbox.compile(guests.echo()), Budget())
    assert (await stub.exchange([GuestEvent(Event.MESSAGE, 1, b"{}")])).fault is None


async def compiling_child(zygote_pid: int) -> int:
    """Wait for the child that compiles, until the kernel limits its CPU time as it is to; its process id."""
    children = trio.Path(f"/proc/{zygote_pid}/task/{zygote_pid}/children")
    wanted = (limits.COMPILE_CPU_SECONDS, limits.COMPILE_CPU_SECONDS + 1)
    while True:
        for pid in map(int, (await children.read_text()).split()):
            if resource.prlimit(pid, resource.RLIMIT_CPU) == wanted:
                return pid
        await trio.sleep(0.01)


async def shorten_cpu_time(zygote_pid: int, seconds: int) -> None:
    """Take away most of the CPU time of the child that compiles."""
    resource.prlimit(await compiling_child(zygote_pid), resource.RLIMIT_CPU, (seconds, seconds + 1))


async def test_bomb_ends_by_the_childs_own_limits_even_if_nobody_watches(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMPILE_WALL_SECONDS", 250.0)
    with trio.fail_after(200):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shorten_cpu_time, sandbox.zygote_pid, 1)
            with pytest.raises(PeerError) as caught:
                await sandbox.compile(with_bodies([nested_loops(20_000, 500)] * 20))
    assert caught.value.code is Code.COMPILE_LIMITS
    assert "SIG" in caught.value.detail


@pytest.mark.parametrize(
    "module",
    [
        with_bodies([b"\1" + leb(50_000) + b"\x7f\x0b"] * 1000),
        with_bodies([b"\0\x0b"] * 50_000),
        with_bodies([nested_loops(40_000, 1)]),
        crowd_of_sections(),
        with_bodies([b"\xf4\3" + b"\1\x7f" * 500 + b"\x0b"] * 2000),
        with_bodies([b"\xf4\3" + b"\0\x7f" * 500 + b"\x0b"] * 2000),
    ],
    ids=["locals", "functions", "one huge body", "sections", "groups of locals", "empty groups of locals"],
)
async def test_known_bombs_never_reach_the_compiler(sandbox: Sandbox, module: bytes) -> None:
    with pytest.raises(PeerError) as caught:
        await sandbox.compile(module)
    assert caught.value.code is Code.MODULE_LIMITS
    assert sandbox.statistics()["compilations"] == 0


async def test_neighbour_talks_while_a_bomb_is_compiled(sandbox: Sandbox) -> None:
    stub = await sandbox.start_worker("b.example", await sandbox.compile(guests.echo()), Budget())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sandbox.compile, with_bodies([nested_loops(20_000, 500)] * 20))
        await compiling_child(sandbox.zygote_pid)
        for _ in range(20):
            assert (await stub.exchange([GuestEvent(Event.MESSAGE, 1, b"{}")])).fault is None
        assert nursery.child_tasks  # it is compiled still, or the nursery would have raised that it is too large
        nursery.cancel_scope.cancel()


def test_what_every_walk_over_a_module_costs_is_bounded_before_it_is_judged() -> None:
    """The name of its machine code is asked for before the gate has seen a module."""
    bomb = crowd_of_sections()
    assert len(list(scripts._sections(bomb))) == limits.MODULE_SECTIONS + 1
    assert scripts.code_of(bomb) == bomb
    assert script_events(bomb) == []


def test_a_module_with_as_many_sections_as_there_may_be_passes() -> None:
    stub = with_bodies([])
    own = len(list(scripts._sections(stub)))
    for more, is_fine in ((limits.MODULE_SECTIONS - own, True), (limits.MODULE_SECTIONS - own + 1, False)):
        module = MAGIC + b"\0\1\0" * more + stub[len(MAGIC) :]
        if is_fine:
            assert inspect_module(module).functions == 2
        else:
            with pytest.raises(PeerError, check=lambda error: error.code is Code.MODULE_LIMITS):
                inspect_module(module)


async def test_a_newcomer_does_not_wait_for_the_bombs_of_others(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "COMPILE_SHORT_SECONDS", 1.0)
    done = 0

    async def explode(number: int) -> None:
        nonlocal done
        await sandbox.compile(with_bodies([nested_loops(20_000, 500)] * (20 + number)))
        done += 1

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(explode, number)
            await compiling_child(sandbox.zygote_pid)
            stub = await sandbox.start_worker("b.example", await sandbox.compile(guests.echo()), Budget())
            assert done == 0
            nursery.cancel_scope.cancel()
    assert (await stub.exchange([GuestEvent(Event.MESSAGE, 1, b"{}")])).fault is None


async def test_a_module_that_takes_long_goes_on_where_it_is_while_no_other_one_does(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beginning anew would take the interpreter of scripts twice its time on a slow machine."""
    monkeypatch.setattr(limits, "COMPILE_SHORT_SECONDS", 0.2)
    monkeypatch.setattr(limits, "COMPILE_WALL_SECONDS", 250.0)
    compilers: set[int] = set()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sandbox.compile, with_bodies([nested_loops(20_000, 500)] * 20))
            compilers.add(await compiling_child(sandbox.zygote_pid))
            for _ in range(2):  # the first of these moves the other one to the second lane, with its child
                await sandbox.compile(guests.echo())
                compilers.add(await compiling_child(sandbox.zygote_pid))
            assert nursery.child_tasks
            nursery.cancel_scope.cancel()
    assert len(compilers) == 1
