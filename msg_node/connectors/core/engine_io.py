"""Engine.IO protocol 3 with socket.io 1.x packets on it, as texts: what the stubs of the Node.js node speak.

A packet is a digit and its data. Over a WebSocket each packet is one text frame. Over long-polling packets are put
together to payloads, each behind its length. There text is encoded twice: into UTF-8 for the length, which counts
those bytes, and the result, taken as Latin-1, into UTF-8 again for the body. A socket.io packet is an Engine.IO
message (`4`) with a digit of its own; its only event here is `message`, which carries the JSON text of a message
towards the node and the message itself towards the runtime.

Everything here is bytes: a packet is the UTF-8 of its text. Source: reference nodes, section 3.1;
Engine.IO protocol, revision 3; socket.io protocol, revision 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec
from msgspec import Raw

from protofly.errors import Code, PeerError
from protofly.limits import PAYLOAD_PACKETS

PROTOCOL: Final = "3"
SID_BYTES: Final = 15
"""Randomness of a session id, 20 characters of base64url."""

CLOSE: Final = b"1"
PONG: Final = b"3"
PROBE: Final = b"probe"
NOOP: Final = b"6"
CONNECTED: Final = b"40"
DISCONNECTED: Final = b"41"
PROBE_ANSWER: Final = PONG + PROBE

_EVENT_HEAD: Final = b'42["message",'
_ERROR_HEAD: Final = b"44"
_LENGTH_DIGITS: Final = 9
_TEXT_MARK: Final = 0
_BINARY_MARK: Final = 1
_LENGTH_END: Final = 255

_decode_event = msgspec.json.Decoder(list[Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


class Trouble(Enum):
    """Reasons to refuse a request to the Engine.IO path: number and words that clients know."""

    UNKNOWN_TRANSPORT = (0, "Transport unknown")
    UNKNOWN_SID = (1, "Session ID unknown")
    BAD_HANDSHAKE_METHOD = (2, "Bad handshake method")
    BAD_REQUEST = (3, "Bad request")
    FORBIDDEN = (4, "Forbidden")
    UNKNOWN_PROTOCOL = (5, "Unsupported protocol version")

    def body(self) -> bytes:
        """The JSON that goes with HTTP status 400."""
        number, message = self.value
        return msgspec.json.encode({"code": number, "message": message})


class Kind(Enum):
    """Kinds of packets from a client."""

    MESSAGE = "message"
    PING = "ping"
    CLOSE = "close"
    UPGRADE = "upgrade"
    IGNORED = "ignored"
    NAMESPACE = "namespace"
    BINARY = "binary"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet from a client.

    `data` is the text of a MESSAGE (perhaps broken JSON: the bus says so), the data of a PING, the name of a NAMESPACE.
    """

    kind: Kind
    data: bytes = b""


def open_packet(sid: str, *, upgrades: Iterable[str], ping_seconds: float) -> bytes:
    """The first packet of a session.

    The client is to ping a little more often than we would, and gives up after two periods without an answer: at the
    default of 30 s that is the 25 s and 60 s of the reference node.
    """
    hello = {
        "sid": sid,
        "upgrades": list(upgrades),
        "pingInterval": int(ping_seconds * 1000 * 5 / 6),
        "pingTimeout": int(ping_seconds * 2000),
    }
    return b"0" + msgspec.json.encode(hello)


def event_packet(raw: bytes) -> bytes:
    """A message to the runtime; `raw` is its JSON text."""
    return _EVENT_HEAD + raw + b"]"


def error_packet(text: str, *, namespace: bytes = b"") -> bytes:
    """Send the client what was wrong."""
    return _ERROR_HEAD + (namespace + b"," if namespace else b"") + msgspec.json.encode(text)


# Payloads.


def encode_payload(packets: Iterable[bytes]) -> bytes:
    """Put packets together to the body of an answer to a poll."""
    data = b"".join([b"%d:%b" % (len(packet), packet) for packet in packets])
    return data if data.isascii() else data.decode("latin-1").encode()


def decode_payload(body: bytes, *, is_binary: bool = False) -> list[bytes]:
    """Take the body of a post apart.

    Args:
        body: As received, bounded by the caller.
        is_binary: It came as `application/octet-stream`, in the framing for clients that can send bytes.

    Raises:
        PeerError: PROTOCOL_ERROR, also where lengths count characters instead of bytes.
    """
    packets: list[bytes] = []
    data = body if is_binary or body.isascii() else _once_decoded(body)
    position = 0
    while position < len(data):
        if len(packets) >= PAYLOAD_PACKETS:
            raise PeerError(Code.PROTOCOL_ERROR, "too many packets in one payload")
        start, length = _marked_length(data, position) if is_binary else _plain_length(data, position)
        position = start + length
        if position > len(data):
            raise PeerError(Code.PROTOCOL_ERROR, "a packet is shorter than its length says")
        packets.append(data[start:position])
    if not all(map(_is_text, packets)):
        raise PeerError(Code.PROTOCOL_ERROR, "packets of text are UTF-8")
    if not packets:
        raise PeerError(Code.PROTOCOL_ERROR, "an empty payload")
    return packets


def _once_decoded(body: bytes) -> bytes:
    try:
        data = body.decode().encode("latin-1")
        data.decode()
    except UnicodeError as exc:
        raise PeerError(Code.PROTOCOL_ERROR, "payloads are UTF-8, encoded twice") from exc
    return data


def _is_text(packet: bytes) -> bool:
    try:
        packet.decode()
    except UnicodeDecodeError:
        return False
    return True


def _plain_length(data: bytes, position: int) -> tuple[int, int]:
    """Return where the packet behind `<length>:` begins, and its length."""
    colon = data.find(b":", position, position + _LENGTH_DIGITS + 1)
    digits = data[position:colon] if colon != -1 else b""
    if not digits.isdigit():
        raise PeerError(Code.PROTOCOL_ERROR, "a packet without a length")
    return colon + 1, int(digits)


def _marked_length(data: bytes, position: int) -> tuple[int, int]:
    """The same behind `<0 for text, 1 for bytes><digits, each a byte><255>`; a packet of bytes gets a `b` in front."""
    end = data.find(_LENGTH_END, position, position + _LENGTH_DIGITS + 2)
    digits = data[position + 1 : end] if end != -1 else b""
    if not digits or max(digits) > 9:
        raise PeerError(Code.PROTOCOL_ERROR, "a packet without a length")
    if data[position] != _TEXT_MARK:
        kind = "binary packets are not carried" if data[position] == _BINARY_MARK else "a packet of an unknown kind"
        raise PeerError(Code.PROTOCOL_ERROR, kind)
    length = 0
    for digit in digits:
        length = length * 10 + digit
    return end + 1, length


# Packets of clients.


def read_packet(packet: bytes) -> Packet:
    """Return what one packet asks for, also for broken packets. Raises nothing."""
    match packet[:1]:
        case b"4":
            return _read_message(packet)
        case b"2":
            return Packet(Kind.PING, packet[1:])
        case b"1":
            return Packet(Kind.CLOSE)
        case b"5":
            return Packet(Kind.UPGRADE)
        case b"3" | b"6":
            return Packet(Kind.IGNORED)
        case b"b":
            return Packet(Kind.BINARY)
        case _:
            return Packet(Kind.BROKEN)


def _read_message(packet: bytes) -> Packet:
    """A socket.io packet: `<digit>[/<namespace>,][<id of an acknowledgement>]<JSON>`."""
    rest = packet[2:]
    namespace = b""
    if rest.startswith(b"/"):
        namespace, _, rest = rest.partition(b",")
    kind = packet[1:2]
    if namespace.partition(b"?")[0] not in (b"", b"/"):
        return Packet(Kind.NAMESPACE, namespace) if kind in (b"0", b"2") else Packet(Kind.IGNORED)
    match kind:
        case b"2":
            return _read_event(rest.lstrip(b"0123456789"))
        case b"1":
            return Packet(Kind.CLOSE)
        case b"0" | b"3" | b"4":
            return Packet(Kind.IGNORED)
        case b"5" | b"6":
            return Packet(Kind.BINARY)
        case _:
            return Packet(Kind.BROKEN)


def _read_event(text: bytes) -> Packet:
    """`["message", "<JSON text>"]`, or the message itself in place of its text; other events are not for us."""
    try:
        name, *arguments = _decode_event(text)
        if _decode_text(name) != "message":
            return Packet(Kind.IGNORED)
        argument = bytes(arguments[0])
        return Packet(Kind.MESSAGE, _decode_text(argument).encode() if argument[:1] == b'"' else argument)
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError, IndexError):
        return Packet(Kind.MESSAGE, text)
