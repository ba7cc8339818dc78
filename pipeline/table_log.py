"""What a log of versions knows about a table: which files it consists of, version by version.

Two kinds exist, `pipeline.delta_log` and `pipeline.list_log`. Both know versions, the files of each, transactions that
happen once, notes with each commit, and that of two writers who started from the same version one fails. They know
nothing of Spark and of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class LakeError(Exception):
    """Something is wrong with the lake; the text says what, and what to do."""


class ConflictError(LakeError):
    """Another writer has committed to the table since it was read."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table, its path relative to the table's folder."""

    path: str
    rows: int
    size_bytes: int
    partition: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Transaction:
    """A commit that must happen once: `version` of one `app_id` only grows."""

    app_id: str
    version: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table at one version."""

    version: int
    files: tuple[DataFile, ...]
    schema_json: str
    """The columns as Spark writes a StructType; Delta has the same form."""


@dataclass(frozen=True, slots=True)
class CommitNote:
    """What was noted with one commit."""

    version: int
    time_us: int
    meta: Mapping[str, Any]


class TableLog(Protocol):
    """How a table's versions are kept. All calls may raise OSError."""

    def exists(self) -> bool:
        """Whether the table was ever made."""

    def create(self, schema_json: str, partition: Sequence[str]) -> None:
        """Make the empty table, version 0; nothing happens when it is there."""

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The table at a version, the newest by default. Raises LakeError: there is no such version (any more)."""

    def transaction_version(self, app_id: str) -> int | None:
        """Newest version that this application has committed."""

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

    def add_columns(self, base: Snapshot, schema_json: str) -> None:
        """Take columns in that the table did not have. Raises ConflictError."""

    def history(self) -> list[CommitNote]:
        """Commits, newest first."""


def is_disk_full(error: BaseException) -> bool:
    """Whether the reason, however wrapped, is a disk without room."""
    texts = ("No space left on device", "Disk quota exceeded", "File too large")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in {28, 122, 27}:
            return True
        if any(text in str(cause) for text in texts):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
