"""Small SQLite files beside the state: what they hold changes seldom, and each change is durable when it returns."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from protofly.errors import Code, HostError


class PrivateDatabase:
    """One file that only its owner reads. Plain calls that wait for the disk: for threads, one of them at a time.

    Args:
        path: Of the file, which the first use opens or creates; its folder must exist by then.
        schema: Statements that make what is missing in it.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self.path = path
        self._schema = schema
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Open the file now, so that one that cannot be used is noticed. Raises HostError: STORAGE."""
        with self.used():
            pass

    def close(self) -> None:
        """Close the file. Any later use is an error."""
        with self._lock:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def used(self) -> Iterator[sqlite3.Connection]:
        """The connection, for nobody else until the end of the block. Statements are durable one by one.

        Raises:
            HostError: STORAGE, for what fails in the block as well; the text names the file.
        """
        with self._lock:
            if self._is_closed:
                raise HostError(Code.STORAGE, f"{self.path} is closed")
            try:
                if self._connection is None:
                    self._connection = self._opened()
                yield self._connection
            except (sqlite3.Error, OSError) as exc:
                raise HostError(Code.STORAGE, f"{self.path}: {exc}") from exc

    @contextlib.contextmanager
    def changed(self) -> Iterator[sqlite3.Connection]:
        """The same, and all statements of the block are durable together, or none when it raises."""
        with self.used() as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    def rows(self, statement: str, values: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
        """Execute one statement; its rows. Raises HostError: STORAGE."""
        with self.used() as connection:
            return list(connection.execute(statement, values))

    def _opened(self) -> sqlite3.Connection:
        with contextlib.ExitStack() as undo:
            self.path.touch(mode=0o600)
            connection = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
            undo.callback(connection.close)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA secure_delete=ON")
            connection.executescript(self._schema)
            undo.pop_all()
        return connection
