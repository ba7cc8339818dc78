"""Members of records become columns: what msgspec is to take for each, and how values are packed and put together.

Values come from lines, one by one, or from blocks of columns, all at once; what is packed is the same.
"""

from __future__ import annotations

import binascii
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import GenericAlias
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, BooleanType, DataType, IntegerType, LongType, ShortType, StringType

from pipeline.columns.words import NO_WORD, SIGNS_TYPE, Vocabulary, as_texts, packed
from protofly.record_blocks import WIDTHS, Column

FACTS: Final = "facts"
"""The member that is kept as it was written."""
IDS: Final = ("msg_id", "digest")
"""Members of message records that are so many bytes in hexadecimal digits. In other kinds they are texts."""
ID_BYTES: Final = 16
_ABSENT: Final = msgspec.Raw()
_NOTHING: Final = frozenset({b"", b"null"})
Numbers = NDArray[np.int64]
_NO_NUMBER: Final = -(1 << 63)
"""Stands for null among numbers: no line may have it."""


class OddColumnError(Exception):
    """A column of a block has another form than nodes give it, or values that are none of this member."""


class Member(ABC):
    """One member of the lines, and how values of it become a column."""

    words: Vocabulary = Vocabulary(is_full=True)

    def __init__(self, type_: DataType) -> None:
        self._type = to_arrow_type(type_)
        self.plain: tuple[Any, Any] = (_plain_type(type_), None)
        """Type and default."""

    @property
    def quick(self) -> tuple[Any, Any]:
        """The same for the quick decoder."""
        return self.plain

    def quickly(self, value: Any) -> Any:
        """The value that the quick decoder gives in place of this one."""
        return value

    @abstractmethod
    def part(self, values: Sequence[Any]) -> Any:
        """Values of the quick decoder, packed."""

    @abstractmethod
    def column(self, column: Column | None, records: int) -> Any:
        """A column of a block of so many records, packed in the same way; None: it has none.

        Raises:
            OddColumnError: Its values have to be looked at one by one.
            TooManyWordsError: There are too many words now; ask again.
        """

    @abstractmethod
    def array(self, parts: Sequence[Any]) -> pa.Array:
        """The packed values, as a column."""

    def _values(self, column: Column) -> list[Any]:
        """Those that stand in the header of a block. Raises OddColumnError: not of this member, or not there."""
        if not column.values:
            raise OddColumnError
        try:
            found: list[Any] = msgspec.json.decode(
                b"[%s]" % b",".join(map(bytes, column.values)), type=GenericAlias(list, (self.plain[0],))
            )
        except (msgspec.DecodeError, RecursionError, UnicodeError) as exc:
            raise OddColumnError from exc
        if len(found) != len(column.values):
            raise OddColumnError
        return found

    def _chosen(self, column: Column | None, records: int) -> list[Any]:
        """The value of each record. Raises OddColumnError."""
        values = [None] if column is None else self._values(column)
        return [values[place] for place in _places(column, records).tolist()]


class _Other(Member):
    """Flags and lists."""

    def part(self, values: Sequence[Any]) -> pa.Array:
        return pa.array(values, self._type)

    def column(self, column: Column | None, records: int) -> pa.Array:
        return self.part(self._chosen(column, records))

    def array(self, parts: Sequence[pa.Array]) -> pa.Array:
        return pa.concat_arrays(parts)


class _Number(Member):
    @property
    def quick(self) -> tuple[Any, Any]:
        return _number(self._type), _NO_NUMBER

    def quickly(self, value: int | None) -> int:
        return _NO_NUMBER if value is None else value

    def part(self, values: Sequence[int]) -> Any:
        if values and values[0] == values[-1] and values.count(values[0]) == len(values):
            return np.full(len(values), values[0])
        return np.fromiter(values, np.int64, len(values))

    def column(self, column: Column | None, records: int) -> Numbers:
        if column is None:
            return np.full(records, _NO_NUMBER)
        if column.form in WIDTHS:
            return self._in_range(_numbers_of(column, records))
        values = np.array([self.quickly(value) for value in self._values(column)], np.int64)
        return _spread(values, column, records)

    def _in_range(self, numbers: Numbers) -> Numbers:
        highest = (1 << (self._type.bit_width - 1)) - 1
        if len(numbers) and numbers.max() <= highest and numbers.min() >= -highest:
            return numbers
        there = numbers[numbers != _NO_NUMBER]
        if len(there) and not -highest <= there.min() <= there.max() <= highest:
            raise OddColumnError
        return numbers

    def array(self, parts: Sequence[Any]) -> pa.Array:
        numbers = np.concatenate(parts)
        is_null = numbers == _NO_NUMBER
        numbers = numbers.astype(self._type.to_pandas_dtype(), copy=False)
        return pa.array(numbers, mask=is_null if is_null.any() else None)


class _Text(Member):
    """Signs of words; once there were too many, texts as they are."""

    def __init__(self, type_: DataType) -> None:
        super().__init__(type_)
        self.words = Vocabulary()

    @property
    def quick(self) -> tuple[Any, Any]:
        return self.plain if self.words.is_full else (self.words.type(), NO_WORD)

    def quickly(self, value: str | None) -> str | None:
        return value if self.words.is_full else self.words.sign_of(value)

    def part(self, values: Sequence[Any]) -> bytes | pa.Array:
        return _free(values) if self.words.is_full else packed(values)

    def column(self, column: Column | None, records: int) -> bytes | pa.Array:
        return _words_of(self.words, [None] if column is None else self._values(column), column, records)

    def array(self, parts: Sequence[bytes | pa.Array]) -> pa.Array:
        return _texts(self.words, parts)


class _Written(Member):
    """What stands in the lines, as text; null where that is nothing."""

    def __init__(self, type_: DataType) -> None:
        super().__init__(type_)
        self.words = Vocabulary()
        self.plain = (msgspec.Raw, _ABSENT)
        self._signs = dict.fromkeys(_NOTHING, NO_WORD)

    def part(self, values: Sequence[msgspec.Raw]) -> bytes | pa.Array:
        texts = list(map(bytes, values))
        if self.words.is_full:
            return _free([None if text in _NOTHING else text.decode() for text in texts])
        try:
            return packed(map(self._signs.__getitem__, texts))
        except KeyError:
            for text in set(texts) - self._signs.keys():
                self._signs[text] = self.words.sign_of(text.decode())
        return packed(map(self._signs.__getitem__, texts))

    def column(self, column: Column | None, records: int) -> bytes | pa.Array:
        values = [b"null"] if column is None else [bytes(value) for value in self._values(column)]
        texts = [None if value in _NOTHING else value.decode() for value in values]
        return _words_of(self.words, texts, column, records)

    def array(self, parts: Sequence[bytes | pa.Array]) -> pa.Array:
        return _texts(self.words, parts)


class _Id(Member):
    """Ids: bytes in hexadecimal digits, so different in every record that they are no words.

    The column has the bytes, or the texts as they are when one of them is no id.
    """

    def part(self, values: Sequence[str | None]) -> bytes | pa.Array:
        ids = id_bytes(values)
        return pa.array(values, pa.string()) if ids is None else ids

    def column(self, column: Column | None, records: int) -> bytes | pa.Array:
        if column is None:
            return pa.nulls(records, pa.string())
        if column.form == "hex":
            return np.frombuffer(column.data, np.uint8).reshape(ID_BYTES, records).T.tobytes()
        return self.part(self._chosen(column, records))

    def array(self, parts: Sequence[bytes | pa.Array]) -> pa.Array:
        ids = [part for part in parts if isinstance(part, bytes)]
        if len(ids) == len(parts):
            return ids_column(b"".join(ids))
        return pa.concat_arrays([part if isinstance(part, pa.Array) else _digits(part) for part in parts])


def id_bytes(digits: Sequence[str | None]) -> bytes | None:
    """The bytes of ids, one behind the other; None when one of them is no id."""
    if not digits:
        return b""
    try:
        text = ",".join([*digits, ""]).encode("ascii")  # type: ignore[list-item]  # nothing is no id, either
        rows = np.frombuffer(text, np.uint8).reshape(-1, 2 * ID_BYTES + 1)
        # As many commas as rows, and none among the digits: so there is one behind every id.
        return binascii.unhexlify(rows[:, :-1].tobytes()) if len(rows) == len(digits) else None
    except (TypeError, ValueError):
        return None


def ids_column(content: bytes) -> pa.Array:
    """Ids one behind the other as a column of bytes."""
    count = len(content) // ID_BYTES
    places = np.arange(count + 1, dtype=np.int32) * ID_BYTES
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(places), pa.py_buffer(content)])


def _digits(content: bytes) -> pa.Array:
    return pa.array([content[at : at + ID_BYTES].hex() for at in range(0, len(content), ID_BYTES)], pa.string())


def _free(texts: Sequence[str | None]) -> pa.Array:
    """The same as `pa.array`, with less ado."""
    try:
        content = "".join(texts)  # type: ignore[arg-type]  # when one is null, that is an error
    except TypeError:
        return pa.array(texts, pa.string())
    if not content.isascii():
        return pa.array(texts, pa.string())
    ends = np.zeros(len(texts) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, texts), np.int32, len(texts)), out=ends[1:])  # type: ignore[arg-type]  # no null
    return pa.Array.from_buffers(
        pa.string(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(content.encode("ascii"))]
    )


def _numbers_of(column: Column, records: int) -> Numbers:
    """Numbers of a column, `_NO_NUMBER` where there is none. Raises OddColumnError: one is that number."""
    there = _unplaned(column.data, column.width, "<i8" if column.form == "i8" else f"<u{column.width}").astype(np.int64)
    if (there == _NO_NUMBER).any():
        raise OddColumnError
    if column.present is None:
        return there
    numbers = np.full(records, _NO_NUMBER)
    numbers[np.frombuffer(column.present, np.bool_)] = there
    return numbers


def _unplaned(data: bytes, width: int, type_: str) -> NDArray[Any]:
    """Numbers out of the planes that their bytes lie in."""
    planes = np.frombuffer(data, np.uint8).reshape(width, -1)
    return np.ascontiguousarray(planes.T).view(type_).reshape(-1)


def _places(column: Column | None, records: int) -> Numbers:
    """Which of the values of a column is that of each record."""
    if column is None or column.form == "same":
        return np.zeros(records, np.int64)
    if column.form == "each":
        return np.arange(records)
    return _unplaned(column.data, column.width, f"<u{column.width}").astype(np.int64)


def _spread(values: NDArray[Any], column: Column | None, records: int) -> NDArray[Any]:
    return np.full(records, values[0]) if len(values) == 1 else values.take(_places(column, records))


def _words_of(words: Vocabulary, values: Sequence[str | None], column: Column | None, records: int) -> bytes | pa.Array:
    """Words of a block for all of its records. Raises TooManyWordsError."""
    if words.is_full:
        return _free([values[place] for place in _places(column, records).tolist()])
    signs = np.array([ord(words.sign_of(value)) for value in values], SIGNS_TYPE)
    return _spread(signs, column, records).tobytes()


def _texts(words: Vocabulary, parts: Sequence[bytes | pa.Array]) -> pa.Array:
    """Signs, and after there were too many words texts as they are, as a column."""
    signs = [part for part in parts if isinstance(part, bytes)]
    if len(signs) == len(parts):
        return words.column(signs)
    return pa.concat_arrays([as_texts(words.column([part])) if isinstance(part, bytes) else part for part in parts])


def _plain_type(type_: DataType) -> Any:
    """The type as which msgspec is to read a column of this type."""
    match type_:
        case StringType():
            return str | None
        case BooleanType():
            return bool | None
        case ShortType() | IntegerType() | LongType():
            return _number(to_arrow_type(type_)) | None
        case ArrayType(elementType=ArrayType(elementType=LongType())):
            return list[list[_number(pa.int64())]] | None  # type: ignore[misc]  # a type made at run time
        case ArrayType(elementType=StringType()):
            return list[str] | None
    raise TypeError(f"no member of a line can be {type_}")


def _number(type_: pa.DataType) -> Any:
    highest = (1 << (type_.bit_width - 1)) - 1
    return Annotated[int, msgspec.Meta(ge=-highest, le=highest)]


def member_of(name: str, type_: DataType, *, is_id: bool) -> Member:
    """Choose the decoder of a member by name and type; `is_id`: its column has bytes. Raises TypeError."""
    if name == FACTS:
        return _Written(type_)
    match type_:
        case StringType():
            return _Id(type_) if is_id else _Text(type_)
        case ShortType() | IntegerType() | LongType():
            return _Number(type_)
    return _Other(type_)
