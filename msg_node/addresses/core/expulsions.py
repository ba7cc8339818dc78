"""Observers that reporters have taken off their objects: who is here hears nothing more until its reporter accepts it.

Kept durably, since a restart must not let anybody in again, and within bounds for each reporter before those in all.
An entry ends when the reporter accepts the observer anew, or with the object. Source: feature row DS-13; message
specification, section 9.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import msgspec

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from protofly.errors import Code, PeerError
from protofly.limits import EXPULSIONS, EXPULSIONS_PER_OBJECT, EXPULSIONS_PER_REPORTER


class ExpulsionRow(msgspec.Struct, frozen=True):
    """One observer of one object, as canonical keys.

    `runtime` is that of the observer, "" when it is not known; `by` the reporter's runtime, or its domain.
    """

    object_key: str
    observer: str
    runtime: str
    by: str


class Expulsions:
    """All of them, by object."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows: dict[str, dict[str, ExpulsionRow]] = {}
        self._of_reporter: Counter[str] = Counter()
        self._count = 0

    def __len__(self) -> int:
        """The number of expulsions."""
        return self._count

    def __iter__(self) -> Iterator[ExpulsionRow]:
        """All of them, by object; nothing changes meanwhile."""
        return (row for held in self._rows.values() for row in held.values())

    def expel(self, row: ExpulsionRow) -> None:
        """Keep an observer off an object.

        Raises:
            PeerError: QUOTA when there are too many of the object or the reporter, OVERLOAD when there are in all.
        """
        held = self._rows.get(row.object_key, {})
        if held.get(row.observer) == row:
            return
        self._remove(row.object_key, row.observer)
        if len(held) >= EXPULSIONS_PER_OBJECT or self._of_reporter[row.by] >= EXPULSIONS_PER_REPORTER:
            raise PeerError(Code.QUOTA, "too many observers were taken off")
        if self._count >= EXPULSIONS:
            raise PeerError(Code.OVERLOAD, "this node keeps too many observers off their objects")
        self._insert(row)
        self._journal.put(Table.EXPULSIONS, _row_key(row), row)

    def keys(self, object_key: str) -> Collection[str]:
        """Keys of the observers and runtimes that are kept off an object."""
        held = self._rows.get(object_key)
        return {key for row in held.values() for key in (row.observer, row.runtime) if key} if held else ()

    def holds(self, object_key: str, key: str) -> bool:
        """True if that observer, or runtime, is kept off an object."""
        held = self._rows.get(object_key)
        return held is not None and (key in held or any(row.runtime == key for row in held.values()))

    def readmit(self, object_key: str, key: str) -> None:
        """Let an observer in again, by its own key or that of its runtime."""
        for row in list(self._rows.get(object_key, {}).values()):
            if key in (row.observer, row.runtime):
                self._remove(object_key, row.observer)

    def forget(self, object_key: str) -> None:
        """An object is no more."""
        for observer in list(self._rows.get(object_key, ())):
            self._remove(object_key, observer)

    def restore(self, rows: Rows) -> None:
        """Take over what was stored.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in rows.items():
            self._insert(decode_row(raw, ExpulsionRow, table=Table.EXPULSIONS, key=key))

    def _insert(self, row: ExpulsionRow) -> None:
        self._rows.setdefault(row.object_key, {})[row.observer] = row
        self._of_reporter[row.by] += 1
        self._count += 1

    def _remove(self, object_key: str, observer: str) -> None:
        held = self._rows.get(object_key, {})
        row = held.pop(observer, None)
        if row is None:
            return
        if not held:
            self._rows.pop(object_key, None)
        self._of_reporter[row.by] -= 1
        if not self._of_reporter[row.by]:
            del self._of_reporter[row.by]
        self._count -= 1
        self._journal.delete(Table.EXPULSIONS, _row_key(row))


def _row_key(row: ExpulsionRow) -> str:
    return f"{row.object_key} {row.observer}"
