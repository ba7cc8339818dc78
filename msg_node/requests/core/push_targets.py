"""Where to wake those who are away: push subscriptions of runtimes, by the address that they answer for.

A subscription is what a browser or device got from its push service (Push API): the URL of an endpoint. It outlives
the session, since waking the absent is what it is for, and ends with its time, by its owner's word, or when the push
service says that it is no more. Source: feature row HM-04; RFC 8030.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from msg_node.kernel.deadlines import Deadlines
from protofly.errors import Code, PeerError
from protofly.limits import PUSH_TARGETS, PUSH_TARGETS_PER_ADDRESS, PUSH_TARGETS_PER_RUNTIME

_SWEPT_AT_ONCE = 1000


class PushTarget(msgspec.Struct, frozen=True):
    """One endpoint for one address; `runtime_key` is who registered it, `expires_at` seconds since the Unix epoch."""

    key: str
    endpoint: str
    runtime_key: str
    expires_at: float


class PushTargets:
    """All push subscriptions of this node."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._by_key: dict[str, dict[str, PushTarget]] = {}  # address -> endpoint -> target
        self._by_endpoint: dict[str, set[str]] = {}
        self._of_runtime: Counter[str] = Counter()
        self._count = 0
        self._due = Deadlines()

    def __len__(self) -> int:
        """The number of subscriptions."""
        return self._count

    def __iter__(self) -> Iterator[PushTarget]:
        """All subscriptions; nothing changes meanwhile."""
        return (one for targets in self._by_key.values() for one in targets.values())

    def of(self, key: str) -> list[PushTarget]:
        """The subscriptions for a canonical address."""
        return list(self._by_key.get(key, {}).values())

    def add(self, target: PushTarget) -> None:
        """Keep a subscription, in place of an earlier one for the same address and endpoint.

        Those that another runtime registered for the address go: it has another owner now.

        Raises:
            PeerError: QUOTA, OVERLOAD.
        """
        for old in self.of(target.key):
            if old.runtime_key != target.runtime_key or old.endpoint == target.endpoint:
                self.remove(old.key, old.endpoint)
        if len(self._by_key.get(target.key, ())) >= PUSH_TARGETS_PER_ADDRESS:
            raise PeerError(Code.QUOTA, f"an address may have {PUSH_TARGETS_PER_ADDRESS} push subscriptions")
        if self._of_runtime[target.runtime_key] >= PUSH_TARGETS_PER_RUNTIME:
            raise PeerError(Code.QUOTA, f"a runtime may have {PUSH_TARGETS_PER_RUNTIME} push subscriptions")
        if self._count >= PUSH_TARGETS:
            raise PeerError(Code.OVERLOAD, "this node holds too many push subscriptions")
        self._insert(target)
        self._journal.put(Table.PUSH_TARGETS, _row_key(target.key, target.endpoint), target)

    def remove(self, key: str, endpoint: str = "") -> None:
        """Forget a subscription for an address, or all of them."""
        for target in self.of(key):
            if endpoint in ("", target.endpoint):
                self._take_out(target)
                self._journal.delete(Table.PUSH_TARGETS, _row_key(key, target.endpoint))

    def gone(self, endpoint: str) -> None:
        """A push service says that an endpoint is no more."""
        for key in list(self._by_endpoint.get(endpoint, ())):
            self.remove(key, endpoint)

    def sweep(self, *, now: float) -> None:
        """Remove targets that have expired, at most so many at once."""
        for row_key in self._due.take_due(now, _SWEPT_AT_ONCE):
            key, _, endpoint = row_key.partition(" ")
            self.remove(key, endpoint)

    def restore(self, rows: Rows) -> None:
        """Take over what was stored.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in rows.items():
            self._insert(decode_row(raw, PushTarget, table=Table.PUSH_TARGETS, key=key))

    def follow(self, key: str, raw: bytes | None) -> None:
        """Another node has stored or removed (None) a subscription. Raises HostError: STORAGE."""
        address, _, endpoint = key.partition(" ")
        known = self._by_key.get(address, {}).get(endpoint)
        if known is not None:
            self._take_out(known)
        if raw is not None:
            self.restore({key: raw})

    def follow_all(self, rows: Rows) -> None:
        """Take over what all nodes have stored, in place of what is known here. Raises HostError: STORAGE."""
        for target in list(self):
            self._take_out(target)
        self.restore(rows)

    def _take_out(self, target: PushTarget) -> None:
        key = target.key
        del self._by_key[key][target.endpoint]
        if not self._by_key[key]:
            del self._by_key[key]
        self._by_endpoint[target.endpoint].discard(key)
        if not self._by_endpoint[target.endpoint]:
            del self._by_endpoint[target.endpoint]
        self._count -= 1
        self._of_runtime[target.runtime_key] -= 1
        if not self._of_runtime[target.runtime_key]:
            del self._of_runtime[target.runtime_key]
        self._due.discard(_row_key(key, target.endpoint))

    def _insert(self, target: PushTarget) -> None:
        self._by_key.setdefault(target.key, {})[target.endpoint] = target
        self._by_endpoint.setdefault(target.endpoint, set()).add(target.key)
        self._count += 1
        self._of_runtime[target.runtime_key] += 1
        self._due.set(_row_key(target.key, target.endpoint), target.expires_at)


def _row_key(key: str, endpoint: str) -> str:
    return f"{key} {endpoint}"
