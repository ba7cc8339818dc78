"""One instance of a stub in this process, through Wasmtime's public interface: independent of the sandbox."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import wasmtime

from protofly import limits
from sandbox.core.exchange import GuestAction, GuestEvent, action_limit, decode_actions, encode_events, output_limit

STUBS: Final = Path(__file__).parents[2] / "examples" / "stubs"
RANDOM: Final = bytes(range(16))
_OFF: Final = (
    "threads",
    "simd",
    "relaxed_simd",
    "tail_call",
    "memory64",
    "multi_memory",
    "exceptions",
    "gc",
    "function_references",
)


@cache
def _engine() -> wasmtime.Engine:
    config: Any = wasmtime.Config()
    config.consume_fuel = True
    config.max_wasm_stack = limits.STACK_BYTES
    config.memory_reservation = 64 << 20
    config.memory_may_move = False
    config.gc_support = False
    for feature in _OFF:
        setattr(config, f"wasm_{feature}", False)
    return wasmtime.Engine(config)


@cache
def _compile(path: Path) -> wasmtime.Module:
    return wasmtime.Module(_engine(), path.read_bytes())


class Guest:
    """A stub instance under the contract's budgets; a trap or a 0 is an assertion error of the test that caused it."""

    def __init__(self, path: Path, *, memory_bytes: int = limits.MEMORY_BYTES) -> None:
        self._store = wasmtime.Store(_engine())
        self._store.set_limits(
            memory_size=memory_bytes, table_elements=limits.TABLE_ELEMENTS, instances=1, tables=1, memories=1
        )
        self._store.set_fuel(limits.FUEL_INSTANTIATE)
        exports: Any = wasmtime.Instance(self._store, _compile(path), []).exports(self._store)
        self._memory, self._window, self._handle = exports["memory"], exports["window"], exports["handle"]
        self._initialize = exports.get("_initialize")
        self.fuel_used = 0
        self.now_ms = 1_795_219_200_000

    def initialize(self) -> None:
        """Run the optional export, under the fuel that is left for the start."""
        self._initialize(self._store)

    def window(self, size: int) -> int:
        return int(self._window(self._store, size)) & 0xFFFF_FFFF

    def handle(self, pointer: int, length: int) -> int:
        """The packed answer, as the guest gave it; arguments as the guest sees them."""
        signed = [value - (1 << 32) if value >= 1 << 31 else value for value in (pointer, length)]
        return int(self._handle(self._store, *signed)) & 0xFFFF_FFFF_FFFF_FFFF

    @property
    def memory_bytes(self) -> int:
        return int(self._memory.data_len(self._store))

    def call_raw(self, buffer: bytes, event_count: int = 1) -> bytes | None:
        """The action buffer for one event buffer of any kind; None when the guest answered 0."""
        window = self.window(max(len(buffer), limits.INPUT_BYTES))
        assert window
        assert window + len(buffer) <= self.memory_bytes
        self._memory.write(self._store, buffer, window)
        fuel = limits.FUEL_PER_EVENT * event_count + limits.FUEL_PER_INPUT_BYTE * len(buffer)
        self._store.set_fuel(fuel)
        answer = self.handle(window, len(buffer))
        self.fuel_used = fuel - self._store.get_fuel()
        self._store.set_fuel(limits.FUEL_INSTANTIATE)
        if not answer:
            return None
        pointer, length = answer >> 32, answer & 0xFFFF_FFFF
        assert pointer + length <= self.memory_bytes
        return bytes(self._memory.read(self._store, pointer, pointer + length))

    def call(self, *events: GuestEvent, random16: bytes = RANDOM) -> list[GuestAction]:
        """Every action that these events, in one call, lead to; checked against the contract's limits."""
        buffer = encode_events(list(events), self.now_ms, random16)
        answer = self.call_raw(buffer, max(1, len(events)))
        assert answer is not None
        assert len(answer) <= output_limit(len(buffer))
        return decode_actions(answer, action_limit(len(events), len(buffer)))
