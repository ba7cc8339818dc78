"""Small SQLite files beside the state: what they hold changes seldom, and each change is durable when it returns."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from protofly.errors import Code, HostError


def open_private_database(path: Path, schema: str) -> sqlite3.Connection:
    """Open or create a file that only its owner reads; blocking. The connection may be used by one thread at a time.

    Args:
        path: Its folder must exist.
        schema: Statements that make what is missing.

    Raises:
        HostError: STORAGE; the text names the file.
    """
    with contextlib.ExitStack() as undo:
        try:
            path.touch(mode=0o600)
            database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            undo.callback(database.close)
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.execute("PRAGMA secure_delete=ON")
            database.executescript(schema)
        except (sqlite3.Error, OSError) as exc:
            raise HostError(Code.STORAGE, f"{path}: {exc}") from exc
        undo.pop_all()
    return database
