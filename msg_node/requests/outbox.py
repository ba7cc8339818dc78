"""Requests for agents of other domains: kept until the other node has said that it keeps them, or how they ended.

A request goes over the link with our request id and what is left of its time. The other node remembers the id, so that
handing over again, after every new link, repeats nothing: it answers how the request stands. While there is no link,
requests stay here and the link is wanted. Source: message specification, sections 18.4 and 19.
"""

from __future__ import annotations

from federation.links.link_context import Refusal
from msg_node.requests.cancellations import Cancellations
from msg_node.requests.core.delivery_messages import handed_over
from msg_node.requests.core.delivery_status import Status, StatusReport
from msg_node.requests.core.outbound import OutboundQueues
from msg_node.requests.core.parked import ParkedRequest
from msg_node.requests.core.recipients import is_domain
from msg_node.requests.core.tables import RequestTables
from msg_node.requests.recorder import RequestRecorder
from protofly.errors import Code
from protofly.limits import OUTBOX_ASK_SECONDS, OUTBOX_GRACE_SECONDS, OUTBOX_WINDOW
from protofly.message import Message

NOT_NOW = frozenset({408, 429, 502, 503, 504})
"""Codes of our own link, or our own gate, that do not end a request."""


class Outbox:
    """The queues towards other domains."""

    def __init__(
        self, state: RequestTables, send_queues: OutboundQueues, recorder: RequestRecorder, cancellations: Cancellations
    ) -> None:
        self._state = state
        self._parking = state.delivery.parking
        self._queues = state.delivery.parking.queues
        self._send_queues = send_queues
        self._recorder = recorder
        self._cancellations = cancellations
        self._domains: set[str] = set()
        self._ask_at: dict[str, float] = {}  # by domain

    def domain_of(self, message: Message) -> str:
        """The other domain that a request is for, "" for our own."""
        domain = self._state.interworking.destination_of(message.to_key)
        return "" if domain in self._state.domains else domain

    def begin(self, entry: ParkedRequest, now: float) -> Refusal | None:
        """Hand over a new request if the link is up, else want the link. A returned refusal ends the request."""
        domain = entry.queue
        self._domains.add(domain)
        if not self._send_queues.links.is_live(domain):
            return self._send_queues.links.reach(domain, entry.request, entry.roles)
        refusal = self.hand_over(domain, now, newest=entry)
        return None if refusal is not None and refusal.code.status in NOT_NOW else refusal

    def hand_over(self, domain: str, now: float, *, newest: ParkedRequest | None = None) -> Refusal | None:
        """Send another domain what it may have now; what its gate refuses has ended.

        Returns:
            Why `newest` was not taken, if it was refused.
        """
        if not self._send_queues.links.is_live(domain):
            first = self._queues.first(domain)
            if first is not None:
                self._send_queues.links.reach(domain, first.request, first.roles)
            return None
        number = self._state.links.number(domain)
        while entries := self._queues.take(domain, number, unanswered=OUTBOX_WINDOW):
            for index, entry in enumerate(entries):
                refusal = self._send(domain, entry, now)
                if refusal is None:
                    continue
                if refusal.code.status in NOT_NOW:
                    self._queues.untaken(entries[index:])
                    return refusal if newest in entries[index:] else None
                if entry is newest:
                    return refusal
                self._recorder.finish(entry, StatusReport.of_code(Status.FAILED, refusal.code))
        self._send_queues.wake()
        return None

    def _send(self, domain: str, entry: ParkedRequest, now: float) -> Refusal | None:
        message = handed_over(entry, now, with_lifetime=True)
        refusal = self._send_queues.links.send(domain, message, entry.roles)
        if refusal is None and entry.is_cancelling:
            self._cancellations.ask(entry, 0)
        return refusal

    def link_is_live(self, domain: str, now: float) -> None:
        """Hand over all that is open at a domain whose link is up (again), also what the other node knows already."""
        self._queues.ask_again(domain)
        self.hand_over(domain, now)

    def restore(self) -> None:
        """Find the domains with open requests after a restart."""
        self._domains = {queue for queue in self._queues.names() if is_domain(queue)}

    def tick(self, now: float) -> None:
        """Try again where requests wait, and ask other nodes about those they keep; every second or so."""
        self._domains &= self._queues.names()
        for domain in list(self._domains):
            if now >= self._ask_at.setdefault(domain, now + OUTBOX_ASK_SECONDS) and self._send_queues.links.is_live(
                domain
            ):
                self._ask_at[domain] = now + OUTBOX_ASK_SECONDS
                self._queues.ask_again(domain, only_kept=True)
            if self._queues.waiting(domain):
                self.hand_over(domain, now)
        for domain in self._ask_at.keys() - self._domains:
            del self._ask_at[domain]

    def fail(self, domain: str, code: Code) -> None:
        """End every request for another domain as failed: its node is not asked any more."""
        for entry in self._queues.entries(domain):
            self._recorder.finish(entry, StatusReport.of_code(Status.FAILED, code))

    def has_ended(self, entry: ParkedRequest, now: float) -> bool:
        """False for an expired request that another node keeps, for a grace in which that node may say how it ended."""
        if not (is_domain(entry.queue) and entry.is_acknowledged):
            return True
        ends_at = entry.expires_at + OUTBOX_GRACE_SECONDS
        if ends_at > now:
            self._parking.look_again(entry, ends_at)
        return ends_at <= now

    def is_wanted(self, domain: str) -> bool:
        """True when requests are open at a domain."""
        return domain in self._queues.names()
