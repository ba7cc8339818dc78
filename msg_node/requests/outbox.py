"""Requests for agents of other domains: kept until the other node has said that it keeps them, or how they ended.

A request goes over the link with our request id and what is left of its time. The other node remembers the id, so that
handing over again, after every new link, repeats nothing: it is told how the request stands. While there is no link,
requests stay here and the link is wanted. Source: message specification, sections 18.4 and 19.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from federation.link_context import Refusal
from msg_node.bus.send_queues import Outlets
from msg_node.requests.core.delivery_messages import cancellation, handed_over
from msg_node.requests.core.delivery_status import CANCELLED, Status, Word, word_of
from msg_node.requests.core.parked import ParkedRequest
from msg_node.requests.core.tables import RequestTables
from protofly import codec
from protofly.answer_codes import code_of
from protofly.errors import PeerError
from protofly.limits import AGENT_UNANSWERED, OUTBOX_ASK_SECONDS, OUTBOX_GRACE_SECONDS, OUTBOX_WINDOW
from protofly.message import Message

_NOT_NOW = frozenset({408, 429, 502, 503, 504})
"""Codes of our own link, or our own gate, that are no last word about a request."""


class Outbox:
    """The queues towards other domains.

    Args:
        url: Address of our service `delivery`, in whose name we ask to cancel.
        ids: For requests of our own.
        heard: Told each word about a request.
    """

    def __init__(
        self,
        state: RequestTables,
        outlets: Outlets,
        *,
        url: str,
        ids: Iterator[int],
        heard: Callable[[ParkedRequest, Word], None],
    ) -> None:
        self._state = state
        self._parking = state.delivery.parking
        self._outlets = outlets
        self._url = url
        self._ids = ids
        self._heard = heard
        self._domains: set[str] = set()
        self._ask_at: dict[str, float] = {}  # by domain
        self._cancels: OrderedDict[tuple[bytes, str], ParkedRequest] = OrderedDict()

    def domain_of(self, message: Message) -> str:
        """The other domain that a request is for, "" for our own."""
        domain = self._state.interworking.destination_of(message.to_key)
        return "" if domain in self._state.domains else domain

    # Out.

    def begin(self, entry: ParkedRequest, now: float) -> Refusal | None:
        """Hand over a new request if the link is up, else see to it that it comes up; a refusal ends the request."""
        domain = entry.queue
        self._domains.add(domain)
        if not self._outlets.is_live(domain):
            return self._outlets.reach(domain, entry.request, entry.roles)
        refusal = self.hand_over(domain, now, newest=entry)
        return None if refusal is not None and refusal.code.status in _NOT_NOW else refusal

    def hand_over(self, domain: str, now: float, *, newest: ParkedRequest | None = None) -> Refusal | None:
        """Give another domain what it may have now; what its gate refuses has ended.

        Returns:
            Why `newest` was not taken, if it was refused.
        """
        if not self._outlets.is_live(domain):
            first = self._parking.queues.first(domain)
            if first is not None:
                self._outlets.reach(domain, first.request, first.roles)
            return None
        number = self._state.links.number(domain)
        entries = self._parking.queues.take(domain, number, unanswered=OUTBOX_WINDOW)
        for index, entry in enumerate(entries):
            message = handed_over(entry, now, with_lifetime=True)
            refusal = self._outlets.send_abroad(domain, message, entry.roles)
            if refusal is None:
                if entry.is_cancelling:
                    self.ask_to_cancel(entry, 0)
            elif refusal.code.status in _NOT_NOW:
                self._parking.queues.untaken(entries[index:])
                return refusal if newest in entries[index:] else None
            elif entry is newest:
                return refusal
            else:
                self._heard(entry, Word.of_code(Status.FAILED, refusal.code))
        self._outlets.wake()
        return None

    def link_is_live(self, domain: str, now: float) -> None:
        """A link is up (again): whatever is open there is handed over, what the other node knows already included."""
        self._parking.queues.ask_again(domain)
        self.hand_over(domain, now)

    def restore(self) -> None:
        """After a restart: requests for other domains are open again."""
        self._domains = {queue for queue in self._parking.queues.names() if is_domain(queue)}

    def tick(self, now: float) -> None:
        """Try again where something waits; every second or so."""
        self._domains &= self._parking.queues.names()
        for domain in list(self._domains):
            if now >= self._ask_at.setdefault(domain, now + OUTBOX_ASK_SECONDS) and self._outlets.is_live(domain):
                self._ask_at[domain] = now + OUTBOX_ASK_SECONDS
                self._parking.queues.ask_again(domain, only_kept=True)
            if self._parking.queues.waiting(domain):
                self.hand_over(domain, now)
        for domain in self._ask_at.keys() - self._domains:
            del self._ask_at[domain]

    def is_over(self, entry: ParkedRequest, now: float) -> bool:
        """Whether an entry whose time is over has ended; another node that keeps it is given time to say how."""
        if not (is_domain(entry.queue) and entry.is_acknowledged):
            return True
        ends_at = entry.expires_at + OUTBOX_GRACE_SECONDS
        if ends_at > now:
            self._parking.look_again(entry, ends_at)
        return ends_at <= now

    def is_wanted(self, domain: str) -> bool:
        """Whether requests are open at a domain."""
        return domain in self._parking.queues.names()

    # What comes back.

    def link_refused(self, message: Message) -> bool:
        """Our own link answers in place of the other node; returns whether that was about a request of ours.

        What could not leave waits for the next link.
        """
        entry = self._parking.answered_by(message)
        if entry is None or not is_domain(entry.queue):
            return False
        if code_of(message) not in _NOT_NOW:
            self._heard(entry, word_of(message))
        elif entry.status is not Status.PENDING and not entry.is_acknowledged:
            self._parking.queues.untaken([entry])
        return True

    def told(self, domain: str, message: Message) -> bool:
        """The other node tells how a request of ours stands, through the inbox of its sender.

        Returns:
            Whether it was such a word. One about a request that is not open any more concerns nobody.
        """
        if message.from_key != f"domain://msg-node.{domain}/delivery":
            return False
        try:
            members = codec.body_members(message.body)
        except PeerError:
            return False
        request_id = members.get("requestId")
        entry = self._parking.find("", request_id) if isinstance(request_id, str) else None
        if entry is not None and entry.queue == domain and message.to_key == f"{entry.request.from_key}/inbox":
            self._heard(entry, word_of(message))
        return True

    # Cancelling.

    def ask_to_cancel(self, entry: ParkedRequest, sid: int) -> None:
        """Ask whoever has a request to leave it undone: the agent's session `sid`, or the other node."""
        self._parking.cancelling(entry)
        number = next(self._ids)
        if is_domain(entry.queue):
            to = f"domain://msg-node.{entry.queue}/delivery"
            request = cancellation(entry, self._url, to, number)
            if not self._outlets.is_live(entry.queue):
                return  # it is asked when the link is up
            self._outlets.send_abroad(entry.queue, request)
        else:
            request = cancellation(entry, self._url, entry.request.to, number)
            self._outlets.to_listeners((sid,) if sid else (), request, set())
        assert request.id is not None
        self._cancels[request.id, request.to_key] = entry
        if len(self._cancels) > AGENT_UNANSWERED:
            self._cancels.popitem(last=False)
        self._outlets.wake()

    def cancel_answered(self, message: Message) -> bool:
        """An agent, or another node, answers such a request; returns whether it does."""
        if not self._cancels or message.id is None or message.to_key != self._url:
            return False
        entry = self._cancels.pop((message.id, message.from_key), None)
        if entry is None:
            return False
        word = word_of(message)
        is_done = word.code == 404 or (word.status.is_final and word.code < 300)
        if is_done and self._parking.is_open(entry):
            self._heard(entry, CANCELLED)
        return True


def is_domain(queue: str) -> bool:
    """Whether a queue is that of another domain: its name, not the key of an address."""
    return ":" not in queue and "/" not in queue and "." in queue
