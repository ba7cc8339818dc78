"""The queues that open requests stand in: one per agent of ours, and one per foreign domain (the outbox).

A queue is handed over in order of arrival, at most so many unanswered at a time, to one taker: a session or a link.
Each request of a queue is in exactly one of three places:

    waiting ──take──▶ handed over ──▶ aside
       ▲                 │              │
       └── lost, untaken ┘              │
       └──────────── ask_again ─────────┘

`aside` holds what is not handed over again and does not count as unanswered: what a taker acknowledged before it was
lost, and what another node keeps. Whatever comes back to `waiting` takes its old place, by its number. A queue exists
while it holds a request. Source: message specification, section 19.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, KeysView
from dataclasses import dataclass, field
from itertools import islice

from msg_node.requests.core.delivery_status import Status
from msg_node.requests.core.parked import ParkedRequest, number_of


@dataclass(slots=True)
class _Queue:
    waiting: OrderedDict[int, ParkedRequest] = field(default_factory=OrderedDict)  # taken from its front
    handed: dict[int, ParkedRequest] = field(default_factory=dict)
    aside: dict[int, ParkedRequest] = field(default_factory=dict)
    taker: int = 0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.handed) + len(self.aside)


class RequestQueues:
    """All queues of a node by key: the canonical key of an agent, or the name of a domain."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._by_taker: dict[int, set[str]] = {}

    # Look-ups.

    def names(self) -> KeysView[str]:
        """Keys of all queues, as a live view."""
        return self._queues.keys()

    def count(self, queue: str) -> int:
        """Number of open requests of a queue, in any place."""
        found = self._queues.get(queue)
        return 0 if found is None else len(found)

    def waiting(self, queue: str) -> int:
        """Number of requests of a queue that no taker has."""
        found = self._queues.get(queue)
        return 0 if found is None else len(found.waiting)

    def first(self, queue: str) -> ParkedRequest | None:
        """The request that is handed over next; None when none waits."""
        found = self._queues.get(queue)
        return None if found is None else next(iter(found.waiting.values()), None)

    def entries(self, queue: str) -> list[ParkedRequest]:
        """All open requests of a queue, in order of arrival."""
        found = self._queues.get(queue)
        if found is None:
            return []
        taken = sorted([*found.aside.values(), *found.handed.values()], key=number_of)
        return list(heapq.merge(taken, found.waiting.values(), key=number_of))

    def taker_of(self, queue: str) -> int:
        """Session or link that has what was handed over; 0 for none."""
        found = self._queues.get(queue)
        return 0 if found is None else found.taker

    # Content.

    def add(self, entry: ParkedRequest) -> None:
        """Let a request wait in its place: mostly as the last. What was acknowledged before a restart stands aside."""
        found = self._queues.get(entry.queue)
        if found is None:
            found = self._queues[entry.queue] = _Queue()
        if entry.is_acknowledged:
            found.aside[entry.number] = entry
            return
        is_last = not found.waiting or next(reversed(found.waiting)) < entry.number
        found.waiting[entry.number] = entry
        if not is_last:
            found.waiting = OrderedDict(sorted(found.waiting.items()))

    def remove(self, entry: ParkedRequest) -> None:
        """Take a request out of its queue, wherever it stands there."""
        queue = self._queues[entry.queue]
        for place in (queue.waiting, queue.handed, queue.aside):
            place.pop(entry.number, None)
        if not (queue.waiting or queue.handed or queue.aside):
            self._set_taker(entry.queue, queue, 0)
            del self._queues[entry.queue]

    # Handing over.

    def take(self, queue: str, taker: int, *, unanswered: int) -> list[ParkedRequest]:
        """Hand over what waits, in order, until `unanswered` requests are handed over.

        Args:
            queue: Key of the queue.
            taker: Session or link that takes it, not 0. An earlier taker has been `lost` before.
            unanswered: How many the taker may have at a time.

        Returns:
            What the taker gets now; each has the status `delivered`.
        """
        found = self._queues.get(queue)
        if found is None:
            return []
        taken = list(islice(found.waiting.values(), max(unanswered - len(found.handed), 0)))
        for entry in taken:
            del found.waiting[entry.number]
            found.handed[entry.number] = entry
            entry.status = Status.DELIVERED
        if taken and found.taker != taker:
            self._set_taker(queue, found, taker)
        return taken

    def untaken(self, entries: list[ParkedRequest]) -> None:
        """Return requests of one queue, just taken, to their old places: they could not be handed over."""
        found = self._queues[entries[0].queue]
        for entry in entries:
            del found.handed[entry.number]
            entry.status = Status.PENDING
        _put_back(found, entries)

    def lost(self, taker: int) -> list[str]:
        """Return what a taker has not acknowledged to its old place, and put aside what it has.

        Returns:
            Keys of the queues that it had taken from, sorted.
        """
        queues = sorted(self._by_taker.pop(taker, ()))
        for queue in queues:
            found = self._queues[queue]
            found.taker = 0
            back = {}
            for number, entry in found.handed.items():
                if entry.is_acknowledged:
                    found.aside[number] = entry
                else:
                    entry.status = Status.PENDING
                    back[number] = entry
            found.handed = {}
            if back:
                _put_back(found, back.values())
        return queues

    def release(self, entry: ParkedRequest) -> None:
        """Put aside a request that another node keeps: it does not count as unanswered any more."""
        found = self._queues[entry.queue]
        if found.handed.pop(entry.number, None) is not None:
            found.aside[entry.number] = entry

    def ask_again(self, queue: str, *, only_kept: bool = False) -> None:
        """Let what another node has wait again, not acknowledged: the node knows it and answers how it stands.

        `only_kept`: only what stands aside.
        """
        found = self._queues.get(queue)
        if found is None:
            return
        again = dict(found.aside) if only_kept else {**found.aside, **found.handed}
        for number, entry in again.items():
            entry.is_acknowledged = False
            entry.status = Status.PENDING
            found.handed.pop(number, None)
        found.aside = {}
        _put_back(found, again.values())

    def _set_taker(self, key: str, queue: _Queue, taker: int) -> None:
        if queue.taker:
            theirs = self._by_taker[queue.taker]
            theirs.discard(key)
            if not theirs:
                del self._by_taker[queue.taker]
        queue.taker = taker
        if taker:
            self._by_taker.setdefault(taker, set()).add(key)


def _put_back(queue: _Queue, entries: Iterable[ParkedRequest]) -> None:
    """Let entries wait again in their old places: mostly in front of all that wait."""
    waiting, back = queue.waiting, sorted(entries, key=number_of, reverse=True)
    is_in_front = not (waiting and back) or back[0].number < next(iter(waiting))
    for entry in back:
        waiting[entry.number] = entry
        waiting.move_to_end(entry.number, last=False)
    if not is_in_front:
        queue.waiting = OrderedDict(sorted(waiting.items()))
