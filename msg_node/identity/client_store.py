"""Clients that operators manage: in a file of its own beside the state, or in the engine. Only digests of tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Protocol, Self

import msgspec

from msg_node.identity.core.local_clients import LocalClient
from msg_node.storage.private_database import PrivateDatabase
from protofly.errors import Code, HostError, PeerError

CLIENTS_FILE: Final = "clients.sqlite"
_SCHEMA: Final = "CREATE TABLE IF NOT EXISTS client (name TEXT PRIMARY KEY, facts TEXT NOT NULL) STRICT;"


class Clients(Protocol):
    """All clients of a domain. Plain calls that wait for what stores them: for threads; each raises HostError."""

    def close(self) -> None:
        """Let them go."""

    def load(self) -> list[LocalClient]:
        """All clients by name."""

    def replace(self, name: str, before: LocalClient | None, client: LocalClient | None) -> None:
        """Store a client, or none, in place of the one that was there before, or of none.

        Raises:
            PeerError: DUPLICATE: somebody has changed that client meanwhile, and nothing is stored.
        """


def changed_meanwhile(name: str) -> PeerError:
    """The error to raise when somebody else has changed a client."""
    return PeerError(Code.DUPLICATE, f"client {name} was changed by somebody else meanwhile; try again")


class ClientStore:
    """Clients in a file.

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
        """See `Clients`; where there is no file, none is made."""
        if not self._path.is_file():
            return []
        return [self._read(facts) for (facts,) in self._file.rows("SELECT facts FROM client ORDER BY name")]

    def replace(self, name: str, before: LocalClient | None, client: LocalClient | None) -> None:
        """See `Clients`."""
        with self._file.changed() as database:
            found = database.execute("SELECT facts FROM client WHERE name = ?", (name,)).fetchall()
            if (self._read(found[0][0]) if found else None) != before:
                raise changed_meanwhile(name)
            database.execute("DELETE FROM client WHERE name = ?", (name,))
            if client is not None:
                facts = msgspec.json.encode(client).decode()
                database.execute("INSERT INTO client VALUES (?, ?)", (name, facts))

    def _read(self, facts: object) -> LocalClient:
        try:
            return msgspec.json.decode(str(facts), type=LocalClient)
        except msgspec.MsgspecError as exc:
            raise HostError(Code.STORAGE, f"{self._path}: {exc}") from exc
