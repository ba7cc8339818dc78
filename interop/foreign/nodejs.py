"""The reTHINK Node.js messaging node (its branch *develop*), as it was observed: Socket.IO 1.x, and rooms as addresses.

Oddities that are on purpose: a message to it is a text that holds JSON, one from it is the JSON itself; an id of 0
counts as none; a receiver that is part of a component's name reaches that component; senders are not learnt; rooms end
with the connection; values of the registry come as texts; refusals have the code "error".
"""

from __future__ import annotations

import json
from urllib.parse import parse_qs
from uuid import uuid4

import trio

from interop.foreign.simulator import ForeignNode, Json, Line, SocketLine


class _EngineLine(SocketLine):
    """Packets of Socket.IO in frames of Engine.IO."""

    def send(self, message: Json) -> None:
        self.send_text("42" + json.dumps(["message", message], ensure_ascii=False, separators=(",", ":")))


class NodejsNode(ForeignNode):
    """One Node.js node, without the polling that its own stub begins with."""

    path = ""

    def __init__(self, domain: str, **options: object) -> None:
        super().__init__(domain, **options)  # type: ignore[arg-type]
        self.rooms: dict[str, list[Line]] = {}
        self.pings = 0

    def accepts(self, path: str, query: str) -> bool:
        """See `ForeignNode`."""
        asked = parse_qs(query)
        return path == "/socket.io/" and asked.get("EIO") == ["3"] and asked.get("transport") == ["websocket"]

    def make_line(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> SocketLine:
        """See `ForeignNode`."""
        return _EngineLine(stream)

    def came(self, line: SocketLine) -> None:
        """See `ForeignNode`."""
        opened = {"sid": uuid4().hex[:20], "upgrades": [], "pingInterval": 25000, "pingTimeout": 60000}
        line.send_text("0" + json.dumps(opened, separators=(",", ":")))
        line.send_text("40")

    def went(self, line: Line) -> None:
        """See `ForeignNode`."""
        for members in self.rooms.values():
            if line in members:
                members.remove(line)

    def forget(self) -> None:
        """See `ForeignNode`."""
        self.rooms = {}

    def hear(self, line: SocketLine, text: str) -> None:
        """See `ForeignNode`."""
        if text.startswith("2"):
            self.pings += 1
            line.send_text("3" + text[1:])
        elif text in {"41", "1"}:
            line.close()
        elif text.startswith("42"):
            event, said = json.loads(text[2:])
            assert event == "message"
            assert isinstance(said, str)
            super().hear(line, said)

    def receive(self, line: Line, text: str) -> None:
        """See `ForeignNode`."""
        message = json.loads(text)
        if not all(message.get(name) for name in ("id", "from", "to", "type")):
            line.send({"from": "PolicyEngine", "body": {"code": "error", "desc": "invalid message"}})
            return
        components = {
            "mn:/session": self._session,
            f"domain://msg-node.{self.domain}/address-allocation": self._allocation,
            f"domain://msg-node.{self.domain}/object-address-allocation": self._allocation,
            f"domain://msg-node.{self.domain}/sm": self._subscription,
            f"domain://registry.{self.domain}": self._registry,
        }
        to = message["to"]
        found = components.get(to) or next((one for name, one in components.items() if to in name), None)
        if found is not None:
            found(line, message)
            return
        message["body"] = {**(message.get("body") or {}), "auth": True}
        for member in list(self.rooms.get(to, [])):
            member.send(message)

    def _join(self, line: Line, *addresses: str) -> None:
        for address in addresses:
            members = self.rooms.setdefault(address, [])
            if line not in members:
                members.append(line)

    def _session(self, line: Line, message: Json) -> None:
        if message["type"] in {"open", "re-open"}:
            self._join(line, f"{message['from']}/sm")
            line.send(_answer(message, {"code": 200}))

    def _allocation(self, line: Line, message: Json) -> None:
        body = message.get("body") or {}
        if message["type"] == "create":
            number = (body.get("value") or {}).get("number", 0)
            made = [f"{body.get('scheme', 'hyperty')}://{self.domain}/{uuid4()}" for _ in range(number)]
            self._join(line, *made)
            line.send(_answer(message, {"code": 200, "value": {"allocated": made}}))

    def _subscription(self, line: Line, message: Json) -> None:
        body = message.get("body") or {}
        resources = body.get("resources", [])
        if message["type"] == "subscribe":
            self._join(line, *resources, body.get("source") or message["from"])
        elif message["type"] == "unsubscribe":
            for address in resources:
                if line in self.rooms.get(address, []):
                    self.rooms[address].remove(line)
        else:
            line.send(_answer(message, {"code": "error", "desc": "unknown type"}))
            return
        line.send(_answer(message, {"code": 200}))

    def _registry(self, line: Line, message: Json) -> None:
        body = self.registry_answer(message)
        if "value" in body:
            body["value"] = json.dumps(body["value"])
        line.send(_answer(message, body))


def _answer(message: Json, body: Json) -> Json:
    return {"id": message["id"], "type": "response", "from": message["to"], "to": message["from"], "body": body}
