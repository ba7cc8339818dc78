"""How tables are written down: types of columns, and what a table is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

SHORT, INT, LONG, DOUBLE = ShortType(), IntegerType(), LongType(), DoubleType()
TEXT, FLAG, BYTES = StringType(), BooleanType(), BinaryType()
TEXTS = ArrayType(TEXT, containsNull=False)
PAIRS = ArrayType(ArrayType(LONG, containsNull=False), containsNull=False)
"""Buckets and their counts, as stub events have them."""
HISTOGRAM = MapType(INT, LONG, valueContainsNull=False)
"""Counts by bucket; see `pipeline.columns.histogram`."""
COUNTS = MapType(TEXT, LONG, valueContainsNull=False)


INDEXED: Final = frozenset(
    {
        *("node", "kind", "boot", "segno", "seq", "first_segno", "last_segno", "batch", "verdict", "severity"),
        *("ts_us", "min_ts_us", "max_ts_us", "opened_us", "closed_us", "manifest_mtime_us", "hour_us", "bucket_us"),
        "quarter_us",
        *("our_domain", "peer_domain", "src_domain", "dst_domain", "domain", "role", "status", "version"),
        *("pending", "unprovable"),
    }
)
"""Columns whose bounds are in the log for each file, so that readers leave out files. None of them names a person: what
is in the log stays there when rows go."""


WHICH: Final = "table_name"
"""First partition column of a log that several tables share: which of them a file belongs to."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the lake: its name, columns, partition columns, and the columns that name a row.

    Tables with the same `shared_log` have one log, and so they change together, in one commit.
    """

    name: str
    schema: StructType
    partition: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    shared_log: str = ""

    @property
    def folder(self) -> str:
        """The folder of its log, inside of the lake; paths of its files are relative to that."""
        return self.shared_log or self.name

    @property
    def place(self) -> Mapping[str, str]:
        """Partition columns, and their values, that all files of this table have in a shared log."""
        return {WHICH: self.name} if self.shared_log else {}

    @property
    def indexed(self) -> tuple[str, ...]:
        """The columns of this table that are `INDEXED`, in their order."""
        return tuple(name for name in self.schema.names if name in INDEXED)

    def has(self, partition: Mapping[str, str]) -> bool:
        """True if a file with this partition, in the table's log, is one of its own."""
        return not self.shared_log or partition[WHICH] == self.name


def columns(**named: DataType) -> StructType:
    """A schema whose columns may all be null; what may not be is checked by quality rules, with a reason."""
    return StructType([StructField(name, type_, nullable=True) for name, type_ in named.items()])


def retyped(schema: StructType, **other: DataType) -> StructType:
    """A schema in which some columns are of another type."""
    return StructType([StructField(one.name, other.get(one.name, one.dataType), one.nullable) for one in schema])


def extended(schema: StructType, **more: DataType) -> StructType:
    """A schema with further columns behind its own."""
    return StructType([*schema.fields, *columns(**more).fields])
