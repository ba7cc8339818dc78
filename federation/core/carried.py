"""Messages inside messages of type `forward`, as they cross the border.

A domain speaks for nobody else one level down either: what is carried has to be in the name of the side that forwards
it, and flags that only a node may set are taken off. The carried message is `body.message`, or the whole body; readers
differ in which they take, so both are looked at. Source: message specification, sections 9.7 and 18.4.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Raw

from protofly import codec
from protofly.errors import Code, PeerError
from protofly.forwarding import FORWARD
from protofly.limits import FORWARD_LEVELS

NODE_FLAGS = ("auth", "sessionToken", "assertedIdentity", "via")
"""Members of a body that only nodes set."""

MayUse = Callable[[str], bool]
"""Says whether the forwarding side may use an address as a sender; may raise BAD_HEADER."""

_Members = dict[str, Raw]
_decode = msgspec.json.Decoder(_Members).decode
_encode = msgspec.json.encode


class CarriedForgeryError(PeerError):
    """A message inside a message is in the name of somebody else: the one who forwards it is notified."""

    def __init__(self) -> None:
        super().__init__(Code.SPOOFED_SOURCE, "the message inside is in the name of another domain")


def cleaned_forward(body: bytes, may_use: MayUse) -> bytes:
    """Check and clean what a message of type `forward` carries; each member of it is there once afterwards.

    Args:
        body: Body of the forward, a JSON object. One that is compact and carries no flag comes back byte for byte.
        may_use: Judges the senders and sources of what is carried.

    Raises:
        CarriedForgeryError: A carried message is in the name of somebody else.
        PeerError: BAD_HEADER or BAD_BODY for a sender or source that is no address, TOO_DEEP.
    """
    try:
        return _encode(_cleaned_body(_decode(body), may_use, 1))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise PeerError(Code.BAD_BODY, "what is forwarded cannot be read") from exc


def _cleaned_body(body: _Members, may_use: MayUse, level: int) -> _Members:
    if level > FORWARD_LEVELS + 1:
        raise PeerError(Code.TOO_DEEP, f"more than {FORWARD_LEVELS} messages inside each other")
    inner = bytes(body.get("message", b""))
    if inner.startswith(b"{"):
        body["message"] = Raw(_encode(_cleaned_message(_decode(inner), may_use, level)))
    return _cleaned_message(body, may_use, level) if "from" in body and "type" in body else body


def _cleaned_message(message: _Members, may_use: MayUse, level: int) -> _Members:
    if "from" in message:
        _check(message["from"], may_use, "from")
    inner = bytes(message.get("body", b""))
    if inner.startswith(b"{"):
        body = {name: value for name, value in _decode(inner).items() if name not in NODE_FLAGS}
        if "source" in body:
            _check(body["source"], may_use, "source")
        if codec.body_text(bytes(message.get("type", b""))).strip().lower() == FORWARD:
            body = _cleaned_body(body, may_use, level + 1)
        message["body"] = Raw(_encode(body))
    return message


def _check(value: Raw, may_use: MayUse, member: str) -> None:
    text = codec.body_text(bytes(value))
    if not text:
        raise PeerError(Code.BAD_BODY, f"{member} of the message inside must be an address")
    if not may_use(text):
        raise CarriedForgeryError
