"""The embedded domain registry.

Soft state about hyperties and data objects, found by address, user, GUID, name and reporter.

An entry lives while its runtime refreshes it. Not refreshed for `expires` seconds, or when its session ends, it
becomes `disconnected`: readers learn that it exists and cannot be reached now. A day later it is forgotten. Only real
changes of status are reported.

Source: message specification, section 10; data formats, section 5.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from msgspec.structs import replace

from msg_node.core.changes import Journal, Rows, Table, decode_row
from msg_node.core.registry_entry import Changed, Entry, Status, apply, new_entry
from protofly.address import canonical_key, parse
from protofly.errors import Code, PeerError
from protofly.limits import REGISTRY_ENTRIES_PER_SESSION, REGISTRY_RETENTION_SECONDS

_Place = TypeVar("_Place")


class Index(Enum):
    """By what an entry can be found."""

    USER = "user"
    GUID = "guid"
    IDENTIFIER = "idp-identifier"
    NAME = "name"
    REPORTER = "reporter"


@dataclass(frozen=True, slots=True)
class StatusChange:
    """The status of an entry is now another one: for the subscribers of `<url>/registration`."""

    url: str
    status: Status


class DomainRegistry:
    """All entries of one domain."""

    def __init__(self, journal: Journal, *, per_session: int = REGISTRY_ENTRIES_PER_SESSION) -> None:
        self._journal = journal
        self._per_session = per_session
        self._entries: dict[str, Entry] = {}
        self._index: dict[tuple[Index, str], dict[str, None]] = {}
        self._by_sid: dict[int, dict[str, None]] = {}
        self._due: list[tuple[float, str]] = []  # heap; outdated items are skipped when they come up

    # Look-ups.

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Entry | None:
        """The entry of a canonical key."""
        return self._entries.get(key)

    def find(self, index: Index, text: str) -> list[Entry]:
        """Entries by one of their members, oldest first."""
        return [self._entries[key] for key in self._index.get((index, _index_text(index, text)), ())]

    def entries(self) -> list[Entry]:
        """All entries, oldest first."""
        return list(self._entries.values())

    def next_due(self) -> float | None:
        """When `sweep` has something to look at next."""
        return self._due[0][0] if self._due else None

    # Changes.

    def register(self, url: str, changed: Changed, *, sid: int, now: float) -> list[StatusChange]:
        """Create or replace an entry.

        Raises:
            PeerError: BAD_BODY (`IncompleteError` names what is missing), QUOTA.

        Source: message specification, section 10.1.
        """
        entry = new_entry(url, changed, sid=sid, now=now)
        old = self._entries.get(entry.key)
        if (old is None or old.sid != sid) and len(self._by_sid.get(sid, ())) >= self._per_session:
            raise PeerError(Code.QUOTA, f"a session may register {self._per_session} entries")
        if old is not None:
            entry = replace(entry, started_at=old.started_at)
        return self._put(entry, old)

    def update(self, key: str, changed: Changed, *, sid: int, now: float) -> list[StatusChange]:
        """Change members of an entry, which refreshes it.

        An update without a status brings a disconnected entry back to life.

        Raises:
            PeerError: NOT_REGISTERED.

        Source: message specification, section 10.2.
        """
        old = self._entries.get(key)
        if old is None:
            raise PeerError(Code.NOT_REGISTERED, "no such entry")
        entry = apply(old, changed, sid=sid, now=now)
        if changed.status is None and old.status is Status.DISCONNECTED:
            entry = replace(entry, status=Status.LIVE)
        return self._put(entry, old)

    def delete(self, key: str) -> list[StatusChange]:
        """Forget an entry.

        Raises:
            PeerError: NOT_REGISTERED.

        Source: message specification, section 10.4.
        """
        entry = self._entries.get(key)
        if entry is None:
            raise PeerError(Code.NOT_REGISTERED, "no such entry")
        self._forget(entry)
        self._journal.delete(Table.REGISTRY, key)
        return [StatusChange(entry.url, Status.DISCONNECTED)] if entry.is_connected else []

    def disconnect_session(self, sid: int, *, now: float) -> list[StatusChange]:
        """A session ended: its entries cannot be reached any more."""
        changes: list[StatusChange] = []
        for key in list(self._by_sid.get(sid, ())):
            old = self._entries[key]
            status = Status.DISCONNECTED if old.is_connected else old.status
            changes += self._put(replace(old, sid=0, status=status, refreshed_at=now), old)
        return changes

    def sweep(self, *, now: float) -> list[StatusChange]:
        """Disconnect what was not refreshed in time, forget what has been disconnected for long."""
        changes: list[StatusChange] = []
        while self._due and self._due[0][0] <= now:
            _, key = heapq.heappop(self._due)
            entry = self._entries.get(key)
            if entry is None or _due_at(entry) > now:
                continue
            if entry.is_connected:
                changes += self._put(replace(entry, status=Status.DISCONNECTED), entry)
            else:
                self._forget(entry)
                self._journal.delete(Table.REGISTRY, key)
        return changes

    def restore(self, rows: Rows, *, sids: Collection[int], now: float) -> None:
        """Take over what was stored; entries of sessions that are no more are disconnected.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in rows.items():
            entry = decode_row(raw, Entry, table=Table.REGISTRY, key=key)
            if entry.sid and entry.sid not in sids:
                self._put(replace(entry, sid=0, status=Status.DISCONNECTED, refreshed_at=now), None)
            else:
                self._insert(entry)

    # Inner steps.

    def _put(self, entry: Entry, old: Entry | None) -> list[StatusChange]:
        if old is not None:
            self._forget(old)
        self._insert(entry)
        self._journal.put(Table.REGISTRY, entry.key, entry)
        if old is None or old.status is entry.status:
            return []
        return [StatusChange(entry.url, entry.status)]

    def _insert(self, entry: Entry) -> None:
        key = entry.key
        self._entries[key] = entry
        for place in _places(entry):
            self._index.setdefault(place, {})[key] = None
        if entry.sid:
            self._by_sid.setdefault(entry.sid, {})[key] = None
        heapq.heappush(self._due, (_due_at(entry), key))
        if len(self._due) > 2 * len(self._entries) + 64:
            self._due = [(_due_at(one), other) for other, one in self._entries.items()]
            heapq.heapify(self._due)

    def _forget(self, entry: Entry) -> None:
        key = entry.key
        del self._entries[key]
        for place in _places(entry):
            _discard(self._index, place, key)
        if entry.sid:
            _discard(self._by_sid, entry.sid, key)


def _discard(table: dict[_Place, dict[str, None]], place: _Place, key: str) -> None:
    keys = table[place]
    del keys[key]
    if not keys:
        del table[place]


def _due_at(entry: Entry) -> float:
    """When a sweep has to look at an entry."""
    retention = 0.0 if entry.is_connected else REGISTRY_RETENTION_SECONDS
    return entry.refreshed_at + entry.expires_seconds + retention


def _places(entry: Entry) -> Iterable[tuple[Index, str]]:
    """Under what an entry is found: each index of its kind for which it has a value."""
    if entry.is_hyperty:
        texts = {Index.USER: entry.user, Index.GUID: entry.guid}
        yield from ((Index.IDENTIFIER, identifier) for identifier in sorted(identifiers_of(entry.user)))
    else:
        texts = {Index.NAME: entry.name, Index.REPORTER: entry.reporter}
    yield from ((index, _index_text(index, text)) for index, text in texts.items() if text)


def _index_text(index: Index, text: str) -> str:
    if index in (Index.USER, Index.REPORTER):
        try:
            return canonical_key(text)
        except PeerError:
            return text
    return text.removeprefix("user-guid://") if index is Index.GUID else text


def identifiers_of(user: str) -> set[str]:
    """Account names that a user address answers to: `user://a.example/ana` -> `ana@a.example`.

    A name with a domain stands for itself.

    Source: message specification, section 10.5.
    """
    try:
        _, authority, path = parse(user)
    except PeerError:
        return set()
    name = path.strip("/").rpartition("/")[2] or authority.partition("@")[0]
    if not name:
        return set()
    return {name} if "@" in name else {name, f"{name}@{authority.rpartition('@')[2]}"}
