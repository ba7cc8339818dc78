"""Views for analysts: SQL by which DuckDB reads a lake, with times as times, days as days, and ids as text.

The views name the very files of the newest version of each table, as its log does, so they never see a file that is not
committed, or one that was replaced. They are made anew to see newer versions.

Columns keep their names but for moments: `ts_us` becomes `ts_time`, with its zone, which is UTC. Durations stay numbers
of µs, so `_us` says what is a duration.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from pipeline.lake.lake_files import LakeFiles
from pipeline.schemas import TABLES, Table

_DURATIONS: Final = frozenset(
    {
        *("change_us", "clock_err_us", "cpu_us", "duration_us", "error_us", "exchange_us", "offset_us", "span_us"),
        *("d_peer_us", "d_policy_us", "d_stub_us", "d_total_us", "lag_max_us", "lag_min_us", "retry_after_us"),
        *("p50_us", "p95_us", "p99_us"),
    }
)
_SUFFIX: Final = "_us"
_SIMPLE: Final = {
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
}


def views_sql(lake: LakeFiles) -> str:
    """Statements that make a view for each table of the lake that has rows. Raises LakeError."""
    return "".join(_views(lake))


def _views(lake: LakeFiles) -> Iterator[str]:
    yield "SET TimeZone = 'UTC';\n"
    for table in filter(lake.has, TABLES.values()):
        files = [str(lake.path_of(table, file)) for file in lake.files(table)]
        if files:
            yield _view(table, files)


def _view(table: Table, files: list[str]) -> str:
    columns = ",\n  ".join(f"{_expression(field)} AS {_quoted(view_name(field))}" for field in table.schema)
    # Files of before a column was added do not have it, and none has those that the folders name.
    typed = ", ".join(f"CAST(NULL AS {lake_type(field.dataType)}) AS {_quoted(field.name)}" for field in table.schema)
    named = ", ".join(map(_text, files))
    hive = "union_by_name = true, hive_partitioning = true, hive_types_autocast = false"
    source = f"read_parquet([{named}], {hive})"
    parts = [
        *("CREATE OR REPLACE VIEW", _quoted(table.name), "AS SELECT\n ", columns),
        *("\nFROM (SELECT", typed, "WHERE false UNION ALL BY NAME\n  SELECT * FROM", source),
    ]
    return " ".join(parts) + ");\n"


def view_name(field: StructField) -> str:
    """The name of a column in the view of its table."""
    return field.name.removesuffix(_SUFFIX) + "_time" if is_moment(field) else field.name


def view_type(field: StructField) -> str:
    """The type of a column in its view, as DuckDB names it."""
    if is_moment(field):
        return "TIMESTAMP WITH TIME ZONE"
    if field.name == "dt":
        return "DATE"
    return "VARCHAR" if field.dataType.typeName() == "binary" else lake_type(field.dataType)


def is_moment(field: StructField) -> bool:
    """True if a column holds moments, in µs since 1970."""
    return field.name.endswith(_SUFFIX) and field.dataType.typeName() == "long" and field.name not in _DURATIONS


def _expression(field: StructField) -> str:
    name = _quoted(field.name)
    if is_moment(field):
        return f"make_timestamptz({name})"
    if field.name == "dt":
        return f"CAST({name} AS DATE)"
    return f"lower(hex({name}))" if field.dataType.typeName() == "binary" else name


def lake_type(kind: DataType) -> str:
    """The type of a column in the lake, as DuckDB names it."""
    if isinstance(kind, ArrayType):
        return f"{lake_type(kind.elementType)}[]"
    if isinstance(kind, MapType):
        return f"MAP({lake_type(kind.keyType)}, {lake_type(kind.valueType)})"
    if isinstance(kind, StructType):
        return f"STRUCT({', '.join(f'{_quoted(one.name)} {lake_type(one.dataType)}' for one in kind)})"
    return _SIMPLE[kind.typeName()]


def dictionary() -> list[dict[str, Any]]:
    """All tables: what they are cut by, what names a row, and each column with its types and what it measures."""
    return [
        {
            "table": table.name,
            "partitions": list(table.partition),
            "key": list(table.key),
            "columns": [
                {
                    "name": field.name,
                    "type": lake_type(field.dataType),
                    "view_name": view_name(field),
                    "view_type": view_type(field),
                    "measures": _measures(field),
                }
                for field in table.schema
            ],
        }
        for table in TABLES.values()
    ]


def _measures(field: StructField) -> str:
    if is_moment(field):
        return "moment, µs since 1970 in UTC"
    if field.name.endswith(_SUFFIX):
        return "duration, µs"
    if field.name.endswith(("_ms", "_ppb")):
        return "duration, ms" if field.name.endswith("_ms") else "drift of a clock, parts in a billion"
    if field.name == "dt":
        return "day of UTC"
    if "bytes" in field.name.split("_") or field.name.startswith("size") or field.name.endswith("_size"):
        return "bytes" if field.name != "size_class" else "floor of the binary logarithm of bytes"
    return "id or digest" if field.dataType.typeName() == "binary" else ""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(word: str) -> str:
    return "'" + word.replace("'", "''") + "'"
