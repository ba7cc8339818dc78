"""Small nodes that behave as the reference nodes do, in the parts that the reference profile demands.

Written from the observations of running peers (reference nodes, sections 2, 4.1 and 5), with the faults that they have:
no answer to unknown addresses, `auth` added to bodies, 500 for everything, the sender hears itself.
`spoil` lets a test make any message of the node wrong.
"""

from __future__ import annotations

import json
import ssl
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket

Message = dict[str, Any]
Spoil = Callable[[Message], list[str | bytes | None]]
"""What goes out in place of a message: texts, binary frames, and None for hanging up."""

DOMAIN = "a.example"
ALLOCATION = f"domain://msg-node.{DOMAIN}/address-allocation"
SUBSCRIPTIONS = f"domain://msg-node.{DOMAIN}/sm"


def as_it_is(message: Message) -> list[str | bytes | None]:
    return [json.dumps(message)]


@dataclass(eq=False)
class Connection:
    """One socket and the runtime on it."""

    socket: WebSocketConnection
    runtime: str = ""


@dataclass(eq=False)
class Replica:
    """What both kinds have in common: allocation, subscription, listeners."""

    spoil: Spoil = as_it_is
    context: ssl.SSLContext | None = None
    listeners: dict[str, set[str]] = field(default_factory=dict)
    connections: dict[str, Connection] = field(default_factory=dict)

    async def run(self, *, task_status: trio.TaskStatus[int]) -> None:
        async with trio.open_nursery() as nursery:
            [listener] = (await nursery.start(serve_websocket, self._serve, "127.0.0.1", 0, self.context)).listeners
            task_status.started(int(listener.port))
            await trio.sleep_forever()

    async def _serve(self, request: WebSocketRequest) -> None:
        connection = await self.accept(request)
        if connection is None:
            return
        with suppress(ConnectionClosed):
            while True:
                await self.take(connection, json.loads(await connection.socket.get_message()))

    async def accept(self, request: WebSocketRequest) -> Connection | None:
        raise NotImplementedError

    async def take(self, connection: Connection, message: Message) -> None:
        raise NotImplementedError

    async def send(self, connection: Connection, message: Message) -> None:
        for frame in self.spoil(message):
            if frame is None:
                await connection.socket.aclose()
            else:
                with suppress(ConnectionClosed):
                    await connection.socket.send_message(frame)

    async def answer(self, connection: Connection, message: Message, **body: Any) -> None:
        header = {"id": message["id"], "type": "response", "from": message["to"], "to": message["from"]}
        await self.send(connection, {**header, "body": body})

    async def serve(self, connection: Connection, message: Message, **words: str) -> None:
        """Allocation and subscription, as far as all three agree."""
        body, kind = message.get("body") or {}, message["type"]
        if message["to"] == ALLOCATION and kind == "create":
            value = body.get("value", {})
            made = [f"{body.get('scheme', 'hyperty')}://{DOMAIN}/{uuid.uuid4()}" for _ in range(value.get("number", 5))]
            self.listeners |= {address: {connection.runtime} for address in made}
            await self.answer(connection, message, code=200, value={"allocated": made}, **words)
        elif message["to"] == SUBSCRIPTIONS and kind in {"subscribe", "unsubscribe"} and "resources" in body:
            for address in body["resources"]:
                change = set.add if kind == "subscribe" else set.discard
                change(self.listeners.setdefault(address, set()), connection.runtime)
            await self.answer(connection, message, code=200, **words)
        elif message["to"] == ALLOCATION and kind == "delete":
            await self.answer(connection, message, code=200, **words)
        else:
            await self.answer(connection, message, code=500, desc="not understood")

    async def deliver(self, message: Message, runtimes: set[str]) -> None:
        for runtime in runtimes & self.connections.keys():
            await self.send(self.connections[runtime], message)


class VertxReplica(Replica):
    """Dialect A: a token, nothing at the plain runtime address. Source: reference nodes, section 5."""

    sessions: dict[str, str]

    def __init__(self, spoil: Spoil = as_it_is, context: ssl.SSLContext | None = None) -> None:
        super().__init__(spoil, context)
        self.sessions = {}

    async def accept(self, request: WebSocketRequest) -> Connection | None:
        if request.path != "/ws":
            await request.reject(404)
            return None
        return Connection(await request.accept())

    async def take(self, connection: Connection, message: Message) -> None:
        if message["to"] == "mn:/session":
            await self._manage(connection, message)
        elif message["to"] in {ALLOCATION, SUBSCRIPTIONS}:
            await self.serve(connection, message)
        else:
            await self.deliver(message, self.listeners.get(message["to"], set()))

    async def _manage(self, connection: Connection, message: Message) -> None:
        if message["type"] == "open":
            token = str(uuid.uuid4())
            self._bind(connection, message["from"])
            self.sessions[f"{message['from']}/{token}"] = message["from"]
            await self.answer(connection, message, code=200, runtimeToken=token)
        elif message["type"] == "re-open" and message["from"] in self.sessions:
            self._bind(connection, self.sessions[message["from"]])
            await self.answer(connection, message, code=200)
        elif message["type"] == "re-open":
            await self.answer(connection, message, code=500, desc="Reconnection fail. Incorrect runtime token!")
        elif message["type"] == "close":
            del self.connections[connection.runtime]
            await connection.socket.aclose(1000)

    def _bind(self, connection: Connection, runtime: str) -> None:
        connection.runtime = runtime
        self.connections[runtime] = connection
        self.listeners[f"{runtime}/sm"] = {runtime}


class NoMatrixReplica(Replica):
    """Dialect C: the query is the handshake, senders are learned. Source: reference nodes, section 4.1."""

    async def accept(self, request: WebSocketRequest) -> Connection | None:
        [runtime] = parse_qs(urlsplit(request.path).query).get("runtimeURL", [""])
        if not runtime or urlsplit(request.path).path != "/stub/connect":
            await request.reject(403)
            return None
        self.connections[runtime] = connection = Connection(await request.accept(), runtime)
        return connection

    async def take(self, connection: Connection, message: Message) -> None:
        if message.get("cmd") == "disconnect":
            del self.connections[connection.runtime]
            await connection.socket.aclose(1000)
        elif message["to"] in {ALLOCATION, SUBSCRIPTIONS}:
            await self.serve(connection, message, description="OK")
        else:
            self.listeners.setdefault(message["from"], set()).add(connection.runtime)
            first = "/".join(message["to"].split("/")[:4])
            body = {**message.get("body", {}), "auth": False}
            await self.deliver({**message, "body": body}, self.listeners.get(message["to"], {first}))
