"""The listeners of each address, and the look-up by which every event finds its listeners.

A listener is a session (a positive number) or the link to a foreign domain (a negative one); it may listen to one
address for several sources and gets one copy all the same. Three kinds of entries match more than themselves:
`<base>/*` (everything below), and the children base `<object>/children/` (every child). What a key resolves to is
remembered, so the hot path is one dictionary hit.

Source: message specification, sections 8 and 20.1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import msgspec

from msg_node.addresses.core.allocation import ancestors
from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from protofly.address import canonical_key
from protofly.errors import Code, PeerError
from protofly.limits import REMEMBERED_CHARS, SUBSCRIPTIONS_PER_SESSION, TARGETS_REMEMBERED

CHILDREN = "/children/"


class SubscriptionRow(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One subscription as it is stored: `url` as the subscriber wrote it, `key` its canonical form."""

    sid: int
    key: str
    url: str
    source: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription that a listener asks for or has: an address as written, and for which source."""

    url: str
    key: str
    source: str


class Listeners:
    """All subscriptions, by listener and by address."""

    def __init__(self, journal: Journal, *, per_session: int = SUBSCRIPTIONS_PER_SESSION) -> None:
        self._journal = journal
        self._per_session = per_session
        self._by_sid: dict[int, dict[str, dict[str, str]]] = {}  # sid -> key -> source -> url
        self._counts: dict[int, int] = {}
        self._exact: dict[str, tuple[int, ...]] = {}
        self._below: dict[str, tuple[int, ...]] = {}  # base of `<base>/*`
        self._resolved: dict[str, tuple[int, ...]] = {}
        self._unheard: set[str] = set()

    # Look-ups.

    def targets(self, key: str) -> tuple[int, ...]:
        """Listeners of a canonical key, each once, in the order in which they came.

        One dictionary hit in the normal case.
        """
        found = self._resolved.get(key)
        if found is not None:
            return found
        found = tuple(dict.fromkeys(self._look_up(key)))
        if len(key) <= REMEMBERED_CHARS:
            if len(self._resolved) >= TARGETS_REMEMBERED:
                self._resolved.clear()
            self._resolved[key] = found
        return found

    def is_heard(self, key: str) -> bool:
        """True when a key has a listener. For keys of many that are asked about once: nothing is remembered.

        A sweep of the registry asks about every entry, and would push out what messages need.
        """
        found = self._resolved.get(key)
        return bool(self._look_up(key) if found is None else found)

    def listens(self, sid: int, key: str) -> bool:
        """True when a listener gets what is sent to a key."""
        return sid in self.targets(key)

    def subscriptions(self, sid: int) -> list[Subscription]:
        """The subscriptions of one listener."""
        return [
            Subscription(url, key, source)
            for key, sources in self._by_sid.get(sid, {}).items()
            for source, url in sources.items()
        ]

    def listeners(self) -> Iterator[int]:
        """Numbers of all that have a subscription."""
        return iter(self._by_sid)

    def count(self, sid: int) -> int:
        """Number of subscriptions of a listener."""
        return self._counts.get(sid, 0)

    # Changes.

    def add(self, sid: int, wanted: Collection[Subscription]) -> None:
        """Subscribe a listener to addresses: all of them or none. What it has already stays as it is.

        Raises:
            PeerError: QUOTA.

        Source: message specification, section 8.1.
        """
        mine = self._by_sid.get(sid, {})
        new = sum(1 for one in wanted if one.source not in mine.get(one.key, ()))
        if self.count(sid) + new > self._per_session:
            raise PeerError(Code.QUOTA, f"a session may have {self._per_session} subscriptions")
        for one in wanted:
            if one.source not in self._by_sid.get(sid, {}).get(one.key, ()):
                row = SubscriptionRow(sid=sid, key=one.key, url=one.url, source=one.source)
                self._insert(row)
                self._journal.put(Table.SUBSCRIPTIONS, _row_key(sid, one.key, one.source), row)

    def remove(self, sid: int, key: str, sources: Collection[str] | None = None) -> None:
        """Remove a listener's subscriptions to a key: of some sources, or of all. No effect where there is none.

        `sources` are canonical keys. Source: message specification, section 8.4.
        """
        held = self._by_sid.get(sid, {}).get(key, {})
        for gone in [one for one in held if sources is None or canonical_key(one) in sources]:
            self._delete(sid, key, gone)

    def sources(self, sid: int) -> set[str]:
        """Keys of all sources for which a listener has a subscription."""
        return {canonical_key(one) for held in self._by_sid.get(sid, {}).values() for one in held}

    def listens_below(self, sid: int, base: str) -> bool:
        """True when a listener has a subscription to a key that begins with `base` and goes on."""
        return any(key.startswith(base) and key != base for key in self._by_sid.get(sid, ()))

    def take_unheard(self) -> set[str]:
        """Keys that lost their last listener since the last call."""
        unheard, self._unheard = self._unheard, set()
        return unheard

    def remove_where(self, sid: int, condition: Callable[[str], bool]) -> None:
        """Remove a listener's subscriptions to all keys that fulfil a condition."""
        for key in [key for key in self._by_sid.get(sid, ()) if condition(key)]:
            self.remove(sid, key)

    def remove_all(self, sid: int) -> None:
        """Remove everything that a listener subscribed."""
        for key in list(self._by_sid.get(sid, ())):
            self.remove(sid, key)

    def restore(self, rows: Rows, *, sids: Collection[int]) -> None:
        """Take over what was stored; rows of listeners that have ended are deleted.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in rows.items():
            row = decode_row(raw, SubscriptionRow, table=Table.SUBSCRIPTIONS, key=key)
            if row.sid in sids:
                self._insert(row)
            else:
                self._journal.delete(Table.SUBSCRIPTIONS, key)

    # Inner steps.

    def _look_up(self, key: str) -> tuple[int, ...]:
        """Listeners of a key, some of them more than once."""
        found = self._exact.get(key, ())
        start = key.find(CHILDREN)
        while start >= 0:
            base = key[: start + len(CHILDREN)]
            if base != key:
                found += self._exact.get(base, ())
            start = key.find(CHILDREN, start + 1)
        if self._below:
            for above in ancestors(key):
                found += self._below.get(above, ())
        return found

    def _insert(self, row: SubscriptionRow) -> None:
        sources = self._by_sid.setdefault(row.sid, {}).setdefault(row.key, {})
        if not sources:
            table, key = self._place(row.key)
            table[key] = (*table.get(key, ()), row.sid)
            self._forget_resolved(row.key)
        sources[row.source] = row.url
        self._counts[row.sid] = self.count(row.sid) + 1

    def _delete(self, sid: int, key: str, source: str) -> None:
        sources = self._by_sid[sid][key]
        del sources[source]
        self._counts[sid] -= 1
        self._journal.delete(Table.SUBSCRIPTIONS, _row_key(sid, key, source))
        if sources:
            return
        del self._by_sid[sid][key]
        if not self._by_sid[sid]:
            del self._by_sid[sid], self._counts[sid]
        table, place = self._place(key)
        rest = tuple(other for other in table[place] if other != sid)
        if rest:
            table[place] = rest
        else:
            del table[place]
            self._unheard.add(key)
        self._forget_resolved(key)

    def _place(self, key: str) -> tuple[dict[str, tuple[int, ...]], str]:
        return (self._below, key[:-2]) if key.endswith("/*") else (self._exact, key)

    def _forget_resolved(self, key: str) -> None:
        if key.endswith(("/*", CHILDREN)):
            self._resolved.clear()
        else:
            self._resolved.pop(key, None)


def _row_key(sid: int, key: str, source: str) -> str:
    return f"{sid} {key} {source}"
