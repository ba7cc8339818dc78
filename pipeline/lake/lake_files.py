"""What the tables of a lake consist of, version by version, and the rows of small ones: all that needs no Spark.

Commands that only read use this; `pipeline.lake.tables` adds reading large tables, and writing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.lake import storage
from pipeline.lake.delta_log import DeltaLog
from pipeline.lake.lake_mark import check_mark
from pipeline.lake.store_path import Location
from pipeline.lake.table_log import CommitNote, DataFile, LakeError, Snapshot, is_disk_full
from pipeline.schemas import TABLES, Table, whole_log

_BATCH_ROWS: Final = 1 << 14


class LakeFiles:
    """The tables of a lake, for reading.

    Args:
        folder: Where the lake is.
    """

    def __init__(self, folder: Location) -> None:
        self.folder = folder.absolute()
        self._logs: dict[str, DeltaLog] = {}

    @staticmethod
    def of(folder: Location) -> LakeFiles:
        """The lake in a folder. Raises LakeError: there is none, or one that this version cannot read."""
        with explained(folder):
            check_mark(folder)
            return LakeFiles(folder)

    def has(self, table: Table | str) -> bool:
        """True if anything was ever committed to the table."""
        return self._log(table_of(table)).exists()

    def version(self, table: Table | str) -> int:
        """Newest version, which tables with one log have in common; -1 when the table does not exist yet."""
        table = table_of(table)
        return self._log(table).version() if self.has(table) else -1

    def read_small(
        self,
        table: Table | str,
        columns: Collection[str] | None = None,
        version: int | None = None,
        *,
        partitions: Collection[str] | None = None,
    ) -> pa.Table:
        """Rows of a small table without Spark, as Arrow; of all partitions or of some. Raises LakeError."""
        table = table_of(table)
        files = self.files(table, version)
        if partitions is not None:
            files = tuple(file for file in files if partition_of(table, file) in partitions)
        return self.read_files_small(table, files, columns)

    def read_files_small(
        self, table: Table | str, files: Iterable[DataFile], columns: Collection[str] | None = None
    ) -> pa.Table:
        """Rows of some files of a table without Spark, as Arrow. Raises LakeError."""
        table = table_of(table)
        schema = to_arrow_schema(table.schema)
        wanted = pa.schema([schema.field(name) for name in columns or schema.names])
        with explained(self.folder):
            parts = [self._read(table, file, wanted) for file in files]
        return pa.concat_tables([wanted.empty_table(), *parts])

    def batches(self, table: Table | str, *, partitions: Collection[str] | None = None) -> Iterator[pa.Table]:
        """All columns of the newest version of a table, some thousand rows at a time. Raises LakeError."""
        table = table_of(table)
        schema = to_arrow_schema(table.schema)
        for file in self.files(table):
            if partitions is not None and partition_of(table, file) not in partitions:
                continue
            with explained(self.folder), storage.open_parquet(self.path_of(table, file)) as parquet:
                for batch in parquet.iter_batches(_BATCH_ROWS):
                    yield _with_missing(pa.Table.from_batches([batch]), schema, file.partition)

    def files(self, table: Table | str, version: int | None = None) -> tuple[DataFile, ...]:
        """The files of a table, none when it does not exist yet.

        Raises:
            LakeError: No such version (any more), or columns that this version of the program cannot read.
        """
        table = table_of(table)
        log = self._log(table)
        if not log.exists():
            if version not in {None, -1}:
                raise LakeError(f"table {table.name} does not exist yet, so it has no version {version}")
            return ()
        snapshot = log.snapshot(version)
        new_columns(table, snapshot)
        return files_of(table, snapshot)

    def path_of(self, table: Table, file: DataFile) -> Location:
        """Location of a file of a table."""
        return self.folder / table.folder / file.path

    def transaction_version(self, table: Table | str, app_id: str) -> int | None:
        """Newest transaction number that this application has committed to the table."""
        log = self._log(table_of(table))
        return log.transaction_version(app_id) if log.exists() else None

    def history(self, table: Table | str) -> list[CommitNote]:
        """Commits with what was noted, newest first."""
        log = self._log(table_of(table))
        return log.history() if log.exists() else []

    def _read(self, table: Table, file: DataFile, wanted: pa.Schema) -> pa.Table:
        with storage.open_parquet(self.path_of(table, file)) as parquet:
            there = [name for name in wanted.names if name in parquet.schema_arrow.names]
            return _with_missing(parquet.read(columns=there), wanted, file.partition)

    def _log(self, table: Table) -> DeltaLog:
        return self._logs.setdefault(table.folder, DeltaLog(self.folder / table.folder))


def table_of(table: Table | str) -> Table:
    """A table by its name."""
    return TABLES[table] if isinstance(table, str) else table


@contextmanager
def explained(folder: Location) -> Iterator[None]:
    """Turn failures of the disk below the lake into LakeError. Everything that was committed stays as it was."""
    try:
        yield
    except LakeError:
        raise
    except Exception as exc:
        if is_disk_full(exc):
            raise LakeError(
                f"no room left on the disk of {folder}: nothing was committed; make room and repeat"
            ) from exc
        if isinstance(exc, OSError):
            raise LakeError(f"lake {folder}: {exc}") from exc
        raise


def new_columns(table: Table, snapshot: Snapshot) -> list[str]:
    """Columns that the table does not have yet. Raises LakeError: it has others, or other types."""
    there = {field["name"]: field["type"] for field in json.loads(snapshot.schema_json)["fields"]}
    ours = {field["name"]: field["type"] for field in json.loads(whole_log(table).schema.json())["fields"]}
    strange = sorted(name for name in there if ours.get(name) != there[name])
    if strange:
        raise LakeError(
            f"table {table.name} was written by another version of this program (column {strange[0]}): "
            "ingest the spools into an empty folder, or use the program that made it"
        )
    return [name for name in ours if name not in there]


def files_of(table: Table, snapshot: Snapshot) -> tuple[DataFile, ...]:
    """The files of a table, of those in its log."""
    return tuple(file for file in snapshot.files if table.has(file.partition))


def partition_of(table: Table, file: DataFile) -> str:
    """The day of a file, or whatever the table is cut by; empty when it is not."""
    return file.partition[table.partition[0]] if table.partition else ""


def _with_missing(rows: pa.Table, wanted: pa.Schema, partition: Mapping[str, str]) -> pa.Table:
    """The wanted columns: those that a file does not have are its partition's, or null."""
    for field in wanted:
        if field.name not in rows.column_names:
            rows = rows.append_column(field, pa.repeat(pa.scalar(partition.get(field.name), field.type), rows.num_rows))
    return rows.select(wanted.names).cast(wanted)
