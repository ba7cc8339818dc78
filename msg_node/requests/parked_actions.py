"""Requests on their way to whoever may be away: taken, handed over or parked, answered once.

What is decided is in the books (`core/parking`, `core/inbox`); here it is carried out: who is connected, what is queued
for whom, what is committed before a word leaves. A request to an agent that is connected is handed over at once and
stored only when its answer takes longer than a sender waits; any other is stored before its sender is told 202. What is
for another domain stands in the outbox (a queue named like the domain) until that domain's node has said that it keeps
it. Source: message specification, section 19.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from secrets import randbits

from msg_node.bus.seeds import Seeds
from msg_node.bus.send_queues import Outlets
from msg_node.kernel.identifiers import identifier
from msg_node.kernel.service import ServiceResult
from msg_node.requests.core.delivery_messages import (
    given_id,
    handed_over,
    status_reply,
    told_again,
    waiting_word,
    wants_seconds,
)
from msg_node.requests.core.delivery_status import CANCELLED, EXPIRED, Status, Word, word_of
from msg_node.requests.core.guaranteed_events import GuaranteedEvents
from msg_node.requests.core.parked import ParkedRequest, Sender, Submission
from msg_node.requests.core.recent_results import LastWords
from msg_node.requests.core.recipients import has_to_be_found, recipient_of
from msg_node.requests.core.tables import RequestTables
from msg_node.requests.outbox import Outbox, is_domain
from msg_node.requests.senders import Apply, Senders, to_nobody
from protofly.address import canonical_key, domain_of
from protofly.errors import Code, PeerError
from protofly.limits import GUARANTEED_MAX_SECONDS, GUARANTEED_SECONDS, PARKED_MAX_SECONDS, REQUEST_TTL_SECONDS
from protofly.message import Message

Parks = Callable[[Message, frozenset[str], str], bool]
"""Whether a policy wants a request parked whose recipient is away: of a session with these roles, or of a domain."""


def park_nothing(_message: Message, _roles: frozenset[str], _domain: str) -> bool:
    """No policy wants anything parked."""
    return False


_ID_BITS = 31
_DENIED = frozenset({Code.POLICY, Code.DOMAIN_BLOCKED})
_ABSENT = (Code.NO_ROUTE, Code.NOT_CONNECTED)


class Deliveries:
    """The way of every request that may wait.

    Args:
        node: Address of this node.
        apply: See `Apply`.
        serves: Whether a canonical key is a service of ours.
        parks: See `Parks`.

    Attributes:
        is_used: Whether anything ever waited here in this run: before that, no answer concerns us.
    """

    def __init__(
        self,
        state: RequestTables,
        outlets: Outlets,
        counters: Counter[str],
        *,
        node: str,
        apply: Apply,
        serves: Callable[[str], bool],
        parks: Parks,
    ) -> None:
        self._serves, self._parks = serves, parks
        self._state = state
        self._books = state.delivery
        self._parking = state.delivery.parking
        self._outlets = outlets
        self._counters = counters
        self._url = f"domain://msg-node.{domain_of(node)}/delivery"
        self._apply = apply
        self._seeds = Seeds()
        self._ids = count(randbits(_ID_BITS))  # message specification, section 3, rule 7
        self._senders = Senders(state, outlets, counters, url=self._url, apply=apply, ids=self._ids)
        self._guaranteed, self._last_words = GuaranteedEvents(), LastWords()
        self._handed_on: dict[int, int] = {}  # by session: the connection that has what was handed over
        self._stalled: set[str] = set()  # queues whose takers could not take all that they may have
        self.is_used = False
        self.on_parked: Callable[[str], None] = lambda _queue: None
        self.outbox = Outbox(state, outlets, url=self._url, ids=self._ids, heard=self.heard)

    def restore(self) -> None:
        """After a restart: what was stored is open again."""
        self.is_used = len(self._parking) > 0
        self.outbox.restore()

    # Requests in.

    def take(self, message: Message, asker: int, now: float, *, roles: frozenset[str], queue: str = "") -> None:
        """Take an action of a session of ours, for an agent of ours or of another domain.

        `queue` says which where the address of the message does not.

        Raises:
            PeerError: Why it is refused.
        """
        sender = self._sender(asker)
        entry = self._parking.repeats(message, sender, now)
        if entry is not None:
            self._tell_where_it_stands(entry)
            return
        said = self._last_words.about(message, sender, now)
        if said is not None:
            self._counters["repeated requests"] += 1
            self._senders.send_to(asker, told_again(message, *said))
            return
        queue = queue or self.outbox.domain_of(message) or recipient_of(self._state, message, asker)
        self._submit(self._submission(message, queue, sender, asker, roles=roles), now)

    def takes_from_link(self, message: Message, domain: str, number: int, now: float) -> bool:
        """Take what a link brought, if it is an action for an agent of ours, or word of a request.

        Raises:
            PeerError: Why it is refused.
        """
        if message.type == "response":
            return self.answered(message, number)
        if message.type == "update":
            return message.to.endswith("/inbox") and self.outbox.told(domain, message)
        if not message.is_action or self.outbox.domain_of(message) or self._serves(message.to_key):
            return False
        if has_to_be_found(self._state, message, number):
            return False
        self._take_action_of(domain, message, number, now)
        return True

    def take_found(self, message: Message, number: int, roles: frozenset[str], queue: str) -> None:
        """Take an action of a session or link for a user, now that it is known where he is. Raises PeerError."""
        if number > 0:
            self.take(message, number, time.time(), roles=roles, queue=queue)
        else:
            self._take_action_of(self._state.links.domain(number), message, number, time.time(), queue)

    def _take_action_of(self, domain: str, message: Message, number: int, now: float, queue: str = "") -> None:
        """What another domain hands over again is told how it stands."""
        request_id = given_id(message)
        if request_id:
            entry = self._parking.find(domain, request_id)
            if entry is not None:
                self._counters["repeated requests"] += 1
                if entry not in self._parking.owed:
                    self._outlets.send_abroad(domain, status_reply(entry, waiting_word(entry)))
                return
            finished = self._parking.finished.find(domain, request_id)
            if finished is not None:
                self._counters["repeated requests"] += 1
                self._outlets.send_abroad(domain, told_again(message, request_id, finished.word))
                return
        queue = queue or recipient_of(self._state, message, number)
        submission = self._submission(message, queue, Sender("", domain=domain), number)
        self._submit(submission._replace(request_id=request_id) if request_id else submission, now)

    def parks(self, code: Code, message: Message, asker: int, roles: frozenset[str]) -> bool:
        """Park a request that would be refused with `code` because its recipient is away, if a policy says so.

        Source: message specification, section 19.3.
        """
        if code not in _ABSENT or not message.expects_reply or self.outbox.domain_of(message):
            return False
        if not self._parks(message, roles, self._state.senders.other_domain_of(asker)):
            return False
        try:
            self._park_invitation(message, asker, time.time(), roles)
        except PeerError:
            return False
        return True

    def _park_invitation(self, message: Message, asker: int, now: float, roles: frozenset[str]) -> None:
        self.is_used = True
        sender, queue = self._sender(asker), recipient_of(self._state, message, asker)
        entry = self._parking.repeats(message, sender, now)
        if entry is None:
            submission = self._submission(message, queue, sender, asker, roles=roles)
            entry = self._parking.submit(submission._replace(is_invitation=True), now)
        self._park([entry])

    def _fresh_id(self) -> str:
        return "d-" + identifier(self._seeds.next(), 0)

    def guarantee(self, message: Message, numbers: tuple[int, ...], now: float) -> None:
        """Hand an event to its subscribers again, until each has acknowledged it or is gone, or its time is over."""
        ttl_seconds = wants_seconds(message)
        seconds = GUARANTEED_SECONDS if ttl_seconds is None else min(ttl_seconds, GUARANTEED_MAX_SECONDS)
        if self._guaranteed.begin(message, [number for number in numbers if number > 0], now, seconds):
            self.is_used = True
        else:
            self._counters["unguaranteed events"] += 1

    def _submission(
        self, message: Message, queue: str, sender: Sender, asker: int, *, roles: frozenset[str] = frozenset()
    ) -> Submission:
        """A request under a fresh id."""
        return Submission(message, queue, sender, self._fresh_id(), self._lifetime(message, queue), roles, asker)

    def _submit(self, submission: Submission, now: float) -> None:
        self.is_used = True
        queue, entry = submission.queue, self._parking.submit(submission, now)
        self._parking.owed.add(entry, now + REQUEST_TTL_SECONDS)
        if is_domain(queue):
            refusal = self.outbox.begin(entry, now)
            if refusal is not None:
                self._withdraw(entry)
                raise PeerError(refusal.code)
        elif self._holder(queue):
            self.hand_over(queue, now)
        if entry.status is Status.PENDING:
            self._park([entry])

    def _lifetime(self, message: Message, queue: str) -> float:
        """Seconds: what the sender wants, at most what the agent said."""
        wanted = wants_seconds(message)
        longest = PARKED_MAX_SECONDS if is_domain(queue) else self._books.queues.rules(queue).expires_seconds
        if is_domain(queue) and wanted is None:
            return self._books.queues.rules(queue).expires_seconds
        return longest if wanted is None else min(wanted, longest)

    def _sender(self, asker: int) -> Sender:
        if asker < 0:
            return Sender("", domain=self._state.links.domain(asker))
        session = self._state.sessions.get(asker)
        return Sender("") if session is None else Sender(session.runtime_key, session.proof.credential)

    # Handing over.

    def hand_over(self, queue: str, now: float) -> None:
        """Give the agent of a queue, or the other domain, what it may have now."""
        if is_domain(queue):
            self.outbox.hand_over(queue, now)
            return
        sid = self._holder(queue)
        if not sid:
            return
        taker = self._parking.queues.taker_of(queue)
        if taker not in (0, sid):  # the address has another owner now
            self.lost(taker)
        self._handed_on[sid] = self._outlets.ports[sid].connection
        entries = self._parking.queues.take(queue, sid, unanswered=self._books.queues.rules(queue).unanswered)
        for index, entry in enumerate(entries):
            code = self._outlets.to_listeners((sid,), handed_over(entry, now), set(), entry.roles)
            if code in _DENIED:  # our gate keeps it from a guest, now as later
                self.finish(entry, Word.of_code(Status.FAILED, code))
                continue
            if code is not None:
                self._parking.queues.untaken(entries[index:])
                self._stalled.add(queue)
                break
            self._counters["actions handed over"] += 1
        if entries:
            self._outlets.wake()

    def _holder(self, queue: str) -> int:
        """The live session that answers for a queue; 0: there is none."""
        sid = self._state.owners.owner(queue)
        return sid if sid is not None and sid in self._outlets.ports else 0

    def bound(self, sid: int) -> None:
        """A session has a connection (again), and was told so: hand over what waited for it, first what it missed."""
        self._outlets.arrived(sid)
        now = time.time()
        port = self._outlets.ports.get(sid)
        if port is None or self._handed_on.get(sid) != port.connection:  # else it was only renewed
            self.lost(sid)
        for queue in self._queues_of(sid):
            for entry in [one for one in self._parking.queues.entries(queue) if one.is_cancelling]:
                self.outbox.ask_to_cancel(entry, sid)
            self.hand_over(queue, now)
        session = self._state.sessions.get(sid)
        if session is not None and len(self._books.inboxes):
            owned = [canonical_key(row.url) for row in self._state.owners.owned(sid)]
            self._senders.tell_inboxes([*self._books.inboxes.owners_of(session.runtime_key), *owned])

    def _queues_of(self, sid: int) -> list[str]:
        queues, owners = self._parking.queues.names(), self._state.owners
        session = self._state.sessions.get(sid)
        if not queues or session is None:
            return []
        if len(queues) <= owners.count(sid):
            return [queue for queue in queues if owners.owner(queue) == sid]
        keys = [session.runtime_key, *(canonical_key(row.url) for row in owners.owned(sid))]
        return [key for key in keys if key in queues]

    def lost(self, sid: int) -> None:
        """A session has lost its connection: what it had not answered waits again, and its senders are told so."""
        self._handed_on.pop(sid, None)
        for queue in self._parking.queues.lost(sid):
            waiting = [entry for entry in self._parking.queues.entries(queue) if entry.status is Status.PENDING]
            for entry in waiting:
                if entry.is_cancelling:
                    self.finish(entry, CANCELLED)
            self._park([entry for entry in waiting if not entry.is_stored and not entry.is_cancelling])

    def hand_over_again(self, sid: int) -> None:
        """The line of a session is whole, but what it was handed may have been lost on the way."""
        self.lost(sid)
        self.bound(sid)

    def settle(self) -> None:
        """Go on with what services and sessions changed: addresses that came, requests that were cancelled."""
        if self._state.owners.arrived:
            arrived, self._state.owners.arrived = self._state.owners.arrived, []
            now = time.time()
            for key in arrived:
                self.hand_over(key, now)
            self._senders.tell_inboxes(arrived)
        if self._books.cancelled:
            cancelled, self._books.cancelled = self._books.cancelled, []
            for entry, by_sender in cancelled:
                self._cancelled(entry, by_sender=by_sender)

    def _cancelled(self, entry: ParkedRequest, *, by_sender: bool) -> None:
        """Somebody who may has cancelled: what nobody had is over, whoever has it is asked."""
        if self._parking.is_open(entry):
            self.outbox.ask_to_cancel(entry, self._holder(entry.queue))
            return
        self._counters["actions cancelled"] += 1
        if not by_sender:
            self._senders.notify(entry, CANCELLED)

    # Answers.

    def answered(self, message: Message, number: int) -> bool:
        """A session or link answers; returns whether that was about a request of this book."""
        if self._guaranteed.acknowledged(message, number) or self.outbox.cancel_answered(message):
            return True
        entry = self._parking.answered_by(message)
        if entry is None:
            if not self._parking.finished.is_late(message, time.time()):
                return False
            self._counters["late answers"] += 1
            return True
        if is_domain(entry.queue):
            is_theirs = number < 0 and self._state.links.domain(number) == entry.queue
        else:
            is_theirs = number > 0 and self._state.owners.owner(entry.queue) == number
        if not is_theirs or entry.status is Status.PENDING:
            self._counters["refused answers"] += 1
            return True
        self.heard(entry, word_of(message), message)
        return True

    def heard(self, entry: ParkedRequest, word: Word, answer: Message | None = None) -> None:
        """Whoever has a request says how it stands with it."""
        queue = entry.queue
        if word.status.is_final:
            self.finish(entry, word, answer=answer)
            if self._parking.queues.waiting(queue):
                self.hand_over(queue, time.time())
            return
        is_kept_elsewhere = word.code >= 200
        is_news = self._parking.acknowledged(entry, word.status)
        if is_kept_elsewhere:
            self._parking.queues.release(entry)
        if entry in self._parking.owed and is_kept_elsewhere:
            self._park([entry])
        elif entry in self._parking.owed:
            self._parking.owed.add(entry, time.time() + REQUEST_TTL_SECONDS)
            self._senders.reply(entry, word, answer)
        elif entry.is_invitation:
            self._senders.reply(entry, word, answer)
        elif is_news and word.status is Status.DELIVERED:
            self._senders.notify(entry, word)
        if is_kept_elsewhere and self._parking.queues.waiting(queue):
            self.hand_over(queue, time.time())

    def finish(self, entry: ParkedRequest, word: Word, *, answer: Message | None = None) -> None:
        """The one final word about a request: to its sender if he waits, else into his inbox."""
        is_owed, now = entry in self._parking.owed, time.time()
        self._parking.finish(entry, word, now)
        self._last_words.keep(entry, word, now)
        self._counters[f"actions {word.status.value}"] += 1
        if not ((is_owed or entry.is_invitation) and self._senders.reply(entry, word, answer)):
            self._senders.notify(entry, word)

    # Parking.

    def _park(self, entries: Iterable[ParkedRequest]) -> None:
        """Store requests, and tell those who wait for an answer that theirs is parked, once it is on the disk."""
        for entry in entries:
            if not entry.is_stored:
                self._parking.store(entry)
                self._counters["actions parked"] += 1
                self.on_parked(entry.queue)
            is_owed = entry in self._parking.owed or entry.is_invitation
            self._parking.owed.discard(entry)
            if not is_owed:
                continue
            reply = status_reply(entry, waiting_word(entry))
            answer = partial(self._parked, entry)
            self._apply(ServiceResult(replies=[reply], changes=self._state.take_changes()), answer)
        self._commit()

    def _commit(self) -> None:
        """Have stored what has changed and nobody waits for."""
        changes = self._state.take_changes()
        if changes:
            self._apply(ServiceResult(changes=changes), to_nobody)

    def _parked(self, entry: ParkedRequest, reply: Message) -> None:
        """The word that a request is parked, or that the disk did not take it: then nobody keeps it."""
        if bytes(reply.peek.code).startswith(b"5"):
            self._withdraw(entry)
        if entry.sender.domain:
            self._senders.send_abroad(entry.sender.domain, reply)
        else:
            self._senders.send_to(entry.asker, reply)

    def _withdraw(self, entry: ParkedRequest) -> None:
        """A request is refused after all; its sender is told by whoever calls."""
        if self._parking.is_open(entry):
            self._parking.finish(entry, Word.of_code(Status.FAILED, Code.STORAGE), time.time())
            self._commit()

    def _tell_where_it_stands(self, entry: ParkedRequest) -> None:
        """A sender repeats its request: the answer that it waits for comes, or it hears where the request stands."""
        self._counters["repeated requests"] += 1
        if entry not in self._parking.owed:
            self._senders.send_to_sender(entry, status_reply(entry, waiting_word(entry)))

    # Time, and what never arrived.

    def keeps(self, message: Message) -> bool:
        """Whether a message that a slow recipient did not read in time is a request of this book, which ends it."""
        if message.id is None:
            return False
        return (message.from_key, message.id, message.to_key) in self._parking.transactions

    def sweep(self, now: float) -> bool:
        """End some of what is over, tell some of what is to be told; whether there may be more to do."""
        over = self._parking.expired(now)
        for entry in over:
            if self.outbox.is_over(entry, now):
                self.finish(entry, EXPIRED)
        late = self._parking.owed.overdue(now)
        self._park(late)
        forgotten = self._books.inboxes.expire(now) + self._parking.finished.forget_old(now)
        told = self._senders.tell_more() + self._repeat_events(now)
        self._commit()
        return bool(over or late or forgotten or told)

    def tick(self, now: float) -> None:
        """Try again where something waits; every second or so."""
        stalled, self._stalled = self._stalled, set()
        for queue in stalled:
            self.hand_over(queue, now)
        self.outbox.tick(now)
        self._commit()

    def _repeat_events(self, now: float) -> int:
        due = self._guaranteed.due(now, lives=lambda sid: self._state.sessions.get(sid) is not None)
        for sid, event in due:
            if sid in self._outlets.ports and self._state.listeners.listens(sid, event.to_key):
                self._outlets.to_listeners((sid,), event, set())
                self._outlets.wake()
        if given_up := self._guaranteed.take_given_up():
            self._counters["unacknowledged events"] += given_up
        return len(due)
