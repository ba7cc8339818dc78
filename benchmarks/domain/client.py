"""A load client for one domain: what the other load client does, and allocation, objects and their observers.

`python -m benchmarks.domain.client` knows these commands besides those of `benchmarks.load_client`:

* `allocate`: open a session and have `count` addresses allocated, each by a request of its own, at most `window` of
  them unanswered;
* `release`: give them back and close the session;
* `own_object`: have an object address allocated, which becomes the address of the first connection;
* `observe`: subscribe every connection to the changes of an object.
"""

from __future__ import annotations

import json
import re
import select
import time
from typing import Final

from benchmarks.load_client import (
    FIRST_NUMBER,
    Command,
    Connection,
    LoadClient,
    ask,
    connect,
    frame,
    read_some,
    serve_commands,
)

BLOCK_REQUESTS: Final = 32
_ANSWER = re.compile(rb'"id":(\d{8}),"type":"response"')
_ALLOCATED = re.compile(rb'"allocated":\["([^"]+)"\]')
_MARK: Final = b'"type":"response"'


class DomainClient(LoadClient):
    """One side of a measurement inside a domain."""

    def __init__(self) -> None:
        super().__init__()
        self._allocators: list[Connection] = []

    def commands(self) -> dict[str, Command]:
        """Commands of this client, by name."""
        return {
            **super().commands(),
            "allocate": self.allocate,
            "release": self.release,
            "own_object": self.own_object,
            "observe": self.observe,
        }

    def own_object(self, *, domain: str) -> dict[str, object]:
        """Let the first connection own an object; answers with its address."""
        connection = self.connections[0]
        body = ask(
            connection,
            {
                "id": 3,
                "type": "create",
                "from": connection.address,
                "to": f"domain://msg-node.{domain}/object-address-allocation",
                "body": {"scheme": "comm", "value": {"number": 1}},
            },
        )
        connection.address = body["value"]["allocated"][0]
        return {"url": connection.address}

    def observe(self, *, domain: str, url: str) -> dict[str, object]:
        """Subscribe every connection to what changes in an object."""
        for connection in self.connections:
            ask(
                connection,
                {
                    "id": 3,
                    "type": "subscribe",
                    "from": connection.address,
                    "to": f"domain://msg-node.{domain}/sm",
                    "body": {"resources": [f"{url}/changes"], "source": connection.address},
                },
            )
        return {"observers": len(self.connections)}

    def allocate(self, *, url: str, ca_file: str, domain: str, name: str, count: int, window: int) -> dict[str, object]:
        """Allocate `count` addresses one by one; answers with times, counts and faults."""
        connection = connect(url, ca_file, "")
        runtime = f"runtime://{domain}/{name}"
        ask(connection, {"id": 1, "type": "open", "from": runtime, "to": "mn:/session"})
        connection.address = runtime
        self._allocators.append(connection)
        began_ns = time.monotonic_ns()
        chunks, turns_ns = _exchange(connection, _requests(domain, runtime, count), window)
        ended_ns = time.monotonic_ns()
        answer = _judge(b"".join(chunks), count)
        return {**answer, "nanoseconds": ended_ns - began_ns, "turns_ns": turns_ns if window == 1 else []}

    def release(self, *, domain: str) -> dict[str, object]:
        """Give back what was allocated, and end those sessions."""
        for connection in self._allocators:
            runtime = connection.address
            service = f"domain://msg-node.{domain}/address-allocation"
            ask(connection, {"id": 2, "type": "delete", "from": runtime, "to": service, "body": {"resource": runtime}})
            connection.socket.sendall(
                frame(json.dumps({"type": "close", "from": runtime, "to": "mn:/session"}).encode())
            )
            connection.socket.close()
        self._allocators.clear()
        return {}


def _requests(domain: str, runtime: str, count: int) -> list[bytes]:
    text = (
        f'{{"id":%d,"type":"create","from":"{runtime}","to":"domain://msg-node.{domain}/address-allocation",'
        f'"body":{{"scheme":"hyperty","value":{{"number":1,"allocationKey":"{runtime}"}}}}}}'
    ).encode()
    return [frame(text % number) for number in range(FIRST_NUMBER, FIRST_NUMBER + count)]


def _exchange(connection: Connection, requests: list[bytes], window: int) -> tuple[list[bytes], list[int]]:
    """Write requests with at most `window` unanswered, read until all are answered.

    Returns:
        What arrived, and how long each turn of writing and reading took.
    """
    sock = connection.socket
    chunks: list[bytes] = []
    turns_ns: list[int] = []
    count, sent, answered, tail = len(requests), 0, 0, b""
    while answered < count:
        began_ns = time.monotonic_ns()
        room = min(window - (sent - answered), BLOCK_REQUESTS, count - sent)
        if room > 0:
            sock.sendall(b"".join(requests[sent : sent + room]))
            sent += room
        must_wait = sent == count or sent - answered >= window
        if must_wait or select.select([sock], [], [], 0)[0]:
            data = read_some(sock)
            chunks.append(data)
            data = tail + data
            answered += data.count(_MARK)
            tail = data[1 - len(_MARK) :]
        turns_ns.append(time.monotonic_ns() - began_ns)
    return chunks, turns_ns


def _judge(stream: bytes, count: int) -> dict[str, object]:
    """Return what is wrong with the answers: too few, refused, out of order, or an address given twice."""
    numbers = [int(number) for number in _ANSWER.findall(stream)]
    addresses: list[bytes] = _ALLOCATED.findall(stream)
    return {
        "answered": len(numbers),
        "lost": count - len(set(numbers)),
        "reordered": int(numbers != sorted(numbers)),
        "duplicated": len(addresses) - len(set(addresses)),
        "refused": len(numbers) - len(addresses),
    }


if __name__ == "__main__":
    serve_commands(DomainClient().commands())
