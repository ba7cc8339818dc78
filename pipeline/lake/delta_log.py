"""A table's versions as a Delta log, written by the `deltalake` package. Every Delta reader understands it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake import Transaction as DeltaTransaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from pipeline.lake import storage
from pipeline.lake.durable import sync_folder
from pipeline.lake.store_path import Location
from pipeline.lake.table_log import CommitNote, ConflictError, DataFile, LakeError, Noted, Snapshot

META_MEMBER = "trapezoid"
_INDEXED: Final = "delta.dataSkippingStatsColumns"
_INDEXED_COUNT: Final = "delta.dataSkippingNumIndexedCols"
_CHECKPOINTS: Final = "delta.checkpointInterval"
CHECKPOINT_COMMITS: Final = 10
"""Who opens a table reads its newest checkpoint and the commits since; 80 of these take seven times as
long as a checkpoint does."""


class DeltaLog:
    """Versions of one table: the files of each, transactions that happen once, and notes with each commit.

    Of two writers that started from the same version, one fails with ConflictError. All calls may raise OSError.

    What was read of the log is kept: the next question for the newest version reads only commits that came since.
    Several threads may ask at once.

    Source: Delta transaction log protocol.
    """

    def __init__(self, folder: Location) -> None:
        self._folder = folder
        self._at = str(folder)
        self._lock = Lock()
        self._table: DeltaTable | None = None
        self._newest: Snapshot | None = None

    def exists(self) -> bool:
        """True if the table was ever made."""
        if self._table is not None:
            return True
        if isinstance(self._folder, Path):
            log = self._folder / "_delta_log"
            return log.is_dir() and any(log.iterdir())
        return DeltaTable.is_deltatable(self._at, storage.delta_options(self._folder))

    def create(self, schema_json: str, partition: Sequence[str], indexed: Sequence[str]) -> None:
        """Make the empty table, version 0; nothing happens when it is there.

        `indexed` are the columns whose bounds are noted with each file, by every program that writes to the table.
        """
        storage.make_folder(self._folder)
        try:
            DeltaTable.create(
                self._at,
                Schema.from_json(schema_json),
                mode="ignore",
                partition_by=list(partition),
                name=self._folder.name,
                storage_options=storage.delta_options(self._folder),
                commit_properties=CommitProperties(max_commit_retries=0),
                configuration={
                    _CHECKPOINTS: str(CHECKPOINT_COMMITS),
                    **({_INDEXED: ",".join(indexed)} if indexed else {_INDEXED_COUNT: "0"}),
                },
            )
        except CommitFailedError:  # somebody else has made it at the same moment
            if not self.exists():
                raise

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The table at a version, the newest by default. Raises LakeError."""
        with self._lock:
            newest = self._newest
            if newest is not None and newest.version == version:
                return newest
            try:
                table = self._read() if version is None else self._at_version(version)
            except DeltaError as exc:
                raise LakeError(f"table {self._folder.name}: version {version} cannot be read: {exc}") from exc
            if newest is not None and newest.version == table.version():
                return newest
            files = tuple(map(self._file, _rows_of(table.get_add_actions())))
            found = Snapshot(table.version(), files, table.schema().to_json())
            if table is self._table:
                self._newest = found
            return found

    def version(self) -> int:
        """The newest version."""
        with self._lock:
            return self._read().version()

    def checkpoint(self) -> None:
        """Write a checkpoint of the newest version, unless the log writes them often enough by itself."""
        with self._lock:
            table = self._read()
            if table.metadata().configuration.get(_CHECKPOINTS) is None and table.version() % CHECKPOINT_COMMITS:
                table.create_checkpoint()

    def removed_since(self, version: int) -> set[str]:
        """Paths of files that commits after a version have removed, as far as these commits are still there."""
        paths = set()
        for number in range(version + 1, self.version() + 1):
            try:
                commit = storage.read_bytes(self._folder / "_delta_log" / f"{number:020}.json")
            except FileNotFoundError:  # cleaned up by another program: versions before it cannot be read any more
                continue
            actions = (json.loads(line) for line in commit.splitlines() if line.strip())
            paths |= {unquote(action["remove"]["path"]) for action in actions if "remove" in action}
        return paths

    def _file(self, action: Mapping[str, Any]) -> DataFile:
        rows = action["num_records"]
        if rows is None:  # by a program that says nothing about its files
            rows = storage.parquet_metadata(self._folder / action["path"]).num_rows
        low, high = action.get("min") or {}, action.get("max") or {}
        bounds = {name: (low[name], high[name]) for name in low if low[name] is not None and high.get(name) is not None}
        return DataFile(action["path"], rows, action["size_bytes"], action.get("partition") or {}, bounds)

    def transaction_version(self, app_id: str) -> int | None:
        """Newest version that this application has committed."""
        with self._lock:
            return self._read().transaction_version(app_id)

    def commit(self, base: Snapshot, added: Sequence[DataFile], removed: Sequence[DataFile], noted: Noted) -> int:
        """Make the version after `base`. Raises ConflictError: somebody else made it."""
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(file.path, noted.has_news, now_ms, file.size_bytes, dict(file.partition)) for file in removed
        ]
        actions += [
            AddAction(file.path, file.size_bytes, file.partition, now_ms, noted.has_news, _statistics(file))
            for file in added
        ]
        transaction = noted.transaction
        properties = CommitProperties(
            custom_metadata={META_MEMBER: dict(noted.meta)},
            max_commit_retries=0,
            app_transactions=[DeltaTransaction(transaction.app_id, transaction.version)] if transaction else None,
        )
        with self._lock:
            table = self._table
            if table is None or table.version() != base.version:
                table = self._open(base.version)
            try:
                table.create_write_transaction(
                    actions, "append", table.schema(), table.metadata().partition_columns, commit_properties=properties
                )
            except CommitFailedError as exc:
                raise ConflictError(f"table {self._folder.name}: another writer was faster ({exc})") from exc
        if isinstance(self._folder, Path):
            sync_folder(self._folder / "_delta_log")
        return base.version + 1

    def add_columns(self, base: Snapshot, schema_json: str) -> None:
        """Take columns in that the table did not have. Raises ConflictError."""
        table = self._open(base.version)
        known = {field.name for field in table.schema().fields}
        fields = [field for field in Schema.from_json(schema_json).fields if field.name not in known]
        try:
            table.alter.add_columns(fields)
        except CommitFailedError as exc:
            raise ConflictError(f"table {self._folder.name}: another writer was faster ({exc})") from exc

    def history(self) -> list[CommitNote]:
        """Commits, newest first."""
        return [
            CommitNote(commit["version"], commit["timestamp"] * 1000, commit.get(META_MEMBER) or {})
            for commit in self._open().history()
        ]

    def _read(self) -> DeltaTable:
        """The newest version. The lock is held."""
        if self._table is None:
            self._table = self._open()
        else:
            self._table.update_incremental()
        return self._table

    def _at_version(self, version: int) -> DeltaTable:
        """The table at a version; what has been read already is not read again. The lock is held."""
        if self._table is not None and self._table.version() == version:
            return self._table
        return self._open(version)

    def _open(self, version: int | None = None) -> DeltaTable:
        return DeltaTable(self._at, version=version, storage_options=storage.delta_options(self._folder))


def _statistics(file: DataFile) -> str:
    low = {name: bounds[0] for name, bounds in file.bounds.items()}
    high = {name: bounds[1] for name, bounds in file.bounds.items()}
    return json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high, "nullCount": {}})


def _rows_of(actions: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(actions).to_pylist()
    return rows
