"""Local users with their passwords: in a file of its own, or in the engine; commands change them beside a running node.

Passwords are stored as Argon2id hashes. `ended_at` is the moment up to which log-ins of a user have ended: of a changed
password, and of a user that was disabled or removed. A removed user is kept until the last token can have expired.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

import msgspec

from msg_node.storage.private_database import PrivateDatabase
from protofly.errors import Code, PeerError

USERS_FILE = "users.sqlite"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS user (
    name TEXT PRIMARY KEY, hash TEXT NOT NULL, roles TEXT NOT NULL, disabled INTEGER NOT NULL, ended_at REAL NOT NULL
) STRICT;
"""
_COLUMNS = "name, hash, roles, disabled, ended_at"


class LocalUser(msgspec.Struct, frozen=True, kw_only=True):
    """One local user; `hash` is "" for one that was removed."""

    name: str
    hash: str
    roles: tuple[str, ...] = ()
    is_disabled: bool = False
    ended_at: float = 0.0


class Users(ABC):
    """All local users of a domain. Plain calls that wait for what stores them: for threads; each raises HostError."""

    def open(self) -> None:  # noqa: B027 - most need not
        """Find out now whether they can be used."""

    def close(self) -> None:  # noqa: B027 - the same
        """Let them go."""

    @abstractmethod
    def version(self) -> int:
        """A number that is another one when somebody else has changed users."""

    @abstractmethod
    def find(self, name: str) -> LocalUser | None:
        """The user of that name, also one that was removed."""

    @abstractmethod
    def load(self) -> list[LocalUser]:
        """All users by name, removed ones included."""

    @abstractmethod
    def replace(self, before: LocalUser | None, user: LocalUser) -> None:
        """Store a user in place of the one that was found before, or of none.

        Raises:
            PeerError: DUPLICATE: somebody has changed that user meanwhile, and nothing is stored.
        """

    @abstractmethod
    def forget_removed(self, before: float) -> None:
        """Forget users that were removed before that moment."""

    def known(self, name: str) -> LocalUser:
        """The user of that name.

        Raises:
            PeerError: NOT_REGISTERED.
        """
        found = self.find(name)
        if found is None or not found.hash:
            raise PeerError(Code.NOT_REGISTERED, f"there is no user {name}")
        return found


def changed_meanwhile(name: str) -> PeerError:
    """The error to raise when somebody else has changed a user."""
    return PeerError(Code.DUPLICATE, f"user {name} was changed by somebody else meanwhile; try again")


class UserStore(Users):
    """Users in a file.

    Args:
        path: Of the file, readable by its owner only; the first use opens or creates it.
    """

    def __init__(self, path: Path) -> None:
        self._file = PrivateDatabase(path, _SCHEMA)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Open the file now."""
        self._file.open()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def version(self) -> int:
        """A number that is another one when another process has changed the file."""
        return int(str(self._file.rows("PRAGMA data_version")[0][0]))

    def find(self, name: str) -> LocalUser | None:
        """See `Users`."""
        with self._file.used() as database:
            return _found(database, name)

    def load(self) -> list[LocalUser]:
        """See `Users`."""
        return [_user(row) for row in self._file.rows(f"SELECT {_COLUMNS} FROM user ORDER BY name")]  # noqa: S608 - names of ours

    def replace(self, before: LocalUser | None, user: LocalUser) -> None:
        """See `Users`."""
        roles = msgspec.json.encode(user.roles).decode()
        row = (user.name, user.hash, roles, int(user.is_disabled), user.ended_at)
        with self._file.changed() as database:
            if _found(database, user.name) != before:
                raise changed_meanwhile(user.name)
            database.execute("INSERT OR REPLACE INTO user VALUES (?, ?, ?, ?, ?)", row)

    def forget_removed(self, before: float) -> None:
        """See `Users`."""
        self._file.rows("DELETE FROM user WHERE hash = '' AND ended_at < ?", (before,))


def _found(database: sqlite3.Connection, name: str) -> LocalUser | None:
    rows = database.execute(f"SELECT {_COLUMNS} FROM user WHERE name = ?", (name,)).fetchall()  # noqa: S608 - the same
    return _user(rows[0]) if rows else None


def _user(row: tuple[object, ...]) -> LocalUser:
    name, text, roles, disabled, ended_at = row
    return LocalUser(
        name=str(name),
        hash=str(text),
        roles=msgspec.json.decode(str(roles), type=tuple[str, ...]),
        is_disabled=bool(disabled),
        ended_at=float(str(ended_at)),
    )
