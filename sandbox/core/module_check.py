"""The structural gate: what a module must look like before the compiler may see it.

Theory of operation: one walk over the sections, in pure Python, without looking at instructions. It checks what the
stub contract demands (no imports, no start function, the three exports with their types, a bounded memory, the custom
section) and the sizes that make a compiler slow (functions, bodies, locals) or this walk (sections, groups of locals),
since everything else in the node waits for it. It does not validate: that is the
engine's work, in the compile child. A module that passes costs the compiler about 3.4 s and 616 MiB per 62 kB
function at the very worst, which the child's own limits then stop.

Source: docs/abi.md, "The module"; Wasmtime study, section 4 (compile bombs); trust and hosts, section 3.6, step 5.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from protofly import limits
from protofly.errors import Code, PeerError
from protofly.plain_words import without_types

MAGIC: Final = b"\0asm\x01\0\0\0"
ABI_SECTION: Final = "trapezoid-stub"
SCRIPT_SECTION: Final = "trapezoid-script"
ABI_VERSION: Final = 1
ABI_SECTION_BYTES: Final = 1024
NAME_BYTES: Final = 1024
NAME_CHARS_SHOWN: Final = 60
REASON_CHARS_SHOWN: Final = 160
STUB_NAME: Final = re.compile(r"(?!default\Z)[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")  # that of a manifest, `StubName`
DECLARATIONS: Final = 10_000  # types, globals, exports, segments: harmless to the engine, and no toolchain comes near
MEMORY_PAGES: Final = limits.MEMORY_BYTES >> 16
I32: Final = 0x7F
I64: Final = 0x7E
FUNCTION_TYPE: Final = 0x60
EXPORT_FUNCTION: Final = 0
EXPORT_MEMORY: Final = 2
HAS_MAXIMUM: Final = 1
VARINT_BYTES: Final = 5

Signature = tuple[bytes, bytes]
WANTED: Final[dict[str, Signature]] = {
    "window": (bytes([I32]), bytes([I32])),
    "handle": (bytes([I32, I32]), bytes([I64])),
}
INITIALIZE: Final = "_initialize"


StubKind = Literal["protostub", "connector"]
"""What a module is for: a foreign domain, or a service address of its host's own."""


class StubSection(msgspec.Struct, frozen=True, kw_only=True):
    """JSON of the custom section `trapezoid-stub`. `configuration` and `events` are those of `Manifest`."""

    abi: int
    name: str
    version: str
    configuration: dict[str, Any] = {}
    events: list[str] = []
    kind: StubKind = "protostub"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFacts:
    """Sizes found by the check, in bytes."""

    abi: int
    name: str
    version: str
    configuration: dict[str, Any]
    events: list[str]
    kind: StubKind
    functions: int
    code_bytes: int
    memory_minimum_bytes: int
    memory_maximum_bytes: int
    table_elements: int
    has_initialize: bool
    script_bytes: int
    """Of the custom section `trapezoid-script`; 0 when there is none."""


class _Reader:
    """A cursor over one section; every step past its end is MODULE_MALFORMED."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def byte(self) -> int:
        position = self.position
        if position >= self.end:
            raise _malformed(f"cut short at byte {position}")
        self.position = position + 1
        return self.data[position]

    def number(self) -> int:
        """One unsigned 32-bit LEB128 number."""
        value = shift = 0
        for _ in range(VARINT_BYTES):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value >> 32:
                    break
                return value
            shift += 7
        raise _malformed(f"a number of more than 32 bits before byte {self.position}")

    def count(self, most: int, what: str) -> int:
        """The length of a vector, judged before anything of it is read."""
        value = self.number()
        if value > most:
            raise PeerError(Code.MODULE_LIMITS, f"{value} {what}; at most {most}")
        return value

    def take(self, size: int) -> bytes:
        start = self.position
        self.skip(size)
        return self.data[start : self.position]

    def skip(self, size: int) -> None:
        if size > self.end - self.position:
            raise _malformed(f"cut short at byte {self.end}")
        self.position += size

    def name(self) -> str:
        raw = self.take(self.count(NAME_BYTES, "bytes in a name"))
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise _malformed("a name that is not UTF-8") from error


@dataclass(slots=True)
class _Seen:
    """State gathered while walking the module."""

    types: list[Signature | None] = field(default_factory=list)
    functions: list[int] = field(default_factory=list)
    exports: dict[str, tuple[int, int]] = field(default_factory=dict)
    memories: list[tuple[int, int]] = field(default_factory=list)
    table_elements: int = 0
    bodies: int = 0
    code_bytes: int = 0
    stub: StubSection | None = None
    script_bytes: int = 0


def inspect_module(module: bytes) -> ModuleFacts:
    """Judge one module as downloaded.

    Raises:
        PeerError: MODULE_LIMITS, MODULE_MALFORMED, MODULE_IMPORTS, MODULE_EXPORTS or ABI_UNSUPPORTED.
    """
    if len(module) > limits.MODULE_BYTES:
        raise PeerError(Code.MODULE_LIMITS, f"{len(module)} bytes; at most {limits.MODULE_BYTES}")
    if module[: len(MAGIC)] != MAGIC:
        raise _malformed("not a core WebAssembly module of version 1")
    seen = _Seen()
    whole = _Reader(module, len(MAGIC), len(module))
    last = sections = 0
    while whole.position < whole.end:
        sections += 1
        if sections > limits.MODULE_SECTIONS:
            raise PeerError(Code.MODULE_LIMITS, f"more than {limits.MODULE_SECTIONS} sections")
        section = whole.byte()
        size = whole.number()
        reader = _Reader(module, whole.position, whole.position + size)
        whole.skip(size)
        if section:
            last = _in_order(section, last)
        _SECTIONS[section](reader, seen)
        if section and reader.position != reader.end:
            raise _malformed(f"{reader.end - reader.position} stray bytes in section {section}")
    return _facts(seen)


def _in_order(section: int, last: int) -> int:
    """Sections come in a fixed order; the data count (12) stands before the code (10)."""
    if section not in _SECTIONS:
        raise _malformed(f"unknown section {section}")
    rank = _ORDER.index(section) + 1
    if rank <= last:
        raise _malformed(f"section {section} twice or out of order")
    return rank


def _facts(seen: _Seen) -> ModuleFacts:
    if seen.bodies != len(seen.functions):
        raise _malformed(f"{len(seen.functions)} functions declared, {seen.bodies} bodies")
    if seen.stub is None:
        raise PeerError(Code.ABI_UNSUPPORTED, f"no custom section {ABI_SECTION}")
    if len(seen.memories) != 1 or seen.exports.get("memory") != (EXPORT_MEMORY, 0):
        raise PeerError(Code.MODULE_EXPORTS, "exactly one memory, exported as `memory`, is needed")
    for name, signature in WANTED.items():
        _demand_function(seen, name, signature)
    has_initialize = INITIALIZE in seen.exports
    if has_initialize:
        _demand_function(seen, INITIALIZE, (b"", b""))
    minimum, maximum = seen.memories[0]
    return ModuleFacts(
        abi=seen.stub.abi,
        name=seen.stub.name,
        version=seen.stub.version,
        configuration=seen.stub.configuration,
        events=seen.stub.events,
        kind=seen.stub.kind,
        functions=len(seen.functions),
        code_bytes=seen.code_bytes,
        memory_minimum_bytes=minimum << 16,
        memory_maximum_bytes=maximum << 16,
        table_elements=seen.table_elements,
        has_initialize=has_initialize,
        script_bytes=seen.script_bytes,
    )


def _demand_function(seen: _Seen, name: str, signature: Signature) -> None:
    kind, index = seen.exports.get(name, (-1, 0))
    if kind != EXPORT_FUNCTION:
        raise PeerError(Code.MODULE_EXPORTS, f"no exported function `{name}`")
    if index >= len(seen.functions) or seen.functions[index] >= len(seen.types):
        raise _malformed(f"the export `{name}` names no function")
    if seen.types[seen.functions[index]] != signature:
        raise PeerError(Code.MODULE_EXPORTS, f"the exported function `{name}` has another type")


def _read_custom(reader: _Reader, seen: _Seen) -> None:
    name = reader.name()
    if name == SCRIPT_SECTION:
        if seen.script_bytes or reader.position == reader.end:
            raise _malformed(f"an empty custom section {SCRIPT_SECTION}, or two")
        seen.script_bytes = reader.end - reader.position
    if name != ABI_SECTION:
        return
    if seen.stub is not None:
        raise _malformed(f"two custom sections {ABI_SECTION}")
    raw = reader.take(reader.end - reader.position)
    if len(raw) > ABI_SECTION_BYTES:
        raise PeerError(Code.MODULE_LIMITS, f"custom section of {len(raw)} bytes; at most {ABI_SECTION_BYTES}")
    try:
        seen.stub = msgspec.json.decode(raw, type=StubSection)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        reason = _shown(without_types(str(error)), REASON_CHARS_SHOWN)
        raise _malformed(f"unreadable custom section {ABI_SECTION}: {reason}") from error
    if seen.stub.abi != ABI_VERSION:
        raise PeerError(Code.ABI_UNSUPPORTED, f"stub contract {seen.stub.abi}; this host speaks {ABI_VERSION}")
    if not STUB_NAME.fullmatch(seen.stub.name):
        raise _malformed(
            f"the stub's name {_shown(seen.stub.name)!r}: expected at most 64 letters, digits, `_`, `-` and `.`, "
            "not `default`, and no `-` or `.` first"
        )


def _read_types(reader: _Reader, seen: _Seen) -> None:
    for _ in range(reader.count(DECLARATIONS, "types")):
        if reader.byte() != FUNCTION_TYPE:
            raise _malformed("a type that is no function type")
        parameters = reader.take(reader.count(limits.MODULE_LOCALS, "parameters"))
        seen.types.append((parameters, reader.take(reader.count(limits.MODULE_LOCALS, "results"))))


def _read_imports(reader: _Reader, _: _Seen) -> None:
    """The first name is enough to see what the author built against."""
    count = reader.number()
    if count:
        module, name = reader.name(), reader.name()
        raise PeerError(Code.MODULE_IMPORTS, f"{count} imports, the first is {_shown(module)}.{_shown(name)}")


def _read_functions(reader: _Reader, seen: _Seen) -> None:
    seen.functions = [reader.number() for _ in range(reader.count(limits.MODULE_FUNCTIONS, "functions"))]


def _read_limits(reader: _Reader, what: str) -> tuple[int, int | None]:
    flags = reader.byte()
    if flags > HAS_MAXIMUM:
        raise PeerError(Code.MODULE_LIMITS, f"a {what} that is shared or has 64-bit addresses")
    minimum = reader.number()
    return minimum, reader.number() if flags & HAS_MAXIMUM else None


def _read_tables(reader: _Reader, seen: _Seen) -> None:
    for _ in range(reader.count(1, "tables")):
        reader.skip(1)
        minimum, _maximum = _read_limits(reader, "table")
        if minimum > limits.TABLE_ELEMENTS:
            raise PeerError(Code.MODULE_LIMITS, f"a table of {minimum} elements; at most {limits.TABLE_ELEMENTS}")
        seen.table_elements = minimum


def _read_memories(reader: _Reader, seen: _Seen) -> None:
    for _ in range(reader.count(1, "memories")):
        minimum, maximum = _read_limits(reader, "memory")
        if maximum is None or maximum > MEMORY_PAGES or minimum > maximum:
            declared = "no maximum" if maximum is None else f"a maximum of {maximum} pages, of which {minimum} at first"
            wanted = f"at most {MEMORY_PAGES} ({limits.MEMORY_BYTES >> 20} MiB), and no fewer than at first"
            raise PeerError(Code.MODULE_LIMITS, f"the memory declares {declared}; a maximum is needed, {wanted}")
        seen.memories.append((minimum, maximum))


def _read_exports(reader: _Reader, seen: _Seen) -> None:
    for _ in range(reader.count(DECLARATIONS, "exports")):
        name, kind, index = reader.name(), reader.byte(), reader.number()
        if name in seen.exports:
            raise _malformed(f"two exports {_shown(name)}")
        seen.exports[name] = (kind, index)


def _refuse_start(_: _Reader, __: _Seen) -> None:
    raise PeerError(Code.MODULE_EXPORTS, "a start function; `_initialize` is where a stub begins")


def _read_code(reader: _Reader, seen: _Seen) -> None:
    seen.bodies = reader.count(limits.MODULE_FUNCTIONS, "function bodies")
    seen.code_bytes = reader.end - reader.position
    groups = 0
    for _ in range(seen.bodies):
        size = reader.count(limits.MODULE_BODY_BYTES, "bytes in one function")
        body = _Reader(reader.data, reader.position, reader.position + size)
        reader.skip(size)
        local_count, of_body = 0, body.count(limits.MODULE_LOCALS, "groups of locals")
        groups += of_body
        if groups > limits.MODULE_LOCAL_GROUPS:
            raise PeerError(Code.MODULE_LIMITS, f"more than {limits.MODULE_LOCAL_GROUPS} groups of locals in all")
        for _ in range(of_body):
            local_count += body.number()
            body.skip(1)
            if local_count > limits.MODULE_LOCALS:
                raise PeerError(Code.MODULE_LIMITS, f"{local_count} locals; at most {limits.MODULE_LOCALS}")


def _count_only(most: int, what: str) -> Callable[[_Reader, _Seen], None]:
    """A section whose entries only the engine reads; their number is judged here."""

    def read(reader: _Reader, _: _Seen) -> None:
        reader.count(most, what)
        reader.position = reader.end

    return read


_SECTIONS: Final[dict[int, Callable[[_Reader, _Seen], None]]] = {
    0: _read_custom,
    1: _read_types,
    2: _read_imports,
    3: _read_functions,
    4: _read_tables,
    5: _read_memories,
    6: _count_only(DECLARATIONS, "globals"),
    7: _read_exports,
    8: _refuse_start,
    9: _count_only(DECLARATIONS, "element segments"),
    10: _read_code,
    11: _count_only(DECLARATIONS, "data segments"),
    12: _count_only(DECLARATIONS, "data segments"),
}
_ORDER: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 10, 11)


def _malformed(detail: str) -> PeerError:
    return PeerError(Code.MODULE_MALFORMED, detail)


def _shown(name: str, most: int = NAME_CHARS_SHOWN) -> str:
    """A name out of the module, or what was said about it, fit for a log."""
    return "".join(char if char.isascii() and char.isprintable() else "." for char in name[:most])
