"""What changes on a message when it crosses the border, and what must hold before it may.

Outward: loop and hop rules, flags that mean nothing abroad removed, one trailer appended to the body:
    `"trace":"mn:<id>","via":[…]`. The rest of the body stays the bytes that came. Inward: the sender must be of the
    linked domain, the trailer comes off again, so that the receiving runtime gets the sending runtime's bytes.
    Source: message specification, sections 18.2, 18.4 and 20.6.
"""

from __future__ import annotations

import hashlib
from binascii import unhexlify
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from federation.core.carried import NODE_FLAGS, cleaned_forward
from protofly import address, codec
from protofly.errors import Code, PeerError
from protofly.forwarding import FORWARD
from protofly.legacy_range import host_of
from protofly.lifetime import with_ttl
from protofly.limits import CROSSING_BYTES, MAX_HOPS
from protofly.message import Message
from protofly.repeated_members import values_of

_OUTWARD_FLAGS = ("auth", "sessionToken", "assertedIdentity", "via", "trace")
_INWARD_FLAGS = NODE_FLAGS
_TRACE = b'"trace":"mn:'
_OWN_TRACE = b'"mn:'
TRAILER = b"," + _TRACE
_ID_BYTES = 16
TRAILER_BYTES = len(TRAILER) + 2 * _ID_BYTES
"""The trailer of a node like ours up to the end of the id, which is written in hexadecimal digits."""
_KNOWN_SENDERS = 1024


class Crossing(NamedTuple):
    """A message made ready for the other side: its id in both sides' records, and the two forms of its text."""

    msg_id: bytes
    body: bytes
    wire: bytes


def hops_of(message: Message) -> list[str]:
    """Addresses in `body.via`, in order; one text counts as a list of one, and a `via` given twice as one of all.

    Raises:
        PeerError: BAD_BODY when it is neither, TOO_LARGE for a large body that gives members twice.
    """
    if not message.peek.via:
        return []
    values = values_of(message.body, "via")
    if values is None:
        return _hops(bytes(message.peek.via))
    if any(type(value) not in (str, list) for value in values):
        raise PeerError(Code.BAD_BODY, "via must be a list of addresses")
    try:
        return [hop for value in values for hop in _hops(msgspec.json.encode(value))]
    except UnicodeEncodeError as exc:  # half a character, which no text can hold
        raise PeerError(Code.BAD_BODY, "via must be a list of addresses") from exc


def _hops(via: bytes) -> list[str]:
    try:
        hops = msgspec.json.decode(via, type=str | list[str])
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise PeerError(Code.BAD_BODY, "via must be a list of addresses") from exc
    return [hops] if isinstance(hops, str) else hops


class HopBound:
    """The bound on nodes that a message may pass, `most`. A change applies to all holders from the next message on."""

    __slots__ = ("most",)

    def __init__(self, most: int = MAX_HOPS) -> None:
        self.most = most


USUAL_HOPS: Final = HopBound()
"""For borders that no settings bound; not to be changed."""


def check_hops(hops: list[str], own: str, *, max_hops: int = MAX_HOPS) -> None:
    """Refuse what has been here before or has travelled too far.

    Raises:
        PeerError: LOOP or HOP_LIMIT.
    """
    if own in hops:
        raise PeerError(Code.LOOP, "the message has passed this node before")
    if len(hops) > max_hops:
        raise PeerError(Code.HOP_LIMIT, f"more than {max_hops} hops")


IsTheirs = Callable[[str], bool | None]
"""Says whether the other side speaks for an address, None where its domain decides; may raise BAD_HEADER."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """In whose name one side may speak.

    Attributes:
        domains: Its domain and the aliases that were proved.
        never: Domains in whose name it may not speak, whatever else is said here: those of the receiving side.
        is_theirs: Knows the address ranges of interworking stubs.
    """

    domains: frozenset[str]
    never: frozenset[str] = frozenset()
    is_theirs: IsTheirs | None = None

    def is_never(self, text: str) -> bool:
        """True when an address is of a domain in whose name this side may not speak.

        Raises:
            PeerError: BAD_HEADER when it is no address.
        """
        return address.domain_of(text) in self.never or host_of(text) in self.never

    def may_use(self, text: str) -> bool:
        """True when this side may use an address as a sender.

        Raises:
            PeerError: BAD_HEADER when it is no address.
        """
        if self.is_never(text):
            return False
        verdict = None if self.is_theirs is None else self.is_theirs(text)
        return (
            address.domain_of(text) in self.domains and "@" not in address.parse(text).authority
            if verdict is None
            else verdict
        )


def check_speaks_for(message: Message, speaker: Speaker) -> None:
    """Check that a side may use the sender of a message, and its source if it names one.

    Raises:
        PeerError: SPOOFED_SOURCE, or BAD_HEADER when the sender is no address, BAD_BODY when the source is none.

    Source: message specification, section 18.4.
    """
    if not speaker.may_use(message.from_):
        raise PeerError(Code.SPOOFED_SOURCE, "from is not of the linked domain")
    check_source(message, speaker)


def check_source(message: Message, speaker: Speaker) -> None:
    """Check that a side may use the source that a message names, if it names one.

    Raises:
        PeerError: SPOOFED_SOURCE, or BAD_BODY when the source is no address.
    """
    if not message.peek.source:
        return
    source = codec.body_text(bytes(message.peek.source))
    if not source:
        raise PeerError(Code.BAD_BODY, "source must be an address")
    if not speaker.may_use(source):
        raise PeerError(Code.SPOOFED_SOURCE, "source is not of the linked domain")


class OutwardBorder:
    """Makes messages ready to leave through one hosted stub (or the peer's own link).

    Args:
        node: Address of our node, appended to `via`.
        stub: Address of the hosted stub, appended after it.
        max_hops: Bounds the entries that `via` may have when a message comes here.

    Attributes:
        end_of_text: How texts end behind `TRAILER` and their id in hexadecimal digits.
    """

    def __init__(self, node: str, stub: str, *, max_hops: HopBound = USUAL_HOPS) -> None:
        self._node = node
        self._max_hops = max_hops
        self._stub = stub
        self._via_tail = b'","via":' + msgspec.json.encode([node, stub])
        self.end_of_text = self._via_tail + b"}}"

    def cross(self, message: Message, msg_id: bytes) -> Crossing:
        """Strip, stamp and encode one message.

        Args:
            message: Has passed our gate.
            msg_id: 16 bytes, unique, for the records of both sides.

        Raises:
            PeerError: LOOP, HOP_LIMIT, BAD_BODY, TOO_LARGE.
        """
        peek = message.peek
        if not (peek.via or peek.trace or peek.auth or peek.session_token or peek.asserted_identity):
            members = _TRACE + msg_id.hex().encode() + self._via_tail
            crossing = Crossing(msg_id, *_with_members(message, members))
        else:
            crossing = self._cross_marked(message, msg_id)
        if len(crossing.wire) > CROSSING_BYTES:
            raise PeerError(Code.TOO_LARGE, f"a message for another domain has at most {CROSSING_BYTES:,} bytes")
        return crossing

    def _cross_marked(self, message: Message, msg_id: bytes) -> Crossing:
        hops = hops_of(message)
        check_hops(hops, self._node, max_hops=self._max_hops.most)
        if self._stub in hops:
            raise PeerError(Code.LOOP, "the message has passed this stub before")
        foreign_trace = _trace_of_sender(message)
        body = codec.without_members(message.body, _OUTWARD_FLAGS)
        via = b'"via":' + msgspec.json.encode([*hops, self._node, self._stub])
        if foreign_trace:
            body = codec.append_members(body, b'"trace":' + foreign_trace)
            msg_id = derived_id(message, foreign_trace)
            members = via
        else:
            members = _TRACE + msg_id.hex().encode() + b'",' + via
        wire = codec.with_body(message, codec.append_members(body, members))
        return Crossing(msg_id, body if body != b"{}" else b"", wire.raw)


class BareBorder:
    """Makes messages ready to leave for a node that stumbles over our trailer: nothing is added, the rules hold.

    A message without body gets an empty one: there are nodes that end for want of it.

    Args:
        node: Address of our node, for the loop rule.
        max_hops: Bounds the entries that `via` may have when a message comes here.
    """

    def __init__(self, node: str, *, max_hops: HopBound = USUAL_HOPS) -> None:
        self._node = node
        self._max_hops = max_hops

    def cross(self, message: Message, msg_id: bytes) -> Crossing:
        """Strip and encode one message; see `OutwardBorder.cross`.

        Raises:
            PeerError: LOOP, HOP_LIMIT, BAD_BODY, TOO_LARGE.
        """
        check_hops(hops_of(message), self._node, max_hops=self._max_hops.most)
        peek, body = message.peek, message.body or b"{}"
        if peek.via or peek.trace or peek.auth or peek.session_token or peek.asserted_identity:
            body = codec.without_members(body, _OUTWARD_FLAGS)
        wire = message.raw if body == message.body else codec.with_body(message, body).raw
        if len(wire) > CROSSING_BYTES:
            raise PeerError(Code.TOO_LARGE, f"a message for another domain has at most {CROSSING_BYTES:,} bytes")
        return Crossing(msg_id, body if body != b"{}" else b"", wire)


def aged_crossing(wire: bytes, ttl_seconds: float) -> tuple[bytes, bytes]:
    """A text that waited before it could leave, with the time that is left to it.

    Returns:
        The body as the far side sees it, and the whole text.
    """
    message = codec.decode(wire)[0]
    body = with_ttl(message.body, ttl_seconds)
    trace = bytes(message.peek.trace)
    trailer = ("via", "trace") if trace.startswith(_OWN_TRACE) else ("via",)
    return codec.without_members(body, trailer), codec.with_body(message, body).raw


class KnownHops(NamedTuple):
    """The last judged value of `via`: as it stands in a body, how a text with it ends, how many it names."""

    via: bytes
    end: bytes
    number: int


class InwardBorder:
    """Checks and cleans messages that come from one linked domain.

    Args:
        node: Address of our node, for the loop rule.
        speaker: In whose name the other side may speak; holds as long as this border does.
        max_hops: Bounds the entries that `via` may have.

    Attributes:
        known_hops: Those that were judged last, of whatever message.
        hops_crossed: Entries of `via` of the message that crossed last.
        known_senders: Need no other check, unless they name a source.
    """

    def __init__(self, node: str, speaker: Speaker, *, max_hops: HopBound = USUAL_HOPS) -> None:
        self._node = node
        self._max_hops = max_hops
        self.speaker = speaker
        self.known_hops = KnownHops(b"", b"", 0)
        self.known_senders: set[str] = set()
        self.hops_crossed = 0

    def check_sender(self, message: Message) -> None:
        """The sender, and the source if one is named, must be of the linked domains.

        A sender that is found good joins the `known_senders`.

        Raises:
            PeerError: SPOOFED_SOURCE, or BAD_HEADER when the sender is no address.
        """
        check_speaks_for(message, self.speaker)
        if len(self.known_senders) >= _KNOWN_SENDERS:
            self.known_senders.clear()
        self.known_senders.add(message.from_)

    def _judge_hops(self, via: bytes) -> None:
        """Judge the addresses that the last `via` of a body names; messages of one link mostly name the same.

        Raises:
            PeerError: LOOP, HOP_LIMIT, or BAD_BODY when it is no list of addresses.
        """
        if via != self.known_hops.via:
            hops = _hops(via) if via else []
            check_hops(hops, self._node, max_hops=self._max_hops.most)
            self.known_hops = KnownHops(via, b'","via":' + via + b"}}" if via else b"", len(hops))
        self.hops_crossed = self.known_hops.number

    def cross(self, message: Message) -> tuple[Message, bytes]:
        """Take the trailer and the flags off; `hops_crossed` is then what its `via` had.

        Returns:
            The message as our side sees it, and its 16-byte id for the records.

        Raises:
            PeerError: LOOP, HOP_LIMIT or BAD_BODY; what `cleaned_forward` raises.
        """
        self._judge_hops(bytes(message.peek.via))
        crossed = self._cross_unmarked(message) or self._cross_marked(message)
        inner, msg_id = crossed
        if inner.type == FORWARD and inner.body:
            return codec.with_body(inner, cleaned_forward(inner.body, self.speaker.may_use)), msg_id
        return crossed

    def without_trailer(self, raw: bytes) -> tuple[Message, bytes] | None:
        """Decode a text without its trailer, where that is all that `cross` would change, but for what is forwarded.

        Nearly every text of a link names the hops that the one before it named. Those were judged then: what is left
        is to cut the trailer off and to decode the rest. If the rest is valid, the cut was made behind a member of the
        last object of the text; within a text, or deeper, it would have left something open. None where that object is
        not the body (`takes_members`), and for everything else.
        """
        found = trailer(raw, self.known_hops.end)
        if found is None:
            return None
        start, msg_id = found
        try:
            inner = codec.decode(raw[:start] + b"}}")[0]
        except codec.BrokenMessageError:
            return None
        if not inner.takes_members or not _is_clean(inner):
            return None
        self.hops_crossed = self.known_hops.number
        return inner, msg_id

    def _cross_unmarked(self, message: Message) -> tuple[Message, bytes] | None:
        """Take off the trailer of another node like ours, where it stands at the end and nothing else is to be done."""
        found = trailer(message.body, self.known_hops.end[:-1])
        if found is None:
            return None
        start, msg_id = found
        inner = codec.with_body(message, message.body[:start] + b"}")
        return (inner, msg_id) if _is_clean(inner) else None

    def _cross_marked(self, message: Message) -> tuple[Message, bytes]:
        hops = hops_of(message)
        check_hops(hops, self._node, max_hops=self._max_hops.most)
        self.hops_crossed = len(hops)
        names: tuple[str, ...] = _INWARD_FLAGS
        if bytes(message.peek.trace).startswith(_OWN_TRACE):
            names = (*names, "trace")
        msg_id = id_carried(message)
        body = codec.without_members(message.body, names) if message.body else b""
        if body in (b"", b"{}"):
            return _without_body(message), msg_id
        return codec.with_body(message, body), msg_id


def _with_members(message: Message, members: bytes) -> tuple[bytes, bytes]:
    """Add members at the end of the body, and touch nothing else.

    Returns:
        The body as the far side gets it back when it takes the members off, and the whole text.
    """
    raw, body = message.raw, message.body
    if message.takes_members:
        return body, raw[:-2] + b"," + members + b"}}"
    longer = codec.append_members(body, members)
    shorter = longer[: -len(members) - 1].removesuffix(b",") + b"}"
    return shorter if shorter != b"{}" else b"", codec.with_body(message, longer).raw


def trailer(text: bytes, end: bytes) -> tuple[int, bytes] | None:
    """Find the trailer that another Trapezoid node appended to a text.

    Returns its start and the id in it. `end` is the text after the id, b"" if unknown.
    """
    id_end = len(text) - len(end)
    start = id_end - TRAILER_BYTES
    if start < 1 or not end or not text.endswith(end) or not text.startswith(TRAILER, start):
        return None
    try:
        return start, unhexlify(text[start + len(TRAILER) : id_end])
    except ValueError:
        return None


def _is_clean(inner: Message) -> bool:
    """True when a message without its trailer has nothing more that is to be taken off; members may be given twice."""
    left = inner.peek
    if left.via or left.trace or left.auth or left.session_token or left.asserted_identity:
        return False
    return not left.source or not codec.repeats_members(inner.body)


def _without_body(message: Message) -> Message:
    if not message.body:
        return message
    raw = codec.encode_message(id=message.id, type=message.type, from_=message.from_, to=message.to)
    return Message(message.id, message.type, message.from_, message.to, b"", raw)


def id_carried(message: Message) -> bytes:
    """The id under which the other side has a message in its records; 16 bytes."""
    trace = bytes(message.peek.trace)
    msg_id = b""
    if trace.startswith(_OWN_TRACE):
        with suppress(ValueError):
            msg_id = bytes.fromhex(trace[len(_OWN_TRACE) : -1].decode())
    return msg_id if len(msg_id) == _ID_BYTES else derived_id(message, trace)


def _trace_of_sender(message: Message) -> bytes:
    """The `trace` that the sender of a message of ours gave, b"" if there is none."""
    trace = bytes(message.peek.trace)
    return b"" if trace.startswith(_OWN_TRACE) else trace


def id_of_ours(message: Message, msg_id: bytes) -> bytes:
    """The id under which a message of ours is recorded: `msg_id`, or what its sender's trace gives.

    It is the same for a message that crosses and for one that is kept back, so that its sender can find both.
    """
    trace = _trace_of_sender(message)
    return derived_id(message, trace) if trace else msg_id


def derived_id(message: Message, trace: bytes) -> bytes:
    """Id for a message whose `trace` was given by somebody else: both sides derive the same one."""
    parts = (trace, message.from_.encode(), message.to.encode(), message.id or b"")
    return hashlib.sha256(b"\0".join(parts)).digest()[:16]


def refusal_abroad(
    request: Message, code: Code, detail: str, *, node: str, our_domains: frozenset[str], msg_id: str = ""
) -> Message:
    """Answer a request of another domain, in the name that it asked, or of our node where that name is not ours.

    The answer names the id of the request in records, if `msg_id` says it.
    """
    value = {"msgId": msg_id} if msg_id else msgspec.UNSET
    reply = codec.refusal(request, code, source=node, value=value, detail=detail)
    return named_abroad(request, reply, node, our_domains)


def named_abroad(request: Message, reply: Message, node: str, our_domains: frozenset[str]) -> Message:
    """A reply of ours to another domain, in the name that was asked, or of our node where that name is not ours."""
    try:
        is_ours = address.domain_of(request.to) in {"", *our_domains}  # a user by GUID has no domain and was asked here
    except PeerError:
        is_ours = False
    if is_ours:
        return reply
    return codec.build(id=reply.id, type="response", from_=node, to=reply.to, body=codec.body_members(reply.body))
