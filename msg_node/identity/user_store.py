"""Local users with their passwords, on disk: a file of its own, which commands change beside a running node.

Passwords are stored as Argon2id hashes. `ended_at` is the moment up to which log-ins of a user have ended: of a changed
password, and of a user that was disabled or removed. A removed user is kept until the last token can have expired.
"""

from __future__ import annotations

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


class UserStore:
    """All local users. Plain calls that wait for the disk: for threads.

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
        """Open the file now. Raises HostError: STORAGE."""
        self._file.open()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def version(self) -> int:
        """A number that is another one when another process has changed the file. Raises HostError: STORAGE."""
        return int(str(self._file.rows("PRAGMA data_version")[0][0]))

    def find(self, name: str) -> LocalUser | None:
        """The user of that name, also one that was removed. Raises HostError: STORAGE."""
        rows = self._file.rows(f"SELECT {_COLUMNS} FROM user WHERE name = ?", (name,))  # noqa: S608 - names of ours
        return _user(rows[0]) if rows else None

    def load(self) -> list[LocalUser]:
        """All users by name, removed ones included. Raises HostError: STORAGE."""
        return [_user(row) for row in self._file.rows(f"SELECT {_COLUMNS} FROM user ORDER BY name")]  # noqa: S608 - the same

    def known(self, name: str) -> LocalUser:
        """The user of that name.

        Raises:
            PeerError: NOT_REGISTERED.
            HostError: STORAGE.
        """
        found = self.find(name)
        if found is None or not found.hash:
            raise PeerError(Code.NOT_REGISTERED, f"there is no user {name}")
        return found

    def put(self, user: LocalUser) -> None:
        """Store a user, in place of one of the same name. Raises HostError: STORAGE."""
        roles = msgspec.json.encode(user.roles).decode()
        row = (user.name, user.hash, roles, int(user.is_disabled), user.ended_at)
        self._file.rows("INSERT OR REPLACE INTO user VALUES (?, ?, ?, ?, ?)", row)

    def rehash(self, old: LocalUser, text: str) -> None:
        """Store another hash of the same password, unless the user was changed meanwhile. Raises HostError: STORAGE."""
        self._file.rows("UPDATE user SET hash = ? WHERE name = ? AND hash = ?", (text, old.name, old.hash))

    def forget_removed(self, before: float) -> None:
        """Forget users that were removed before that moment. Raises HostError: STORAGE."""
        self._file.rows("DELETE FROM user WHERE hash = '' AND ended_at < ?", (before,))


def _user(row: tuple[object, ...]) -> LocalUser:
    name, text, roles, disabled, ended_at = row
    return LocalUser(
        name=str(name),
        hash=str(text),
        roles=msgspec.json.decode(str(roles), type=tuple[str, ...]),
        is_disabled=bool(disabled),
        ended_at=float(str(ended_at)),
    )
