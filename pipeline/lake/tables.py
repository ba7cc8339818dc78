"""The lake: tables that are read at a version and changed by whole commits, which either happened or did not.

Theory of operation. Spark writes Parquet into a folder of its own below `_stage`. The files are synced, renamed into
the table's folder under names that nobody else uses, and only then named by one commit in the table's log. In an object
store workers write them there at once, and an object that is there is durable. Until that commit they are invisible; if
it never comes, they are litter that `vacuum` takes away. A commit may carry a transaction
number, and is skipped when the table has that number already: this is what makes a job repeatable after it was killed.

Writers do not wait for each other. Appending starts over when somebody else was faster; replacing does not, because
what it replaces has changed, and raises ConflictError.

Source: pipeline study, section 4.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.columns.conditions import Condition
from pipeline.lake import durable, storage
from pipeline.lake.file_pieces import Reading, file_bounds, write_files
from pipeline.lake.lake_files import LakeFiles, explained, files_of, new_columns, partition_of, table_of
from pipeline.lake.lake_mark import open_mark
from pipeline.lake.local_rows import local_frame
from pipeline.lake.stages import Stage, StagedFile, Stages, list_staged
from pipeline.lake.store_path import Location, location
from pipeline.lake.table_log import (
    ConflictError,
    DataFile,
    LakeError,
    Noted,
    Snapshot,
    Transaction,
)
from pipeline.lake.worker_rows import WRITTEN, WorkerRows, rows_in_files, rows_of
from pipeline.schemas import Table, whole_log

APPEND_ATTEMPTS = 20
_PARTITION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Mode: TypeAlias = Literal["append", "replace_files", "replace_partitions", "overwrite"]


@dataclass(frozen=True, slots=True)
class Change:
    """Mode of a write to a table, and the notes of its commit.

    Attributes:
        mode: `append`; `replace_files`, which drops some; `replace_partitions`, which drops what the partitions in
            question held; `overwrite`.
        txn: Application and number; when the table has this number or a higher one, nothing is done.
        meta: Notes kept with the commit, JSON values: input versions, reasons.
        partitions: With `replace_partitions`: which ones, also those for which there are no rows any more; None means
            those that occur in the rows.
        files: With `replace_files`: which ones, by their paths. Other writers may have added others meanwhile.
        base_version: With a replacing mode: fail unless the table is still at this version.
        has_news: False when the rows are those that were there before, in other files.
    """

    mode: Mode = "append"
    txn: tuple[str, int] | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    partitions: Collection[str] | None = None
    files: Collection[str] = ()
    base_version: int | None = None
    has_news: bool = True

    def noted(self) -> Noted:
        """The note of the log about a commit, besides its files."""
        return Noted(Transaction(*self.txn) if self.txn else None, self.meta, self.has_news)


_APPEND = Change()


@dataclass(frozen=True, slots=True)
class Commit:
    """Result of a commit.

    Attributes:
        table: Name of the table.
        version: Version of the table afterwards.
        rows: Rows that the commit added; 0 when it had happened before.
        partitions: Values of the first partition column that were written or replaced.
        is_repeated: The transaction number was there already, so nothing was done.
    """

    table: str
    version: int
    rows: int
    partitions: tuple[str, ...] = ()
    is_repeated: bool = False


class Lake(LakeFiles):
    """A folder of tables, for reading and writing.

    Args:
        folder: Made when it is missing; on a disk one file system, because files are renamed from its stage into its
            tables.
        spark: For reading and writing rows.

    Raises:
        LakeError: The folder holds something else, or a lake that this version cannot read; the text says what to do.
    """

    def __init__(self, folder: Location, spark: SparkSession) -> None:
        with explained(folder):
            open_mark(folder.absolute())
        super().__init__(folder)
        self.spark = spark
        self._stages = Stages(self.folder)

    def read(self, table: Table | str, version: int | None = None) -> DataFrame:
        """The rows of a table, empty when it does not exist yet.

        Raises:
            LakeError: No such version (any more), or columns that this version of the program cannot read.
        """
        return self.read_files(table, self.files(table, version))

    def read_files(self, table: Table | str, files: Collection[DataFile]) -> DataFrame:
        """The rows of some files of a table."""
        table = table_of(table)
        if not files:
            return local_frame(self.spark, [], table.schema)
        if not isinstance(self.folder, Path):
            return self._in_workers(table, files, table.schema.names).frame(table.schema)
        paths = [str(self.path_of(table, file)) for file in files]
        base = str(self.folder / table.folder)
        rows = self.spark.read.schema(table.schema).option("basePath", base).parquet(*paths)
        return rows.select(table.schema.names)

    def read_in_workers(
        self,
        table: Table | str,
        version: int | None = None,
        *,
        columns: Collection[str],
        partitions: Collection[str] | None = None,
        where: Condition | None = None,
    ) -> WorkerRows:
        """The rows of a table, read by Spark's Python workers: the same as `read`, for functions on Arrow batches.

        Args:
            table: Which one.
            version: At which version; None: the newest.
            columns: Those that are needed, in this order.
            partitions: Only these values of the first partition column.
            where: Only rows for which this holds, by these columns.

        Raises:
            LakeError: As `read` does.
        """
        table = table_of(table)
        files = self.files(table, version)
        if partitions is not None:
            files = tuple(file for file in files if partition_of(table, file) in partitions)
        return self._in_workers(table, files, columns, where)

    def _in_workers(
        self, table: Table, files: Collection[DataFile], columns: Collection[str], where: Condition | None = None
    ) -> WorkerRows:
        schema = to_arrow_schema(table.schema)
        reading = Reading(pa.schema([schema.field(name) for name in columns]), where)
        records = Counter[str]()
        for file in files:
            records[partition_of(table, file)] += file.rows
        paths = [(str(self.path_of(table, file)), file.size_bytes, file.partition) for file in files]
        return rows_in_files(self.spark, paths, reading, records=max(records.values(), default=0))

    def commit(
        self,
        rows: DataFrame | WorkerRows | pa.Table,
        table: Table | str,
        change: Change = _APPEND,
    ) -> Commit:
        """Write rows and make them part of the table, all or none.

        Args:
            rows: Columns of the table's schema, in any order; an Arrow table when there are few. What workers have
                they write themselves, without sending it to Spark.
            table: Where to.
            change: How; without it, the rows are appended.

        Raises:
            ConflictError: What was to be replaced has changed meanwhile.
            LakeError: Disk full, or the table is of another time.
        """
        table = table_of(table)
        repeated = self._repeated(table, change.txn)
        if repeated is not None:
            return repeated
        base = self._base(table, change.base_version)
        with self.stage() as stage:
            staged = self.write(rows, stage.of(table, "rows"), table)
            [done] = self._move_and_publish([(table, staged)], change, base)
            return done

    def adopt(
        self,
        staged: Collection[StagedFile],
        table: Table | str,
        change: Change = _APPEND,
    ) -> Commit:
        """Commit files that were written to a stage; otherwise as `commit`, which is what jobs want."""
        table = table_of(table)
        repeated = self._repeated(table, change.txn)
        if repeated is not None:
            return repeated
        [done] = self._move_and_publish([(table, staged)], change, self._base(table, change.base_version))
        return done

    def adopt_together(self, parts: Sequence[tuple[Table, Collection[StagedFile]]], change: Change) -> list[Commit]:
        """Commit files of several tables at once: readers see all of it, or nothing.

        Args:
            parts: Tables that share a log, each with what was written to a stage for it.
            change: Holds for each of them; it has no `txn` and names no files.

        Raises:
            ConflictError: What was to be replaced has changed meanwhile.
            LakeError: Disk full, or the tables are of another time.
        """
        return self._move_and_publish(parts, change, self._base(parts[0][0], change.base_version))

    def _move_and_publish(
        self, parts: Sequence[tuple[Table, Collection[StagedFile]]], change: Change, base: Snapshot
    ) -> list[Commit]:
        added = [_Added(table, []) for table, _ in parts]
        with explained(self.folder):
            try:
                for into, (_, staged) in zip(added, parts, strict=True):
                    self._move_in(staged, into)
                return self._publish(base, added, change)
            except BaseException:
                self._take_back(added)
                raise

    @contextmanager
    def stage(self) -> Iterator[Stage]:
        """Context with a stage for files on their way into tables, removed at its end; see `pipeline.lake.stages`.

        Raises:
            LakeError: What is done inside meets a full disk.
        """
        with explained(self.folder), self._stages.make() as stage:
            yield stage

    def clear_stages(self) -> None:
        """Take away what writers that are no more have left behind."""
        self._stages.clear()

    def write(self, rows: DataFrame | WorkerRows | pa.Table, folder: Location, table: Table) -> list[StagedFile]:
        """Write rows as Parquet files below a folder of a stage, one folder per partition. Raises TypeError."""
        if isinstance(rows, WorkerRows):
            return _write_in_workers(rows, folder, table)
        if isinstance(rows, pa.Table):
            return _write_arrow(rows, folder, table)
        _check_columns(rows.schema, table)
        if not isinstance(folder, Path):  # which Spark's Java does not reach without further jars
            return _write_in_workers(rows_of(rows, table.schema.names), folder, table)
        writer = rows.select(table.schema.names).write
        if table.partition:
            writer = writer.partitionBy(*table.partition)
        writer.parquet(str(folder))
        return list_staged(folder)

    def vacuum(self, table: Table | str, *, older_than_s: float, keep_versions: int = 1) -> int:
        """Remove files that none of the newest versions names and that are old enough; returns how many.

        What a running writer has moved in but not committed yet is young, so `older_than_s` protects it. The log of a
        table that an older version of this program has made gets a checkpoint.
        """
        table = table_of(table)
        log = self._log(table)
        if not log.exists():
            return 0
        log.checkpoint()
        newest = log.snapshot()
        kept = {file.path for file in newest.files} | log.removed_since(max(0, newest.version - keep_versions + 1))
        root = self.folder / table.folder
        gone = [path for path, age_s in self.unnamed(table, kept) if age_s >= older_than_s]
        for path in gone:
            storage.remove(root / path)
        return len(gone)

    def unnamed(self, table: Table | str, named: Collection[str] | None = None) -> Iterator[tuple[str, float]]:
        """Files in a table's folder that are not among the named ones, and for how many seconds they have been there.

        Without names, those that the newest version does not name.
        """
        now_us = time.time() * 1e6
        table = table_of(table)
        if named is None:
            named = {file.path for file in self._log(table).snapshot().files}
        for file in storage.files_below(self.folder / table.folder, ".parquet", besides=named):
            if not file.path.startswith("_"):
                yield file.path, (now_us - file.mtime_us) / 1e6

    # How a commit comes about.

    def _repeated(self, table: Table, txn: tuple[str, int] | None) -> Commit | None:
        if txn is None:
            return None
        seen = self.transaction_version(table, txn[0])
        if seen is None or seen < txn[1]:
            return None
        return Commit(table.name, self.version(table), 0, is_repeated=True)

    def _base(self, table: Table, base_version: int | None) -> Snapshot:
        with explained(self.folder):
            log = self._log(table)
            whole = whole_log(table)
            log.create(whole.schema.json(), whole.partition, whole.indexed)
            snapshot = log.snapshot()
            if new_columns(table, snapshot):
                log.add_columns(snapshot, whole.schema.json())
                snapshot = log.snapshot()
        if base_version is not None and snapshot.version != base_version:
            raise ConflictError(f"table {table.name} is at version {snapshot.version}, not {base_version} any more")
        return snapshot

    def _move_in(self, staged: Collection[StagedFile], into: _Added) -> None:
        table, added = into.table, into.files
        root = self.folder / table.folder
        for file in staged:
            strange = [value for value in file.partition.values() if not _PARTITION.fullmatch(value)]
            if strange:
                raise LakeError(f"table {table.name}: {strange[0]!r} cannot be the name of a partition")
            partition = {**table.place, **{column: file.partition[column] for column in table.partition}}
            inside = "".join(f"{column}={value}/" for column, value in partition.items())
            bounds = file_bounds(file.path, table.indexed)
            name = self._moved(file.path, table, inside)
            added.append(DataFile(name, file.rows, storage.size_of(root / name), partition, bounds))
        if isinstance(root, Path):
            for folder in {root, *((root / file.path).parent for file in added)}:
                durable.sync_folder(folder)

    def _moved(self, path: Location, table: Table, inside: str) -> str:
        """Move a file into the table's folder, where it is in a store already; returns its path in there."""
        root = self.folder / table.folder
        if not isinstance(path, Path) or not isinstance(root, Path):
            return str(path).removeprefix(f"{root}/")
        name = f"{inside}part-{uuid4().hex}.parquet"
        durable.sync_file(path)
        (root / inside).mkdir(parents=True, exist_ok=True)
        path.rename(root / name)
        return name

    def _publish(self, base: Snapshot, parts: Sequence[_Added], change: Change) -> list[Commit]:
        table = parts[0].table
        log = self._log(table)
        added = [file for part in parts for file in part.files]
        is_additive = change.mode == "append" or (change.mode == "replace_files" and not change.files)
        for attempt in range(APPEND_ATTEMPTS):
            removed = [file for part in parts for file in _removed(part, base, change)]
            try:
                version = log.commit(base, added, removed, change.noted())
            except Exception as exc:
                newest = log.snapshot()
                if added and added[0].path in {file.path for file in newest.files}:
                    version = base.version + 1  # it did happen; what failed came after it
                elif not isinstance(exc, ConflictError) or not is_additive or attempt == APPEND_ATTEMPTS - 1:
                    raise
                else:
                    base = newest
                    repeated = self._repeated(table, change.txn)
                    if repeated is not None:
                        self._take_back(parts)
                        return [repeated]
                    continue
            return [part.commit(version, change) for part in parts]
        raise AssertionError("unreachable")

    def _take_back(self, parts: Iterable[_Added]) -> None:
        for part in parts:
            for file in part.files:
                storage.remove(self.path_of(part.table, file))


@dataclass(frozen=True, slots=True)
class _Added:
    """Files that a commit adds to one table."""

    table: Table
    files: list[DataFile]

    def written(self) -> set[str]:
        """Partitions that they are of."""
        return {partition_of(self.table, file) for file in self.files}

    def replaced(self, change: Change) -> set[str]:
        """Partitions that a change replaces. Raises LakeError: files are of others."""
        written = self.written()
        replaced = set(change.partitions) if change.partitions is not None else written
        if not written <= replaced:
            others = sorted(written - replaced)
            raise LakeError(f"table {self.table.name}: rows of {others} were not meant to be replaced")
        return replaced

    def commit(self, version: int, change: Change) -> Commit:
        """The commit that has become of it."""
        touched = self.replaced(change) if change.mode == "replace_partitions" else self.written()
        return Commit(self.table.name, version, sum(file.rows for file in self.files), tuple(sorted(touched - {""})))


def _check_columns(schema: StructType, table: Table) -> None:
    have = {field.name: field.dataType.simpleString() for field in schema.fields}
    want = {field.name: field.dataType.simpleString() for field in table.schema.fields}
    if have != want:
        wrong = sorted(name for name in have.keys() | want.keys() if have.get(name) != want.get(name))
        differences = ", ".join(f"{name}: {have.get(name)} instead of {want.get(name)}" for name in wrong)
        raise TypeError(f"rows do not fit table {table.name}: {differences}")


def _write_arrow(rows: pa.Table, folder: Location, table: Table) -> list[StagedFile]:
    storage.make_folder(folder)
    [column] = table.partition or [""]
    [written] = write_files(folder, column, to_arrow_schema(table.schema), rows.to_batches())
    return _staged(written.to_pylist(), column)


def _staged(written: Iterable[Mapping[str, Any]], column: str) -> list[StagedFile]:
    return [
        StagedFile(location(row["path"]), row["rows"], {column: row["partition"]} if column else {}) for row in written
    ]


def _write_in_workers(rows: WorkerRows, folder: Location, table: Table) -> list[StagedFile]:
    storage.make_folder(folder)
    [column] = table.partition or [""]
    written = rows.then(partial(write_files, folder, column, to_arrow_schema(table.schema)))
    # Of a task that ran twice only one attempt answers; what the other one wrote goes away with the stage.
    return _staged((row.asDict() for row in written.frame(WRITTEN).collect()), column)


def _removed(added: _Added, base: Snapshot, change: Change) -> list[DataFile]:
    replaced = added.replaced(change)
    if change.mode == "append":
        return []
    files = files_of(added.table, base)
    if change.mode == "overwrite":
        return list(files)
    if change.mode == "replace_files":
        gone = set(change.files) - {file.path for file in files}
        if gone:
            raise ConflictError(f"table {added.table.name}: another writer has replaced {min(gone)}")
        return [file for file in files if file.path in set(change.files)]
    return [file for file in files if partition_of(added.table, file) in replaced]
