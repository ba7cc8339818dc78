"""A hostile runtime or stranger: attacks at a steady rate until it gets the command to stop.

`python -m benchmarks.domain.attacker` reads one JSON command per line from standard input, answers each with one line:

* `begin`: attack in one of the ways of `benchmarks.domain.plan.ATTACKS`, `rate` times a second;
* `end`: stop; answers with how often it attacked, and the first thing that went wrong.

It stands on the standard library only. Every attack is one that ends with a refusal; what is measured is what it costs
the others.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from benchmarks.load_client import READ_BYTES, Connection, connect, frame, open_session, read_some, serve_commands

EVENT_BYTES: Final = 4_000
_UNMASKED: Final = b"\x81\x02{}"
_KERNEL_BYTES: Final = 16 << 10
_SITE_SECONDS: Final = 2.0
_ASK: Final = b"GET /.well-known/rethink/live HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20


class Attacker:
    """One attack at a time, on a thread of its own."""

    def __init__(self) -> None:
        self._held: list[Connection] = []
        self._must_end = threading.Event()
        self._thread = threading.Thread()
        self._attacks = self._begun = 0
        self._trouble = ""

    def begin(self, *, kind: str, url: str, domain: str, rate: float) -> dict[str, object]:
        """Attack from now on."""
        self._begun += 1
        name = f"runtime://{domain}/attacker-{self._begun}"
        begun: dict[str, Callable[[], Callable[[], None]]] = {
            "unread": lambda: self._flood_unread(url, domain, name),
            "broken": lambda: lambda: self._break(url),
            "guessed": lambda: self._guess(url, domain, name),
            "requests": lambda: lambda: _visit(url, _ASK),
            "handshakes": lambda: lambda: _visit(url, b""),
        }
        attack = begun[kind]()
        self._attacks, self._trouble = 0, ""
        self._must_end.clear()
        self._thread = threading.Thread(target=self._repeat, args=(attack, rate), daemon=True)
        self._thread.start()
        return {}

    def end(self) -> dict[str, object]:
        """Stop, and leave."""
        self._must_end.set()
        self._thread.join()
        for one in self._held:
            one.socket.close()
        self._held.clear()
        return {"attacks": self._attacks, "trouble": self._trouble}

    def _repeat(self, attack: Callable[[], None], rate: float) -> None:
        began = time.monotonic()
        try:
            while not self._must_end.wait(max(began + self._attacks / rate - time.monotonic(), 0)):
                attack()
                self._attacks += 1
        except OSError as error:
            self._trouble = repr(error)

    def _session(self, url: str, domain: str, name: str) -> Connection:
        connection = connect(url, "", "")
        self._held.append(connection)
        open_session(connection, domain, name)
        return connection

    def _flood_unread(self, url: str, domain: str, name: str) -> Callable[[], None]:
        """Send events to an accomplice that never reads."""
        accomplice = self._session(url, domain, f"{name}-accomplice")
        accomplice.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BYTES)
        sender = self._session(url, domain, name)
        event = {
            "type": "event",
            "from": sender.address,
            "to": accomplice.address,
            "body": {"value": "x" * EVENT_BYTES},
        }
        text = frame(json.dumps(event).encode())
        return lambda: sender.socket.sendall(text)

    def _break(self, url: str) -> None:
        """Connect and break the protocol."""
        connection = connect(url, "", "")
        connection.socket.sendall(_UNMASKED)
        _read_to_end(connection)

    def _guess(self, url: str, domain: str, name: str) -> Callable[[], None]:
        """Ask for the session of a runtime that is live, again and again."""
        self._session(url, domain, name)
        request = {"id": 1, "type": "open", "from": name, "to": "mn:/session"}
        text = frame(json.dumps(request).encode()) * 5

        def attack() -> None:
            connection = connect(url, "", "")
            connection.socket.sendall(text)
            _read_to_end(connection)

        return attack


def _visit(url: str, request: bytes) -> None:
    """Connect to the site, ask, and read what it answers; a site that refuses the address closes at once."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # a stranger does not care whom it hurts
    parts = urlsplit(url)
    with (
        socket.create_connection((parts.hostname or "", parts.port or 443), _SITE_SECONDS) as raw,
        contextlib.suppress(OSError),
        context.wrap_socket(raw) as line,
    ):
        line.sendall(request)
        while request and line.recv(READ_BYTES):
            pass


def _read_to_end(connection: Connection) -> None:
    """Read until the node has closed the connection; it does, after these."""
    with contextlib.suppress(OSError):
        while True:
            read_some(connection.socket)
    connection.socket.close()


if __name__ == "__main__":
    attacker = Attacker()
    serve_commands({"begin": attacker.begin, "end": attacker.end})
