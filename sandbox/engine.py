"""The only user of Wasmtime: engine profile, compiling, and the fast path into a guest.

Theory of operation: a guest has no imports, so a call is a copy in, one C call, a copy out. The binding's public call
asks for the function's type and wraps it anew each time (24 us); this page keeps the addresses and calls the
documented C functions itself (under 1 us), with the bounds checks that the public call would not have done either. It
reads private attributes of the binding for that, which is why the version is pinned and every line here has a test.
Small getters keep the interpreter lock; the call of the guest releases it, so that the ticker can run.

Only a worker, a compile child, the zygote and tests import this page; the node's process never does.

Source: Wasmtime study, sections 2, 3.1, 4 and 8.
"""

from __future__ import annotations

import ctypes
import hashlib
import platform
import re
from pathlib import Path
from typing import Final, NoReturn

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime._instance import InstanceExports

from protofly import limits
from protofly.errors import Code, PeerError, StubFaultError
from sandbox.core.budget import Budget
from sandbox.core.exchange import output_limit
from sandbox.core.frames import clean_text
from sandbox.engine_version import engine_version

PROFILE: Final = 1
"""Number of the settings below, part of the cache key of compiled code: change it with them."""
RESERVATION_BYTES: Final = 64 << 20
GUARD_BYTES: Final = 64 << 10
FRAMES_SHOWN: Final = 3
MILLISECONDS_PER_TICK: Final = limits.CPU_TICK_SECONDS * 1000
FUEL_PER_TICK: Final = int(limits.CPU_BACKSTOP_FUEL_PER_SECOND * limits.CPU_TICK_SECONDS)
"""Fuel that lengthens the deadline of a call by one tick: on a slow machine an interpreter reads 1 MiB in 60 ms."""
I32_MASK: Final = 0xFFFF_FFFF
RAW_VALUE_WORDS: Final = 2  # a raw value is 16 bytes wide, because it has room for a vector

_FEATURES_OFF: Final = (
    "threads",
    "simd",
    "relaxed_simd",
    "tail_call",
    "memory64",
    "multi_memory",
    "exceptions",
    "gc",
    "function_references",
    "component_model",
    "wide_arithmetic",
    "custom_page_sizes",
    "stack_switching",
)

_CAUSE_NUMBER: Final = re.compile(r"^\d+: ")
_pointer = ctypes.c_void_p
_call = ctypes.CFUNCTYPE(_pointer, _pointer, _pointer, _pointer, ctypes.c_size_t, _pointer)(
    ("wasmtime_func_call_unchecked", ffi.dll)
)
_set_fuel = ctypes.PYFUNCTYPE(_pointer, _pointer, ctypes.c_uint64)(("wasmtime_context_set_fuel", ffi.dll))
_get_fuel = ctypes.PYFUNCTYPE(_pointer, _pointer, _pointer)(("wasmtime_context_get_fuel", ffi.dll))
_set_deadline = ctypes.PYFUNCTYPE(None, _pointer, ctypes.c_uint64)(("wasmtime_context_set_epoch_deadline", ffi.dll))
_data_size = ctypes.PYFUNCTYPE(ctypes.c_size_t, _pointer, _pointer)(("wasmtime_memory_data_size", ffi.dll))
_memmove = ctypes.memmove
_string_at = ctypes.string_at

_TRAPS: Final = {
    wasmtime.TrapCode.OUT_OF_FUEL: Code.STUB_OUT_OF_FUEL,
    wasmtime.TrapCode.INTERRUPT: Code.STUB_TIMEOUT,
}
_SIGNATURES: Final = {
    "window": (["i32"], ["i32"]),
    "handle": (["i32", "i32"], ["i64"]),
    "_initialize": ([], []),
}


class Engine:
    """The fixed engine profile. One per process."""

    def __init__(self) -> None:
        self._engine = wasmtime.Engine(_profile())

    def compile(self, module: bytes) -> bytes:
        """Compile a module that has passed the module check.

        Raises:
            PeerError: MODULE_MALFORMED with the engine's reason.
        """
        try:
            with wasmtime.Module(self._engine, module) as compiled:
                return bytes(compiled.serialize())
        except wasmtime.WasmtimeError as error:
            raise PeerError(Code.MODULE_MALFORMED, clean_text(_reason(str(error)).encode())) from error

    def load(self, code: bytes) -> LoadedModule:
        """Load code that `compile` made under the same fingerprint; the caller has checked its authenticity.

        Raises:
            StubFaultError: STUB_FAILED, the code is for another engine.
        """
        try:
            return LoadedModule(self._engine, wasmtime.Module.deserialize(self._engine, code))
        except wasmtime.WasmtimeError as error:
            raise StubFaultError(Code.STUB_FAILED, clean_text(str(error).encode()), fault="load") from error

    def tick(self) -> None:
        """Advance the epoch by one."""
        self._engine.increment_epoch()


class LoadedModule:
    """Executable code, ready for any number of instances."""

    def __init__(self, engine: wasmtime.Engine, module: wasmtime.Module) -> None:
        self._engine = engine
        self._module = module

    def instantiate(self, budget: Budget) -> Guest:
        """Make an instance and run its `_initialize`.

        Raises:
            StubFaultError: The module needs more than the budget, or `_initialize` failed.
        """
        store = wasmtime.Store(self._engine)
        try:
            return Guest(store, self._module, budget)
        except BaseException:
            store.close()
            raise


class Guest:
    """One instance of a stub. After any fault only `close` may be called."""

    def __init__(self, store: wasmtime.Store, module: wasmtime.Module, budget: Budget) -> None:
        self._store = store
        self._budget = budget
        self.calls = FastCalls(store, budget)
        store.set_limits(budget.memory_bytes, budget.table_elements, instances=1, tables=1, memories=1)
        self.calls.arm(budget.fuel_instantiate)
        self._exports = _instantiate(store, module)
        memory = self._exports["memory"]
        if not isinstance(memory, wasmtime.Memory):
            raise StubFaultError(Code.STUB_FAILED, "`memory` is no memory", fault="exports")
        self._memory = memory
        self._memory_struct = ctypes.addressof(memory._memory)  # noqa: SLF001 - as above
        self._base = _address(memory.data_ptr(store))
        if "_initialize" in self._exports:
            self.calls.run(self._function("_initialize"), budget.fuel_instantiate)
        self._window_function = self._function("window")
        self._handle_function = self._function("handle")
        self._window_bytes = 0
        self._window = 0
        self._open_window(limits.INPUT_BYTES)

    @property
    def memory_bytes(self) -> int:
        """Current size of the linear memory."""
        return int(_data_size(self.calls.context, self._memory_struct))

    def handle(self, buffer: bytes, event_count: int) -> bytes:
        """Pass one event buffer to the stub. Returns its action buffer.

        Raises:
            StubFaultError: STUB_TRAPPED, STUB_OUT_OF_FUEL, STUB_TIMEOUT or STUB_OUTPUT.
        """
        size = len(buffer)
        if size > self._window_bytes:
            self._open_window(size)
        _memmove(self._base + self._window, buffer, size)
        calls = self.calls
        raw = calls.raw
        raw[0] = self._window
        raw[RAW_VALUE_WORDS] = size
        calls.run(self._handle_function, self._budget.fuel_of_call(event_count, size))
        answer = raw[0]
        pointer, length = answer >> 32, answer & I32_MASK
        if not answer:
            raise StubFaultError(Code.STUB_OUTPUT, "`handle` answered 0", fault="handle-failed")
        if pointer + length > self.memory_bytes:
            raise StubFaultError(Code.STUB_OUTPUT, f"{length} bytes at {pointer} reach past the memory", fault="wild")
        if length > output_limit(size):
            raise StubFaultError(Code.STUB_OUTPUT, f"{length} bytes of actions", fault="output-size")
        return _string_at(self._base + pointer, length)

    def close(self) -> None:
        """Free the memory. Without this, a trap would keep the store alive in a reference cycle."""
        self._store.close()

    def _open_window(self, size: int) -> None:
        raw = self.calls.raw
        raw[0] = size
        self.calls.run(self._window_function, self._budget.fuel_per_event)
        window = raw[0] & I32_MASK
        if not window:
            raise StubFaultError(Code.STUB_OUTPUT, f"no window of {size} bytes", fault="no-window")
        if window + size > self.memory_bytes:
            raise StubFaultError(
                Code.STUB_OUTPUT, f"the window of {size} bytes at {window} reaches past the memory", fault="wild"
            )
        self._window, self._window_bytes = window, size

    def _function(self, name: str) -> int:
        """Address of an exported function. Its type is checked here, because the fast call checks nothing."""
        function = self._exports.get(name)
        if not isinstance(function, wasmtime.Func):
            raise StubFaultError(Code.STUB_FAILED, f"no function `{name}`", fault="exports")
        kind = function.type(self._store)
        if ([str(value) for value in kind.params], [str(value) for value in kind.results]) != _SIGNATURES[name]:
            raise StubFaultError(Code.STUB_FAILED, f"`{name}` has another type", fault="exports")
        return ctypes.addressof(function._func)  # noqa: SLF001 - as above; `_exports` keeps it alive


class FastCalls:
    """Calls into one store with metered fuel and time, through `raw`: two arguments before, the result after."""

    def __init__(self, store: wasmtime.Store, budget: Budget) -> None:
        self.context = _address(store._context())  # noqa: SLF001 - the fast path, see the top of the page
        self.raw = (ctypes.c_uint64 * (2 * RAW_VALUE_WORDS))()
        self.fuel_used = 0
        """Fuel of all calls since it was last set to 0."""
        self._fuel = ctypes.c_uint64()
        self._trap = ctypes.c_void_p()
        self._raw_address = ctypes.addressof(self.raw)
        self._fuel_address = ctypes.addressof(self._fuel)
        self._trap_address = ctypes.addressof(self._trap)
        self._ticks = int(budget.cpu_milliseconds / MILLISECONDS_PER_TICK) + 1

    def run(self, function: int, fuel: int) -> None:
        """Call a function with both meters freshly armed. Raises StubFaultError."""
        self.arm(fuel)
        failure = _call(self.context, function, self._raw_address, 2, self._trap_address)
        _get_fuel(self.context, self._fuel_address)
        self.fuel_used += fuel - self._fuel.value
        if failure or self._trap.value:
            self._raise(failure)

    def arm(self, fuel: int) -> None:
        """Set the fuel and the deadline of what runs next. More fuel, which is given for more input, is more time."""
        _set_fuel(self.context, fuel)
        _set_deadline(self.context, self._ticks + fuel // FUEL_PER_TICK)

    def _raise(self, failure: int | None) -> NoReturn:
        if failure:
            error = ctypes.cast(failure, ctypes.POINTER(ffi.wasmtime_error_t))
            text = str(wasmtime.WasmtimeError._from_ptr(error))  # noqa: SLF001 - as above
            raise StubFaultError(Code.STUB_TRAPPED, clean_text(text.encode()), fault="error")
        trap = ctypes.cast(self._trap, ctypes.POINTER(ffi.wasm_trap_t))
        self._trap.value = None
        raise _fault_of(wasmtime.Trap._from_ptr(trap))  # noqa: SLF001 - as above


def _instantiate(store: wasmtime.Store, module: wasmtime.Module) -> InstanceExports:
    try:
        return wasmtime.Instance(store, module, []).exports(store)
    except wasmtime.Trap as trap:
        raise _fault_of(trap) from None  # the chain would keep the store alive
    except wasmtime.WasmtimeError as error:
        raise StubFaultError(Code.STUB_FAILED, clean_text(str(error).encode()), fault="instantiate") from None


def engine_fingerprint() -> str:
    """Versions, profile number and processor as one word. Compiled code is usable only under the same fingerprint."""
    engine = engine_version()
    return f"wasmtime-{engine.library}-{engine.package}-p{PROFILE}-{hashlib.sha256(_processor()).hexdigest()[:16]}"


def _profile() -> wasmtime.Config:
    config = wasmtime.Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    config.parallel_compilation = False
    config.max_wasm_stack = limits.STACK_BYTES
    config.memory_reservation = RESERVATION_BYTES
    config.memory_guard_size = GUARD_BYTES
    config.memory_reservation_for_growth = 0
    config.memory_may_move = False
    config.memory_init_cow = False  # it would need a memfd, which the filter does not allow
    config.cranelift_nan_canonicalization = True
    config.gc_support = False
    for feature in _FEATURES_OFF:
        setattr(config, f"wasm_{feature}", False)
    return config


def _reason(text: str) -> str:
    """What the engine says of a module in one line: where it found something, and the innermost cause."""
    lines = [_CAUSE_NUMBER.sub("", line.strip()) for line in text.splitlines() if line.strip()]
    return ": ".join(dict.fromkeys((lines[0], lines[-1]))) if lines else ""


def _fault_of(trap: wasmtime.Trap) -> StubFaultError:
    code = trap.trap_code
    word = code.name.lower().replace("_", "-") if code is not None else "unknown"
    names = [frame.func_name or f"#{frame.func_index}" for frame in trap.frames[:FRAMES_SHOWN]]
    text = clean_text(f"{word} in {' < '.join(names)}".encode("ascii", "replace"))
    return StubFaultError(_TRAPS.get(code, Code.STUB_TRAPPED) if code else Code.STUB_TRAPPED, text, fault=word)


def _processor() -> bytes:
    """Return what code generation depends on besides the engine: machine and CPU feature flags."""
    try:
        lines = Path("/proc/cpuinfo").read_bytes().splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")
    return platform.machine().encode() + b"\n" + b" ".join(sorted(flags.split()))


def _address(pointer: object) -> int:
    address = ctypes.cast(pointer, ctypes.c_void_p).value  # type: ignore[arg-type]
    if address is None:
        raise StubFaultError(Code.STUB_FAILED, "the engine gave a null pointer", fault="engine")
    return address
