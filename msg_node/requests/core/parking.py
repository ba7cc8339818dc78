"""Requests that wait for somebody who is away, or for his answer: the parking book of a node.

Theory of operation. Each request has one entry, from the moment the node takes it until its one final word. Entries
stand in queues: one queue per agent (the canonical key of its address), one per foreign domain (its name; the outbox).
A queue is handed over in order of arrival, at most so many unanswered at a time. What was handed over and not answered
when its taker is lost stands in front of the queue again, in its old place; what the taker has acknowledged (a code
below 200, or another node's word that it keeps the request itself) is not handed over again, and does not count as
unanswered any more.

    submit ──▶ waiting ──take──▶ handed ──finish──▶ gone, one final word
                  ▲                 │ ▲
                  └───── lost ──────┘ └── acknowledged before a loss: kept aside, still open

An entry is stored (and then survives the process) from `store` on; what follows is journalled by itself. Entries of
other domains leave a stored mark behind when they end, until they would have expired: the other node may hand them over
again after a lost link, and is then told the same word. `now` is in seconds since the Unix epoch throughout. Source:
message specification, section 19.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Collection, Iterable, KeysView
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import msgspec

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from msg_node.requests.core.delivery_status import Status, Word
from msg_node.requests.core.parked import (
    Entry,
    Finished,
    ParkedRow,
    Sender,
    TransactionKey,
    finished_of,
    from_row,
    row_key,
    row_of,
    value_of,
)
from protofly.errors import Code, PeerError
from protofly.limits import (
    FINISHED_BYTES,
    FINISHED_REMEMBERED,
    PARKED_BYTES,
    PARKED_EXPIRED_AT_ONCE,
    PARKED_MAX_SECONDS,
    PARKED_PER_AGENT,
    PARKED_PER_SENDER,
    REPEATED_SECONDS,
)
from protofly.message import Message


@dataclass(slots=True)
class _Queue:
    waiting: OrderedDict[int, Entry] = field(default_factory=OrderedDict)  # taken from its front
    handed: dict[int, Entry] = field(default_factory=dict)
    aside: dict[int, Entry] = field(default_factory=dict)
    taker: int = 0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.handed) + len(self.aside)


class Bounds(NamedTuple):
    """How much may be open at a time. `longest_seconds` caps what senders and agents want."""

    per_queue: int = PARKED_PER_AGENT
    per_sender: int = PARKED_PER_SENDER
    bytes: int = PARKED_BYTES
    longest_seconds: float = PARKED_MAX_SECONDS


class Parking:
    """All open requests of a node.

    Attributes:
        transactions: They by what their answers mirror.
    """

    def __init__(self, journal: Journal, bounds: Bounds | None = None) -> None:
        self._journal = journal
        self._bounds = bounds or Bounds()
        self._queues: dict[str, _Queue] = {}
        self._by_id: dict[tuple[str, str], Entry] = {}
        self._foreign: dict[str, str] = {}  # domains of requests by their ids
        self.transactions: dict[TransactionKey, Entry] = {}
        self._ended: OrderedDict[TransactionKey, float] = OrderedDict()
        self._by_sender: dict[Sender, dict[int, Entry]] = {}
        self._by_taker: dict[int, set[str]] = {}
        self._unanswered: OrderedDict[int, Entry] = (
            OrderedDict()
        )  # whose senders wait for a direct answer, the longest waiting first
        self._expiries: list[tuple[float, int, Entry]] = []
        self._finished: OrderedDict[tuple[str, str], Finished] = OrderedDict()
        self._finished_bytes = 0
        self._next_number = 1
        self._bytes = 0

    # Look-ups.

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def size_bytes(self) -> int:
        """What all open requests take."""
        return self._bytes

    def find(self, domain: str, request_id: str) -> Entry | None:
        """The open request with that id; `domain` is the one it came from, "" for ours."""
        return self._by_id.get((domain, request_id))

    def find_foreign(self, request_id: str) -> Entry | None:
        """The open request of another domain with that id, whichever it is; the newest, if several have it."""
        domain = self._foreign.get(request_id)
        return None if domain is None else self._by_id.get((domain, request_id))

    def finished(self, domain: str, request_id: str) -> Finished | None:
        """The final word of a request that ended lately."""
        return self._finished.get((domain, request_id))

    def answered_by(self, reply: Message) -> Entry | None:
        """The open request that a reply would answer."""
        if reply.id is None:
            return None
        return self.transactions.get((reply.to_key, reply.id, reply.from_key))

    def is_late(self, reply: Message, now: float) -> bool:
        """True for a second reply, within half a minute, to a request that the first one ended."""
        ended = None if reply.id is None else self._ended.get((reply.to_key, reply.id, reply.from_key))
        return ended is not None and now - ended < REPEATED_SECONDS

    def queues(self) -> KeysView[str]:
        """Keys of all queues that hold anything; it stays true."""
        return self._queues.keys()

    def in_queue(self, queue: str) -> list[Entry]:
        """Everything open in one queue, in order of arrival."""
        found = self._queues.get(queue)
        if found is None:
            return []
        taken = sorted([*found.aside.values(), *found.handed.values()], key=_number)
        return list(heapq.merge(taken, found.waiting.values(), key=_number))

    def first(self, queue: str) -> Entry | None:
        """What stands in front of a queue; None when nothing waits."""
        found = self._queues.get(queue)
        return None if found is None else next(iter(found.waiting.values()), None)

    def of_senders(self, senders: Iterable[Sender]) -> list[Entry]:
        """Everything open of some senders, in order of arrival."""
        return list(heapq.merge(*(self._by_sender.get(one, {}).values() for one in senders), key=_number))

    def senders(self) -> Collection[Sender]:
        """Everybody who has an open request."""
        return self._by_sender.keys()

    def waits(self, queue: str) -> int:
        """How many requests of a queue nobody has taken."""
        found = self._queues.get(queue)
        return 0 if found is None else len(found.waiting)

    def taker_of(self, queue: str) -> int:
        """To whom what is handed over was handed; 0: to nobody."""
        found = self._queues.get(queue)
        return 0 if found is None else found.taker

    def repeats(self, request: Message, sender: Sender, now: float) -> Entry | None:
        """The open request that this one repeats: same header, same body, within half a minute.

        Source: message specification, section 20.8.
        """
        if request.id is None:
            return None
        entry = self.transactions.get((request.from_key, request.id, request.to_key))
        if entry is None or entry.sender != sender or entry.request.body != request.body:
            return None
        return entry if entry.has_own_id and now - entry.accepted_at <= REPEATED_SECONDS else None

    # The way of a request.

    def submit(
        self,
        request: Message,
        queue: str,
        sender: Sender,
        *,
        request_id: str,
        wants_seconds: float,
        now: float,
        roles: frozenset[str] = frozenset(),
        asker: int = 0,
        is_invitation: bool = False,
    ) -> Entry:
        """Take a request.

        Args:
            request: As its sender wrote it, without flags.
            queue: Whom it is for: an agent's key, or the name of a foreign domain.
            sender: Who handed it in.
            request_id: A fresh one, or for a foreign domain's request the one that its node gave.
            wants_seconds: How long it may take, before the operator's cap.
            now: Seconds since the Unix epoch.
            roles: Of the session of its sender.
            asker: Session or link that it came from.
            is_invitation: It is parked because a policy said so.

        Raises:
            PeerError: QUOTA when the queue, or what its sender has open, is full; OVERLOAD when the node is; EXPIRED
                when it has no time; DUPLICATE for an id that is open.
        """
        bounds = self._bounds
        if wants_seconds <= 0:
            raise PeerError(Code.EXPIRED, "its time was over when it came")
        if (sender.domain, request_id) in self._by_id:
            raise PeerError(Code.DUPLICATE, "this request is open")
        if len(self._queues.get(queue, ())) >= bounds.per_queue:
            raise PeerError(Code.QUOTA, "the queue of the recipient is full")
        if len(self._by_sender.get(sender, ())) >= bounds.per_sender:
            raise PeerError(Code.QUOTA, "too many requests of this sender are open")
        if self._bytes + len(request.raw) > bounds.bytes:
            raise PeerError(Code.OVERLOAD, "too much waits for others")
        fresh_id = msgspec.json.encode(request_id)
        own_id = request.id or fresh_id
        is_taken = (request.from_key, own_id, request.to_key) in self.transactions
        entry = Entry(
            self._next_number,
            request_id,
            queue,
            request,
            sender,
            now,
            now + min(wants_seconds, bounds.longest_seconds),
            fresh_id if is_taken else own_id,
            is_invitation=is_invitation,
            roles=roles,
            asker=asker,
        )
        self._next_number += 1
        self._insert(entry)
        self._queue_of(entry).waiting[entry.number] = entry
        return entry

    def store(self, entry: Entry) -> None:
        """From now on the entry survives the process."""
        entry.is_stored = True
        self._journal.put(Table.PARKED, row_key(entry.number), row_of(entry))

    def take(self, queue: str, taker: int, *, unanswered: int, most: int = 1 << 30) -> list[Entry]:
        """What is to be handed over now, in order.

        Args:
            queue: Whose.
            taker: Session or link that takes it (not 0).
            unanswered: How many it may have at a time.
            most: At most so many at once.
        """
        found = self._queues.get(queue)
        if found is None or not found.waiting:
            return []
        room = min(unanswered - len(found.handed), most)
        taken: list[Entry] = []
        for entry in found.waiting.values():
            if len(taken) >= room:
                break
            taken.append(entry)
        for entry in taken:
            del found.waiting[entry.number]
            found.handed[entry.number] = entry
            entry.status = Status.DELIVERED
        if taken:
            self._set_taker(queue, found, taker)
        return taken

    def lost(self, taker: int) -> list[str]:
        """A taker is gone: what it had not acknowledged waits again, in its old place. Return the queues concerned."""
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

    def untaken(self, entries: list[Entry]) -> None:
        """Entries of one queue could not be handed over after all: they wait again, in their old places."""
        found = self._queues[entries[0].queue]
        for entry in entries:
            del found.handed[entry.number]
            entry.status = Status.PENDING
        _put_back(found, entries)

    def ask_again(self, queue: str, *, only_kept: bool = False) -> None:
        """What another node has is handed over once more: it knows the request, and says how it stands.

        `only_kept`: only what it has said that it keeps.
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

    def acknowledged(self, entry: Entry, status: Status) -> bool:
        """The taker says that the request is with it, or with its node; returns whether that is news."""
        is_news = not entry.is_acknowledged or entry.status is not status
        entry.is_acknowledged = True
        entry.status = status
        if is_news and entry.is_stored:
            self.store(entry)
        return is_news

    def release(self, entry: Entry) -> None:
        """Another node keeps the request: it does not count as unanswered any more."""
        found = self._queues[entry.queue]
        if found.handed.pop(entry.number, None) is not None:
            found.aside[entry.number] = entry

    def cancelling(self, entry: Entry) -> None:
        """Its sender wants it no more; whoever has it decides."""
        entry.is_cancelling = True
        if entry.is_stored:
            self.store(entry)

    def finish(self, entry: Entry, word: Word, now: float) -> Finished:
        """The final word about a request; it is open no more."""
        assert word.status.is_final
        self._remove(entry)
        self._ended[entry.transaction] = now
        self._ended.move_to_end(entry.transaction)
        while len(self._ended) > FINISHED_REMEMBERED or next(iter(self._ended.values())) + REPEATED_SECONDS < now:
            self._ended.popitem(last=False)
        is_foreign = bool(entry.sender.domain)
        key = row_key(entry.number)
        finished = finished_of(entry, word if is_foreign else word._replace(value=b""), is_stored=is_foreign)
        if is_foreign:
            self._journal.put(Table.PARKED, key, row_of(entry, word))
        elif entry.is_stored:
            self._journal.delete(Table.PARKED, key)
        self._remember(finished)
        return finished

    # Waiting senders.

    def owe_reply(self, entry: Entry, until: float) -> None:
        """Its sender waits for a direct answer; called again, it waits anew."""
        entry.reply_until = until
        self._unanswered.pop(entry.number, None)
        self._unanswered[entry.number] = entry

    def replied(self, entry: Entry) -> None:
        """Its sender has had a direct answer."""
        entry.reply_until = None
        self._unanswered.pop(entry.number, None)

    def overdue_replies(self, now: float, *, most: int = PARKED_EXPIRED_AT_ONCE) -> list[Entry]:
        """Some of the entries whose senders have waited for a direct answer long enough."""
        due = []
        for entry in islice(self._unanswered.values(), most):
            if entry.reply_until is None or entry.reply_until > now:
                break
            due.append(entry)
        return due

    def expired(self, now: float, *, most: int = PARKED_EXPIRED_AT_ONCE) -> list[Entry]:
        """Some of the entries whose time is over; the caller finishes them."""
        over: list[Entry] = []
        while self._expiries and len(over) < most and self._expiries[0][0] <= now:
            _, _, entry = heapq.heappop(self._expiries)
            if self._by_id.get((entry.sender.domain, entry.request_id)) is entry:
                over.append(entry)
        return over

    def forget_old(self, now: float, *, most: int = PARKED_EXPIRED_AT_ONCE) -> int:
        """Forget final words that nobody will ask for again, at most so many; returns how many were."""
        old = [key for key, one in islice(self._finished.items(), most) if one.expires_at <= now]
        for key in old:
            self._forget_finished(key)
        return len(old)

    def look_again(self, entry: Entry, at: float) -> None:
        """Its time is over, but somebody may still say how it ended: `expired` has it again at that time."""
        heapq.heappush(self._expiries, (at, entry.number, entry))

    # Restart.

    def restore(self, rows: Rows, *, now: float) -> None:
        """Take over what was stored: everything waits again but what was acknowledged.

        Raises:
            HostError: STORAGE.
        """
        decoded = [decode_row(raw, ParkedRow, table=Table.PARKED, key=key) for key, raw in rows.items()]
        for row in sorted(decoded, key=lambda one: one.number):
            self._next_number = max(self._next_number, row.number + 1)
            expires_at = min(row.expires_at, now + self._bounds.longest_seconds)  # the clock may have been set back
            entry = from_row(row, expires_at)
            if row.status.is_final:
                word = Word(row.status, row.code, row.reason, value_of(row), row.description)
                self._remember(finished_of(entry, word, is_stored=True))
                continue
            self._insert(entry)
            queue = self._queue_of(entry)
            (queue.aside if entry.is_acknowledged else queue.waiting)[entry.number] = entry

    # Inner steps.

    def _queue_of(self, entry: Entry) -> _Queue:
        found = self._queues.get(entry.queue)
        if found is None:
            found = self._queues[entry.queue] = _Queue()
        return found

    def _insert(self, entry: Entry) -> None:
        self._by_id[entry.sender.domain, entry.request_id] = entry
        if entry.sender.domain:
            self._foreign[entry.request_id] = entry.sender.domain
        self.transactions[entry.transaction] = entry
        self._by_sender.setdefault(entry.sender, {})[entry.number] = entry
        self._bytes += entry.size_bytes
        heapq.heappush(self._expiries, (entry.expires_at, entry.number, entry))
        if len(self._expiries) > 2 * len(self._by_id) + 1000:
            self._expiries = [(one.expires_at, one.number, one) for one in self._by_id.values()]
            heapq.heapify(self._expiries)

    def _remove(self, entry: Entry) -> None:
        del self._by_id[entry.sender.domain, entry.request_id]
        if self._foreign.get(entry.request_id) == entry.sender.domain:
            del self._foreign[entry.request_id]
        del self.transactions[entry.transaction]
        self._unanswered.pop(entry.number, None)
        self._bytes -= entry.size_bytes
        theirs = self._by_sender[entry.sender]
        del theirs[entry.number]
        if not theirs:
            del self._by_sender[entry.sender]
        queue = self._queues[entry.queue]
        for table in (queue.waiting, queue.handed, queue.aside):
            table.pop(entry.number, None)
        if not queue:
            self._set_taker(entry.queue, queue, 0)
            del self._queues[entry.queue]

    def _set_taker(self, key: str, queue: _Queue, taker: int) -> None:
        if queue.taker == taker:
            return
        if queue.taker:
            theirs = self._by_taker[queue.taker]
            theirs.discard(key)
            if not theirs:
                del self._by_taker[queue.taker]
        queue.taker = taker
        if taker:
            self._by_taker.setdefault(taker, set()).add(key)

    def _remember(self, finished: Finished) -> None:
        self._finished[finished.sender.domain, finished.request_id] = finished
        self._finished_bytes += len(finished.word.value)
        while len(self._finished) > FINISHED_REMEMBERED or self._finished_bytes > FINISHED_BYTES:
            self._forget_finished(next(iter(self._finished)))

    def _forget_finished(self, key: tuple[str, str]) -> None:
        finished = self._finished.pop(key)
        self._finished_bytes -= len(finished.word.value)
        if finished.is_stored:
            self._journal.delete(Table.PARKED, row_key(finished.number))


def _put_back(queue: _Queue, entries: Iterable[Entry]) -> None:
    """Let entries wait again, in their old places: mostly in front of all that wait."""
    waiting, back = queue.waiting, sorted(entries, key=_number, reverse=True)
    is_in_front = not (waiting and back) or back[0].number < next(iter(waiting))
    for entry in back:
        waiting[entry.number] = entry
        waiting.move_to_end(entry.number, last=False)
    if not is_in_front:
        queue.waiting = OrderedDict(sorted(waiting.items()))


def _number(entry: Entry) -> int:
    return entry.number
