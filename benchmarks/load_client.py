"""A load client: raw blocking sockets, ready-made WebSocket frames, one process for one side.

It writes protocol bytes from a template and finds number and time stamp in what arrives by regular expression, about
1 µs per message, so that the nodes are measured and not the client. What was found is judged when the clock has
stopped. It stands on the standard library only.

`python -m benchmarks.load_client` reads one JSON command per line from standard input, answers each with one line:

* `connect`: open `connections` (and sessions, unless `plain`), answer with their `addresses`;
* `send`: write `count` messages from every connection in turn, at `rate` per second or as fast as TCP accepts;
* `receive`: read until `count` messages of `run` came, or nothing came for `idle_seconds`;
* `idle`: hold this many further connections with open sessions.

Frames are masked with the zero key: valid, and the server does all its work. Time is the monotonic clock.
Source: performance study, section 1.
"""

from __future__ import annotations

import base64
import json
import os
import re
import select
import socket
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import quote, urlsplit

FIRST_NUMBER: Final = 10_000_000  # numbers have eight digits, so that all frames of a run have one length
READ_BYTES: Final = 1 << 18
BLOCK_MESSAGES: Final = 32
SOCKET_SECONDS: Final = 30.0
_TAIL_BYTES: Final = 128
_SEEN = rb'"run":%d,"n":(\d{8}),"t":(\d+),"pad"'
_REFUSED = re.compile(rb'"code":[45]\d\d')
PONG = b"\x8a\x80\x00\x00\x00\x00"


Command = Callable[..., dict[str, object]]
"""What a client does for its benchmark: members of the command in, members of the answer out."""


@dataclass(slots=True)
class Connection:
    """One WebSocket; `address` is what others send to and what this side sends from."""

    socket: socket.socket
    address: str = ""
    tail: bytes = b""
    mark: bytes = b'"pad"'
    """Stands behind number and time of a message, in the stream as it arrives."""
    arrived: list[tuple[int, list[tuple[bytes, bytes]]]] = field(default_factory=list)

    def take(self, data: bytes, pattern: re.Pattern[bytes], now_ns: int) -> int:
        """Find the messages of a run in what arrived and return how many; a message may be cut at any byte."""
        text = self.tail + data if self.tail else data
        found: list[tuple[bytes, bytes]] = pattern.findall(text)
        end = text.rfind(self.mark)
        self.tail = text[max(end, len(text) - _TAIL_BYTES, 0) :] if end >= 0 else text[-_TAIL_BYTES:]
        if found:
            self.arrived.append((now_ns, found))
        return len(found)

    def numbers(self) -> list[int]:
        """Numbers of the messages that arrived, in the order in which they did."""
        return [int(number) for _, found in self.arrived for number, _ in found]

    def latencies_ns(self) -> list[int]:
        """Nanoseconds from sending to arrival, for each message that arrived."""
        return [now_ns - int(sent_ns) for now_ns, found in self.arrived for _, sent_ns in found]


def pattern_of(run: int) -> re.Pattern[bytes]:
    """Pattern that finds messages of a run in the stream: its number and the time of sending."""
    return re.compile(_SEEN % run)


def frame(payload: bytes) -> bytes:
    """One masked text frame with the zero key."""
    return frame_head(len(payload)) + payload


def frame_head(size: int) -> bytes:
    """The bytes before a masked text payload of `size` bytes."""
    if size < 126:
        return bytes((0x81, 0x80 | size)) + bytes(4)
    if size < 1 << 16:
        return b"\x81\xfe" + size.to_bytes(2, "big") + bytes(4)
    return b"\x81\xff" + size.to_bytes(8, "big") + bytes(4)


def connect(url: str, ca_file: str, address: str) -> Connection:
    """Open one WebSocket to `url`; in plain mode the address goes into the query."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    raw = socket.create_connection((host, port), SOCKET_SECONDS)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if parts.scheme == "wss":
        raw = ssl.create_default_context(cafile=ca_file).wrap_socket(raw, server_hostname=host)
    target = parts.path + (f"?address={quote(address, safe='')}" if address else "")
    key = base64.b64encode(os.urandom(16)).decode()
    raw.sendall(
        f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    head = b""
    while b"\r\n\r\n" not in head:
        head += read_some(raw)
    if not head.startswith(b"HTTP/1.1 101"):
        raise ConnectionError(head.decode("latin-1"))
    return Connection(raw, address)


def read_some(raw: socket.socket) -> bytes:
    """Read what has arrived, at least one byte.

    Raises:
        ConnectionError: at the end of the stream.
    """
    data = raw.recv(READ_BYTES)
    if not data:
        raise ConnectionError("the node closed the connection")
    return data


def ask(connection: Connection, message: dict[str, object]) -> dict[str, Any]:
    """Send one request on a quiet connection and return the body of its answer.

    Raises:
        ConnectionError: when it is refused.
    """
    connection.socket.sendall(frame(json.dumps(message).encode()))
    data = b""
    while True:
        data += read_some(connection.socket)
        begin = data.find(b"{")
        try:
            answer = json.loads(data[begin:])
        except ValueError:
            continue
        if answer["body"]["code"] != 200:
            raise ConnectionError(f"{message['type']} for {message['to']}: {answer['body']}")
        return dict(answer["body"])


def open_session(connection: Connection, domain: str, runtime: str) -> None:
    """Open a session and let the node allocate one address for it."""
    ask(connection, {"id": 1, "type": "open", "from": runtime, "to": "mn:/session"})
    body = ask(
        connection,
        {
            "id": 2,
            "type": "create",
            "from": f"{runtime}/address-allocation",
            "to": f"domain://msg-node.{domain}/address-allocation",
            "body": {"scheme": "hyperty", "value": {"number": 1, "allocationKey": runtime}},
        },
    )
    connection.address = body["value"]["allocated"][0]


class Template:
    """Frames of one run between one pair: everything but number and time is made once."""

    def __init__(self, run: int, from_: str, to: str, body_bytes: int, *, type_: str = "event") -> None:
        now = time.monotonic_ns()
        bare = len(self._body(run, FIRST_NUMBER, now, ""))
        if body_bytes < bare:
            raise ValueError(f"a body has at least {bare} bytes")
        head = f'{{"id":%d,"type":"{type_}","from":"{from_}","to":"{to}","body":'
        self.text = (head + self._body(run, "%d", "%d", "x" * (body_bytes - bare)) + "}").encode()
        """The message; takes its number twice, then the time."""
        self._head = frame_head(len(self.text % (FIRST_NUMBER, FIRST_NUMBER, now)))
        self._digits = len(str(now))

    @staticmethod
    def _body(run: int, number: object, now: object, padding: str) -> str:
        return f'{{"run":{run},"n":{number},"t":{now},"pad":"{padding}"}}'

    def frame(self, number: int, now_ns: int) -> bytes:
        """The frame of one message."""
        text = self.text % (number, number, now_ns)
        return (self._head if len(str(now_ns)) == self._digits else frame_head(len(text))) + text


@dataclass(frozen=True, slots=True)
class Place:
    """Server to connect to; with an address, the client subscribes to it."""

    url: str
    ca_file: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Stream:
    """The messages of one run from one address to another."""

    run: int
    from_: str
    to: str
    body_bytes: int
    type: str = "event"


class Line(Protocol):
    """The protocol that a load client speaks on its connections."""

    life: bytes
    """Shows the server that the client lives."""
    refused: re.Pattern[bytes]
    """What an answer looks like that refuses a message."""

    def connect(self, place: Place) -> Connection:
        """Open one connection. The server may give it another address."""

    def framing(self, stream: Stream) -> Framing:
        """The function that makes the frames of a stream."""

    def pattern(self, run: int) -> re.Pattern[bytes]:
        """See `pattern_of`."""


class Framing(Protocol):
    """Makes the frames of one stream."""

    def frame(self, number: int, now_ns: int) -> bytes:
        """The frame of one message."""


class WebSocketLine:
    """The message as it is, in frames of WebSocket."""

    life = PONG
    refused = _REFUSED

    def connect(self, place: Place) -> Connection:
        """See `connect`."""
        return connect(place.url, place.ca_file, place.address)

    def framing(self, stream: Stream) -> Template:
        """See `Template`."""
        return Template(stream.run, stream.from_, stream.to, stream.body_bytes, type_=stream.type)

    def pattern(self, run: int) -> re.Pattern[bytes]:
        """See `pattern_of`."""
        return pattern_of(run)


class LoadClient:
    """One side of a measurement, by WebSocket unless another line is given."""

    def __init__(self, line: Line | None = None) -> None:
        self.line: Line = line or WebSocketLine()
        self.connections: list[Connection] = []
        self.idle: list[Connection] = []

    def commands(self) -> dict[str, Command]:
        """Commands of this client, by name."""
        return {"connect": self.connect, "idle": self.hold_idle, "send": self.send, "receive": self.receive}

    def connect(
        self, *, url: str, ca_file: str, domain: str, name: str, connections: int, plain: bool
    ) -> dict[str, object]:
        """Open `connections`; answers with their addresses."""
        for index in range(connections):
            address = f"hyperty://{domain}/{name}-{index}" if plain else ""
            connection = self.line.connect(Place(url, ca_file, address))
            if not plain:
                open_session(connection, domain, f"runtime://{domain}/{name}-{index}")
            self.connections.append(connection)
        return {"addresses": [connection.address for connection in self.connections]}

    def hold_idle(self, *, url: str, ca_file: str, domain: str, name: str, connections: int) -> dict[str, object]:
        """Open further connections with sessions and leave them alone."""
        for index in range(connections):
            connection = connect(url, ca_file, "")
            runtime = f"runtime://{domain}/{name}-idle-{index}"
            ask(connection, {"id": 1, "type": "open", "from": runtime, "to": "mn:/session"})
            self.idle.append(connection)
        return {"idle": len(self.idle)}

    def send(
        self, *, run: int, targets: list[str], count: int, rate: float, body_bytes: int, type: str = "event"
    ) -> dict[str, object]:
        """Write `count` messages in all; connection i sends to target i. Rate 0: as fast as TCP accepts."""
        templates = [
            self.line.framing(Stream(run, connection.address, target, body_bytes, type))
            for connection, target in zip(self.connections, targets, strict=True)
        ]
        self._show_life()
        began = time.monotonic_ns()
        if rate:
            self._send_paced(templates, count, rate)
        else:
            self._send_flood(templates, count)
        ended = time.monotonic_ns()
        return {"began_ns": began, "ended_ns": ended, "refused": self._count_refusals()}

    def _show_life(self) -> None:
        for connection in self.connections:
            connection.socket.sendall(self.line.life)

    def _send_flood(self, templates: list[Framing], count: int) -> None:
        width = len(templates)
        for first in range(0, count, BLOCK_MESSAGES * width):
            size = min(BLOCK_MESSAGES, -(-(count - first) // width))
            begin = FIRST_NUMBER + first // width
            for template, connection in zip(templates, self.connections, strict=True):
                now = time.monotonic_ns()
                block = [template.frame(number, now) for number in range(begin, begin + size)]
                connection.socket.sendall(b"".join(block))

    def _send_paced(self, templates: list[Framing], count: int, rate: float) -> None:
        width = len(templates)
        began = time.perf_counter()
        for index in range(count):
            ahead = began + index / rate - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            number, side = divmod(index, width)
            payload = templates[side].frame(FIRST_NUMBER + number, time.monotonic_ns())
            self.connections[side].socket.sendall(payload)

    def _count_refusals(self) -> int:
        """Error answers that came back by now. What comes later shows up as lost at the other side."""
        refused = 0
        for connection in self.connections:
            while select.select([connection.socket], [], [], 0)[0]:
                refused += len(self.line.refused.findall(read_some(connection.socket)))
        return refused

    def receive(self, *, run: int, count: int, idle_seconds: float) -> dict[str, object]:
        """Read until `count` messages came or nothing came for `idle_seconds`; answers with times and counts."""
        self._show_life()
        pattern = self.line.pattern(run)
        poll = select.poll()
        by_file = {connection.socket.fileno(): connection for connection in self.connections}
        for connection in self.connections:
            connection.arrived = []
            poll.register(connection.socket, select.POLLIN)
        received = last_ns = 0
        while received < count:
            ready = poll.poll(idle_seconds * 1e3)
            if not ready:
                break
            for file, _ in ready:
                connection = by_file[file]
                data = read_some(connection.socket)
                while isinstance(connection.socket, ssl.SSLSocket) and connection.socket.pending():
                    data += read_some(connection.socket)
                last_ns = time.monotonic_ns()
                received += connection.take(data, pattern, last_ns)
        return self._result(received, count, last_ns)

    def _result(self, received: int, count: int, last_ns: int) -> dict[str, object]:
        expected = count // len(self.connections)
        lost = duplicated = reordered = 0
        for connection in self.connections:
            numbers = connection.numbers()
            distinct = set(numbers)
            lost += expected - len(distinct)
            duplicated += len(numbers) - len(distinct)
            reordered += numbers != sorted(numbers)
        return {
            "received": received,
            "last_ns": last_ns,
            "lost": lost,
            "duplicated": duplicated,
            "reordered": reordered,
            "latencies_ns": [latency for connection in self.connections for latency in connection.latencies_ns()],
        }


def serve_commands(commands: Mapping[str, Command]) -> None:
    """Carry out commands until standard input ends."""
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = commands[command.pop("do")](**command)
        except (OSError, ValueError) as error:
            answer = {"error": repr(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve_commands(LoadClient().commands())
