"""Messages that carry other messages: `forward`, to a place that is not the `to` of what is carried.

The carried message is `body.message`, or the whole body. Source: message specification, section 9.7.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from protofly import codec
from protofly.errors import Code, PeerError
from protofly.limits import FORWARD_LEVELS
from protofly.message import Message

FORWARD = "forward"


class _Body(msgspec.Struct, frozen=True):
    message: Raw = Raw()


_decode_body = msgspec.json.Decoder(_Body).decode


def carried(message: Message) -> Message | None:
    """The message inside one message, None when it carries none that can be read."""
    if message.type != FORWARD:
        return None
    try:
        inner = bytes(_decode_body(message.body).message)
        return codec.decode(inner or message.body)[0]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, PeerError):
        return None


def check_levels(message: Message) -> None:
    """Refuse a message inside too many others.

    Raises:
        PeerError: TOO_DEEP.
    """
    for _ in range(FORWARD_LEVELS + 1):
        inner = carried(message)
        if inner is None:
            return
        message = inner
    raise PeerError(Code.TOO_DEEP, f"more than {FORWARD_LEVELS} messages inside each other")
