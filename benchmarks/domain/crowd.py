"""A crowd of quiet sessions: each owns addresses, listens to its neighbour's, answers pings and says nothing else.

`python -m benchmarks.domain.crowd` reads one JSON command per line from standard input and answers each with one line:

* `join`: open `count` further sessions with `addresses` addresses and as many subscriptions each;
* `report`: how many sessions are open and how many pings were answered.

Meanwhile it answers pings, as every runtime does.
"""

from __future__ import annotations

import json
import os
import resource
import select
import sys
import time
from typing import Any, Final

from benchmarks.load_client import PONG, Connection, connect, frame, read_some

GROUP: Final = 200
"""Sessions that join side by side, so that the node can commit them together."""
_PING: Final = b"\x89\x00"
_STDIN: Final = 0
_PIPE_BYTES: Final = 1 << 16


class Crowd:
    """Many sessions in one process."""

    def __init__(self) -> None:
        self._members: dict[int, Connection] = {}
        self._poll = select.epoll()
        self._joined = self._pings = 0

    def join(self, *, url: str, ca_file: str, domain: str, name: str, count: int, addresses: int) -> dict[str, object]:
        """Open `count` further sessions."""
        began = time.monotonic()
        for first in range(self._joined, self._joined + count, GROUP):
            size = min(GROUP, self._joined + count - first)
            group = [connect(url, ca_file, "") for _ in range(size)]
            runtimes = [f"runtime://{domain}/{name}-{number}" for number in range(first, first + size)]
            _settle(group, runtimes, domain, addresses)
            for member in group:
                member.socket.setblocking(False)
                self._members[member.socket.fileno()] = member
                self._poll.register(member.socket, select.EPOLLIN)
            for file, _ in self._poll.poll(0):  # on a busy machine, joining takes longer than silence is tolerated
                if file != _STDIN:
                    self._hear(file)
        self._joined += count
        return {"members": len(self._members), "seconds": time.monotonic() - began}

    def report(self) -> dict[str, object]:
        """The results of all clients."""
        return {"members": len(self._members), "pings": self._pings}

    def serve(self) -> None:
        """Carry out commands and answer pings until standard input ends."""
        commands = {"join": self.join, "report": self.report}
        self._poll.register(_STDIN, select.EPOLLIN)
        text = b""
        while True:
            for file, _ in self._poll.poll():
                if file != _STDIN:
                    self._hear(file)
                    continue
                data = os.read(_STDIN, _PIPE_BYTES)
                if not data:
                    return
                *lines, text = (text + data).split(b"\n")
                for line in lines:
                    self._carry_out(json.loads(line), commands)

    def _carry_out(self, command: dict[str, Any], commands: dict[str, Any]) -> None:
        try:
            answer = commands[command.pop("do")](**command)
        except (OSError, ValueError) as error:
            answer = {"error": repr(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()

    def _hear(self, file: int) -> None:
        member = self._members[file]
        try:
            pings = read_some(member.socket).count(_PING)
            if pings:
                member.socket.sendall(PONG)
        except OSError:
            self._poll.unregister(file)
            del self._members[file]
            member.socket.close()
        else:
            self._pings += pings


def _settle(group: list[Connection], runtimes: list[str], domain: str, addresses: int) -> None:
    """Give each of a group its session, its addresses and its subscriptions: to what its neighbour owns."""
    node = f"domain://msg-node.{domain}"
    _ask_all(group, [{"id": 1, "type": "open", "from": runtime, "to": "mn:/session"} for runtime in runtimes])
    wish = {"scheme": "hyperty", "value": {"number": addresses}}
    request = {"id": 2, "type": "create", "to": f"{node}/address-allocation", "body": wish}
    owned = [
        body["value"]["allocated"] for body in _ask_all(group, [{**request, "from": runtime} for runtime in runtimes])
    ]
    _ask_all(
        group,
        [
            {
                "id": 3,
                "type": "subscribe",
                "from": runtime,
                "to": f"{node}/sm",
                "body": {"resources": [f"{address}/changes" for address in owned[number - 1]]},
            }
            for number, runtime in enumerate(runtimes)
        ],
    )


def _ask_all(group: list[Connection], requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Send one request on each quiet connection, then read all answers; their bodies.

    Raises:
        ConnectionError: when one is refused.
    """
    for member, request in zip(group, requests, strict=True):
        member.socket.sendall(frame(json.dumps(request).encode()))
    bodies = []
    for member in group:
        data = b""
        while True:
            data += read_some(member.socket)
            try:
                body = json.loads(data[data.find(b"{") :])["body"]
            except ValueError:
                continue
            if body["code"] != 200:
                raise ConnectionError(str(body))
            bodies.append(body)
            break
    return bodies


def main() -> None:
    """Serve; every session is a descriptor."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    Crowd().serve()


if __name__ == "__main__":
    main()
