"""What a message has to fulfil before it is routed, beyond its sender: asked for rare members and types only."""

from __future__ import annotations

from msg_node.bus.core.tables import BusTables
from protofly import codec
from protofly.address import canonical_key
from protofly.errors import Code, PeerError
from protofly.forwarding import check_levels
from protofly.lifetime import ttl_of
from protofly.message import Message

_WITHOUT_ANSWER = frozenset({"response", "event", "pong"})
_ABOUT_CHANGES = (Code.NOT_OWNER, Code.SCHEMA)


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
