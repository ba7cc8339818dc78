"""What a log of versions (`pipeline.lake.delta_log`) says about a table: files, version by version, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class LakeError(Exception):
    """Something is wrong with the lake; the text says what, and what to do."""


class ConflictError(LakeError):
    """Another writer has committed to the table since it was read."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of a table, its path relative to the table's folder.

    Attributes:
        bounds: Lowest and highest value of a column; columns that are not there are not known. A file whose rows are
            all null in a column has none for it.
    """

    path: str
    rows: int
    size_bytes: int
    partition: Mapping[str, str]
    bounds: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    def may_have(self, column: str, low: Any, high: Any) -> bool:
        """False if no row of this file has a value from `low` to `high` in this column."""
        known = self.bounds.get(column)
        return known is None or not (known[1] < low or high < known[0])


@dataclass(frozen=True, slots=True)
class Transaction:
    """A commit that must happen once: `version` of one `app_id` only grows."""

    app_id: str
    version: int


@dataclass(frozen=True, slots=True)
class Noted:
    """Notes of a commit.

    Attributes:
        transaction: What must happen once, if it must.
        meta: Notes for people, JSON values; nothing is decided by them, since logs are cleaned up.
        has_news: False: its rows are those that were there before, in other files.
    """

    transaction: Transaction | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    has_news: bool = True


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table at one version."""

    version: int
    files: tuple[DataFile, ...]
    schema_json: str
    """The columns as Spark writes a StructType; Delta has the same form."""


@dataclass(frozen=True, slots=True)
class CommitNote:
    """A note beside one commit."""

    version: int
    time_us: int
    meta: Mapping[str, Any]


def is_disk_full(error: BaseException) -> bool:
    """True if the reason, however wrapped, is a disk without room."""
    texts = ("No space left on device", "Disk quota exceeded", "File too large")
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in {28, 122, 27}:
            return True
        if any(text in str(cause) for text in texts):
            return True
        cause = cause.__cause__ or cause.__context__
    return False
