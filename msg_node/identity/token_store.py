"""Renewals and revocations of session tokens, on disk.

A file of its own beside the state of the node: it changes a few times per hour and user, and has to outlive everything
else that may be thrown away, sessions and addresses included. A mark is on disk before `keep` returns. Marks that say
nothing any more are deleted on the way.
"""

from __future__ import annotations

from pathlib import Path

from msg_node.identity.core.issued_tokens import TokenMark
from msg_node.storage.private_database import PrivateDatabase

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
        self._file = PrivateDatabase(path, _SCHEMA)
        self._file.open()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def load(self) -> list[TokenMark]:
        """All marks. Raises HostError: STORAGE."""
        with self._file.used() as database:
            return [TokenMark(*row) for row in database.execute("SELECT login, user, least, until FROM mark")]

    def keep(self, mark: TokenMark, *, now: float) -> bool:
        """Remember a mark; one that is there never goes back. Returns True: nobody else raises marks here.

        Raises:
            HostError: STORAGE.
        """
        with self._file.changed() as database:
            database.execute(_PUT, (mark.login, mark.user, mark.least, mark.until))
            database.execute(_OVER, (now,))
        return True
