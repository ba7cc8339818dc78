"""What a link has when it moves to another node of our domain, as bytes that fit between nodes.

The other node goes on where this one stopped: with the stream and its numbers, what waits or is under way, the requests
that have no reply yet, and how far the other domain's streams were seen through. Points in time become spans, because
each machine has a clock of its own.

It goes as parts of bounded size, in order; who has the last one has the link.
Source: docs/adr/0041-a-link-moves-with-all-it-has.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

import msgspec

from federation.core.outbound_queue import OutboundMessage
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.message import Message
from protofly.records import GateFacts

PART_BYTES: Final = 1 << 20
"""Messages and requests of one part; a message that is longer has a part of its own."""
_REQUEST_BYTES: Final = 64  # about: what one takes beside its addresses and its id


class MovedMessage(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message of ours that the other domain has not accepted; see `OutboundMessage`.

    Attributes:
        raw: The message as its sender's node has it.
        verdict: What our gate decided about it.
        age_seconds: Since it was accepted here.
        left_seconds: Until it has waited too long.
    """

    raw: bytes
    is_late: bool
    verdict: bool | None
    wire: bytes
    msg_id: bytes
    digest: str
    ts_us: int
    age_seconds: float
    left_seconds: float
    rule_id: str
    revision: str
    policy_us: int
    number: int
    reason: str
    facts: GateFacts | None
    ttl_seconds: float
    suspected: int

    def outbound(self, now: float) -> OutboundMessage:
        """As it goes on, at `now` in monotonic seconds of the new node. Raises PeerError: it cannot be read."""
        messages = codec.decode(self.raw)
        if len(messages) != 1:
            raise PeerError(Code.PROTOCOL_ERROR, "a message on a link has one recipient")
        message = messages[0]
        if self.is_late:
            message = msgspec.structs.replace(message, is_late=True)
        if self.verdict is not None:
            message.judged(is_permitted_by_rule=self.verdict)
        return OutboundMessage(
            message,
            self.wire,
            self.msg_id,
            self.digest,
            self.ts_us,
            now - self.age_seconds,
            self.rule_id,
            self.revision,
            self.policy_us,
            now + self.left_seconds,
            number=self.number,
            suspected=self.suspected,
            reason=self.reason,
            facts=self.facts,
            ttl_seconds=self.ttl_seconds,
        )


class MovedRequest(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request of ours that has no final reply yet; `ttl_seconds` is what a provisional reply gives it anew."""

    id: bytes
    from_: str
    to: str
    left_seconds: float
    ttl_seconds: float

    @property
    def message(self) -> Message:
        """Enough of it to answer it."""
        return Message(self.id, "read", self.from_, self.to, b"", b"")


class MovedAddressed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Observers `to` that `from_` addressed, and that may acknowledge for a while."""

    from_: str
    to: str
    left_seconds: float


class MovedLink(msgspec.Struct, frozen=True, array_like=True):
    """The state of a link between two nodes.

    Attributes:
        stream: Name of our sequence of numbers.
        next_number: That of the next message.
        seen: How far the other domain's streams were seen through, the one that was heard last at the end.
        messages: Those that wait or are under way, in order.
        requests: Those without a reply.
        addressed: Observers that may still acknowledge.
        heard: What the other domain listens to with us: address as written, its key, and for which source.
    """

    stream: str
    next_number: int
    seen: list[tuple[str, int]]
    messages: list[MovedMessage] = []
    requests: list[MovedRequest] = []
    addressed: list[MovedAddressed] = []
    heard: list[tuple[str, str, str]] = []


class LinkPart(msgspec.Struct, frozen=True, array_like=True):
    """One part of a link: a link with some of what it has. `index` counts from 0."""

    domain: str
    index: int
    is_last: bool
    link: MovedLink


_decoder = msgspec.msgpack.Decoder(LinkPart)
_One = TypeVar("_One")


def moved_message(pending: OutboundMessage, now: float) -> MovedMessage:
    """A queued message, at `now` in monotonic seconds of the old node."""
    message = pending.message
    return MovedMessage(
        message.raw,
        message.is_late,
        message.verdict,
        pending.wire,
        pending.msg_id,
        pending.digest,
        pending.ts_us,
        now - pending.accepted_seconds,
        pending.deadline_seconds - now,
        pending.rule_id,
        pending.revision,
        pending.policy_us,
        pending.number,
        pending.reason,
        pending.facts,
        pending.ttl_seconds,
        pending.suspected,
    )


def parts_of(domain: str, link: MovedLink) -> list[bytes]:
    """The link as parts, of which none is much longer than `PART_BYTES`."""
    name, number, seen = link.stream, link.next_number, link.seen
    messages = _chunks((len(one.raw) + len(one.wire), one) for one in link.messages)
    requests = _chunks((_size(one), one) for one in link.requests)
    addressed = _chunks((_size(one), one) for one in link.addressed)
    links = [MovedLink(name, number, seen, messages=chunk) for chunk in messages]
    links += [MovedLink(name, number, seen, requests=chunk) for chunk in requests]
    links += [MovedLink(name, number, seen, addressed=chunk) for chunk in addressed]
    heard = _chunks((_REQUEST_BYTES + sum(map(len, one)), one) for one in link.heard)
    links += [MovedLink(name, number, seen, heard=chunk) for chunk in heard]
    links = links or [MovedLink(name, number, seen)]
    last = len(links) - 1
    return [msgspec.msgpack.encode(LinkPart(domain, index, index == last, one)) for index, one in enumerate(links)]


def _size(one: MovedRequest | MovedAddressed) -> int:
    return _REQUEST_BYTES + len(one.from_) + len(one.to)


def _chunks(sized: Iterable[tuple[int, _One]]) -> Iterator[list[_One]]:
    chunk: list[_One] = []
    total = 0
    for size, one in sized:
        if chunk and total + size > PART_BYTES:
            yield chunk
            chunk, total = [], 0
        chunk.append(one)
        total += size
    if chunk:
        yield chunk


class LinkParts:
    """Puts the parts of links together, of several domains at once."""

    def __init__(self) -> None:
        self._links: dict[str, list[MovedLink]] = {}

    def take(self, raw: bytes) -> tuple[str, MovedLink | None]:
        """Take in one part: the domain, and its link once it is whole.

        Raises:
            PeerError: PROTOCOL_ERROR: it is no part, or one before it is missing.
        """
        try:
            part = _decoder.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
            raise PeerError(Code.PROTOCOL_ERROR, "this is no part of a link") from exc
        if part.index == 0:
            self._links[part.domain] = []
        parts = self._links.get(part.domain)
        if parts is None or len(parts) != part.index:
            self._links.pop(part.domain, None)
            raise PeerError(Code.PROTOCOL_ERROR, "parts of a link are missing", domain=part.domain)
        parts.append(part.link)
        if not part.is_last:
            return part.domain, None
        del self._links[part.domain]
        whole = msgspec.structs.replace(
            parts[0],
            messages=[one for link in parts for one in link.messages],
            requests=[one for link in parts for one in link.requests],
            addressed=[one for link in parts for one in link.addressed],
            heard=[one for link in parts for one in link.heard],
        )
        return part.domain, whole
