"""The newest block list that is known of each author: durable, so that a restart lets nobody bring an older one back.

A list is replaced by one with a higher number. Anyone between its author and us may show us an older one, which
is signed as well and may still be valid. So the number is kept by author and key: an author that lost its numbers makes
itself a new key. Source: trust and hosts, section 3.6.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from msg_node.kernel.changes import Journal, Rows, Table, decode_row


class ListMark(msgspec.Struct, frozen=True):
    """The number of the newest list that one key has signed, or could have signed."""

    serial: int


class ListMarks:
    """The marks of all lists; nodes of one domain share their rows."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._serials: dict[str, int] = {}

    def serial(self, author: str, keys: Collection[str]) -> int:
        """The number of the newest list of an author that signs with one of these keys, 0 if none is known."""
        return max((self._serials.get(_key(author, key), 0) for key in keys), default=0)

    def raise_to(self, author: str, keys: Collection[str], serial: int) -> None:
        """A list is known now. Marks never become lower."""
        for key in (_key(author, one) for one in keys):
            if self._serials.get(key, 0) < serial:
                self._serials[key] = serial
                self._journal.put(Table.BLOCK_LISTS, key, ListMark(serial))

    def restore(self, rows: Rows) -> None:
        """Take in what was stored.

        Raises:
            HostError: STORAGE.
        """
        for key, row in rows.items():
            self._serials[key] = decode_row(row, ListMark, table=Table.BLOCK_LISTS, key=key).serial


def _key(author: str, key: str) -> str:
    return f"{author} {key}"
