"""The fast path into a guest; each private attribute of the binding that it reads is exercised here."""

from __future__ import annotations

import gc
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from protofly import limits
from protofly.errors import Code, PeerError, StubFaultError
from sandbox.core.budget import Budget
from sandbox.core.exchange import Action, Event, GuestAction, GuestEvent, decode_actions, encode_events
from sandbox.engine import Engine, Guest, engine_fingerprint
from tests.support import guests

RANDOM = bytes(16)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


def start(engine: Engine, module: bytes, budget: Budget | None = None) -> Guest:
    return engine.load(engine.compile(module)).instantiate(budget or Budget())


def buffer_of(*payloads: bytes) -> bytes:
    return encode_events([GuestEvent(Event.MESSAGE, number, raw) for number, raw in enumerate(payloads)], 1, RANDOM)


def fault_of(guest: Guest, buffer: bytes | None = None) -> StubFaultError:
    with pytest.raises(StubFaultError) as caught:
        guest.handle(buffer_of(b"{}") if buffer is None else buffer, 1)
    return caught.value


def test_events_go_in_and_actions_come_out(engine: Engine) -> None:
    guest = start(engine, guests.echo())
    answer = guest.handle(buffer_of(b"one", b"", b"three"), 3)
    assert decode_actions(answer) == [
        GuestAction(Action.DELIVER, n, raw) for n, raw in enumerate((b"one", b"", b"three"))
    ]
    assert guest.calls.fuel_used > 0


def test_fuel_is_counted_the_same_each_time(engine: Engine) -> None:
    guest = start(engine, guests.echo())
    used = []
    for _ in range(3):
        guest.calls.fuel_used = 0
        guest.handle(buffer_of(b"same"), 1)
        used.append(guest.calls.fuel_used)
    assert len(set(used)) == 1


def test_one_module_gives_instances_that_share_nothing(engine: Engine) -> None:
    count = "(i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))"
    counting = guests.guest(count + guests.answer(1024, "(i32.load (i32.const 0))"))
    module = engine.load(engine.compile(counting))
    first, second = module.instantiate(Budget()), module.instantiate(Budget())
    assert [len(first.handle(buffer_of(b""), 1)) for _ in range(3)] == [1, 2, 3]
    assert len(second.handle(buffer_of(b""), 1)) == 1


def test_larger_event_gets_a_larger_window(engine: Engine) -> None:
    kibibytes = guests.answer(1024, "(i32.shr_u (global.get $size) (i32.const 10))")
    asked = guests.assemble(
        f"""(module (memory (export "memory") 128 128) (global $size (mut i32) (i32.const 0))
          (func (export "window") (param i32) (result i32) (global.set $size (local.get 0)) (i32.const 4096))
          (func (export "handle") (param i32 i32) (result i64) {kibibytes}))"""
    )
    guest = start(engine, asked)
    assert len(guest.handle(buffer_of(b""), 1)) == 64
    assert len(guest.handle(buffer_of(bytes((1 << 20) - 36)), 1)) == 1024


def test_initialize_runs_once_before_anything_else(engine: Engine) -> None:
    count_five = "(i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 5)))"
    initialize = f'(func (export "_initialize") {count_five})'
    module = guests.guest(guests.answer(1024, "(i32.load (i32.const 0))"), extra=initialize)
    assert len(start(engine, module).handle(buffer_of(b""), 1)) == 5


def test_trap_names_its_place_in_harmless_text(engine: Engine) -> None:
    module = guests.guest("(call $evil) (i64.const 0)", extra=r'(func $evil (@name "\1b[31m\0aevil") (unreachable))')
    error = fault_of(start(engine, module))
    assert (error.code, error.fault) == (Code.STUB_TRAPPED, "unreachable")
    assert error.detail.isprintable()
    assert "evil" in error.detail


@contextmanager
def ticking(engine: Engine) -> Iterator[Callable[[], int]]:
    """Move the engine's clock once a millisecond, whatever the processor is doing; gives the ticks so far."""
    done = threading.Event()
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        while not done.wait(0.001):
            engine.tick()
            ticks += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        yield lambda: ticks
    finally:
        done.set()
        ticker.join()


def test_guest_is_stopped_by_cpu_time_when_fuel_would_let_it_go_on(engine: Engine) -> None:
    budget = Budget(fuel_per_event=2**32 - 1, cpu_milliseconds=1)
    guest = start(engine, guests.guest(guests.ENDLESS_LOOP), budget)
    for _ in range(3):  # the deadline is armed at the call, so the epoch is moved beforehand here and must not count
        engine.tick()
    with ticking(engine):
        error = fault_of(guest)
    assert error.code is Code.STUB_TIMEOUT


def test_a_call_with_much_input_has_more_time_than_one_with_little(engine: Engine) -> None:
    """On a slow machine an interpreter needs longer than CPU_BACKSTOP_SECONDS for 1 MiB."""
    taken = []
    for size in (100, 1 << 20):
        budget = Budget(fuel_per_event=2**31, fuel_per_input_byte=limits.FUEL_PER_INPUT_BYTE)
        guest = start(engine, guests.guest(guests.ENDLESS_LOOP), budget)
        with ticking(engine) as ticks:
            before = ticks()
            fault_of(guest, buffer_of(bytes(size)))
            taken.append(ticks() - before)
    assert taken[1] - taken[0] >= 30, taken


def test_module_that_the_engine_refuses_is_the_peers_fault(engine: Engine) -> None:
    broken = guests.echo().replace(b"\xfc\x0a\0\0", b"\xfc\x7f\0\0")
    with pytest.raises(PeerError) as caught:
        engine.compile(broken)
    assert caught.value.code is Code.MODULE_MALFORMED
    assert caught.value.detail.isprintable()


@pytest.mark.parametrize(
    "wat",
    [
        "(func (param v128))",
        "(func (return_call 0))",
        "(tag $e) (func (throw $e))",
        "(type (struct))",
        "(func (param (ref null any)))",
    ],
)
def test_features_outside_the_profile_are_refused(engine: Engine, wat: str) -> None:
    with pytest.raises(PeerError):
        engine.compile(guests.assemble(f"(module {wat})"))


def test_what_the_engine_says_of_a_feature_that_is_off_is_one_short_line(engine: Engine) -> None:
    wat = '(func (export "handle") (result i64) (i64x2.extract_lane 0 (v128.const i64x2 0 0)))'
    with pytest.raises(PeerError) as caught:
        engine.compile(guests.assemble(f"(module {wat})"))
    assert caught.value.detail.endswith("SIMD support is not enabled")
    assert "Caused by" not in caught.value.detail
    assert len(caught.value.detail) < 160


def test_code_of_nobody_is_refused(engine: Engine) -> None:
    with pytest.raises(StubFaultError) as caught:
        engine.load(b"\x7fELF" + bytes(64))
    assert caught.value.code is Code.STUB_FAILED


def test_code_without_the_contract_is_refused_at_instantiation(engine: Engine) -> None:
    module = guests.assemble(
        '(module (memory (export "memory") 1 1) (func (export "window") (param i64) (result i32) (i32.const 1)))'
    )
    with pytest.raises(StubFaultError) as caught:
        start(engine, module)
    assert caught.value.fault == "exports"


def test_memory_beyond_the_budget_fails_at_instantiation(engine: Engine) -> None:
    with pytest.raises(StubFaultError) as caught:
        start(engine, guests.echo(), Budget().lowered_to(memory_bytes=1 << 20))
    assert caught.value.code is Code.STUB_FAILED


def test_nothing_is_kept_after_a_thousand_trapped_instances(engine: Engine) -> None:
    module = engine.load(engine.compile(guests.guest("(unreachable)")))

    def trap_once() -> None:
        guest = module.instantiate(Budget())
        fault_of(guest)
        guest.close()

    for _ in range(50):
        trap_once()
    gc.collect()
    before = resident_bytes()
    for _ in range(1000):
        trap_once()
    gc.collect()
    assert resident_bytes() - before < 8 << 20


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def test_fingerprint_names_version_profile_and_processor() -> None:
    assert engine_fingerprint() == engine_fingerprint()
    assert engine_fingerprint().startswith("wasmtime-50.0.0-50.0.1-p1-")
    assert limits.CPU_TICK_SECONDS > 0
