"""The embedded domain registry.

Soft state about hyperties and data objects, found by address, user, GUID, name and reporter.

An entry lives while its runtime refreshes it. Not refreshed for `expires` seconds, or when its session ends, it
becomes `disconnected`: readers learn that it exists and cannot be reached now. A day later it is forgotten, and sooner
if there are too many of sessions that are gone: those that were left first go first. Only real changes of status are
reported. Where the operator wants it (`keeps_registered`), the end of a session changes no
status: its entries have no holder then, and only their own runtime may write them while they are live.

Source: message specification, section 10; data formats, section 5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import TypeVar

from msgspec.structs import replace

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from msg_node.kernel.deadlines import Deadlines
from msg_node.kernel.registrations import Index, Status, StatusChange
from msg_node.registries.core.held_entries import HeldEntries
from msg_node.registries.core.registry_entry import Changed, RegistryEntry, apply, new_entry
from msg_node.registries.core.unreported import UnreportedDisconnects
from protofly.address import canonical_key, parse
from protofly.errors import Code, PeerError
from protofly.guid import guid_address
from protofly.limits import (
    REGISTRY_ENTRIES_PER_SESSION,
    REGISTRY_RETENTION_SECONDS,
    REGISTRY_SWEPT_AT_ONCE,
)

_Place = TypeVar("_Place")


class DomainRegistry:
    """All entries of one domain.

    Args:
        journal: Where changes are collected.
        per_session: Entries that one session may have.
        keeps_registered: See below.

    Attributes:
        keeps_registered: Entries outlive the sessions of runtimes; those of interworking stubs end with their stub.
            Another value counts for sessions that end from then on.
        unreported: Entries whose disconnection another registry does not know of yet.
    """

    def __init__(
        self,
        journal: Journal,
        *,
        per_session: int = REGISTRY_ENTRIES_PER_SESSION,
        keeps_registered: bool = False,
    ) -> None:
        self._journal = journal
        self.keeps_registered = keeps_registered
        self._entries: dict[str, RegistryEntry] = {}
        self._index: dict[Index, dict[str, dict[str, None]]] = {index: {} for index in Index}
        self._held = HeldEntries(per_session)
        self.unreported = UnreportedDisconnects()
        self._ended: dict[int, tuple[float, dict[str, None]]] = {}  # holders that are gone: since when, which are left
        self._due = Deadlines()

    # Look-ups.

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[RegistryEntry]:
        """All entries; nothing changes meanwhile."""
        return iter(self._entries.values())

    def get(self, key: str) -> RegistryEntry | None:
        """The entry of a canonical key."""
        return self._entries.get(key)

    def find(self, index: Index, text: str) -> list[RegistryEntry]:
        """Entries by one of their members, oldest first."""
        return [self._entries[key] for key in self._index[index].get(_index_text(index, text), ())]

    # Changes.

    def register(self, url: str, changed: Changed, *, sid: int, now: float) -> list[StatusChange]:
        """Create or replace an entry.

        Raises:
            PeerError: BAD_BODY (`IncompleteError` names what is missing), QUOTA.

        Source: message specification, section 10.1.
        """
        entry = new_entry(url, changed, sid=sid, now=now)
        key = entry.key
        self.check_quota(sid, key)
        old = self._entries.get(key)
        self._held.check_chars(sid, _growth(entry, old))
        if old is not None:
            entry = replace(entry, started_at=old.started_at)
        return self._put(key, entry, old)

    def check_quota(self, sid: int, key: str) -> None:
        """Refuse when a session would have too many entries.

        Raises:
            PeerError: QUOTA.
        """
        self._held.check_number(sid, key)

    def adopt(self, entry: RegistryEntry) -> None:
        """Take over an entry as another registry has it, in place of what is here."""
        key = entry.key
        self._put(key, entry, self._entries.get(key))

    def observe(self, key: str, status: Status, *, now: float) -> list[StatusChange]:
        """Another registry says that an entry has this status; nothing is refreshed."""
        old = self._entries.get(key)
        if old is None or old.status is status:
            return []
        return self._put(key, replace(old, status=status, refreshed_at=max(old.refreshed_at, now)), old)

    def update(self, key: str, changed: Changed, *, sid: int, now: float) -> list[StatusChange]:
        """Change members of an entry, which refreshes it and makes it one of this session.

        An update without a status brings a disconnected entry back to life.

        Raises:
            PeerError: NOT_REGISTERED, QUOTA.

        Source: message specification, section 10.2.
        """
        old = self._entries.get(key)
        if old is None:
            raise PeerError(Code.NOT_REGISTERED, "no such entry")
        self.check_quota(sid, key)
        entry = apply(old, changed, sid=sid, now=now)
        self._held.check_chars(sid, _growth(entry, old))
        if changed.status is None and old.status is Status.DISCONNECTED:
            entry = replace(entry, status=Status.LIVE)
        return self._put(key, entry, old)

    def delete(self, key: str) -> list[StatusChange]:
        """Forget an entry.

        Raises:
            PeerError: NOT_REGISTERED.

        Source: message specification, section 10.4.
        """
        entry = self._entries.get(key)
        if entry is None:
            raise PeerError(Code.NOT_REGISTERED, "no such entry")
        self._forget(key, entry)
        self._journal.delete(Table.REGISTRY, key)
        return [StatusChange(key, entry.url, Status.DISCONNECTED)] if entry.is_connected else []

    def disconnect_session(self, sid: int, *, now: float) -> list[StatusChange]:
        """A session ended: its entries lose their holder and are disconnected, unless they are kept until they expire.

        Sweeps do the rest where it has very many.

        A holder that comes back under the same number (an interworking stub) keeps what it registers from then on.
        """
        self._ended[sid] = (now, dict(self._held.of(sid)))
        return self._disconnect_ended()

    def sweep(self, *, now: float) -> list[StatusChange]:
        """Disconnect what was not refreshed in time, forget what has been disconnected for long or is too much.

        At most `REGISTRY_SWEPT_AT_ONCE` entries of each kind are looked at; call again while that changes something.
        """
        changes = self._disconnect_ended()
        for key in self._due.take_due(now, REGISTRY_SWEPT_AT_ONCE):
            entry = self._entries[key]
            if entry.is_connected:
                changes += self._put(key, replace(entry, status=Status.DISCONNECTED), entry)
            else:
                self._forget(key, entry)
                self._journal.delete(Table.REGISTRY, key)
        for key in self._held.too_many():
            changes += self.delete(key)
        return changes

    def restore(self, rows: Rows, *, sids: Collection[int], now: float) -> None:
        """Take over what was stored; entries of sessions that have ended are disconnected.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in rows.items():
            entry = decode_row(raw, RegistryEntry, table=Table.REGISTRY, key=key)
            if entry.sid and entry.sid not in sids:
                self._put(key, self._without_holder(entry, now), None)
            else:
                self._insert(key, entry)

    # Inner steps.

    def _disconnect_ended(self) -> list[StatusChange]:
        """Disconnect at most `REGISTRY_SWEPT_AT_ONCE` entries of sessions that have ended."""
        changes: list[StatusChange] = []
        limit = REGISTRY_SWEPT_AT_ONCE
        for sid, (ended_at, left) in list(self._ended.items()):
            for key in list(islice(left, limit)):
                del left[key]
                old = self._entries[key]
                entry = self._without_holder(old, ended_at)
                changes += self._put(key, entry, old)
                if old.is_connected and not entry.is_connected:
                    self.unreported.add(key)
                limit -= 1
            if not left:
                del self._ended[sid]
        return changes

    def _without_holder(self, entry: RegistryEntry, ended_at: float) -> RegistryEntry:
        """Return an entry as it is after the end of its holder; `ended_at` is in seconds since the Unix epoch."""
        if not entry.is_connected:
            return replace(entry, sid=0, refreshed_at=ended_at)
        if self.keeps_registered and entry.sid > 0:
            return replace(entry, sid=0)
        return replace(entry, sid=0, status=Status.DISCONNECTED, refreshed_at=ended_at)

    def _spare(self, key: str, entry: RegistryEntry) -> None:
        """An entry has a holder again, or is deleted: the end of the old holder does not concern it."""
        ended = self._ended.get(entry.sid)
        if ended is not None:
            ended[1].pop(key, None)

    def _put(self, key: str, entry: RegistryEntry, old: RegistryEntry | None) -> list[StatusChange]:
        if old is not None:
            self._spare(key, old)
        if old is not None and _is_found_alike(old, entry):
            self._entries[key] = entry
            self._held.grow(entry.sid, _growth(entry, old))
            self._due.set(key, _due_at(entry))
        else:
            if old is not None:
                self._forget(key, old)
            self._insert(key, entry)
        self._journal.put(Table.REGISTRY, key, entry)
        if old is None or old.status is entry.status:
            return []
        return [StatusChange(key, entry.url, entry.status)]

    def _insert(self, key: str, entry: RegistryEntry) -> None:
        self._entries[key] = entry
        for index, text in _places(entry):
            self._index[index].setdefault(text, {})[key] = None
        self._held.add(entry.sid, key, entry.chars)
        self._due.set(key, _due_at(entry))

    def _forget(self, key: str, entry: RegistryEntry) -> None:
        del self._entries[key]
        self._spare(key, entry)
        self._due.discard(key)
        for index, text in _places(entry):
            _discard(self._index[index], text, key)
        self._held.discard(entry.sid, key, entry.chars)


def _growth(entry: RegistryEntry, old: RegistryEntry | None) -> int:
    """By how many characters the entries of its session grow."""
    return entry.chars - (old.chars if old is not None and old.sid == entry.sid else 0)


def _is_found_alike(old: RegistryEntry, new: RegistryEntry) -> bool:
    """True when two states of an entry are found in the same places: a keep-alive moves nothing."""
    return (
        old.sid == new.sid
        and old.user == new.user
        and old.guid == new.guid
        and old.name == new.name
        and old.reporter == new.reporter
    )


def _discard(table: dict[_Place, dict[str, None]], place: _Place, key: str) -> None:
    keys = table[place]
    del keys[key]
    if not keys:
        del table[place]


def _due_at(entry: RegistryEntry) -> float:
    """Return when a sweep has to look at an entry."""
    retention = 0.0 if entry.is_connected else REGISTRY_RETENTION_SECONDS
    return entry.refreshed_at + entry.expires_seconds + retention


def _places(entry: RegistryEntry) -> Iterable[tuple[Index, str]]:
    """Under what an entry is found: each index of its kind for which it has a value."""
    if entry.is_hyperty:
        texts = {Index.USER: entry.user, Index.GUID: entry.guid}
        yield from ((Index.IDENTIFIER, identifier) for identifier in sorted(identifiers_of(entry.user)))
    else:
        texts = {Index.NAME: entry.name, Index.REPORTER: entry.reporter}
    yield from ((index, _index_text(index, text)) for index, text in texts.items() if text)


def _index_text(index: Index, text: str) -> str:
    if index is Index.GUID and ":" not in text:
        text = guid_address(text)
    if index in (Index.USER, Index.REPORTER, Index.GUID):
        try:
            return canonical_key(text)
        except PeerError:
            return text
    return text


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
