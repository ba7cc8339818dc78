"""A load client: raw blocking sockets, ready-made WebSocket frames, one process for one side.

It writes protocol bytes from a template and finds number and time stamp in what arrives by regular expression, about
2 µs per message, so that the nodes are measured and not the client. It stands on the standard library only.

`python -m benchmarks.load_client` reads one JSON command per line from standard input, answers each with one line:

* `connect`: open `connections` (and sessions, unless `plain`), answer with their `addresses`;
* `send`: write `count` messages from every connection in turn, at `rate` per second or as fast as TCP accepts;
* `receive`: read until `count` messages of `run` came, or nothing came for `idle_seconds`;
* `idle`: hold this many further connections with open sessions.

Frames are masked with the zero key: valid, and the server does all its work. Time is the monotonic clock.
Source: federation study, "How it was measured".
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
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlsplit

FIRST_NUMBER: Final = 10_000_000  # numbers have eight digits, so that all frames of a run have one length
READ_BYTES: Final = 1 << 18
BLOCK_MESSAGES: Final = 32
SOCKET_SECONDS: Final = 30.0
_TAIL_BYTES: Final = 128
_SEEN = re.compile(rb'"run":(\d+),"n":(\d{8}),"t":(\d+),"pad"')
_REFUSED = re.compile(rb'"code":[45]\d\d')
_PONG = b"\x8a\x80\x00\x00\x00\x00"


@dataclass(slots=True)
class Connection:
    """One WebSocket; `address` is what others send to and what this side sends from."""

    socket: socket.socket
    address: str = ""
    tail: bytes = b""
    numbers: list[int] = field(default_factory=list)


def frame(payload: bytes) -> bytes:
    """One masked text frame with the zero key."""
    return frame_head(len(payload)) + payload


def frame_head(size: int) -> bytes:
    """What stands before a masked text payload of `size` bytes."""
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
        head += _read_some(raw)
    if not head.startswith(b"HTTP/1.1 101"):
        raise ConnectionError(head.decode("latin-1"))
    return Connection(raw, address)


def _read_some(raw: socket.socket) -> bytes:
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
        data += _read_some(connection.socket)
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

    def __init__(self, run: int, from_: str, to: str, body_bytes: int) -> None:
        now = time.monotonic_ns()
        bare = len(self._body(run, FIRST_NUMBER, now, ""))
        if body_bytes < bare:
            raise ValueError(f"a body has at least {bare} bytes")
        head = f'{{"id":%d,"type":"event","from":"{from_}","to":"{to}","body":'
        self._text = (head + self._body(run, "%d", "%d", "x" * (body_bytes - bare)) + "}").encode()
        self._head = frame_head(len(self._text % (FIRST_NUMBER, FIRST_NUMBER, now)))
        self._digits = len(str(now))

    @staticmethod
    def _body(run: int, number: object, now: object, padding: str) -> str:
        return f'{{"run":{run},"n":{number},"t":{now},"pad":"{padding}"}}'

    def frame(self, number: int, now_ns: int) -> bytes:
        """The frame of one message."""
        text = self._text % (number, number, now_ns)
        return (self._head if len(str(now_ns)) == self._digits else frame_head(len(text))) + text


class LoadClient:
    """One side of a measurement."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.idle: list[Connection] = []

    def connect(
        self, *, url: str, ca_file: str, domain: str, name: str, connections: int, plain: bool
    ) -> dict[str, object]:
        """Open `connections`; answers with their addresses."""
        for index in range(connections):
            address = f"hyperty://{domain}/{name}-{index}" if plain else ""
            connection = connect(url, ca_file, address)
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

    def send(self, *, run: int, targets: list[str], count: int, rate: float, body_bytes: int) -> dict[str, object]:
        """Write `count` messages in all; connection i sends to target i. Rate 0: as fast as TCP accepts."""
        templates = [
            Template(run, connection.address, target, body_bytes)
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
            connection.socket.sendall(_PONG)

    def _send_flood(self, templates: list[Template], count: int) -> None:
        width = len(templates)
        for first in range(0, count, BLOCK_MESSAGES * width):
            size = min(BLOCK_MESSAGES, -(-(count - first) // width))
            begin = FIRST_NUMBER + first // width
            for template, connection in zip(templates, self.connections, strict=True):
                now = time.monotonic_ns()
                block = [template.frame(number, now) for number in range(begin, begin + size)]
                connection.socket.sendall(b"".join(block))

    def _send_paced(self, templates: list[Template], count: int, rate: float) -> None:
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
                refused += len(_REFUSED.findall(_read_some(connection.socket)))
        return refused

    def receive(self, *, run: int, count: int, idle_seconds: float) -> dict[str, object]:
        """Read until `count` messages came or nothing came for `idle_seconds`; answers with times and counts."""
        self._show_life()
        poll = select.poll()
        by_file = {connection.socket.fileno(): connection for connection in self.connections}
        for connection in self.connections:
            connection.numbers = []
            poll.register(connection.socket, select.POLLIN)
        latencies: list[int] = []
        last_ns = 0
        while len(latencies) < count:
            ready = poll.poll(idle_seconds * 1e3)
            if not ready:
                break
            for file, _ in ready:
                connection = by_file[file]
                data = _read_some(connection.socket)
                while isinstance(connection.socket, ssl.SSLSocket) and connection.socket.pending():
                    data += _read_some(connection.socket)
                last_ns = time.monotonic_ns()
                _take(connection, data, run, last_ns, latencies)
        return self._result(latencies, count, last_ns)

    def _result(self, latencies: list[int], count: int, last_ns: int) -> dict[str, object]:
        expected = count // len(self.connections)
        lost = duplicated = reordered = 0
        for connection in self.connections:
            distinct = set(connection.numbers)
            lost += expected - len(distinct)
            duplicated += len(connection.numbers) - len(distinct)
            reordered += connection.numbers != sorted(connection.numbers)
        return {
            "received": len(latencies),
            "last_ns": last_ns,
            "lost": lost,
            "duplicated": duplicated,
            "reordered": reordered,
            "latencies_ns": latencies,
        }


def _take(connection: Connection, data: bytes, run: int, now_ns: int, latencies: list[int]) -> None:
    """Find the messages of `run` in what arrived; a message may be cut at any byte."""
    text = connection.tail + data
    found = _SEEN.findall(text)
    end = text.rfind(b'"pad"')
    connection.tail = text[max(end, len(text) - _TAIL_BYTES, 0) :] if end >= 0 else text[-_TAIL_BYTES:]
    for seen_run, number, sent_ns in found:
        if int(seen_run) == run:
            connection.numbers.append(int(number))
            latencies.append(now_ns - int(sent_ns))


def main() -> None:
    """Serve commands until standard input ends."""
    client = LoadClient()
    commands: dict[str, Callable[..., dict[str, object]]] = {
        "connect": client.connect,
        "idle": client.hold_idle,
        "send": client.send,
        "receive": client.receive,
    }
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = commands[command.pop("do")](**command)
        except (OSError, ValueError) as error:
            answer = {"error": repr(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
