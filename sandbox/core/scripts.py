"""Stubs that are a script and its interpreter: one module, in which the script is data.

Theory of operation: the interpreter is a module of the stub contract like any other. The script lies in a custom
section of the package, `trapezoid-script`, which engines skip; the host gives it to the instance with the event
`script`. So the digest of the package covers interpreter and script, while machine code is made from what all packages
with one interpreter share: the module without the two sections that are different in each of them.

What is no module has no script. Modules of strangers come here before the engine sees them.

Source: docs/abi.md, "Stubs that are scripts".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

from protofly.limits import MODULE_SECTIONS
from sandbox.core.exchange import Event, GuestEvent
from sandbox.core.module_check import ABI_SECTION, MAGIC, SCRIPT_SECTION, VARINT_BYTES

_CUSTOM: Final = 0
_OWN: Final = frozenset({ABI_SECTION.encode(), SCRIPT_SECTION.encode()})


def with_script(interpreter: bytes, *, statement: bytes, script: bytes) -> bytes:
    """The package of a script.

    Args:
        interpreter: The module that runs it.
        statement: JSON for the section `trapezoid-stub`: the stub's own name and version.
        script: What the interpreter is given.
    """
    return b"".join(
        [
            _without_own_sections(interpreter),
            _custom_section(ABI_SECTION.encode(), statement),
            _custom_section(SCRIPT_SECTION.encode(), script),
        ]
    )


def script_of(module: bytes) -> bytes:
    """The script in a package, b"" in a module that has none."""
    for name, _, content, end in _sections(module):
        if name == SCRIPT_SECTION.encode():
            return module[content:end]
    return b""


def script_events(module: bytes) -> list[GuestEvent]:
    """Events that follow `start` for an instance of this module: `script` if it is a script package, else none."""
    script = script_of(module)
    return [GuestEvent(Event.SCRIPT, 0, script)] if script else []


def code_of(module: bytes) -> bytes:
    """Part of a module that is compiled: all of it, or of a script package the interpreter, which many share."""
    return _without_own_sections(module) if script_of(module) else module


def code_sha256(module: bytes) -> str:
    """Hex digest of what a module is compiled from: the name of its machine code in caches."""
    return hashlib.sha256(code_of(module)).hexdigest()


def _without_own_sections(module: bytes) -> bytes:
    kept = [module[start:end] for name, start, _, end in _sections(module) if name not in _OWN]
    return module[: len(MAGIC)] + b"".join(kept)


def _sections(module: bytes) -> Iterator[tuple[bytes, int, int, int]]:
    """Of each section: its name (b"" unless it is a custom one), where it starts, where its content does, its end.

    What is no module ends somewhere; `inspect_module` says why. Beyond MODULE_SECTIONS, which it refuses, all the rest
    is one section.
    """
    position = len(MAGIC)
    for _ in range(MODULE_SECTIONS):
        if position >= len(module):
            return
        start = position
        size, content = _number(module, position + 1)
        end = content + size
        name = b""
        if module[start] == _CUSTOM:
            length, content = _number(module, content)
            name, content = module[content : content + length], content + length
        yield name, start, content, end
        position = end
    if position < len(module):
        yield b"", position, position, len(module)


def _number(module: bytes, position: int) -> tuple[int, int]:
    """One LEB128 number, and where the next byte is."""
    value = shift = 0
    for byte in module[position : position + VARINT_BYTES]:
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return value, position


def _custom_section(name: bytes, content: bytes) -> bytes:
    body = _leb128(len(name)) + name + content
    return bytes([_CUSTOM]) + _leb128(len(body)) + body


def _leb128(value: int) -> bytes:
    encoded = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        encoded.append(low | (0x80 if value else 0))
        if not value:
            return bytes(encoded)
