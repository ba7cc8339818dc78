"""Messages of guests on their way in: what a link's are asked at its border, then the way of every session's.

Nothing of a guest goes on to another domain, its own included: this node carries between its own domain and others,
never from one of them to the next. Source: message specification, sections 18.4 and 18.5.
"""

from __future__ import annotations

from collections.abc import Callable

from federation.guest_border import GuestBorder
from federation.link_context import Refusal
from msg_node.addresses.core.observers import concerns_observers
from msg_node.bus.core.admission import check_passable
from msg_node.bus.core.router import DROP, Decision, Deliver, Router, ToDomain, parked
from msg_node.bus.core.tables import BusTables
from msg_node.bus.runtime_port import RuntimePort
from msg_node.kernel.directories import Source
from protofly import codec
from protofly.address import canonical_key, domain_of
from protofly.errors import Code, PeerError
from protofly.message import Message

Forward = Callable[[RuntimePort, Message, Decision, float], Refusal | None]
"""Hands a checked message of a session to its destination; a refusal has been answered."""


class GuestTraffic:
    """Takes in what guests send.

    Args:
        observe: Follows by which messages, of which session, observers come and go.
        forward: See `Forward`.
    """

    def __init__(
        self,
        state: BusTables,
        router: Router,
        border: GuestBorder,
        observe: Callable[[Message, int], None],
        *,
        forward: Forward,
    ) -> None:
        self._state = state
        self._router = router
        self._border = border
        self._observe = observe
        self._forward = forward

    def take(self, port: RuntimePort, message: Message, now: float) -> None:
        """Check, judge and route one message of a guest's session.

        Raises:
            PeerError: Why it is refused; that is recorded.
        """
        assert port.sid is not None
        domain = port.guest_of
        try:
            self._check_sender(port, message, domain, now)
            if message.peek.ttl or message.type == "forward":
                check_passable(message)
        except PeerError as exc:
            self._border.refused(domain, message, exc.code, now)
            raise
        entered = self._border.enter(domain, message, now)
        try:
            if concerns_observers(message):
                self._observe(entered.message, port.sid)
            decision = self._here_only(self._router.decide(entered.message, port.sid, now, may_park=False))
            refusal = self._forward(port, entered.message, parked(entered.message, decision), now)
        except PeerError as exc:
            entered.arrived(exc.code)
            raise
        entered.arrived(None if refusal is None else refusal.code)

    def _check_sender(self, port: RuntimePort, message: Message, domain: str, now: float) -> None:
        """A guest speaks as its domain and as addresses of ours that it leases, and answers as what it was asked.

        Raises:
            PeerError: SPOOFED_SOURCE, NOT_OWNER; BAD_HEADER or BAD_BODY for what is no address.
        """
        assert port.sid is not None
        key = message.from_key
        was_asked = message.type == "response" and port.queue.was_asked(key)
        if not was_asked:
            self._check_name(port.sid, key, domain)
            if domain_of(message.from_) == domain and self._state.owners.owner(key) is None:
                self._learn(key, port.sid, now)
        if message.peek.source and message.peek.source != b"null":
            try:
                source = canonical_key(codec.body_text(bytes(message.peek.source)))
            except PeerError as exc:
                raise PeerError(Code.BAD_BODY, "source must be an address") from exc
            self._check_name(port.sid, source, domain)

    def _learn(self, key: str, sid: int, now: float) -> None:
        """Remember where answers to a name of the guest's domain go: to the first guest that uses it."""
        holder = self._router.learned.find(key, now)
        if holder not in (None, sid):
            raise PeerError(Code.NOT_OWNER, "another guest uses this address")
        self._router.learned.learn(key, sid, now)

    def _check_name(self, sid: int, key: str, domain: str) -> None:
        source = self._state.senders.source_of(sid, key)
        if source.code is not None:
            raise PeerError(source.code, "this address is not of the guest's domain, or belongs to somebody else")
        if source is not Source.OWN and domain_of(key) != domain:
            raise PeerError(Code.SPOOFED_SOURCE, "this address is not of the guest's domain")

    @staticmethod
    def _here_only(decision: Decision) -> Decision:
        """A decision without its part abroad.

        Raises:
            PeerError: TRANSIT when there is no other.
        """
        if type(decision) is ToDomain and not decision.numbers:
            raise PeerError(Code.TRANSIT, "messages of other domains are not carried on")
        if isinstance(decision, Deliver | ToDomain):
            numbers = tuple([number for number in decision.numbers if number > 0])
            return Deliver(numbers) if numbers else DROP
        return decision
