"""Lines of segments, and blocks, become columns. No Spark session in here, and nothing is believed.

Theory of operation. One decoder, the plain one, says what a line is, whatever its neighbours are. Nearly all lines are
made of words that were there before, though, so there is a quick decoder, which knows these words and no others. Where
it takes a line it gives what the plain one would, with a sign in place of each word. Where it does not, the plain one
is asked, and new words are learned. So the quick one cannot make a record of what is none, nor another record.

What makes it fast is that no text is made for a word, that numbers and signs are packed by hundreds, and that a few
hundred lines at a time are packed while they are still in the processor's cache.

Blocks are columns already. What a block stands for is lines, though, so where its columns are not what nodes write, its
lines are read like others, each by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from pipeline.columns.words import TooManyWordsError
from pipeline.schemas import RECORD_SCHEMAS
from pipeline.segments.line_members import IDS, OddColumnError, member_of
from protofly.record_blocks import Block, Column
from protofly.record_segments import LINES_VERSION
from protofly.records import RecordKind

NOT_A_RECORD: Final = "not-a-record"
OTHER_VERSION: Final = "schema"
_LEARNING: Final = 100
"""What it costs to make a quick decoder, in lines that are read twice."""
_OFTEN: Final = 8
"""A reader that has learned so often has to miss twice as many lines each time: who writes new words on purpose, gets
slow decoding, and not thousands of decoders."""
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeError)


@dataclass(frozen=True, slots=True)
class Piece:
    """Decoded members of some lines, as `LineDecoder.columns` takes them.

    Attributes:
        lines: How many there were.
        parts: For each member what those lines say of it that could be read, packed.
        spoilt: Why a line could not be read, by its place among all lines.
    """

    lines: int
    parts: Sequence[Any]
    spoilt: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Columns:
    """Decoded members of some lines, as columns.

    Attributes:
        arrays: By member, a value for each line that could be read; null where it says nothing. Texts with few
            different ones have a dictionary.
        spoilt: Why a line could not be read, by its place among all lines.
    """

    arrays: Mapping[str, pa.Array]
    spoilt: Mapping[int, str]


class LineDecoder:
    """Reads lines of one kind of record.

    A member may be absent, and a word any word: that is left to `pipeline.segments.quality`, which has a name for each.
    """

    def __init__(self, kind: RecordKind) -> None:
        fields = RECORD_SCHEMAS[kind].fields
        ids = IDS if kind is RecordKind.MESSAGE else ()
        self._members = {field.name: member_of(field.name, field.dataType, is_id=field.name in ids) for field in fields}
        self._plain = self._decoder([(name, *member.plain) for name, member in self._members.items()])
        self._quick: msgspec.json.Decoder[Any] | None = None
        self._known = self._missed = self._learned = 0
        """How many words the quick decoder knows, how many lines it did not take, and how many there were of it."""

    def read(self, text: bytes) -> Piece:
        """Decode lines, each with its end; some hundreds at a time cost least."""
        try:
            piece = self._read(text)
        except TooManyWordsError:
            self._learn()
            return self.read(text)
        if self._missed > _LEARNING << max(0, self._learned - _OFTEN) and self._words() > self._known:
            self._learn()
        return piece

    def read_block(self, block: Block) -> Piece:
        """Take what a block says, as if its lines were read."""
        header = block.header
        columns = block.columns | {
            name: Column("same", (msgspec.Raw(msgspec.json.encode(value)),), None, b"", 0)
            for name, value in (("v", header.v), ("node", header.node), ("boot", header.boot))
        }
        numbers = np.arange(header.first_seq, header.first_seq + header.records)
        try:
            parts = [
                numbers if name == "seq" else member.column(columns.get(name), header.records)
                for name, member in self._members.items()
            ]
        except TooManyWordsError:
            self._learn()
            return self.read_block(block)
        except OddColumnError:
            return self._odd_block(block)
        return Piece(header.records, parts, {})

    def _odd_block(self, block: Block) -> Piece:
        try:
            return self._one_by_one(list(block.lines()), block.header.v)
        except TooManyWordsError:
            self._learn()
            return self._odd_block(block)

    def expect(self, words: Mapping[str, Iterable[str]]) -> None:
        """Let some words of members be known beforehand; it changes nothing but how long it takes."""
        for name, found in words.items():
            vocabulary = self._members[name].words
            with suppress(TooManyWordsError):
                for word in found:
                    vocabulary.sign_of(word)

    def columns(self, pieces: Sequence[Piece]) -> Columns:
        """The columns of all these pieces, one after the other."""
        parts = zip(*(piece.parts for piece in pieces), strict=True)
        arrays = {
            name: member.array(of_member)
            for (name, member), of_member in zip(self._members.items(), parts, strict=True)
        }
        spoilt: dict[int, str] = {}
        before = 0
        for piece in pieces:
            spoilt |= {before + place: reason for place, reason in piece.spoilt.items()}
            before += piece.lines
        return Columns(arrays, spoilt)

    def _read(self, text: bytes) -> Piece:
        rows = self._quickly(text)
        if rows is None:
            return self._one_by_one(text.split(b"\n")[:-1], LINES_VERSION)
        return self._piece(rows, {})

    def _piece(self, rows: Sequence[tuple[Any, ...]], spoilt: Mapping[int, str]) -> Piece:
        values = list(zip(*rows, strict=True)) or [()] * len(self._members)
        parts = [member.part(column) for member, column in zip(self._members.values(), values, strict=True)]
        return Piece(len(rows) + len(spoilt), parts, spoilt)

    def _quickly(self, text: bytes) -> list[tuple[Any, ...]] | None:
        """All lines at once; None when the quick decoder does not take them all."""
        if self._quick is None or not _is_text(text):
            return None
        lines = _lines_with_one_object(text)
        if lines is None:
            return None
        try:
            records = self._quick.decode_lines(text)
        except _UNREADABLE:
            return None
        return list(map(msgspec.structs.astuple, records)) if len(records) == lines else None

    def _one_by_one(self, lines: Sequence[bytes], version: int) -> Piece:
        """Lines of a segment of this version."""
        quick = self._quick.decode if self._quick is not None else None
        rows: list[tuple[Any, ...]] = []
        spoilt: dict[int, str] = {}
        for place, line in enumerate(lines):
            try:
                line.decode()  # members that nobody asks for are passed over without a look at their text
                try:
                    rows.append(msgspec.structs.astuple(quick(line)) if quick is not None else self._plainly(line))
                except _UNREADABLE:
                    rows.append(self._plainly(line))
            except _UNREADABLE:
                spoilt[place] = self._reason(line, version)
        return self._piece(rows, spoilt)

    def _plainly(self, line: bytes) -> tuple[Any, ...]:
        """The same as the quick decoder says of a line that it knows."""
        values = msgspec.structs.astuple(self._plain.decode(line))
        self._missed += 1
        return tuple([member.quickly(value) for member, value in zip(self._members.values(), values, strict=True)])

    def _words(self) -> int:
        return sum(len(member.words) for member in self._members.values())

    def _learn(self) -> None:
        self._known, self._missed, self._learned = self._words(), 0, self._learned + 1
        self._quick = self._decoder([(name, *member.quick) for name, member in self._members.items()])

    def _decoder(self, members: list[tuple[str, Any, Any]]) -> msgspec.json.Decoder[Any]:
        # Never part of a cycle: the collector of garbage need not know them.
        return msgspec.json.Decoder(msgspec.defstruct("Line", members, gc=False))

    def _reason(self, line: bytes, version: int) -> str:
        try:
            line.decode()
            found = _read_version(line).v
        except _UNREADABLE:
            return NOT_A_RECORD
        return OTHER_VERSION if found != version else NOT_A_RECORD


class _Version(msgspec.Struct):
    v: Any = None


_read_version = msgspec.json.Decoder(_Version).decode


def _is_text(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeError:
        return False
    return True


def _lines_with_one_object(text: bytes) -> int | None:
    """How many lines there are, if in each there is one object, provided that there are as many objects as lines.

    That is so when every line begins with a brace and ends with one: no object can go on in another line then, because
    inside of one a comma stands between something that ends with a brace and something that begins with one, and there
    is no bare end of a line in a text.
    """
    content = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(content == ord("\n"))
    is_so = (
        content[0] == ord("{") and (content[ends - 1] == ord("}")).all() and (content[ends[:-1] + 1] == ord("{")).all()
    )
    return len(ends) if is_so else None
