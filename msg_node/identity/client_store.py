"""Clients that operators manage, on disk: a file of its own beside the state. No token is in it, only digests."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Self

import msgspec

from msg_node.identity.core.local_clients import LocalClient
from msg_node.storage.private_database import PrivateDatabase
from protofly.errors import Code, HostError

CLIENTS_FILE: Final = "clients.sqlite"
_SCHEMA: Final = "CREATE TABLE IF NOT EXISTS client (name TEXT PRIMARY KEY, facts TEXT NOT NULL) STRICT;"


class ClientStore:
    """All clients. Plain calls that wait for the disk: for threads.

    Args:
        path: Of the file, readable by its owner only; the first use opens or creates it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = PrivateDatabase(path, _SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def load(self) -> list[LocalClient]:
        """All clients by name; none, and no file, where there was no file. Raises HostError: STORAGE."""
        if not self._path.is_file():
            return []
        rows = self._file.rows("SELECT facts FROM client ORDER BY name")
        try:
            return [msgspec.json.decode(str(facts), type=LocalClient) for (facts,) in rows]
        except msgspec.MsgspecError as exc:
            raise HostError(Code.STORAGE, f"{self._path}: {exc}") from exc

    def replace(self, name: str, client: LocalClient | None) -> None:
        """Store a client, or none, in place of the one of that name. Raises HostError: STORAGE."""
        if client is None:
            self._file.rows("DELETE FROM client WHERE name = ?", (name,))
        else:
            facts = msgspec.json.encode(client).decode()
            self._file.rows("INSERT OR REPLACE INTO client VALUES (?, ?)", (name, facts))
