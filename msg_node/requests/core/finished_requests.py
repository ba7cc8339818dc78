"""Requests that had their final answer lately, to answer repetitions alike and to recognise second answers.

A foreign domain may hand over a request again after a lost link: for its requests the final answer is stored until the
request would have expired, and remembered with its value. All is bounded; the oldest go first. A sender that has more
than its share, an eighth of a bound, is forgotten its own oldest, so that nobody makes the node forget what others
asked: a domain, or a runtime of ours. Source: message specification, section 19.

Thousands are remembered and few are asked for, so each is one block of bytes: half of what its objects would take.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import msgspec

from msg_node.kernel.changes import Journal, Table
from msg_node.requests.core.parked import FinishedRequest, TransactionKey, row_key
from protofly.limits import FINISHED_BYTES, FINISHED_REMEMBERED, PARKED_EXPIRED_AT_ONCE, REPEATED_SECONDS
from protofly.message import Message

_SHARES: Final = 8
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(FinishedRequest).decode


@dataclass(slots=True)
class _Share:
    """What is remembered of one sender, a domain or a runtime of ours; the oldest first."""

    name: str
    keys: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict)
    total_bytes: int = 0

    @property
    def is_used_up(self) -> bool:
        return _SHARES * len(self.keys) > FINISHED_REMEMBERED or _SHARES * self.total_bytes > FINISHED_BYTES


class FinishedRequests:
    """Requests that finished, by domain ("" for ours) and request id, and by transaction.

    Attributes:
        stored: The numbers of those that have a row.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._finished: OrderedDict[tuple[str, str], tuple[bytes, _Share]] = OrderedDict()
        self._bytes = 0
        self._shares: dict[str, _Share] = {}
        self.stored: set[int] = set()
        self._stored_as: dict[tuple[str, str], int] = {}
        self._ended_at: OrderedDict[TransactionKey, float] = OrderedDict()

    def __iter__(self) -> Iterator[FinishedRequest]:
        """All that are remembered, the oldest first; nothing changes meanwhile."""
        return (_decode(encoded) for encoded, _ in self._finished.values())

    def find(self, domain: str, request_id: str) -> FinishedRequest | None:
        """The finished request of a domain with that id, if it is still remembered."""
        found = self._finished.get((domain, request_id))
        return None if found is None else _decode(found[0])

    def is_late(self, reply: Message, now: float) -> bool:
        """True for a second reply, within `REPEATED_SECONDS`, to a request that the first one ended."""
        ended_at = None if reply.id is None else self._ended_at.get((reply.to_key, reply.id, reply.from_key))
        return ended_at is not None and now - ended_at < REPEATED_SECONDS

    def add(self, finished: FinishedRequest) -> None:
        """Remember a finished request; the oldest are forgotten when there are too many, or they are too large."""
        encoded, sender = _encode(finished), finished.sender
        key, name = (sender.domain, finished.request_id), sender.domain or sender.runtime_key
        if key in self._finished:
            self._forget(key)
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = _Share(name)
        size = len(encoded)
        self._finished[key] = encoded, share
        self._bytes += size
        share.total_bytes += size
        share.keys[key] = None
        if finished.is_stored:
            self.stored.add(finished.number)
            self._stored_as[key] = finished.number
        while len(self._finished) > FINISHED_REMEMBERED or self._bytes > FINISHED_BYTES:
            self._forget(next(iter(share.keys if share.is_used_up else self._finished)))

    def ended(self, transaction: TransactionKey, now: float) -> None:
        """Remember when a transaction ended, for `is_late`."""
        ended_at = self._ended_at
        ended_at[transaction] = now
        ended_at.move_to_end(transaction)
        while len(ended_at) > FINISHED_REMEMBERED or next(iter(ended_at.values())) + REPEATED_SECONDS < now:
            ended_at.popitem(last=False)

    def forget(self, domain: str, request_id: str) -> None:
        """Forget a request, which has been opened again."""
        if (domain, request_id) in self._finished:
            self._forget((domain, request_id))

    def forget_old(self, now: float) -> int:
        """Forget those of the `PARKED_EXPIRED_AT_ONCE` oldest that would have expired by now. Returns how many."""
        oldest = islice(self._finished.items(), PARKED_EXPIRED_AT_ONCE)
        old = [key for key, (encoded, _) in oldest if _decode(encoded).expires_at <= now]
        for key in old:
            self._forget(key)
        return len(old)

    def _forget(self, key: tuple[str, str]) -> None:
        encoded, share = self._finished.pop(key)
        self._bytes -= len(encoded)
        share.total_bytes -= len(encoded)
        del share.keys[key]
        if not share.keys:
            del self._shares[share.name]
        number = self._stored_as.pop(key, None)
        if number is not None:
            self.stored.discard(number)
            self._journal.delete(Table.PARKED, row_key(number))
