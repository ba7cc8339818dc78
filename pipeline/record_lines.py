"""Lines of segments become columns. No Spark session in here, and nothing is believed.

Every line is decoded by itself, by one decoder, whatever its neighbours are: so there is no fast way that might take
for a record what a careful one would not. What makes it fast is that a few hundred lines at a time become columns while
they are still in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, BooleanType, DataType, IntegerType, LongType, ShortType, StringType

from pipeline.schemas import RECORD_SCHEMAS
from protofly.records import RECORD_TYPES, Kind

NOT_A_RECORD: Final = "not-a-record"
OTHER_VERSION: Final = "schema"
FACTS: Final = "facts"
"""The member that is kept as it was written."""
_ABSENT: Final = msgspec.Raw()
_NOTHING: Final = pa.array(["", "null"])
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeError, pa.ArrowException, OverflowError)


@dataclass(frozen=True, slots=True)
class Columns:
    """What some lines say, member by member.

    Attributes:
        arrays: By member, a value for each line that could be read; null where it says nothing.
        spoilt: Why a line could not be read, by its place among all lines.
    """

    arrays: Mapping[str, pa.Array]
    spoilt: Mapping[int, str]


class LineDecoder:
    """Reads lines of one kind of record.

    A member may be absent, and a word any word: that is left to `pipeline.quality`, which has a name for each.
    """

    def __init__(self, kind: Kind) -> None:
        fields = RECORD_SCHEMAS[kind].fields
        self._version = RECORD_TYPES[kind].schema_version
        self._types = {field.name: to_arrow_type(field.dataType) for field in fields}
        members: list[tuple[str, Any, Any]] = [
            (field.name, msgspec.Raw, _ABSENT) if field.name == FACTS else (field.name, _member(field.dataType), None)
            for field in fields
        ]
        # Never part of a cycle: the collector of garbage need not know them.
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Line", members, gc=False)).decode

    def columns(self, lines: Sequence[bytes]) -> Columns:
        """Decode lines, without their ends."""
        try:
            if all(map(bytes.isascii, lines)):
                return Columns(self._arrays(list(map(self._decode, lines))), {})
            return Columns(self._arrays(list(map(self._decoded, lines))), {})
        except _UNREADABLE:
            pass
        records = []
        spoilt = {}
        for place, line in enumerate(lines):
            try:
                records.append(self._decoded(line))
            except _UNREADABLE:
                spoilt[place] = self._reason(line)
        return Columns(self._arrays(records), spoilt)

    def _decoded(self, line: bytes) -> msgspec.Struct:
        line.decode()  # members that nobody asks for are passed over without a look at their text
        return self._decode(line)

    def _arrays(self, records: Sequence[msgspec.Struct]) -> dict[str, pa.Array]:
        rows = map(msgspec.structs.astuple, records)
        values = list(zip(*rows, strict=True)) or [()] * len(self._types)
        found = {}
        for (name, type_), column in zip(self._types.items(), values, strict=True):
            found[name] = _written(column) if name == FACTS else _array(column, type_)
        return found

    def _reason(self, line: bytes) -> str:
        try:
            line.decode()
            version = _read_version(line).v
        except _UNREADABLE:
            return NOT_A_RECORD
        return OTHER_VERSION if version != self._version else NOT_A_RECORD


class _Version(msgspec.Struct):
    v: Any = None


_read_version = msgspec.json.Decoder(_Version).decode


def _member(type_: DataType) -> Any:
    """What msgspec is to take for a column of this type."""
    match type_:
        case StringType():
            return str | None
        case BooleanType():
            return bool | None
        case ShortType() | IntegerType() | LongType():
            return _number(type_) | None
        case ArrayType(elementType=ArrayType(elementType=LongType())):
            return list[list[_number(LongType())]] | None  # type: ignore[misc]  # a type made at run time
        case ArrayType(elementType=StringType()):
            return list[str] | None
    raise TypeError(f"no member of a line can be {type_}")


def _number(type_: ShortType | IntegerType | LongType) -> Any:
    highest = (1 << {ShortType: 15, IntegerType: 31, LongType: 63}[type(type_)]) - 1
    return Annotated[int, msgspec.Meta(ge=-highest - 1, le=highest)]


def _array(column: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """The same as `pa.array`, with less ado."""
    if not column or column[0] is None:
        return pa.nulls(len(column), type_) if column.count(None) == len(column) else pa.array(column, type_)
    if pa.types.is_integer(type_):
        try:
            return pa.array(np.fromiter(column, type_.to_pandas_dtype(), len(column)))
        except TypeError:  # some are null
            pass
    return pa.array(column, type_)


def _written(column: Sequence[msgspec.Raw]) -> pa.Array:
    """What stands in the lines, as text; null where that is nothing."""
    if column.count(_ABSENT) == len(column):
        return pa.nulls(len(column), pa.string())
    texts = pa.array(list(map(bytes, column)), pa.binary()).cast(pa.string())
    return pc.if_else(pc.is_in(texts, _NOTHING), None, texts)
