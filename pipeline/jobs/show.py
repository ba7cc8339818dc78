"""Job `show`: which tables a lake has, and rows of one of them, read file by file without Spark."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake.lake_files import LakeFiles, partition_of
from pipeline.schemas import TABLES, Table
from protofly.errors import SettingsError

APP: Final = "show"


def tables(lake: LakeFiles) -> JobResult:
    """List the tables of the lake: `details["tables"]` has name, rows, version, first and last day of each.

    Raises:
        LakeError: The lake cannot be read.
    """
    result = JobResult(APP)
    found = []
    for table in filter(lake.has, TABLES.values()):
        version = lake.version(table)
        files = lake.files(table, version)
        if table.shared_log and not files:
            continue  # its log is that of another table, too
        result.versions[table.name] = version
        days = sorted({partition_of(table, file) for file in files}) if table.partition == ("dt",) else []
        first, last = (days[0], days[-1]) if days else ("", "")
        rows = sum(file.rows for file in files)
        found.append({"table": table.name, "rows": rows, "version": version, "first_day": first, "last_day": last})
    result.outcome = f"{len(found)} tables"
    result.details["tables"] = found
    return result


def rows(
    lake: LakeFiles, name: str, *, day: str = "", where: Mapping[str, str] | None = None, limit: int = 20
) -> JobResult:
    """Rows of a table as they are stored: `details["rows"]`, JSON values, bytes in hexadecimal digits.

    Args:
        lake: Which lake.
        name: Of the table.
        day: Only rows of this UTC day, `YYYY-MM-DD`.
        where: By column what its value, or one of its values, has to be.
        limit: At most so many.

    Returns:
        Ends with INCOMPLETE when the table was never written.

    Raises:
        SettingsError: No such table or column, no days in the table, or a value that the column cannot have.
        LakeError: The lake cannot be read.
    """
    table = _table(name)
    if day and table.partition != ("dt",):
        raise SettingsError(f"table {name} is not kept by day: leave --day out")
    result = JobResult(APP)
    conditions = where or {}
    strange = sorted(conditions.keys() - set(table.schema.names))
    if strange:
        raise SettingsError(f"table {name} has no column {strange[0]}; it has {', '.join(table.schema.names)}")
    result.versions[table.name] = lake.version(table)
    if not lake.has(table):
        result.warnings.append(f"table {name} was not written yet")
        result.exit_code = ExitCode.INCOMPLETE
    matching = (
        row
        for batch in lake.batches(table, partitions=[day] if day else None)
        for row in _matching(batch, conditions).to_pylist()
    )
    found = list(islice(matching, limit + 1))
    if len(found) > limit:
        result.warnings.append(f"there is more: these are the first {limit:,}; narrow it down by --where, or --limit")
    shown = [{column: _plain(value) for column, value in row.items()} for row in found[:limit]]
    result.outcome = f"{name} {len(shown):,}"
    result.details |= {"table": name, "rows": shown, "more": len(found) > limit}
    return result


def _table(name: str) -> Table:
    if name not in TABLES:
        raise SettingsError(f"there is no table {name}: choose from {', '.join(sorted(TABLES))}")
    return TABLES[name]


def _matching(batch: pa.Table, conditions: Mapping[str, str]) -> pa.Table:
    for name, value in conditions.items():
        column = batch.column(name)
        if pa.types.is_nested(column.type):
            batch = batch.filter(pa.array([value in _texts(one) for one in column.to_pylist()], pa.bool_()))
        else:
            batch = batch.filter(pc.equal(column, _scalar(name, value, column.type)))
    return batch


def _texts(value: Any) -> Collection[str]:
    return [str(one) for one in value or ()]


def _scalar(name: str, text: str, kind: pa.DataType) -> pa.Scalar:
    try:
        if pa.types.is_binary(kind):
            return pa.scalar(bytes.fromhex(text), kind)
        return pa.scalar(text).cast(kind)
    except (ValueError, pa.ArrowException) as exc:
        raise SettingsError(f"column {name} cannot be {text!r}: it holds values of type {kind}") from exc


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        # Arrow hands maps over as lists of pairs.
        if value and all(isinstance(one, tuple) for one in value):
            return {str(key): count for key, count in value}
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value
