"""Local users of a domain, in the engine that its nodes share: a log-in at any node is one of the same user."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from msg_node.identity.user_store import LocalUser, Users, changed_meanwhile
from msg_node.kernel.domain_records import DomainRecords, keys_of

USERS: Final = "users"


class EngineUsers(Users):
    """Users as records of the domain.

    Args:
        records: Those of the domain; who made them closes them.
    """

    def __init__(self, records: DomainRecords) -> None:
        self._records = records
        self._version = 0

    def heard(self, payloads: Collection[str] | None) -> None:
        """Records were replaced; None: any may have been."""
        if keys_of(USERS, payloads) != []:
            self._version += 1

    def version(self) -> int:
        """Counts what was heard."""
        return self._version

    def find(self, name: str) -> LocalUser | None:
        """See `Users`."""
        row = self._records.read(USERS, name)
        return None if row is None else _user(row)

    def load(self) -> list[LocalUser]:
        """See `Users`."""
        return [_user(row) for row in self._records.load(USERS).values()]

    def replace(self, before: LocalUser | None, user: LocalUser) -> None:
        """See `Users`."""
        row = self._records.read(USERS, user.name)
        found = None if row is None else _user(row)
        if found != before or not self._records.replace(USERS, user.name, row, msgspec.json.encode(user)):
            raise changed_meanwhile(user.name)

    def forget_removed(self, before: float) -> None:
        """See `Users`."""
        for name, row in self._records.load(USERS).items():
            user = _user(row)
            if not user.hash and user.ended_at < before:
                self._records.replace(USERS, name, row, None)


def _user(row: bytes) -> LocalUser:
    return msgspec.json.decode(row, type=LocalUser)
