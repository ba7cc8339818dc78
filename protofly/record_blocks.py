"""Message records in columns: version 2 of their segments. Pure.

A frame of such a segment holds one block: some records that follow each other by number, member by member.

    "TRB2" ‖ length of the header, 4 bytes little-endian ‖ header, JSON ‖ data of its columns, in their order, no gaps

The header says what all records share (`v`, `node`, `boot`), the number of the first one and how many there are, and
names the columns. A member without a column is null in all of them. Numbers lie in planes: the lowest bytes of all
values, then the next bytes, and so on, which is how they compress best. Forms of columns:

* `same`: one value, that of all records. No data.
* `words`: different values, each once. Data: the place of each record's value among them, in one byte, or in two when
  there are more than 256.
* `each`: a value for each record. No data.
* `u1`, `u2`, `u4`, `i8`: integers of so many bytes, all but the last without a sign. When `nullable`, data begins with
  a byte for each record, 1 where there is a number and 0 where there is none, and only those that are there follow.
* `hex`: 32 lower-case hexadecimal digits, as 16 bytes.

A block of three records, where data is 1+1+1, 0+0+0, 16+16+16 bytes:

    {"v":2,"node":"mn-1.a.example","boot":7,"first_seq":41,"records":3,"columns":[{"name":"role","form":"same",
    "values":["out"]},{"name":"size_in","form":"u1"},{"name":"src_key","form":"words","values":["x:1","x:2"]},
    {"name":"digest","form":"hex"}]}

Blocks stand for the lines that version 1 would have (`Block.lines`), which is the definition: whatever reads columns
faster has to find the same. Nothing in a block is believed: `read_block` bounds what it stands for before anything is
made of it.

Source: docs/records.md, "Blocks".
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from protofly.errors import Code, PeerError

BLOCK_MAGIC: Final = b"TRB2"
BLOCK_RECORDS_MAX: Final = 1 << 16
BLOCK_COLUMNS_MAX: Final = 256
BLOCK_HEADER_BYTES_MAX: Final = 4 << 20
BLOCK_BYTES_MAX: Final = 32 << 20
"""Of a whole block before compression."""
BLOCK_LINES_BYTES_MAX: Final = 64 << 20
"""Of the values of all records that a block stands for, as JSON: a word may be that of all records."""
_INTEGER_MAX: Final = (1 << 63) - 1
LENGTH_BYTES: Final = 4
ID_BYTES: Final = 16
WIDTHS: Final = {"u1": 1, "u2": 2, "u4": 4, "i8": 8}
TYPECODES: Final = {"u1": "B", "u2": "H", "u4": "I", "i8": "q"}
_NUMBER_CHARS: Final = 20
SHORT_PLACES: Final = 256
_NULL: Final = msgspec.Raw(b"null")
_ALL_BYTES: Final = bytes(range(256))
_LINE_ENDS: Final = (b"\n", b"\r")
_OF_HEADER: Final = frozenset({"v", "node", "boot", "seq"})

Form = Literal["same", "words", "each", "u1", "u2", "u4", "i8", "hex"]
_Positive = Annotated[int, Meta(ge=1, le=_INTEGER_MAX)]


class BlockColumn(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A column as the header of a block describes it; see the top of this module."""

    name: str
    form: Form
    nullable: bool = False
    values: tuple[msgspec.Raw, ...] = ()


class BlockHeader(Struct, frozen=True, kw_only=True):
    """The header of a block."""

    v: Literal[2] = 2
    node: str
    boot: Annotated[int, Meta(ge=0, le=_INTEGER_MAX)]
    first_seq: _Positive
    records: Annotated[int, Meta(ge=1, le=BLOCK_RECORDS_MAX)]
    columns: tuple[BlockColumn, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a block that was found to be sound.

    Attributes:
        form: How values are written.
        values: Those of the header, as JSON.
        present: A byte for each record, 1 where it has a value; None when all have.
        data: Planes of numbers, of places among `values`, or of ids.
        width: How many planes there are.
    """

    form: Form
    values: tuple[msgspec.Raw, ...]
    present: bytes | None
    data: bytes
    width: int

    def numbers(self) -> Sequence[int]:
        """The values of a column of numbers or places, in the order of the records."""
        if self.width <= 1:
            return self.data
        count = len(self.data) // self.width
        whole = bytearray(len(self.data))
        for plane in range(self.width):
            whole[plane :: self.width] = self.data[plane * count : (plane + 1) * count]
        return array(TYPECODES["u2"] if self.form == "words" else TYPECODES[self.form], bytes(whole))

    def texts(self, records: int) -> Iterator[bytes | msgspec.Raw | None]:
        """The value of each record as JSON; None: it has none."""
        values = [None if value == _NULL else value for value in self.values]
        match self.form:
            case "same":
                return repeat(values[0], records)
            case "words":
                return map(values.__getitem__, self.numbers())
            case "each":
                return iter(values)
            case "hex":
                planes = [self.data[plane * records : (plane + 1) * records] for plane in range(ID_BYTES)]
                return (b'"%s"' % bytes(row).hex().encode() for row in zip(*planes, strict=True))
        written = (b"%d" % number for number in self.numbers())
        if self.present is None:
            return written
        return (next(written) if is_there else None for is_there in self.present)


@dataclass(frozen=True, slots=True)
class Block:
    """Some records that follow each other by number, in columns by the names of their members."""

    header: BlockHeader
    columns: dict[str, Column]

    def numbers(self, name: str) -> list[int]:
        """The numbers of a member that every record has. Raises PeerError: one has none."""
        column = self.columns.get(name)
        try:
            texts = [text or b"null" for text in column.texts(self.header.records)] if column is not None else [b"null"]
            return msgspec.json.decode(b"[%s]" % b",".join(map(bytes, texts)), type=list[int])
        except (msgspec.DecodeError, RecursionError) as exc:
            raise _malformed(f"column {name}: {exc}") from exc

    def words(self, name: str) -> list[str | None]:
        """Texts of a member, each at least once. Raises PeerError: they are no texts."""
        column = self.columns.get(name)
        try:
            texts = b",".join(map(bytes, column.values)) if column is not None else b""
            return msgspec.json.decode(b"[%s]" % texts, type=list[str | None])
        except (msgspec.DecodeError, RecursionError) as exc:
            raise _malformed(f"column {name}: {exc}") from exc

    def lines(self) -> Iterator[bytes]:
        """The records as version 1 has them, a line each, without its end; members without a value are left out."""
        header = self.header
        node = msgspec.json.encode(header.node)
        beginning = b'{"v":%d,"node":%s,"boot":%d,"seq":' % (header.v, node, header.boot)
        names = [msgspec.json.encode(name) for name in self.columns]
        values = [column.texts(header.records) for column in self.columns.values()]
        rows = zip(*values, strict=True) if values else repeat((), header.records)
        for seq, row in enumerate(rows, header.first_seq):
            members = [b",%s:%s" % (name, value) for name, value in zip(names, row, strict=True) if value is not None]
            yield b"".join([beginning, b"%d" % seq, *members, b"}"])


_read_header = msgspec.json.Decoder(BlockHeader).decode


def read_block(content: bytes) -> Block:
    """Read the content of a frame. What is in the values stays JSON that nobody has looked into.

    Raises:
        PeerError: DOCUMENT_MALFORMED: it is no block, or larger than a block may be.
    """
    start = len(BLOCK_MAGIC) + LENGTH_BYTES
    if content[: len(BLOCK_MAGIC)] != BLOCK_MAGIC or len(content) < start:
        raise _malformed("it does not begin as one")
    if len(content) > BLOCK_BYTES_MAX:
        raise _malformed(f"more than {BLOCK_BYTES_MAX} bytes")
    header_bytes = int.from_bytes(content[len(BLOCK_MAGIC) : start], "little")
    if not 0 < header_bytes <= min(BLOCK_HEADER_BYTES_MAX, len(content) - start):
        raise _malformed(f"a header of {header_bytes} bytes")
    raw = content[start : start + header_bytes]
    if any(end in raw for end in _LINE_ENDS):
        raise _malformed("a header of several lines")
    try:
        raw.decode()  # texts of values are passed over without a look
        header = _read_header(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as exc:
        raise _malformed(f"header: {exc}") from exc
    if header.first_seq > _INTEGER_MAX - header.records or len(header.columns) > BLOCK_COLUMNS_MAX:
        raise _malformed("more records or columns than there can be")
    return Block(header, _read_columns(header, content, start + header_bytes))


def lines_in(content: bytes) -> Iterator[bytes]:
    """The lines of a frame, or those that its block stands for. Raises PeerError as `read_block`."""
    return read_block(content).lines() if content.startswith(BLOCK_MAGIC) else iter(content.splitlines())


def _read_columns(header: BlockHeader, content: bytes, position: int) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    lines_bytes = len(msgspec.json.encode(header.node)) * header.records
    if lines_bytes > BLOCK_LINES_BYTES_MAX:
        raise _malformed(f"stands for more than {BLOCK_LINES_BYTES_MAX} bytes")
    for described in header.columns:
        name, form = described.name, described.form
        if name in columns or name in _OF_HEADER:
            raise _malformed(f"column {name[:64]!a} twice")
        present, length = None, header.records
        if described.nullable:
            present = content[position : position + length]
            position += length
            length = present.count(1)
            if form not in WIDTHS or length + present.count(0) != header.records:
                raise _malformed(f"column {name[:64]!a} does not say where its numbers are")
        width = _width(described, header.records)
        end = position + length * width
        column = Column(form, described.values, present, content[position:end], width)
        if end > len(content):
            raise _malformed(f"column {name[:64]!a} ends behind the block")
        lines_bytes += len(msgspec.json.encode(name)) * header.records + _lines_bytes(column, header.records)
        if lines_bytes > BLOCK_LINES_BYTES_MAX:
            raise _malformed(f"stands for more than {BLOCK_LINES_BYTES_MAX} bytes")
        columns[name] = column
        position = end
    if position != len(content):
        raise _malformed(f"{len(content) - position} bytes behind its columns")
    return columns


def _width(described: BlockColumn, records: int) -> int:
    """How many planes a column has. Raises PeerError: it has not as many values as its form calls for."""
    form, count = described.form, len(described.values)
    expected = {"same": count == 1, "each": count == records, "words": 1 <= count <= records}
    if not expected.get(form, count == 0):
        raise _malformed(f"column {described.name[:64]!a} has {count} values")
    if form == "words":
        return 1 if count <= SHORT_PLACES else 2
    return ID_BYTES if form == "hex" else WIDTHS.get(form, 0)


def _lines_bytes(column: Column, records: int) -> int:
    """How long the values of all records are as JSON, at most. Raises PeerError: a word that there is not."""
    values = column.values
    if column.form == "same":
        return len(bytes(values[0])) * records
    if column.form == "each":
        return sum(len(bytes(value)) for value in values)
    if column.form != "words":
        return (2 * ID_BYTES + 2 if column.form == "hex" else _NUMBER_CHARS) * records
    if _highest_place(column) >= len(values):
        raise _malformed("a word that there is not")
    lengths = [len(bytes(value)) for value in values]
    longest = max(lengths)
    if longest * records <= BLOCK_LINES_BYTES_MAX // BLOCK_COLUMNS_MAX:
        return longest * records
    return sum(map(lengths.__getitem__, column.numbers()))


def _highest_place(column: Column) -> int:
    if column.width > 1:
        return max(column.numbers())
    too_high = column.data.translate(None, _ALL_BYTES[: len(column.values)])  # ten times as fast as `max`
    return max(too_high, default=0)


def _malformed(what: str) -> PeerError:
    return PeerError(Code.DOCUMENT_MALFORMED, f"block of records: {what}")
