"""A load client for servers that speak something else than we do: MQTT, NATS, XMPP.

`python -m benchmarks.peers.client SCHEME` takes the commands of `benchmarks.load_client`. The text of a message is the
same for all of them: header and body as our runtimes write it. Topics, subjects and JIDs take the place of `to`.
Standard library only.
"""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from benchmarks.load_client import (
    SOCKET_SECONDS,
    Connection,
    Line,
    LoadClient,
    Place,
    Stream,
    Template,
    WebSocketLine,
    pattern_of,
    read_some,
    serve_commands,
)

_NOTHING: Final = re.compile(rb"(?!)")
"""For servers that refuse no message."""
_QUOTE: Final = b"&quot;"


class MqttTemplate(Template):
    """PUBLISH with the address as topic. With QoS 1 the server acknowledges each."""

    def __init__(self, stream: Stream, *, qos: int) -> None:
        super().__init__(stream.run, stream.from_, stream.to, stream.body_bytes)
        self._first = bytes((0x30 | qos << 1,))
        self._topic = _sized(stream.to.encode())
        self._has_id = qos > 0

    def frame(self, number: int, now_ns: int) -> bytes:
        """The packet of one message."""
        text = self.text % (number, number, now_ns)
        head = self._topic + ((number % 0xFFFF + 1).to_bytes(2, "big") if self._has_id else b"")
        return self._first + _length(len(head) + len(text)) + head + text


class MqttLine:
    """MQTT 3.1.1. Source: MQTT 3.1.1, sections 2 and 3."""

    life = b"\xc0\x00"  # PINGREQ
    refused = _NOTHING

    def __init__(self, *, qos: int) -> None:
        self._qos = qos

    def connect(self, place: Place) -> Connection:
        """Open a clean session that has subscribed to the address, with QoS 0.

        Raises:
            ConnectionError: the server refuses.
        """
        raw = _connected(place.url)
        hello = _sized(b"MQTT") + b"\x04\x02\x00\x00" + _sized(re.sub(rb"\W", b"-", place.address.encode()))
        self._ask(raw, b"\x10" + _length(len(hello)) + hello, b"\x20\x02\x00\x00")
        wish = b"\x00\x01" + _sized(place.address.encode()) + b"\x00"
        self._ask(raw, b"\x82" + _length(len(wish)) + wish, b"\x90\x03\x00\x01\x00")
        return Connection(raw, place.address)

    @staticmethod
    def _ask(raw: socket.socket, packet: bytes, wanted: bytes) -> None:
        raw.sendall(packet)
        answer = b""
        while len(answer) < len(wanted):
            answer += read_some(raw)
        if answer != wanted:
            raise ConnectionError(f"the server answered {answer.hex()} instead of {wanted.hex()}")

    def framing(self, stream: Stream) -> Template:
        """See `MqttTemplate`."""
        return MqttTemplate(stream, qos=self._qos)

    def pattern(self, run: int) -> re.Pattern[bytes]:
        """The text arrives as it was sent."""
        return pattern_of(run)


class NatsTemplate(Template):
    """PUB with the address as subject."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream.run, stream.from_, stream.to, stream.body_bytes)
        self._to = stream.to.encode()

    def frame(self, number: int, now_ns: int) -> bytes:
        """The line and the text of one message."""
        text = self.text % (number, number, now_ns)
        return b"PUB %b %d\r\n%b\r\n" % (self._to, len(text), text)


class NatsLine:
    """The text protocol of NATS, without acknowledgements."""

    life = b"PONG\r\n"
    refused = re.compile(rb"-ERR ")

    def connect(self, place: Place) -> Connection:
        """Open a connection that has subscribed to the address.

        Raises:
            ConnectionError: the server refuses.
        """
        raw = _connected(place.url)
        raw.sendall(b'CONNECT {"verbose":false}\r\nSUB %b 1\r\nPING\r\n' % place.address.encode())
        _read_until(raw, b"PONG\r\n")
        return Connection(raw, place.address)

    def framing(self, stream: Stream) -> Template:
        """See `NatsTemplate`."""
        return NatsTemplate(stream)

    def pattern(self, run: int) -> re.Pattern[bytes]:
        """The text arrives as it was sent."""
        return pattern_of(run)


class XmppTemplate(Template):
    """A message stanza with the text as its body, quotes escaped as servers write them."""

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream.run, stream.from_, stream.to, stream.body_bytes)
        self._stanza = (
            b"<message to='%b' type='chat'><body>" % stream.to.encode()
            + self.text.replace(b'"', _QUOTE)
            + b"</body></message>"
        )

    def frame(self, number: int, now_ns: int) -> bytes:
        """The stanza of one message."""
        return self._stanza % (number, number, now_ns)


class XmppLine:
    """XMPP without TLS, logged in as nobody; the server chooses the JID. Source: RFC 6120; XEP-0175."""

    life = b" "
    refused = re.compile(rb"type='error'")

    def connect(self, place: Place) -> Connection:
        """Log in at the domain that is the host of `url`.

        Raises:
            ConnectionError: the server refuses.
        """
        raw = _connected(place.url)
        stream = (
            f"<?xml version='1.0'?><stream:stream to='{urlsplit(place.url).hostname}' xmlns='jabber:client' "
            "xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>"
        ).encode()
        raw.sendall(stream)
        _read_until(raw, b"</stream:features>")
        raw.sendall(b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>")
        _read_until(raw, b"<success")
        raw.sendall(stream)
        _read_until(raw, b"</stream:features>")
        raw.sendall(b"<iq type='set' id='1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq><presence/>")
        found = re.search(rb"<jid>(.*?)</jid>", _read_until(raw, b"<presence"))
        if found is None:
            raise ConnectionError("the server gave no JID")
        return Connection(raw, found[1].decode(), mark=_QUOTE + b"pad" + _QUOTE)

    def framing(self, stream: Stream) -> Template:
        """See `XmppTemplate`."""
        return XmppTemplate(stream)

    def pattern(self, run: int) -> re.Pattern[bytes]:
        """The text arrives with its quotes escaped."""
        return re.compile(pattern_of(run).pattern.replace(b'"', _QUOTE))


LINES: Final[dict[str, Callable[[], Line]]] = {
    "ws": WebSocketLine,
    "mqtt0": lambda: MqttLine(qos=0),
    "mqtt1": lambda: MqttLine(qos=1),
    "nats": NatsLine,
    "xmpp": XmppLine,
}
"""By the scheme of a server's URL."""


def _connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    raw = socket.create_connection((parts.hostname or "", parts.port or 0), SOCKET_SECONDS)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return raw


def _read_until(raw: socket.socket, wanted: bytes) -> bytes:
    """What arrives up to `wanted` and what comes with it; the server says nothing else then."""
    data = b""
    while wanted not in data:
        data += read_some(raw)
    return data


def _sized(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


def _length(size: int) -> bytes:
    """MQTT's variable length."""
    digits = bytearray()
    while True:
        size, digit = divmod(size, 128)
        digits.append(digit | (0x80 if size else 0))
        if not size:
            return bytes(digits)


if __name__ == "__main__":
    serve_commands(LoadClient(LINES[sys.argv[1]]()).commands())
