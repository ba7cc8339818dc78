"""Threats 43, 44 and 46: a guest that loops, recurses, grows, lies, floods. Its neighbour works on.

Each hostile guest runs in a confined worker of its own; the outcome is a fault with the right word, in time.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from protofly.errors import Code, MisuseError, PeerError, StubFaultError
from sandbox.core.budget import Budget
from sandbox.core.exchange import RECORD, Action, Event, GuestAction, GuestEvent
from sandbox.host import ExchangeReply, Sandbox, StubProcess
from tests.support import guests
from tests.support.guest_records import encode_actions
from tests.support.guests import ENDLESS_LOOP, OUTPUT_AT, SLOW_LOOP, answer

HELLO = GuestEvent(Event.MESSAGE, 1, b'{"id":"1"}')
PATIENT = Budget(batch_seconds=60.0)
"""What ends a batch in time is what a guest may compute, not how long we wait for it: the machine may be slow."""
CPU_BOUND_US = 1_500_000


async def start(
    sandbox: Sandbox, module: bytes, budget: Budget | None = None, domain: str = "evil.example"
) -> StubProcess:
    return await sandbox.start_worker(domain, await sandbox.compile(module), budget or PATIENT)


async def attack(sandbox: Sandbox, module: bytes, budget: Budget | None = None) -> ExchangeReply:
    """Run one hostile batch beside a neighbour; the neighbour must not notice."""
    neighbour = await start(sandbox, guests.echo(), domain="good.example")
    stub = await start(sandbox, module, budget)
    reply = await stub.exchange([HELLO])
    assert reply.cpu_us < CPU_BOUND_US
    if reply.fault is not None:
        with pytest.raises(MisuseError):
            await stub.exchange([HELLO])
        stub = await start(sandbox, module, budget)
    again = await stub.exchange([HELLO])
    assert (again.fault is None) == (reply.fault is None)
    assert [action.payload for action in (await neighbour.exchange([HELLO])).actions] == [HELLO.payload]
    return reply


def code_of(reply: ExchangeReply) -> Code:
    assert reply.fault is not None
    assert reply.fault.trap.isprintable() or not reply.fault.trap
    assert (reply.fault.first_event, reply.fault.event_count, reply.actions) == (0, 1, [])
    return reply.fault.code


@pytest.mark.parametrize(
    "body",
    [ENDLESS_LOOP, SLOW_LOOP, "(memory.fill (i32.const 65536) (i32.const 1) (i32.const 15000000)) (i64.const 0)"],
    ids=["empty loop", "slow loop", "bulk fill"],
)
async def test_endless_work_runs_out_of_fuel(sandbox: Sandbox, body: str) -> None:
    assert code_of(await attack(sandbox, guests.guest(body))) is Code.STUB_OUT_OF_FUEL


async def test_work_that_fuel_would_allow_is_stopped_by_processor_time(sandbox: Sandbox) -> None:
    reply = await attack(sandbox, guests.guest(SLOW_LOOP), replace(PATIENT, fuel_per_event=2**32 - 1))
    assert code_of(reply) is Code.STUB_TIMEOUT
    assert 40_000 < reply.cpu_us < 500_000


async def test_endless_recursion_is_a_trap(sandbox: Sandbox) -> None:
    module = guests.guest("(call $deeper) (i64.const 0)", extra="(func $deeper (call $deeper) (call $deeper))")
    assert code_of(await attack(sandbox, module)) is Code.STUB_TRAPPED


@pytest.mark.parametrize(
    "body",
    [
        "(unreachable)",
        "(i64.extend_i32_u (i32.div_u (i32.const 1) (i32.const 0)))",
        "(i64.load (i32.const -8))",
        "(call_indirect $t (result i64) (i32.const 3))",
        "(i64.trunc_f64_s (f64.const nan))",
    ],
    ids=["unreachable", "division", "address", "table entry", "conversion"],
)
async def test_traps_are_traps(sandbox: Sandbox, body: str) -> None:
    assert code_of(await attack(sandbox, guests.guest(body, extra="(table $t 4 funcref)"))) is Code.STUB_TRAPPED


async def test_memory_does_not_grow_past_the_budget(sandbox: Sandbox) -> None:
    """The guest asks for more and more and answers with as many bytes as it has pages."""
    body = f"""(loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
      {answer(0, "(memory.size)")}"""
    reply_to = guests.guest(body, initial_pages=2)
    stub = await start(sandbox, reply_to, Budget().lowered_to(memory_bytes=1 << 20))
    reply = await stub.exchange([HELLO])
    assert reply.memory_bytes == 1 << 20
    assert reply.fault is not None  # sixteen zero bytes are no record


async def test_table_does_not_grow_past_the_limit(sandbox: Sandbox) -> None:
    body = """(if (i32.ne (table.grow $t (ref.null func) (i32.const 100000000)) (i32.const -1)) (then (unreachable)))
      (if (i32.ne (table.grow $t (ref.null func) (i32.const 10000)) (i32.const -1)) (then (unreachable)))"""
    reply = await attack(sandbox, guests.guest(body + answer(OUTPUT_AT, "(i32.const 0)"), extra="(table $t 1 funcref)"))
    assert reply.fault is None


@pytest.mark.parametrize(
    "packed",
    [
        0,
        (0xFFFF_FFFF << 32) | 0xFFFF_FFFF,
        (1 << 32) | 0xFFFF_FFFF,
        (0xFFFF_FFF0 << 32) | 0x20,
        ((16 << 20) - 1 << 32) | 2,
        (16 << 20 << 32) | 1,
        (0x8000_0000 << 32) | 12,
    ],
    ids=["zero", "all ones", "4 GiB", "wraps round", "one past", "behind", "negative"],
)
async def test_wild_pointers_are_a_fault(sandbox: Sandbox, packed: int) -> None:
    module = guests.guest(f"(i64.const {packed if packed < 2**63 else packed - 2**64})")
    assert code_of(await attack(sandbox, module)) is Code.STUB_OUTPUT


@pytest.mark.parametrize("window", [0, -1, (16 << 20) - 100, 0x7FFF_FFFF])
async def test_wild_window_is_a_fault_before_anything_is_written(sandbox: Sandbox, window: int) -> None:
    module = guests.assemble(
        f"""(module (memory (export "memory") 256 256)
          (func (export "window") (param i32) (result i32) (i32.const {window}))
          (func (export "handle") (param i32 i32) (result i64) (i64.const 0)))"""
    )
    with pytest.raises(StubFaultError) as caught:
        await start(sandbox, module)
    assert caught.value.code is Code.STUB_OUTPUT


async def test_window_that_moves_out_of_memory_for_a_large_event_is_a_fault(sandbox: Sandbox) -> None:
    module = guests.assemble(
        """(module (memory (export "memory") 256 256)
          (func (export "window") (param i32) (result i32)
            (select (i32.const 4096) (i32.const 16777200) (i32.le_u (local.get 0) (i32.const 65536))))
          (func (export "handle") (param i32 i32) (result i64) (i64.const 4294967296)))"""
    )
    stub = await start(sandbox, module)
    assert (await stub.exchange([HELLO])).fault is None
    assert code_of(await stub.exchange([GuestEvent(Event.DATA, 1, bytes(100_000))])) is Code.STUB_OUTPUT


@pytest.mark.parametrize(
    "output",
    [b"x", bytes(12), RECORD.pack(99, 0, 0, 0, 0), RECORD.pack(2, 0, 0, 0, 2**32 - 1), RECORD.pack(2, 0, 7, 0, 0)],
    ids=["stray byte", "action 0", "action 99", "length", "reserved"],
)
async def test_answer_that_is_no_record_is_a_fault(sandbox: Sandbox, output: bytes) -> None:
    assert code_of(await attack(sandbox, guests.constant(output))) is Code.STUB_OUTPUT


async def test_action_flood_is_a_fault(sandbox: Sandbox) -> None:
    flood = encode_actions([GuestAction(Action.LOG, 1, b"!")] * 1000)
    reply = await attack(sandbox, guests.constant(flood))
    assert code_of(reply) is Code.STUB_OUTPUT
    assert reply.fault is not None
    assert "actions" in reply.fault.trap


async def test_huge_output_is_a_fault(sandbox: Sandbox) -> None:
    assert code_of(await attack(sandbox, guests.guest(answer(0, "(i32.const 1000000)")))) is Code.STUB_OUTPUT


@pytest.mark.parametrize(
    ("body", "code"),
    [(ENDLESS_LOOP, Code.STUB_OUT_OF_FUEL), ("(unreachable)", Code.STUB_TRAPPED)],
    ids=["loops", "traps"],
)
async def test_hostile_initialize_fails_the_start_and_nothing_else(sandbox: Sandbox, body: str, code: Code) -> None:
    module = guests.guest("(i64.const 0)", extra=f'(func (export "_initialize") {body})')
    unhurried = Budget(cpu_milliseconds=10_000, batch_seconds=10.0)  # on a slow machine time would end it before fuel
    with pytest.raises(StubFaultError) as caught:
        await start(sandbox, module, unhurried)
    assert caught.value.code is code
    assert (await (await start(sandbox, guests.echo())).exchange([HELLO])).fault is None


async def test_imports_and_start_function_never_reach_the_compiler(sandbox: Sandbox) -> None:
    for extra, code in (
        ("(func $f) (start $f)", Code.MODULE_EXPORTS),
        ('(import "env" "f" (func))', Code.MODULE_IMPORTS),
    ):
        text = f"""(module {extra if "import" in extra else ""} (memory (export "memory") 1 1)
          (func (export "window") (param i32) (result i32) (i32.const 1))
          (func (export "handle") (param i32 i32) (result i64) (i64.const 0)) {"" if "import" in extra else extra})"""
        with pytest.raises(PeerError) as caught:
            await sandbox.compile(guests.assemble(text))
        assert caught.value.code is code
    assert sandbox.statistics()["compilations"] == 0


async def test_crash_on_one_message_leaves_the_others_their_way(sandbox: Sandbox) -> None:
    """Threat 47: the fault names the call, so the culprit is found by handing over one event at a time."""
    stub = await start(sandbox, guests.trap_on(0x58))
    batch = [GuestEvent(Event.MESSAGE, n, b"X" if n == 3 else b"ok") for n in range(6)]
    guilty = []
    for event in batch:
        if (await stub.exchange([event])).fault is not None:
            guilty.append(event.arg)
            stub = await start(sandbox, guests.trap_on(0x58))
    assert guilty == [3]
