"""Guests for the sandbox tests: small stubs in WAT, well behaved and hostile.

A guest gives its `handle` body; the rest of the contract (memory, window, custom section) is the same for all.
"""

from __future__ import annotations

import json
from functools import cache

import wasmtime

from sandbox.core.exchange import Action, GuestAction
from tests.support.guest_records import encode_actions

WINDOW_AT = 4096
OUTPUT_AT = 2 << 20
PAGES = 256


def custom_section(name: str, payload: bytes) -> bytes:
    """A whole custom section, header included."""
    body = leb(len(name)) + name.encode() + payload
    return b"\0" + leb(len(body)) + body


def leb(value: int) -> bytes:
    """Unsigned LEB128."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def stub_section(*, abi: int = 1, name: str = "test", version: str = "1.0.0") -> bytes:
    """The custom section that every stub carries."""
    return custom_section("trapezoid-stub", json.dumps({"abi": abi, "name": name, "version": version}).encode())


@cache
def assemble(wat: str, *, with_section: bool = True) -> bytes:
    """A module from text, with the stub's custom section behind it."""
    return bytes(wasmtime.wat2wasm(wat)) + (stub_section() if with_section else b"")


def guest(handle: str, *, extra: str = "", pages: int = PAGES, initial_pages: int | None = None) -> bytes:
    """A stub whose `handle` has this body (parameters $p and $n, one i64 to leave); `extra` adds more definitions."""
    first = pages if initial_pages is None else initial_pages
    return assemble(
        f"""(module
          (memory (export "memory") {first} {pages})
          (func (export "window") (param i32) (result i32) (i32.const {WINDOW_AT}))
          (func (export "handle") (param $p i32) (param $n i32) (result i64) {handle})
          {extra})"""
    )


def answer(offset: int, length: str) -> str:
    """Leave `offset << 32 | length`; `length` is an i32 expression."""
    return f"(i64.or (i64.shl (i64.const {offset}) (i64.const 32)) (i64.extend_i32_u {length}))"


def data(offset: int, content: bytes) -> str:
    """A data segment."""
    escaped = "".join([f"\\{byte:02x}" for byte in content])
    return f'(data (i32.const {offset}) "{escaped}")'


def echo() -> bytes:
    """For each event a `deliver` action with the same number, flags and bytes: a stub's loop without its work."""
    return guest(
        f"""(local $i i32) (local $end i32) (local $o i32) (local $size i32)
          (local.set $i (i32.add (local.get $p) (i32.const 24)))
          (local.set $end (i32.add (local.get $p) (local.get $n)))
          (local.set $o (i32.const {OUTPUT_AT}))
          (block $done (loop $next
            (br_if $done (i32.ge_u (local.get $i) (local.get $end)))
            (local.set $size (i32.add (i32.const 12) (i32.load offset=8 (local.get $i))))
            (memory.copy (local.get $o) (local.get $i) (local.get $size))
            (i32.store8 (local.get $o) (i32.const {Action.DELIVER:d}))
            (local.set $i (i32.add (local.get $i) (local.get $size)))
            (local.set $o (i32.add (local.get $o) (local.get $size)))
            (br $next)))
          {answer(OUTPUT_AT, f"(i32.sub (local.get $o) (i32.const {OUTPUT_AT}))")}"""
    )


def constant(output: bytes) -> bytes:
    """Always the same output, whatever it is."""
    return guest(answer(OUTPUT_AT, f"(i32.const {len(output)})"), extra=data(OUTPUT_AT, output))


def status(text: bytes = b"live") -> bytes:
    """One well-formed `status` action per call."""
    return constant(encode_actions([GuestAction(Action.STATUS, 0, text)]))


def trap_on(byte: int) -> bytes:
    """Traps when the first event's payload begins with this byte, else answers nothing."""
    return guest(
        f"""(if (i32.eq (i32.load8_u offset=36 (local.get $p)) (i32.const {byte})) (then (unreachable)))
          {answer(OUTPUT_AT, "(i32.const 0)")}"""
    )


ENDLESS_LOOP = "(loop $again (br $again)) (unreachable)"
SLOW_LOOP = """(local $x f64)
  (loop $again (local.set $x (f64.sqrt (f64.add (local.get $x) (f64.const 2)))) (br $again)) (unreachable)"""
