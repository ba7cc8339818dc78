"""Renewals and revocations of session tokens, on disk.

A file of its own beside the state of the node: it changes a few times per hour and user, and has to outlive everything
else that may be thrown away, sessions and addresses included. A mark is on disk before `keep` returns. Marks that say
nothing any more are deleted on the way.
"""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

from msg_node.identity.core.issued_tokens import TokenMark
from msg_node.storage.private_database import open_private_database
from protofly.errors import Code, HostError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS mark (
    login TEXT PRIMARY KEY, user TEXT NOT NULL, least INTEGER NOT NULL, until REAL NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS mark_by_end ON mark (until);
"""
_PUT = """
INSERT INTO mark VALUES (?, ?, ?, ?) ON CONFLICT (login) DO UPDATE
SET least = max(least, excluded.least), until = max(until, excluded.until)
"""
_OVER = "DELETE FROM mark WHERE login IN (SELECT login FROM mark WHERE until <= ? LIMIT 1000)"


class TokenStore:
    """Durable marks. Plain calls that wait for the disk: for threads."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, readable by its owner only.

        Raises:
            HostError: STORAGE.
        """
        self._path = path
        self._lock = threading.Lock()
        self._database = open_private_database(path, _SCHEMA)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def load(self) -> list[TokenMark]:
        """All marks.

        Raises:
            HostError: STORAGE.
        """
        with self._lock:
            try:
                return [TokenMark(*row) for row in self._database.execute("SELECT login, user, least, until FROM mark")]
            except sqlite3.Error as exc:
                raise self._error(exc) from exc

    def keep(self, mark: TokenMark, *, now: float) -> bool:
        """Remember a mark; one that is there never goes back. Returns True: nobody else raises marks here.

        Raises:
            HostError: STORAGE.
        """
        with self._lock:
            try:
                with self._database:
                    self._database.execute("BEGIN IMMEDIATE")
                    self._database.execute(_PUT, (mark.login, mark.user, mark.least, mark.until))
                    self._database.execute(_OVER, (now,))
            except sqlite3.Error as exc:
                raise self._error(exc) from exc
        return True

    def _error(self, exc: Exception) -> HostError:
        return HostError(Code.STORAGE, f"{self._path}: {exc}")
