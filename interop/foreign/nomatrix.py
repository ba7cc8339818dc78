"""The reTHINK NoMatrix messaging node, as it was observed: the query is the handshake, and every sender is learnt.

Oddities that are on purpose: what it has learnt outlives its process; an old connection that ends after its runtime
came back makes the new one deaf; a message to a runtime that said `disconnect`, a list of receivers and an allocation
without body end the process; whatever has no receiver is dropped without a word.
"""

from __future__ import annotations

import json
from typing import cast
from urllib.parse import parse_qs
from uuid import uuid4

from interop.foreign.simulator import ForeignNode, Json, Line, LocalRuntime, SocketLine


class NomatrixNode(ForeignNode):
    """One NoMatrix node. `has_crashed` says that a message has ended its process."""

    path = "/stub/connect"

    def __init__(self, domain: str, **options: object) -> None:
        super().__init__(domain, **options)  # type: ignore[arg-type]
        self.handlers: dict[str, Line | None] = {}
        self.disconnected: set[str] = set()
        self.has_crashed = False
        self._runtimes_of: dict[str, list[str]] = {}
        self._url_of: dict[Line, str] = {}

    def accepts(self, path: str, query: str) -> bool:
        """See `ForeignNode`."""
        return path == self.path and bool(parse_qs(query).get("runtimeURL"))

    def came(self, line: SocketLine) -> None:
        """See `ForeignNode`."""
        self._connect(line, parse_qs(line.query)["runtimeURL"][0])

    def join(self, runtime: LocalRuntime) -> None:
        """See `ForeignNode`."""
        self._connect(runtime, runtime.url)

    def _connect(self, line: Line, url: str) -> None:
        self.handlers[url] = line
        self._url_of[line] = url

    def went(self, line: Line) -> None:
        """See `ForeignNode`."""
        url = self._url_of.pop(line, "")
        if url:
            self.handlers[url] = None  # although it may be that of a newer connection

    def forget(self) -> None:
        """See `ForeignNode`."""
        local = {url: line for url, line in self.handlers.items() if isinstance(line, LocalRuntime)}
        self.handlers = dict(local)

    def receive(self, line: Line, text: str) -> None:
        """See `ForeignNode`."""
        if not text.startswith("{"):
            return
        message = json.loads(text)
        url = self._url_of.get(line, "")
        if message.get("cmd") == "disconnect":
            self.disconnected.add(url)
            line.close()
        elif isinstance(message.get("to"), list):
            self._crash()
        elif message.get("to") and message.get("from"):
            self._process(line, url, message)

    def _process(self, line: Line, url: str, message: Json) -> None:
        to, node = message["to"], f"domain://msg-node.{self.domain}"
        type_ = str(message.get("type")).lower()
        if to == f"{node}/address-allocation":
            self._allocation(line, url, message)
        elif to == f"{node}/sm" and message.get("type") in {"subscribe", "unsubscribe"}:
            resources = (message.get("body") or {}).get("resources", [])
            for address in [resources] if isinstance(resources, str) else resources:
                self._learn(address, url, is_gone=type_ == "unsubscribe")
            self._learn(message["from"], url)
            line.send(_answer(message, {"code": 200, "description": "OK"}))
        elif to.startswith(f"domain://registry.{self.domain}"):
            line.send(_answer(message, self.registry_answer(message)))
        else:
            self._learn(message["from"], url)
            self._route(message)

    def _allocation(self, line: Line, url: str, message: Json) -> None:
        body = message.get("body")
        if body is None:
            self._crash()
            return
        scheme = body.get("scheme", "hyperty")
        number = (body.get("value") or {}).get("number", 1)
        made = [f"{scheme}://{self.domain}/{uuid4()}" for _ in range(number)]
        for address in made:
            if scheme == "hyperty":
                self._learn(address, url)
        line.send(_answer(message, {"code": 200, "description": "OK", "value": {"allocated": made}}))

    def _learn(self, address: str, url: str, *, is_gone: bool = False) -> None:
        urls = self._runtimes_of.setdefault(address, [])
        if is_gone and url in urls:
            urls.remove(url)
        elif not is_gone and url not in urls:
            urls.append(url)

    def _route(self, message: Json) -> None:
        to, own = message["to"], f"runtime://{self.domain}/"
        urls = self._runtimes_of.get(to, [])
        if not urls and to.startswith(own):
            urls = [own + to.removeprefix(own).partition("/")[0]]
        for url in urls:
            if url in self.disconnected:
                self._crash()
            line = self.handlers.get(url)
            if line is not None:
                body = cast("Json", message.get("body") or {})
                line.send({**message, "body": {**body, "auth": False}})

    def _crash(self) -> None:
        self.has_crashed = True


def _answer(message: Json, body: Json) -> Json:
    answer = {"id": message.get("id"), "from": message["to"], "to": message["from"], "type": "response", "body": body}
    return {name: value for name, value in answer.items() if value is not None}
