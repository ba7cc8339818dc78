"""Actions and their kin: taken from sessions and links, handed over or parked, answered once.

What is open is in `core/parking`, reports for senders are in `core/inbox`. A request to an agent that is connected is
handed over at once (`agent_handover`) and stored only when its answer takes longer than a sender waits; any other is
stored before its sender gets 202. What is for another domain stands in its queue (`outbox`) until that domain's node
has said that it keeps it. What recipients report comes in by `answers`; `recorder` makes it durable and reports it on.

Source: message specification, section 19.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from os import urandom

from msg_node.kernel.counts import NodeCount
from msg_node.kernel.identifiers import SEED_BYTES, identifier
from msg_node.requests.agent_handover import AgentHandover
from msg_node.requests.answers import RequestAnswers
from msg_node.requests.cancellations import Cancellations
from msg_node.requests.core.delivery_messages import (
    given_id,
    repeated_reply,
    wants_seconds,
)
from msg_node.requests.core.delivery_status import CANCELLED, EXPIRED, Status
from msg_node.requests.core.guaranteed_events import GuaranteedEvents
from msg_node.requests.core.outbound import OutboundQueues
from msg_node.requests.core.parked import ParkedRequest, Sender, Submission
from msg_node.requests.core.recipients import has_to_be_found, is_domain, recipient_of
from msg_node.requests.core.tables import RequestTables
from msg_node.requests.outbox import Outbox
from msg_node.requests.recorder import RequestRecorder
from protofly.errors import Code, PeerError
from protofly.limits import GUARANTEED_MAX_SECONDS, GUARANTEED_SECONDS, PARKED_MAX_SECONDS, REQUEST_TTL_SECONDS
from protofly.message import Message
from protofly.random_stock import RandomStock

Parks = Callable[[Message, frozenset[str], str], bool]
"""True when a policy wants a request parked whose recipient is away: of a session with these roles, or of a domain."""


def park_nothing(_message: Message, _roles: frozenset[str], _domain: str) -> bool:
    """No policy wants anything parked."""
    return False


_ABSENT = (Code.NO_ROUTE, Code.NOT_CONNECTED)


class ParkedActions:
    """Takes every request that may wait, and keeps time for those that do.

    Args:
        serves: True for the canonical key of a service of ours.
        parks: See `Parks`.

    Attributes:
        is_used: False until something waits in this run: before that, no answer concerns us.
        agents: The queues of agents of ours.
        outbox: The queues towards other domains.
        guaranteed: Events that subscribers have to acknowledge.
        answers: What recipients report.
        recorder: Where changes of requests become durable.
    """

    def __init__(
        self,
        state: RequestTables,
        send_queues: OutboundQueues,
        recorder: RequestRecorder,
        *,
        serves: Callable[[str], bool],
        parks: Parks,
    ) -> None:
        self._serves, self._parks = serves, parks
        self._state = state
        self._delivery = state.delivery
        self._parking = state.delivery.parking
        self._send_queues = send_queues
        self._random = RandomStock(urandom)
        self.guaranteed = GuaranteedEvents()
        self.is_used = False
        self.recorder = recorder
        self._cancellations = Cancellations(self._parking, send_queues, recorder.url, recorder.ids)
        self.agents = AgentHandover(state, send_queues, recorder, self._cancellations)
        self.outbox = Outbox(state, send_queues, recorder, self._cancellations)
        self.answers = RequestAnswers(state, recorder, self.agents, self.outbox, self._cancellations)

    def restore(self) -> None:
        """Go on with what was stored, after a restart."""
        self.is_used = len(self._parking) > 0
        self.outbox.restore()

    # Requests in.

    def take(
        self,
        message: Message,
        asker: int,
        now: float,
        *,
        roles: frozenset[str],
        queue: str = "",
        sender: Sender | None = None,
    ) -> None:
        """Take an action of a session of ours, for an agent of ours or of another domain.

        A repetition of a request that is open, or ended lately, is answered like that one.

        Args:
            message: As its sender wrote it.
            asker: The session, or the number of the node of ours that has it.
            now: Seconds since the Unix epoch.
            roles: Those of the session.
            queue: The recipient, where the address of the message does not say it.
            sender: The origin, where another node has the session.

        Raises:
            PeerError: Why it is refused.
        """
        sender = sender or self._sender(asker)
        steady = time.monotonic()
        entry = self._parking.repeats(message, sender, now, steady)
        if entry is not None:
            self.recorder.report_again(entry)
            return
        result = self.recorder.recent.about(message, sender, steady)
        if result is not None:
            reply = repeated_reply(message, *result)
            self.recorder.report_end_again(reply, partial(self.recorder.senders.reply_to, asker))
            return
        queue = queue or self.outbox.domain_of(message) or recipient_of(self._state, message, asker)
        self._submit(self._submission(message, queue, sender, asker, roles=roles), now)

    def takes_from_link(self, message: Message, domain: str, number: int, now: float) -> bool:
        """Take what a link brought, if it is an action for an agent of ours, or a report about a request.

        Raises:
            PeerError: Why it is refused.
        """
        if message.type == "response":
            return self.answered(message, number)
        if message.type == "update":
            return message.to.endswith("/inbox") and self.answers.notified(domain, message)
        if not message.is_action or self.outbox.domain_of(message) or self._serves(message.to_key):
            return False
        if has_to_be_found(self._state, message, number):
            return False
        self._take_action_of(domain, message, number, now)
        return True

    def take_found(self, message: Message, number: int, roles: frozenset[str], queue: str) -> None:
        """Take an action of a session or link for a user whose place has been found. Raises PeerError."""
        if number > 0:
            self.take(message, number, self.recorder.now(), roles=roles, queue=queue)
        else:
            self._take_action_of(self._state.links.domain(number), message, number, self.recorder.now(), queue)

    def _take_action_of(self, domain: str, message: Message, number: int, now: float, queue: str = "") -> None:
        """Take an action of another domain. One that it handed over before is answered with how it stands."""
        request_id = given_id(message)
        if request_id:
            entry = self._parking.find(domain, request_id)
            if entry is not None:
                self.recorder.report_again(entry)
                return
            finished = self._parking.finished.find(domain, request_id)
            if finished is not None:
                reply = repeated_reply(message, request_id, finished.word)
                self.recorder.report_end_again(reply, partial(self.recorder.senders.repeat_abroad, domain, reply))
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
            self._park_invitation(message, asker, self.recorder.now(), roles)
        except PeerError:
            return False
        return True

    def _park_invitation(self, message: Message, asker: int, now: float, roles: frozenset[str]) -> None:
        self.is_used = True
        sender, queue = self._sender(asker), recipient_of(self._state, message, asker)
        entry = self._parking.repeats(message, sender, now, time.monotonic())
        if entry is None:
            submission = self._submission(message, queue, sender, asker, roles=roles)
            entry = self._parking.submit(submission._replace(is_invitation=True), now)
            entry.taken_at = time.monotonic()
        self.recorder.park([entry])

    def _submission(
        self, message: Message, queue: str, sender: Sender, asker: int, *, roles: frozenset[str] = frozenset()
    ) -> Submission:
        """A request under a fresh id."""
        request_id = "d-" + identifier(self._random.take(SEED_BYTES), 0)
        return Submission(message, queue, sender, request_id, self._lifetime(message, queue), roles, asker)

    def _submit(self, submission: Submission, now: float) -> None:
        self.is_used = True
        queue, entry = submission.queue, self._parking.submit(submission, now)
        entry.taken_at = time.monotonic()
        self._parking.owed.add(entry, now + REQUEST_TTL_SECONDS)
        if is_domain(queue):
            refusal = self.outbox.begin(entry, now)
            if refusal is not None:
                self.recorder.withdraw(entry)
                raise PeerError(refusal.code)
        else:
            self.agents.hand_over(queue, now)
        if entry.status is Status.PENDING:
            self.recorder.park([entry])

    def _lifetime(self, message: Message, queue: str) -> float:
        """Seconds: what the sender wants, at most what the agent said."""
        wanted = wants_seconds(message)
        longest = PARKED_MAX_SECONDS if is_domain(queue) else self._delivery.queues.rules(queue).expires_seconds
        if is_domain(queue) and wanted is None:
            return self._delivery.queues.rules(queue).expires_seconds
        return longest if wanted is None else min(wanted, longest)

    def _sender(self, asker: int) -> Sender:
        if asker < 0:
            return Sender("", domain=self._state.links.domain(asker))
        session = self._state.sessions.get(asker)
        return Sender("") if session is None else Sender(session.runtime_key, session.proof.credential)

    # What follows.

    def guarantee(self, message: Message, numbers: tuple[int, ...], now: float, *, sender: int = 0) -> None:
        """Repeat an event to each subscriber until it has acknowledged it or has ended, or the event has expired."""
        ttl_seconds = wants_seconds(message)
        seconds = GUARANTEED_SECONDS if ttl_seconds is None else min(ttl_seconds, GUARANTEED_MAX_SECONDS)
        subscribers = [number for number in numbers if number > 0]
        if self.guaranteed.begin(message, subscribers, now, seconds, sender=sender):
            self.is_used = True
        else:
            self.recorder.counters[NodeCount.UNGUARANTEED_EVENTS] += 1

    def answered(self, message: Message, number: int) -> bool:
        """Apply the answer of a session or link. Returns False when it is about nothing here."""
        return self.guaranteed.acknowledged(message, number) or self.answers.answered(message, number)

    def keeps(self, message: Message) -> bool:
        """True for an open request: one that its recipient did not read in time is not refused by anybody else."""
        if message.id is None:
            return False
        return (message.from_key, message.id, message.to_key) in self._parking.transactions

    def settle(self) -> None:
        """Go on with what services and sessions changed: addresses with a new owner, requests that were cancelled."""
        if arrived := self._state.owners.arrivals.take():
            now = self.recorder.now()
            for key in arrived:
                self.agents.hand_over(key, now)
            self.recorder.senders.notify_inboxes(arrived)
        if self._delivery.cancelled:
            cancelled, self._delivery.cancelled = self._delivery.cancelled, []
            for entry, by_sender in cancelled:
                self._cancelled(entry, by_sender=by_sender)

    def _cancelled(self, entry: ParkedRequest, *, by_sender: bool) -> None:
        """Ask the recipient of a cancelled request, or report the end of one that had none."""
        if self._parking.is_open(entry):
            self._cancellations.ask(entry, self.agents.holder(entry.queue))
            return
        self.recorder.counters[NodeCount.ACTIONS.of(Status.CANCELLED)] += 1
        if not by_sender:
            self.recorder.senders.notify(entry, CANCELLED)

    # Time.

    def sweep(self, now: float) -> bool:
        """End some expired requests and send some pending reports. Returns True if work may remain."""
        expired = self._parking.expired(now)
        for entry in expired:
            if self.outbox.has_ended(entry, now):
                self.recorder.finish(entry, EXPIRED)
        overdue = self._parking.owed.overdue(now)
        self.recorder.park(overdue)
        forgotten = self._delivery.inboxes.expire(now) + self._parking.finished.forget_old(now)
        sent = self.recorder.senders.notify_more() + self._repeat_events(now)
        self.recorder.commit()
        return bool(expired or overdue or forgotten or sent)

    def tick(self, now: float) -> None:
        """Try again where requests wait; every second or so."""
        self.agents.retry(now)
        self.outbox.tick(now)
        self.recorder.commit()

    def _repeat_events(self, now: float) -> int:
        due = self.guaranteed.due(now, lives=lambda sid: self._state.sessions.get(sid) is not None)
        for sid, event in due:
            if sid in self._send_queues.ports and self._state.listeners.listens(sid, event.to_key):
                self._send_queues.to_listeners((sid,), event, set())
                self._send_queues.wake()
        if given_up := self.guaranteed.take_given_up():
            self.recorder.counters[NodeCount.UNACKNOWLEDGED_EVENTS] += given_up
        return len(due)
