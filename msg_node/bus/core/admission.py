"""Checks of a message before it is routed: its sender, its time, its hops.

A message that is admitted is safe to route: its `from` and `source` may be used by its session, it has time left, and
members that only nodes may set are removed. Source: message specification, sections 1.3, 18.4, 18.5, 20.3 and 20.7.
"""

from __future__ import annotations

from typing import Protocol

from federation.core.border import HopBound, check_hops, hops_of
from msg_node.bus.core.router import Learned
from msg_node.bus.core.tables import BusTables
from msg_node.kernel.counts import NodeCount
from msg_node.kernel.directories import OWN, Source
from protofly import codec
from protofly.address import canonical_key, domain_of
from protofly.counters import Counters
from protofly.errors import Code, PeerError
from protofly.forwarding import check_levels
from protofly.lifetime import ttl_of
from protofly.message import Message

_WITHOUT_ANSWER = frozenset({"response", "event", "pong"})
_ABOUT_CHANGES = (Code.NOT_OWNER, Code.SCHEMA)
_FLAGS = ("auth", "sessionToken")
"""Members that only nodes may set. Source: message specification, section 1.3."""


class DeliveredRequests(Protocol):
    """Requests that were delivered to a session."""

    def was_asked(self, key: str, /) -> bool:
        """True if a request to `key` was: then its answer may come in that name."""


class Admission:
    """Judges messages of sessions before they are routed.

    Args:
        learned: Gains the addresses that nobody owns, by the session that uses them.
        counters: "refused sources".
        node: Address of this node.
        max_hops: Bounds the nodes that a message may have passed.
    """

    def __init__(
        self,
        state: BusTables,
        learned: Learned,
        counters: Counters,
        *,
        node: str,
        max_hops: HopBound,
    ) -> None:
        self._state = state
        self._source_of = state.senders.source_of
        self._learned = learned
        self._counters = counters
        self._node = node
        self._max_hops = max_hops

    def admit(self, message: Message, sid: int, delivered: DeliveredRequests, now: float) -> Message:
        """Check a message of a session of our own domain.

        Args:
            message: As it was decoded.
            sid: The session that it came from.
            delivered: What the session was asked.
            now: Seconds since the Unix epoch.

        Returns:
            The message without the members that only nodes may set.

        Raises:
            PeerError: Why it is refused.
        """
        from_key = message.from_key
        is_response = message.type == "response"
        if is_response:
            source = self._source_of(sid, from_key, is_response=True, was_addressed=delivered.was_asked(from_key))
        else:
            source = self._source_of(sid, from_key)
        if source is not OWN:
            if source.code is not None:
                self._counters[NodeCount.REFUSED_SOURCES] += 1
                raise PeerError(source.code)
            if source is Source.LEARNABLE:
                self._learned.learn(from_key, sid, now)
        peek = message.peek
        if peek.source and not is_response:
            check_named_source(self._state, sid, message)
        if peek.ttl or message.type == "forward":
            check_passable(message)
        if peek.via:
            check_hops(hops_of(message), self._node, max_hops=self._max_hops.most)
        if peek.auth or peek.session_token:
            return codec.with_body(message, codec.without_members(message.body, _FLAGS))
        return message

    def check_guest(self, message: Message, sid: int, domain: str, *, now: float) -> None:
        """Check the sender and the time of a message of a guest, before the gate of its domain judges it.

        A guest speaks as its domain and as addresses of ours that it leases. It answers in no other name either: what
        observers answer in the name of an object of ours is heard from nobody abroad.

        Raises:
            PeerError: SPOOFED_SOURCE, NOT_OWNER; BAD_HEADER or BAD_BODY for what is no address; TIMEOUT, EXPIRED,
                TOO_DEEP.
        """
        key = message.from_key
        self._check_name(sid, key, domain)
        if domain_of(message.from_) == domain and self._state.owners.owner(key) is None:
            self._learn_guest(key, sid, now)
        if message.peek.source:
            try:
                source = canonical_key(codec.body_text(bytes(message.peek.source)))
            except PeerError as exc:
                raise PeerError(Code.BAD_BODY, "source must be an address") from exc
            self._check_name(sid, source, domain)
        if message.peek.ttl or message.type == "forward":
            check_passable(message)

    def _learn_guest(self, key: str, sid: int, now: float) -> None:
        """Remember where answers to a name of the guest's domain go: to the first guest that uses it."""
        holder = self._learned.find(key, now)
        if holder not in (None, sid):
            raise PeerError(Code.NOT_OWNER, "another guest uses this address")
        self._learned.learn(key, sid, now)

    def _check_name(self, sid: int, key: str, domain: str) -> None:
        source = self._source_of(sid, key)
        if source.code is not None:
            raise PeerError(source.code, "this address is not of the guest's domain, or belongs to somebody else")
        if source is not Source.OWN and domain_of(key) != domain:
            raise PeerError(Code.SPOOFED_SOURCE, "this address is not of the guest's domain")


def check_passable(message: Message) -> None:
    """Refuse a message whose time is over, or that is wrapped too often.

    Raises:
        PeerError: TIMEOUT, or EXPIRED for an action; TOO_DEEP.

    Source: message specification, sections 9.7 and 20.7.
    """
    if ttl_of(message) == 0:
        raise PeerError(Code.EXPIRED if message.is_action else Code.TIMEOUT, "the time of this message is over")
    check_levels(message)


def check_named_source(state: BusTables, sid: int, message: Message) -> None:
    """Refuse a message that names somebody else as its source.

    Raises:
        PeerError: SPOOFED_SOURCE; BAD_BODY for a source that is no address.

    Source: message specification, sections 1.3 and 20.3.
    """
    source = codec.body_text(bytes(message.peek.source))
    if not source or (message.type == "unsubscribe" and message.to_key.endswith("/sm")):
        return  # there a reporter names the observer that it takes off, and the service asks whose object it is
    try:
        key = canonical_key(source)
    except PeerError as exc:
        raise PeerError(Code.BAD_BODY, "source must be an address") from exc
    if state.senders.source_of(sid, key).code is not None:
        raise PeerError(Code.SPOOFED_SOURCE, "the source belongs to somebody else")


def is_refusal_sent(message: Message, code: Code) -> bool:
    """True if the sender of a change that was refused is notified: events with an id are not lost in silence.

    That is when the object is somebody else's, or the change breaks its schema. Source: message specification, section
    9.4.
    """
    return code in _ABOUT_CHANGES and message.id is not None and message.type not in _WITHOUT_ANSWER
