"""How long a message may live: `body.ttl`, seconds that are left, counted down by every node that it passes.

Relative, so that no two clocks have to agree. Only messages that carry a `ttl` pay for it.
Source: message specification, section 20.7.
"""

from __future__ import annotations

from protofly import codec
from protofly.message import Message

TTL_MAX_SECONDS = 86_400.0
NOTICED_SECONDS = 0.01
"""Time shorter than this is not subtracted, so that a message that did not wait keeps its bytes."""


def ttl_of(message: Message) -> float | None:
    """Seconds that a message may still live, at most a day; None without a `ttl`, or with one that is no number."""
    if not message.peek.ttl:
        return None
    try:
        return max(0.0, min(float(bytes(message.peek.ttl)), TTL_MAX_SECONDS))
    except ValueError:
        return None


def with_ttl(body: bytes, seconds: float) -> bytes:
    """The same body with so many seconds left; all other members keep their values and places."""
    return codec.with_member(body, "ttl", b"%.3f" % max(seconds, 0.001))


def aged(message: Message, spent_seconds: float) -> Message | None:
    """The message after some time has passed; itself when that is too little to notice, None when its time is over."""
    ttl_seconds = ttl_of(message)
    if ttl_seconds is None:
        return message
    if ttl_seconds <= spent_seconds:
        return None
    if spent_seconds < NOTICED_SECONDS:
        return message
    return codec.with_body(message, with_ttl(message.body, ttl_seconds - spent_seconds))
