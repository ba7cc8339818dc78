"""A tiny messaging node for tests of the harness itself: two domains in one process, no link, no policy but one rule.

It keeps just enough of the specification for a group chat, and it can be set to lose, double, delay or change
messages.
"""

from __future__ import annotations

import json
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket

Message = dict[str, Any]
Mischief = Callable[[Message], list[Message]]


def domain_of(address: str) -> str:
    authority = address.partition("://")[2].partition("/")[0]
    for element in ("msg-node.", "registry."):
        authority = authority.removeprefix(element)
    return authority


@dataclass(eq=False)
class Session:
    connection: WebSocketConnection
    runtime: str = ""
    owned: set[str] = field(default_factory=set)


class FakeNodes:
    """Everything that two nodes do for each other, without the two."""

    def __init__(self, domains: tuple[str, ...], mischief: Mischief = lambda message: [message]) -> None:
        self.domains = domains
        self.mischief = mischief
        self.listeners: dict[str, set[Session]] = defaultdict(set)
        self.owners: dict[str, Session] = {}
        self.entries: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, str] = {}

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            serve = partial(serve_websocket, self._serve, "127.0.0.1", 0, None, message_queue_size=64)
            server = await nursery.start(serve)
            task_status.started(server.port)

    async def _serve(self, request: WebSocketRequest) -> None:
        session = Session(await request.accept())
        try:
            while True:
                message = json.loads(await session.connection.get_message())
                if await self._route(session, message):
                    return
        except ConnectionClosed:
            return

    async def _route(self, session: Session, message: Message) -> bool:
        to = message["to"]
        if to == "mn:/session":
            return await self._session_verb(session, message)
        if domain_of(to) not in self.domains:
            await self._answer(session, message, 403, reason="domain-blocked")
        elif to.startswith("domain://"):
            await self._serve_function(session, message)
        else:
            for copy in self.mischief(message):
                for target in self._targets(session, to):
                    await target.connection.send_message(json.dumps(copy, ensure_ascii=False))
        return False

    def _targets(self, origin: Session, to: str) -> Iterator[Session]:
        found = set(self.listeners.get(to, ()))
        if to in self.owners:
            found.add(self.owners[to])
        runtime = next((key for key in self.owners if to.startswith(f"{key}/")), "")
        if not found and runtime:
            found.add(self.owners[runtime])
        return iter(found - {origin})

    async def _session_verb(self, session: Session, message: Message) -> bool:
        kind = message["type"]
        if kind == "open":
            token = str(uuid.uuid4())
            session.runtime = message["from"]
            self.owners[session.runtime] = session
            self.tokens[token] = session.runtime
            await self._answer(session, message, 200, runtimeToken=token)
        elif kind == "re-open":
            runtime, _, token = message["from"].rpartition("/")
            known = self.tokens.get(token) == runtime
            session.runtime = runtime
            await self._answer(session, message, 200 if known else 500, **({} if known else {"reason": "bad-token"}))
        elif kind == "ping":
            pong = {"id": message["id"], "type": "pong", "from": message["to"], "to": message["from"]}
            await session.connection.send_message(json.dumps(pong))
        return bool(kind == "close")

    async def _serve_function(self, session: Session, message: Message) -> None:
        to, body = message["to"], message.get("body", {})
        if to.endswith("/address-allocation"):
            await self._allocate(session, message, body)
        elif to.endswith("/sm"):
            for resource in body["resources"]:
                act = (
                    self.listeners[resource].add if message["type"] == "subscribe" else self.listeners[resource].discard
                )
                act(session)
            await self._answer(session, message, 200)
        elif message["type"] == "read":
            user = body["resource"].removeprefix("/hyperty/user/")
            found = {url: entry for url, entry in self.entries.items() if entry.get("user") == user}
            await self._answer(session, message, 200 if found else 404, value=found)
        elif domain_of(to) != domain_of(message["from"]):
            await self._answer(session, message, 403, reason="policy")
        else:
            value = body.get("value")
            if isinstance(value, dict):
                self.entries[value["url"]] = value
            await self._answer(session, message, 200)

    async def _allocate(self, session: Session, message: Message, body: Message) -> None:
        if message["type"] == "delete":
            await self._answer(session, message, 200)
            return
        domain = domain_of(message["to"])
        made = [f"{body['scheme']}://{domain}/{uuid.uuid4()}" for _ in range(body["value"]["number"])]
        for address in made:
            self.owners[address] = session
        await self._answer(session, message, 200, value={"allocated": made})

    async def _answer(self, session: Session, request: Message, code: int, **members: object) -> None:
        header = {"id": request["id"], "type": "response", "from": request["to"], "to": request["from"]}
        await session.connection.send_message(json.dumps({**header, "body": {"code": code, **members}}))
