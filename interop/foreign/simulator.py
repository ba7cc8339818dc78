"""What the simulators of foreign messaging nodes have in common: a listener, lines, runtimes of their own, a registry.

The simulators are written from what was observed of the real nodes, oddities included. They speak over real sockets to
the node under test; their own runtimes are in memory.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import trio

from wire.core.websocket import ServerWebSocket

Json = dict[str, Any]
READ_BYTES = 65_536
PATIENCE_SECONDS = 20.0


class Line:
    """One connection to the node, from the node's side. `is_stuck`: what comes is not read any more."""

    def __init__(self) -> None:
        self.is_stuck = False

    def send(self, message: Json) -> None:
        """Send one message; nothing happens on a line that is closed."""
        raise NotImplementedError

    def close(self) -> None:
        """Close in good order."""


class SocketLine(Line):
    """A WebSocket with a JSON text in each frame; a subclass may frame otherwise."""

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        super().__init__()
        self.stream = stream
        self.websocket = ServerWebSocket()
        self.query = ""
        self._moved = trio.Event()
        self._writing = trio.Lock()

    def send(self, message: Json) -> None:
        """See `Line`."""
        self.send_text(json.dumps(message, ensure_ascii=False, separators=(",", ":")))

    def send_text(self, text: str) -> None:
        """Send one text."""
        self.websocket.send([text.encode()])
        self._moved.set()

    def close(self) -> None:
        """See `Line`."""
        self.websocket.close(1000)
        self._moved.set()

    async def run_writer(self) -> None:
        """Write what waits, until cancelled."""
        while True:
            await self._moved.wait()
            self._moved = trio.Event()
            await self.write()

    async def write(self) -> None:
        """Write what waits, behind what is being written."""
        async with self._writing:
            if data := self.websocket.data_to_send():
                await self.stream.send_all(data)

    def flush(self) -> None:
        """Have what waits written soon."""
        self._moved.set()

    async def cut(self) -> None:
        """End the connection without a word."""
        await trio.aclose_forcefully(self.stream)


class ForeignNode:
    """A messaging node of another make. Subclasses say what it does with each message.

    Attributes:
        received: Every message that came over a socket, in order.
        connections: How many sockets were accepted since the beginning.
        is_running: Whether it listens.
        on_kill: Called when it is killed.
    """

    path = "/"

    def __init__(self, domain: str, *, ssl_context: ssl.SSLContext | None = None) -> None:
        self.domain = domain
        self.port = 0
        self.received: list[Json] = []
        self.connections = 0
        self.registry: dict[str, Json] = {}
        self.is_running = False
        self.on_kill: list[Callable[[], None]] = []
        self._ssl_context = ssl_context
        self._lines: set[SocketLine] = set()
        self._serving: trio.CancelScope | None = None
        self._nursery: trio.Nursery | None = None
        self._moved = trio.lowlevel.ParkingLot()

    # What a dialect says.

    def accepts(self, path: str, query: str) -> bool:
        """True if a WebSocket may be opened here."""
        return path == self.path and not query

    def join(self, runtime: LocalRuntime) -> None:
        """A runtime in memory connects."""

    def make_line(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> SocketLine:
        """The line of a connection that came."""
        return SocketLine(stream)

    def came(self, line: SocketLine) -> None:
        """A line is open."""

    def went(self, line: Line) -> None:
        """A line is gone."""

    def forget(self) -> None:
        """The process was killed; what it had in memory is gone."""

    def receive(self, line: Line, text: str) -> None:
        """One message came."""
        raise NotImplementedError

    # The process.

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await self.start()
            task_status.started()
            await trio.sleep_forever()

    async def start(self) -> None:
        """Listen; after the first time on the same port."""
        assert self._nursery is not None
        await self._nursery.start(self._listen)

    async def kill(self) -> None:
        """End all lines without a word, and lose what is in memory."""
        assert self._serving is not None
        self._serving.cancel()
        for line in list(self._lines):
            await line.cut()
        self.forget()
        self.is_running = False
        for killed in list(self.on_kill):
            killed()

    async def cut_lines(self) -> None:
        """The network fails for a moment."""
        for line in list(self._lines):
            await line.cut()

    async def _listen(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        [listener] = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
        self.port = listener.socket.getsockname()[1]
        with trio.CancelScope() as self._serving:
            self.is_running = True
            task_status.started()
            await trio.serve_listeners(self._accept, [listener])

    async def _accept(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        line = self.make_line(
            stream
            if self._ssl_context is None
            else trio.SSLStream(stream, self._ssl_context, server_side=True, https_compatible=True)
        )
        try:
            async with line.stream, trio.open_nursery() as nursery:
                nursery.start_soon(line.run_writer)
                await self._converse(line)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._lines.discard(line)
            self.went(line)

    async def _converse(self, line: SocketLine) -> None:
        websocket = line.websocket
        while data := await line.stream.receive_some(READ_BYTES):
            texts = websocket.receive(bytes(data))
            if websocket.request_path is not None and line not in self._lines:
                path, _, line.query = websocket.request_path.partition("?")
                if not self.accepts(path, line.query):
                    websocket.reject(403, "Invalid request path!\n")
                    await line.write()
                    return
                websocket.accept()
                self._lines.add(line)
                self.came(line)
            for text in texts:
                self.hear(line, text.decode())
            line.flush()
            if not websocket.is_open:
                await line.write()
                return

    def hear(self, line: SocketLine, text: str) -> None:
        """Take one text of a socket."""
        if not line.is_stuck:
            self.note(text)
            self.receive(line, text)

    def note(self, text: str) -> None:
        """Remember what came, for the tests."""
        self.received.append(json.loads(text))
        self._moved.unpark_all()

    async def wait_received(self, *, type: str, resource: str = "", count: int = 1) -> None:
        """Until as many messages of a type came, naming a resource if one is given."""

        def is_it(one: Json) -> bool:
            return one.get("type") == type and (
                not resource or resource in (one.get("body") or {}).get("resources", [])
            )

        with trio.fail_after(PATIENCE_SECONDS):
            while sum(map(is_it, self.received)) < count:
                await self._moved.park()

    # The domain registry behind the node: its REST codes, in memory.

    def registry_answer(self, message: Json) -> Json:
        """Body of the answer: `code`, and `value` of a read."""
        body = message.get("body") or {}
        value = body.get("value") or {}
        match str(message.get("type")).lower():
            case "create":
                self.registry[value["url"]] = dict(value)
                return {"code": 200}
            case "read":
                found = self._found(body.get("resource", ""))
                return {"code": 200, "value": found} if found else {"code": 404, "description": "Not Found"}
            case "update":
                return {"code": 200 if body.get("resource") in self.registry else 404}
            case "delete":
                return {"code": 200 if self.registry.pop(str(value.get("url")), None) else 404}
        return {"code": 400}

    def _found(self, resource: str) -> Json:
        if resource in self.registry:
            return {resource: self.registry[resource]}
        return {url: entry for url, entry in self.registry.items() if entry.get("user") == resource}


class LocalRuntime(Line):
    """A runtime of the foreign domain, connected in memory. `heard` is everything that its node sent to it."""

    def __init__(self, node: ForeignNode, name: str) -> None:
        super().__init__()
        self.node = node
        self.url = f"runtime://{node.domain}/{name}"
        self.heard: list[Json] = []
        self._ids = count(1)
        self._moved = trio.lowlevel.ParkingLot()
        node.join(self)

    def send(self, message: Json) -> None:
        """See `Line`."""
        self.heard.append(message)
        self._moved.unpark_all()
        if message.get("type") not in {"response", "update"} and message.get("id") is not None:
            body = {"code": 200, "value": (message.get("body") or {}).get("value")}
            self.say("response", message["to"], message["from"], body, id_=message["id"])

    def say(self, type_: str, from_: str, to: str, body: Json | None = None, *, id_: object = None) -> object:
        """Send one message; returns its id."""
        number = next(self._ids) if id_ is None else id_
        text = json.dumps({"id": number, "type": type_, "from": from_, "to": to, "body": body or {}})
        self.node.receive(self, text)
        return number

    async def ask(self, type_: str, from_: str, to: str, body: Json | None = None) -> Json:
        """Send a request; the body of its answer."""
        number = self.say(type_, from_, to, body)

        def answers() -> list[Json]:
            return [one for one in self.heard if one["type"] == "response" and one.get("id") == number]

        await self.wait_for(lambda: bool(answers()))
        answer: Json = answers()[0]["body"]
        return answer

    async def wait_for(self, condition: Any) -> None:
        """Until something that the node sent makes `condition` true."""
        with trio.fail_after(PATIENCE_SECONDS):
            while not condition():
                await self._moved.park()

    def numbers_from(self, sender: str) -> list[int]:
        """The numbers in what a sender said, in order."""
        return [
            one["body"]["value"] for one in self.heard if one["from"] == sender and "value" in (one.get("body") or {})
        ]


@asynccontextmanager
async def running_node(node: ForeignNode) -> AsyncIterator[ForeignNode]:
    """The node, for the time of a test."""
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        yield node
        nursery.cancel_scope.cancel()
