"""A load client for actions that wait: one sender that has them parked, and an agent that takes them later.

`python -m benchmarks.domain.delivery_client` knows two commands:

* `park`: open a session and send `count` actions to an agent that is away, at most `window` of them unanswered;
* `drain`: be that agent: open a session, claim its address, and answer everything that comes.

Both take `session`: `url` and `ca_file` of the node, `domain`, and `name` of the runtime.
"""

from __future__ import annotations

import json
import re
import select
import time
from collections.abc import Mapping
from typing import Final

from benchmarks.domain.client import BLOCK_REQUESTS
from benchmarks.load_client import FIRST_NUMBER, Connection, ask, connect, frame, read_some, serve_commands

_ANSWER: Final = re.compile(rb'"id":(\d{8}),"type":"response".*?"code":(\d{3})')
_ACTION: Final = re.compile(rb'"id":(\d{8}),"type":"execute"')


def park(*, session: Mapping[str, str], agent: str, count: int, window: int) -> dict[str, object]:
    """Have `count` actions parked; answers with times, counts and faults."""
    connection, domain = _open(**session), session["domain"]
    text = (
        f'{{"id":%d,"type":"execute","from":"{connection.address}","to":"{_action_of(domain, agent)}",'
        '"body":{"class":"action","method":"switch","params":{"on":true,"text":"' + "x" * 100 + '"}}}'
    ).encode()
    requests = [frame(text % number) for number in range(FIRST_NUMBER, FIRST_NUMBER + count)]
    began_ns = time.monotonic_ns()
    codes, waits_ns = _exchange(connection, requests, window)
    ended_ns = time.monotonic_ns()
    connection.socket.close()
    return {
        "answered": len(codes),
        "lost": count - len({number for number, _ in codes}),
        "duplicated": len(codes) - len({number for number, _ in codes}),
        "reordered": int([number for number, _ in codes] != sorted(number for number, _ in codes)),
        "refused": sum(code != b"202" for _, code in codes),
        "nanoseconds": ended_ns - began_ns,
        "turns_ns": waits_ns,
    }


def drain(*, session: Mapping[str, str], agent: str, sender: str, count: int) -> dict[str, object]:
    """Take `count` parked actions and answer each; answers with times, counts and faults."""
    connection, domain = _open(**session), session["domain"]
    claim = {
        "id": 3,
        "type": "subscribe",
        "from": connection.address,
        "to": f"domain://msg-node.{domain}/sm",
        "body": {"resources": [f"thing://{domain}/{agent}"], "source": connection.address},
    }
    answer = (
        f'{{"id":%d,"type":"response","from":"{_action_of(domain, agent)}","to":"runtime://{domain}/{sender}",'
        '"body":{"code":200}}'
    ).encode()
    began_ns = time.monotonic_ns()
    connection.socket.sendall(frame(json.dumps(claim).encode()))
    numbers: list[int] = []
    tail = b""
    while len(numbers) < count:
        stream = tail + read_some(connection.socket)
        found = list(_ACTION.finditer(stream))
        tail = stream[found[-1].end() if found else 0 :]
        numbers += [int(one[1]) for one in found]
        if found:
            connection.socket.sendall(b"".join([frame(answer % int(one[1])) for one in found]))
    ended_ns = time.monotonic_ns()
    connection.socket.close()
    return {
        "answered": len(numbers),
        "lost": count - len(set(numbers)),
        "duplicated": len(numbers) - len(set(numbers)),
        "reordered": int(numbers != sorted(numbers)),
        "refused": 0,
        "nanoseconds": ended_ns - began_ns,
        "turns_ns": [],
    }


def _open(url: str, ca_file: str, domain: str, name: str) -> Connection:
    connection = connect(url, ca_file, "")
    connection.address = f"runtime://{domain}/{name}"
    ask(connection, {"id": 1, "type": "open", "from": connection.address, "to": "mn:/session"})
    return connection


def _action_of(domain: str, agent: str) -> str:
    return f"thing://{domain}/{agent}/lamp/actions/switch"


def _exchange(connection: Connection, requests: list[bytes], window: int) -> tuple[list[tuple[int, bytes]], list[int]]:
    """Write requests with at most `window` unanswered, read until all are answered.

    Returns:
        Number and code of each answer, and how long each took.
    """
    sock, count, sent, tail = connection.socket, len(requests), 0, b""
    sent_ns = [0] * count
    codes: list[tuple[int, bytes]] = []
    waits_ns: list[int] = []
    while len(codes) < count:
        free = min(window - (sent - len(codes)), BLOCK_REQUESTS, count - sent)
        if free > 0:
            now_ns = time.monotonic_ns()
            sent_ns[sent : sent + free] = [now_ns] * free
            sock.sendall(b"".join(requests[sent : sent + free]))
            sent += free
        must_wait = sent == count or sent - len(codes) >= window
        if must_wait or select.select([sock], [], [], 0)[0]:
            stream = tail + read_some(sock)
            now_ns = time.monotonic_ns()
            end = 0
            for found in _ANSWER.finditer(stream):
                number = int(found[1])
                codes.append((number, found[2]))
                waits_ns.append(now_ns - sent_ns[number - FIRST_NUMBER])
                end = found.end()
            tail = stream[end:]
    return codes, waits_ns


if __name__ == "__main__":
    serve_commands({"park": park, "drain": drain})
