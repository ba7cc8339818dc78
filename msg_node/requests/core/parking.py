"""All open requests of a node, from the moment it takes one until its one final answer.

    submit ──▶ waiting ──take──▶ handed over ──finish──▶ gone, one final answer
                  ▲                 │ ▲
                  └───── lost ──────┘ └── acknowledged before a loss: kept aside, still open

`Parking` knows each open request by id, by transaction and by sender, bounds them, and ends them. Three parts have a
state of their own: `queues` (what is handed over next, and what was), `owed` (whose senders still wait for a direct
reply) and `finished` (what is remembered after the end). A request is in `queues` exactly as long as it is open, and in
`owed` at most so long: only `submit`, `restore` and `finish` open and end one.

A request is stored, and then survives the process, from `store` on; what follows is journalled by itself. Requests of
other domains leave a stored mark behind when they end, until they would have expired: the other node may hand them over
again after a lost link, and gets the same answer. `now` is in seconds since the Unix epoch throughout. Source: message
specification, section 19.

Requests are numbered in order of arrival, by the microsecond or the next number that is free. So those that come from
another node of ours take the place that they would have if they had come here (`MovedWork`).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from itertools import count
from typing import NamedTuple

import msgspec

from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from msg_node.requests.core.delivery_status import Status, StatusReport
from msg_node.requests.core.finished_requests import FinishedRequests
from msg_node.requests.core.owed_replies import OwedReplies
from msg_node.requests.core.parked import (
    FinishedRequest,
    ParkedRequest,
    ParkedRow,
    Sender,
    Submission,
    TransactionKey,
    finished_of,
    from_row,
    number_of,
    row_key,
    row_of,
    value_of,
)
from msg_node.requests.core.request_queues import RequestQueues
from protofly.errors import Code, PeerError
from protofly.limits import (
    PARKED_BYTES,
    PARKED_EXPIRED_AT_ONCE,
    PARKED_MAX_SECONDS,
    PARKED_PER_AGENT,
    PARKED_PER_SENDER,
    PARKED_SENDER_PART,
    REPEATED_SECONDS,
)
from protofly.message import Message

NUMBERS_PER_SECOND = 1_000_000
_Expiry = tuple[float, int, int, ParkedRequest]
"""When a request expires, its number, what is never the same twice, and the request."""


class Bounds(NamedTuple):
    """Limits of open requests. `longest_seconds` caps the lifetimes that senders and agents ask for."""

    per_queue: int = PARKED_PER_AGENT
    per_sender: int = PARKED_PER_SENDER
    bytes: int = PARKED_BYTES
    longest_seconds: float = PARKED_MAX_SECONDS
    bytes_per_sender: int = PARKED_BYTES // PARKED_SENDER_PART


class Parking:
    """All open requests of a node.

    Attributes:
        queues: The open requests by recipient.
        owed: The open requests whose senders wait for a direct reply.
        finished: What is remembered of requests that ended.
        transactions: The open requests by what their answers mirror.
        bounds: Their limits.
        next_number: That of the next request, at least.
        numbers: Those of the open requests.
    """

    def __init__(self, journal: Journal, bounds: Bounds | None = None) -> None:
        self._journal = journal
        self.bounds = bounds or Bounds()
        self.queues = RequestQueues()
        self.owed = OwedReplies()
        self.finished = FinishedRequests(journal)
        self.transactions: dict[TransactionKey, ParkedRequest] = {}
        self._by_id: dict[tuple[str, str], ParkedRequest] = {}
        self._foreign: dict[str, dict[str, None]] = {}  # domains of open requests by their ids, the newest last
        self._by_sender: dict[Sender, dict[int, ParkedRequest]] = {}
        self._expiries: list[_Expiry] = []
        self._order = count()  # a request that was given away and comes back has the time and number of before
        self.next_number = 1
        self.numbers: set[int] = set()
        self._bytes = 0
        self._bytes_by_sender: dict[Sender, int] = {}

    # Look-ups.

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def size_bytes(self) -> int:
        """Bytes of all open requests together."""
        return self._bytes

    def find(self, domain: str, request_id: str) -> ParkedRequest | None:
        """The open request with that id; `domain` is the one it came from, "" for ours."""
        return self._by_id.get((domain, request_id))

    def find_foreign(self, request_id: str) -> list[ParkedRequest]:
        """The open requests of other domains with that id, the newest first: each domain chooses its own ids."""
        return [self._by_id[domain, request_id] for domain in reversed(self._foreign.get(request_id, {}))]

    def is_open(self, entry: ParkedRequest) -> bool:
        """False once the request is finished."""
        return self._by_id.get((entry.sender.domain, entry.request_id)) is entry

    def answered_by(self, reply: Message) -> ParkedRequest | None:
        """The open request that a reply would answer."""
        if reply.id is None:
            return None
        return self.transactions.get((reply.to_key, reply.id, reply.from_key))

    def of_senders(self, senders: Iterable[Sender]) -> list[ParkedRequest]:
        """All open requests of some senders, in order of arrival."""
        return sorted((entry for one in senders for entry in self._by_sender.get(one, {}).values()), key=number_of)

    def senders(self) -> Collection[Sender]:
        """All senders of open requests, as a live view."""
        return self._by_sender.keys()

    def repeats(self, request: Message, sender: Sender, now: float, steady: float) -> ParkedRequest | None:
        """The open request that this one repeats: same header, same body, within `REPEATED_SECONDS`.

        Those are seconds of the clock that nobody sets (`steady`), as far as this process has taken that request.
        Source: message specification, section 20.8.
        """
        if request.id is None:
            return None
        entry = self.transactions.get((request.from_key, request.id, request.to_key))
        if entry is None or entry.sender != sender or entry.request.body != request.body:
            return None
        age = now - entry.accepted_at if entry.taken_at is None else steady - entry.taken_at
        return entry if entry.has_own_id and age <= REPEATED_SECONDS else None

    # From submission to the final answer.

    def submit(self, submission: Submission, now: float) -> ParkedRequest:
        """Open a request; it waits at the end of its queue and is not stored yet.

        Raises:
            PeerError: QUOTA when the queue, or what its sender has open, is full; OVERLOAD when the node is; EXPIRED
                when it has no time; DUPLICATE for an id that is open.
        """
        bounds, request, sender = self.bounds, submission.request, submission.sender
        if submission.lifetime_seconds <= 0:
            raise PeerError(Code.EXPIRED, "its time was over when it came")
        if (sender.domain, submission.request_id) in self._by_id:
            raise PeerError(Code.DUPLICATE, "this request is open")
        if self.queues.count(submission.queue) >= bounds.per_queue:
            raise PeerError(Code.QUOTA, "the queue of the recipient is full")
        if len(self._by_sender.get(sender, ())) >= bounds.per_sender:
            raise PeerError(Code.QUOTA, "too many requests of this sender are open")
        if self._bytes_by_sender.get(sender, 0) + len(request.raw) > bounds.bytes_per_sender:
            raise PeerError(Code.QUOTA, "open requests of this sender are too large")
        if self._bytes + len(request.raw) > bounds.bytes:
            raise PeerError(Code.OVERLOAD, "too much waits for others")
        fresh_id = msgspec.json.encode(submission.request_id)
        transaction = (request.from_key, request.id or fresh_id, request.to_key)
        if transaction in self.transactions:
            transaction = (transaction[0], fresh_id, transaction[2])
        self.next_number = max(self.next_number, int(now * NUMBERS_PER_SECOND))  # the clock may have been set back
        entry = ParkedRequest(
            self.next_number,
            submission.request_id,
            submission.queue,
            request,
            sender,
            now,
            now + min(submission.lifetime_seconds, bounds.longest_seconds),
            transaction,
            is_invitation=submission.is_invitation,
            roles=submission.roles,
            asker=submission.asker,
        )
        self.next_number += 1
        self._insert(entry)
        return entry

    def store(self, entry: ParkedRequest) -> None:
        """Journal a request: from the commit on it survives the process."""
        entry.is_stored = True
        self._journal.put(Table.PARKED, row_key(entry.number), row_of(entry))

    def acknowledged(self, entry: ParkedRequest, status: Status) -> bool:
        """The taker, or its node, has the request and says how it stands. Returns True when that is news."""
        is_news = not entry.is_acknowledged or entry.status is not status
        entry.is_acknowledged = True
        entry.status = status
        if is_news and entry.is_stored:
            self.store(entry)
        return is_news

    def cancelling(self, entry: ParkedRequest) -> None:
        """Its sender has cancelled the request; its recipient decides."""
        entry.is_cancelling = True
        if entry.is_stored:
            self.store(entry)

    def finish(self, entry: ParkedRequest, word: StatusReport, now: float) -> FinishedRequest:
        """End an open request with its final answer; or, if that is not final, since another node of ours has it."""
        self._remove(entry)
        self.finished.ended(entry.transaction, now)
        is_foreign = bool(entry.sender.domain)
        key = row_key(entry.number)
        kept = word if is_foreign or not word.value else word._replace(value=b"")
        finished = finished_of(entry, kept, is_stored=is_foreign)
        if is_foreign:
            self._journal.put(Table.PARKED, key, row_of(entry, word))
        elif entry.is_stored:
            self._journal.delete(Table.PARKED, key)
        self.finished.add(finished)
        return finished

    def expired(self, now: float, *, most: int = PARKED_EXPIRED_AT_ONCE) -> list[ParkedRequest]:
        """At most `most` open requests that have expired. Each is returned once: finish it, or `look_again`."""
        over: list[ParkedRequest] = []
        while self._expiries and len(over) < most and self._expiries[0][0] <= now:
            entry = heapq.heappop(self._expiries)[-1]
            if self.is_open(entry):
                over.append(entry)
        return over

    def look_again(self, entry: ParkedRequest, at: float) -> None:
        """Have `expired` return an expired request once more at that time."""
        heapq.heappush(self._expiries, (at, entry.number, next(self._order), entry))

    # Restart.

    def restore(self, rows: Rows, *, now: float) -> None:
        """Take over what was stored: everything waits again but what was acknowledged.

        Raises:
            HostError: STORAGE.
        """
        decoded = [decode_row(raw, ParkedRow, table=Table.PARKED, key=key) for key, raw in rows.items()]
        for row in sorted(decoded, key=lambda one: one.number):
            self.next_number = max(self.next_number, row.number + 1)
            expires_at = min(row.expires_at, now + self.bounds.longest_seconds)  # the clock may have been set back
            entry = from_row(row, expires_at)
            if row.status.is_final or row.is_given:
                word = StatusReport(row.status, row.code, row.reason, value_of(row), row.description)
                self.finished.add(finished_of(entry, word, is_stored=True))
            else:
                self._insert(entry)

    def _insert(self, entry: ParkedRequest) -> None:
        self._by_id[entry.sender.domain, entry.request_id] = entry
        self.numbers.add(entry.number)
        if entry.sender.domain:
            self._foreign.setdefault(entry.request_id, {})[entry.sender.domain] = None
        self.transactions[entry.transaction] = entry
        self._by_sender.setdefault(entry.sender, {})[entry.number] = entry
        self._bytes += entry.size_bytes
        self._bytes_by_sender[entry.sender] = self._bytes_by_sender.get(entry.sender, 0) + entry.size_bytes
        self.queues.add(entry)
        self.look_again(entry, entry.expires_at)
        if len(self._expiries) > 2 * len(self._by_id) + 1000:
            self._expiries = [(one.expires_at, one.number, next(self._order), one) for one in self._by_id.values()]
            heapq.heapify(self._expiries)

    def _remove(self, entry: ParkedRequest) -> None:
        del self._by_id[entry.sender.domain, entry.request_id]
        if entry.sender.domain:
            domains = self._foreign[entry.request_id]
            del domains[entry.sender.domain]
            if not domains:
                del self._foreign[entry.request_id]
        del self.transactions[entry.transaction]
        self.numbers.discard(entry.number)
        self.owed.discard(entry)
        self._bytes -= entry.size_bytes
        theirs = self._by_sender[entry.sender]
        del theirs[entry.number]
        self._bytes_by_sender[entry.sender] -= entry.size_bytes
        if not theirs:
            del self._by_sender[entry.sender], self._bytes_by_sender[entry.sender]
        self.queues.remove(entry)
