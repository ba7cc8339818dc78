"""Reservations at a QoS broker, as leases that this node holds: the broker itself knows none.

A lease ends with its time, with `delete`, with its object, or with the session that has it. Source: message
specification, section 14.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from enum import Enum
from typing import NamedTuple, TypeVar

import msgspec

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from msg_node.kernel.deadlines import Deadlines
from protofly.errors import Code, PeerError
from protofly.limits import QOS_LEASES, QOS_LEASES_PER_SESSION

SWEPT_AT_ONCE = 1000

_Place = TypeVar("_Place")


class QosKind(Enum):
    """Kinds of quotas; the value is the name on the wire."""

    AUDIO = "audio"
    VIDEO = "video"
    DATA = "data"


class Amounts(NamedTuple):
    """An amount of each kind."""

    audio: int = 0
    video: int = 0
    data: int = 0

    def of(self, kind: QosKind) -> int:
        """The amount of one kind."""
        return int(getattr(self, kind.value))

    def plus(self, other: Amounts) -> Amounts:
        """Both together."""
        return Amounts(self.audio + other.audio, self.video + other.video, self.data + other.data)


class Lease(msgspec.Struct, frozen=True):
    """One reservation. `object_key` is "" when it is for none; `expires_at` in seconds since the Unix epoch."""

    name: str
    sid: int
    provider: str
    amounts: Amounts
    server: str
    client_id: str
    object_key: str
    expires_at: float


class Leases:
    """All reservations of this node."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._leases: dict[str, Lease] = {}
        self._by_sid: dict[int, dict[str, None]] = {}
        self._by_provider: dict[str, dict[str, None]] = {}
        self._due = Deadlines()
        self._looked_after: deque[str] = deque()  # those with an object, in turns
        self._ended: list[str] = []

    def __len__(self) -> int:
        return len(self._leases)

    def get(self, name: str) -> Lease | None:
        """A lease by its name."""
        return self._leases.get(name)

    def reserved(self, provider: str) -> Amounts:
        """Return the amounts that are reserved at a provider."""
        total = Amounts()
        for name in self._by_provider.get(provider, ()):
            total = total.plus(self._leases[name].amounts)
        return total

    def knows_client(self, sid: int, client_id: str) -> bool:
        """True if a session has a lease for this client."""
        return any(self._leases[name].client_id == client_id for name in self._by_sid.get(sid, ()))

    def check_room(self, sid: int) -> None:
        """Refuse when there would be too many.

        Raises:
            PeerError: QUOTA, OVERLOAD.
        """
        if len(self._by_sid.get(sid, ())) >= QOS_LEASES_PER_SESSION:
            raise PeerError(Code.QUOTA, f"a session may have {QOS_LEASES_PER_SESSION} reservations")
        if len(self._leases) >= QOS_LEASES:
            raise PeerError(Code.OVERLOAD, "this node holds too many reservations")

    def add(self, lease: Lease) -> None:
        """Hold a lease."""
        self._insert(lease)
        self._journal.put(Table.QOS_LEASES, lease.name, lease)

    def end(self, name: str) -> Lease | None:
        """End a lease, if there is one of this name."""
        lease = self._leases.pop(name, None)
        if lease is None:
            return None
        self._due.discard(name)
        _discard(self._by_sid, lease.sid, name)
        _discard(self._by_provider, lease.provider, name)
        self._journal.delete(Table.QOS_LEASES, name)
        self._ended.append(lease.provider)
        return lease

    def end_session(self, sid: int) -> None:
        """A session is over, and with it what it has reserved."""
        for name in list(self._by_sid.get(sid, ())):
            self.end(name)

    def of_session(self, sid: int) -> list[Lease]:
        """The reservations of a session."""
        return [self._leases[name] for name in self._by_sid.get(sid, ())]

    def let_go(self, sid: int) -> None:
        """A session goes on at another node with what it has reserved: nothing is given back by that."""
        ended = list(self._ended)
        self.end_session(sid)
        self._ended = ended

    def move_in(self, leases: Iterable[Lease], sid: int) -> list[Lease]:
        """Hold what a session of another node has reserved, which is this one here; the caller stores the rows."""
        held = [msgspec.structs.replace(lease, sid=sid) for lease in leases if lease.name not in self._leases]
        for lease in held:
            self._insert(lease)
        return held

    def sweep(self, *, now: float) -> None:
        """End leases that have expired, at most so many at once."""
        for name in self._due.take_due(now, SWEPT_AT_ONCE):
            self.end(name)

    def objects_to_look_after(self) -> Iterable[Lease]:
        """Some of the leases that are for an object, others at every call: to be ended when the object is no more."""
        for _ in range(min(SWEPT_AT_ONCE, len(self._looked_after))):
            name = self._looked_after.popleft()
            lease = self._leases.get(name)
            if lease is not None:
                self._looked_after.append(name)
                yield lease

    def take_ended(self) -> list[str]:
        """Providers at which a lease has ended since the last call, each once."""
        ended, self._ended = self._ended, []
        return list(dict.fromkeys(ended))

    def restore(self, rows: Rows, *, sids: Collection[int]) -> None:
        """Take over what was stored; leases of sessions that are no more are ended.

        Raises:
            HostError: STORAGE.
        """
        for key, raw in rows.items():
            lease = decode_row(raw, Lease, table=Table.QOS_LEASES, key=key)
            self._insert(lease)
            if lease.sid not in sids:
                self.end(lease.name)

    def _insert(self, lease: Lease) -> None:
        self._leases[lease.name] = lease
        self._by_sid.setdefault(lease.sid, {})[lease.name] = None
        self._by_provider.setdefault(lease.provider, {})[lease.name] = None
        self._due.set(lease.name, lease.expires_at)
        if lease.object_key:
            self._looked_after.append(lease.name)


def _discard(table: dict[_Place, dict[str, None]], place: _Place, name: str) -> None:
    names = table[place]
    del names[name]
    if not names:
        del table[place]
