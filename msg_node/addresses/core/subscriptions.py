"""The subscriptions of listeners, as rows. By which a message finds them is `listener_index`.

A listener is a session (a positive number) or the link to a foreign domain (a negative one); it may listen to one
address for several sources and gets one copy all the same.

Source: message specification, sections 8 and 20.1.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from msg_node.addresses.core.allocation import beginning_with
from msg_node.addresses.core.listener_index import ListenerIndex
from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from msg_node.kernel.runtime_address import PART_MARKS
from protofly.address import canonical_key
from protofly.errors import Code, PeerError
from protofly.limits import NAMES_CHARS_PER_SESSION, SUBSCRIPTIONS_PER_SESSION


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
    """All subscriptions, by listener and by address.

    Attributes:
        index: Finds the listeners of a key.
        targets: See `ListenerIndex.targets`.
        is_heard: See `ListenerIndex.is_heard`.
        listens: See `ListenerIndex.listens`.
    """

    def __init__(self, journal: Journal, *, per_session: int = SUBSCRIPTIONS_PER_SESSION) -> None:
        self._journal = journal
        self.per_session = per_session
        self._by_sid: dict[int, dict[str, dict[str, str]]] = {}  # sid -> key -> source -> url
        self._counts: dict[int, int] = {}
        self._chars: dict[int, int] = {}  # of addresses and sources, by listener
        self._sorted: dict[int, list[str]] = {}  # the keys of a listener
        self.index = ListenerIndex()
        self.targets = self.index.targets
        self.is_heard = self.index.is_heard
        self.listens = self.index.listens
        self._unheard: set[str] = set()

    # Look-ups.

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
        if self.count(sid) + new > self.per_session:
            raise PeerError(Code.QUOTA, f"a session may have {self.per_session} subscriptions")
        chars = sum(len(one.url) + len(one.source) for one in wanted if one.source not in mine.get(one.key, ()))
        if self._chars.get(sid, 0) + chars > NAMES_CHARS_PER_SESSION:
            raise PeerError(Code.QUOTA, f"subscriptions of a session may have {NAMES_CHARS_PER_SESSION} characters")
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
        keys: Sequence[str] = self._sorted.get(sid, ())
        following = bisect_right(keys, base)
        return following < len(keys) and keys[following].startswith(base)

    def take_unheard(self) -> set[str]:
        """Keys that lost their last listener since the last call."""
        unheard, self._unheard = self._unheard, set()
        return unheard

    def remove_at(self, sid: int, address: str) -> None:
        """Remove a listener's subscriptions to an address and its parts: a few look-ups, however many it has."""
        keys: Sequence[str] = self._sorted.get(sid, ())
        below = [key for mark in PART_MARKS for key in beginning_with(address + mark, keys)]
        for key in (address, *below):
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

    def _insert(self, row: SubscriptionRow) -> None:
        sources = self._by_sid.setdefault(row.sid, {}).setdefault(row.key, {})
        if not sources:
            self.index.add(row.sid, row.key)
            insort(self._sorted.setdefault(row.sid, []), row.key)
        sources[row.source] = row.url
        self._chars[row.sid] = self._chars.get(row.sid, 0) + len(row.url) + len(row.source)
        self._counts[row.sid] = self.count(row.sid) + 1

    def _delete(self, sid: int, key: str, source: str) -> None:
        sources = self._by_sid[sid][key]
        self._chars[sid] -= len(sources.pop(source)) + len(source)
        self._counts[sid] -= 1
        self._journal.delete(Table.SUBSCRIPTIONS, _row_key(sid, key, source))
        if sources:
            return
        del self._by_sid[sid][key]
        ordered = self._sorted[sid]
        del ordered[bisect_left(ordered, key)]
        if not self._by_sid[sid]:
            del self._by_sid[sid], self._counts[sid], self._chars[sid], self._sorted[sid]
        if not self.index.discard(sid, key):
            self._unheard.add(key)


def _row_key(sid: int, key: str, source: str) -> str:
    return f"{sid} {key} {source}"
