"""Small WebAssembly modules, put together section by section: one that keeps the contract of stubs, and such as do not.

The encoding is that of the WebAssembly core specification 1.0, section 5.5. Source: docs/abi.md, "The module".
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

MAGIC: Final = b"\0asm\x01\0\0\0"
_I32: Final = 0x7F
_I64: Final = 0x7E
_END: Final = 0x0B


def number(value: int) -> bytes:
    """Unsigned LEB128."""
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def _name(text: str) -> bytes:
    return number(len(text)) + text.encode()


def section(kind: int, content: bytes) -> bytes:
    """One section."""
    return bytes([kind]) + number(len(content)) + content


def _vector(kind: int, entries: Sequence[bytes]) -> bytes:
    return section(kind, number(len(entries)) + b"".join(entries))


def contract_section(abi: int = 1) -> bytes:
    """The custom section that names the contract."""
    content = json.dumps({"abi": abi, "name": "partner", "version": "1.0.0"}, separators=(",", ":")).encode()
    return section(0, _name("trapezoid-stub") + content)


TYPES: Final = _vector(1, [bytes([0x60, 1, _I32, 1, _I32]), bytes([0x60, 2, _I32, _I32, 1, _I64]), b"\x60\0\0"])
FUNCTIONS: Final = _vector(3, [b"\0", b"\x01", b"\x02"])
MEMORY: Final = _vector(5, [b"\x01\x02\x04"])
ENDLESS_MEMORY: Final = _vector(5, [b"\0\x02"])
_WINDOW: Final = _name("window") + b"\0\0"
_HANDLE: Final = _name("handle") + b"\0\x01"
_MEMORY: Final = _name("memory") + b"\x02\0"
EXPORTS: Final = _vector(7, [_MEMORY, _WINDOW, _HANDLE])
START: Final = section(8, b"\x02")
IMPORT: Final = _vector(2, [_name("wasi_snapshot_preview1") + _name("fd_write") + b"\0\x02"])


def _body(*code: int) -> bytes:
    return number(len(code) + 2) + b"\0" + bytes(code) + bytes([_END])


BODIES: Final = _vector(10, [_body(0x41, 0x80, 0x20), _body(0x42, 0x80, 0x80, 0x04), _body()])
"""`window` returns 4096; `handle` returns an empty buffer at 64 KiB."""
CONTRACT: Final = contract_section()

HONEST: Final = MAGIC + TYPES + FUNCTIONS + MEMORY + EXPORTS + BODIES + CONTRACT
WITH_IMPORT: Final = MAGIC + TYPES + IMPORT + FUNCTIONS + MEMORY + EXPORTS + BODIES + CONTRACT
WITH_START: Final = MAGIC + TYPES + FUNCTIONS + MEMORY + EXPORTS + START + BODIES + CONTRACT
WITHOUT_MAXIMUM: Final = MAGIC + TYPES + FUNCTIONS + ENDLESS_MEMORY + EXPORTS + BODIES + CONTRACT
WITHOUT_HANDLE: Final = MAGIC + TYPES + FUNCTIONS + MEMORY + _vector(7, [_MEMORY, _WINDOW]) + BODIES + CONTRACT
WITHOUT_CONTRACT: Final = MAGIC + TYPES + FUNCTIONS + MEMORY + EXPORTS + BODIES
OF_ANOTHER_ABI: Final = MAGIC + TYPES + FUNCTIONS + MEMORY + EXPORTS + BODIES + contract_section(9)
COMPONENT: Final = b"\0asm\x0d\0\1\0" + TYPES
CUT_SHORT: Final = MAGIC + b"\x01\xff\xff\xff\x0f"


def marked(module: bytes, mark: str) -> bytes:
    """The same module with a custom section behind it: it does the same, and has another hash."""
    return module + section(0, _name("mark") + mark.encode())
