"""A table's versions as plain lists of files: the fall-back where there is no `deltalake`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.durable import publish_once
from pipeline.table_log import CommitNote, ConflictError, DataFile, LakeError, Snapshot, Transaction


class ListLog:
    """One JSON file per version, each naming all files of the table; published under its number exactly once.

    Needs nothing but a file system with hard links. Other readers take the files named by the highest number in
    `_versions`; a reader that ignores the log sees replaced files too.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions = folder / "_versions"

    def exists(self) -> bool:
        """Whether the table was ever made."""
        return self._path(0).exists() or any(self._versions.glob("*.json"))

    def create(self, schema_json: str, partition: Sequence[str]) -> None:
        """Make the empty table, version 0; nothing happens when it is there."""
        del partition  # the folders say it
        self._versions.mkdir(parents=True, exist_ok=True)
        if not self.exists():
            self._publish(0, {"schema": schema_json, "files": [], "transactions": {}, "meta": {}})

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The table at a version, the newest by default. Raises LakeError."""
        number = self._newest() if version is None else version
        content = self._load(number)
        files = tuple(DataFile(**file) for file in content["files"])
        return Snapshot(number, files, content["schema"])

    def transaction_version(self, app_id: str) -> int | None:
        """Newest version that this application has committed."""
        version: int | None = self._load(self._newest())["transactions"].get(app_id)
        return version

    def commit(
        self,
        base: Snapshot,
        *,
        added: Sequence[DataFile],
        removed: Sequence[DataFile],
        transaction: Transaction | None,
        meta: Mapping[str, Any],
    ) -> int:
        """Make the version after `base`. Raises ConflictError: somebody else made it."""
        content = self._load(base.version)
        gone = {file.path for file in removed}
        files = [file for file in content["files"] if file["path"] not in gone]
        files += [
            {"path": file.path, "rows": file.rows, "size_bytes": file.size_bytes, "partition": dict(file.partition)}
            for file in added
        ]
        transactions = dict(content["transactions"])
        if transaction is not None:
            transactions[transaction.app_id] = transaction.version
        changed = {"files": files, "transactions": transactions, "meta": dict(meta)}
        return self._publish(base.version + 1, {**content, **changed})

    def add_columns(self, base: Snapshot, schema_json: str) -> None:
        """Take columns in that the table did not have. Raises ConflictError."""
        self._publish(base.version + 1, {**self._load(base.version), "schema": schema_json, "meta": {}})

    def history(self) -> list[CommitNote]:
        """Commits, newest first."""
        notes = []
        for number in sorted((int(path.stem) for path in self._versions.glob("*.json")), reverse=True):
            content = self._load(number)
            notes.append(CommitNote(number, content["time_us"], content["meta"]))
        return notes

    def _path(self, version: int) -> Path:
        return self._versions / f"{version:010d}.json"

    def _newest(self) -> int:
        return max((int(path.stem) for path in self._versions.glob("*.json")), default=0)

    def _load(self, version: int) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads(self._path(version).read_bytes())
        except FileNotFoundError as exc:
            raise LakeError(f"table {self._folder.name} has no version {version}") from exc
        return content

    def _publish(self, version: int, content: Mapping[str, Any]) -> int:
        stamped = {**content, "time_us": time.time_ns() // 1000}
        if not publish_once(self._path(version), json.dumps(stamped).encode()):
            raise ConflictError(f"table {self._folder.name}: another writer was faster (version {version})")
        return version
