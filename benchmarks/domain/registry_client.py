"""A load client for the domain registry: fills it with hyperties, then reads them by their users.

`python -m benchmarks.domain.registry_client` knows three commands:

* `register`: open sessions and register `count` hyperties, each of a user of its own, all due at the same second;
* `stay`: say that these sessions are alive;
* `read`: read hyperties by users taken at random, at `rate` a second.

It stands on the standard library only.
"""

from __future__ import annotations

import random
import re
import select
import time
from typing import Final

from benchmarks.load_client import FIRST_NUMBER, PONG, Connection, ask, connect, frame, read_some, serve_commands

PER_SESSION: Final = 10_000
UNANSWERED: Final = 64
_ANSWER: Final = re.compile(rb'"id":(\d{8}),"type":"response".*?"code":(\d{3})')


class RegistryClient:
    """Holds the sessions that have registered: their end would disconnect what they have."""

    def __init__(self) -> None:
        self._writers: list[Connection] = []
        self._reader: Connection | None = None

    def register(self, *, url: str, ca_file: str, domain: str, count: int, due_seconds: float) -> dict[str, object]:
        """Register, or register again, so that all are due `due_seconds` from now; answers with what was refused."""
        due = time.monotonic() + due_seconds
        began_ns = time.monotonic_ns()
        answered = refused = 0
        for block in range(0, count, PER_SESSION):
            number = block // PER_SESSION
            if number == len(self._writers):
                self._writers.append(_open(url, ca_file, domain, f"registrar-{number}"))
            codes = self._write(self._writers[number], domain, range(block, min(block + PER_SESSION, count)), due)
            answered += len(codes)
            refused += sum(code != b"200" for code in codes)
        return {
            "answered": answered,
            "refused": refused,
            "nanoseconds": time.monotonic_ns() - began_ns,
            "seconds_left": due - time.monotonic(),
        }

    def _write(self, connection: Connection, domain: str, numbers: range, due: float) -> list[bytes]:
        codes: list[bytes] = []
        sent, tail = 0, b""
        while len(codes) < len(numbers):
            room = min(UNANSWERED - (sent - len(codes)), len(numbers) - sent)
            if room > 0:
                expires = max(1, round(due - time.monotonic()))
                some = numbers[sent : sent + room]
                connection.socket.sendall(
                    b"".join([_creation(connection.address, domain, one, expires) for one in some])
                )
                sent += room
            stream = tail + read_some(connection.socket)
            found = list(_ANSWER.finditer(stream))
            codes += [one[2] for one in found]
            tail = stream[found[-1].end() if found else 0 :]
        return codes

    def stay(self) -> dict[str, object]:
        """Show the node that these runtimes are alive: a node closes who is silent for a minute."""
        for connection in self._writers:
            connection.socket.sendall(PONG)
        return {}

    def read(self, *, url: str, ca_file: str, domain: str, count: int, rate: float, users: int) -> dict[str, object]:
        """Read `count` times; answers with times, counts and faults."""
        connection = self._reader = self._reader or _open(url, ca_file, domain, "reader")
        draw = random.Random(1)
        requests = [
            _question(connection.address, domain, FIRST_NUMBER + index, draw.randrange(users)) for index in range(count)
        ]
        sent_ns = [0] * count
        waits_ns: list[int] = []
        numbers: list[int] = []
        refused, sent, tail = 0, 0, b""
        began_ns = time.monotonic_ns()
        while len(numbers) < count:
            now_ns = time.monotonic_ns()
            due = min(count, int((now_ns - began_ns) / 1e9 * rate) + 1)
            if sent < due:
                sent_ns[sent:due] = [now_ns] * (due - sent)
                connection.socket.sendall(b"".join(requests[sent:due]))
                sent = due
            pause = 30.0 if sent == count else max(0.0, began_ns / 1e9 + sent / rate - time.monotonic())
            if not select.select([connection.socket], [], [], pause)[0]:
                continue
            stream = tail + read_some(connection.socket)
            now_ns, end = time.monotonic_ns(), 0
            for found in _ANSWER.finditer(stream):
                number = int(found[1]) - FIRST_NUMBER
                numbers.append(number)
                waits_ns.append(now_ns - sent_ns[number])
                refused += found[2] != b"200"
                end = found.end()
            tail = stream[end:]
        return {
            "answered": count,
            "lost": count - len(set(numbers)),
            "duplicated": len(numbers) - len(set(numbers)),
            "reordered": int(numbers != sorted(numbers)),
            "refused": refused,
            "nanoseconds": time.monotonic_ns() - began_ns,
            "turns_ns": waits_ns,
        }


def _open(url: str, ca_file: str, domain: str, name: str) -> Connection:
    connection = connect(url, ca_file, "")
    connection.address = f"runtime://{domain}/{name}"
    ask(connection, {"id": 1, "type": "open", "from": connection.address, "to": "mn:/session"})
    return connection


def _creation(runtime: str, domain: str, number: int, expires: int) -> bytes:
    return frame(
        (
            f'{{"id":{FIRST_NUMBER + number},"type":"create","from":"{runtime}","to":"domain://registry.{domain}","body":'
            f'{{"value":{{"url":"hyperty://{domain}/h-{number}","user":"user://{domain}/u-{number}",'
            f'"guid":"user-guid://g-{number}","descriptor":"hyperty-catalogue://catalogue.{domain}/.well-known/hyperty/Chat",'
            f'"runtime":"{runtime}","resources":["chat"],"dataSchemes":["comm"],"status":"live","expires":{expires}}}}}}}'
        ).encode()
    )


def _question(runtime: str, domain: str, id_: int, user: int) -> bytes:
    return frame(
        (
            f'{{"id":{id_},"type":"read","from":"{runtime}","to":"domain://registry.{domain}",'
            f'"body":{{"resource":"/hyperty/user/user://{domain}/u-{user}"}}}}'
        ).encode()
    )


if __name__ == "__main__":
    client = RegistryClient()
    serve_commands({"register": client.register, "stay": client.stay, "read": client.read})
