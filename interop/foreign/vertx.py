"""The reTHINK Vert.x messaging node, as it was observed: sessions with tokens, integer ids, silence about what is lost.

Oddities that are on purpose: an id that is no integer makes the connection deaf; a session whose URL begins with that
of an opener is taken over; sessions of lost sockets stay; whatever has no listener is dropped without a word; only
senders `hyperty…` are learnt; what a component refuses comes back as 500.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from uuid import uuid4

from interop.foreign.simulator import ForeignNode, Json, Line, LocalRuntime


@dataclass(eq=False)
class _Session:
    url: str
    token: str
    line: Line | None
    addresses: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        return f"{self.url}/{self.token}"


class VertxNode(ForeignNode):
    """A single Vert.x node."""

    path = "/ws"

    def __init__(self, domain: str, **options: object) -> None:
        super().__init__(domain, **options)  # type: ignore[arg-type]
        self.sessions: list[_Session] = []
        self.allocated: dict[str, _Session] = {}
        self.listeners: dict[str, list[_Session]] = {}

    def join(self, runtime: LocalRuntime) -> None:
        """See `ForeignNode`."""
        runtime.say("open", runtime.url, "mn:/session")

    def forget(self) -> None:
        """See `ForeignNode`."""
        self.sessions, self.allocated, self.listeners = [], {}, {}

    def went(self, line: Line) -> None:
        """See `ForeignNode`."""
        for session in self.sessions:
            if session.line is line:
                session.line = None  # the session itself stays for ever

    def receive(self, line: Line, text: str) -> None:
        """See `ForeignNode`."""
        message = json.loads(text)
        if "id" in message and not _is_integer(message["id"]):
            line.is_stuck = True  # later frames are appended to a buffer that never parses
            return
        for name in ("id", "type", "from", "to"):
            if not message.get(name) and message.get(name) != 0:
                line.send(_answer(message, "mn:/validator", {"code": 500, "desc": f"No mandatory field '{name}'"}))
                return
        message["id"] = int(message["id"])
        session = self._session_of(line)
        sender = message["from"]
        if sender.startswith("hyperty") and not sender.startswith("hyperty-runtime") and session is not None:
            self.allocated.setdefault(sender, session)
        self._process(line, session, message)

    def _process(self, line: Line, session: _Session | None, message: Json) -> None:
        to, node = message["to"], f"domain://msg-node.{self.domain}"
        match to:
            case "mn:/session":
                self._session(line, message)
            case _ if to == f"{node}/sm":
                self._subscription(line, session, message)
            case _ if to in {
                f"{node}/address-allocation",
                f"{node}/hyperty-address-allocation",
                f"{node}/object-address-allocation",
            }:
                self._allocation(line, session, message)
            case _ if to == f"domain://registry.{self.domain}":
                body = self.registry_answer(message)
                if body["code"] not in {200, 404}:
                    body["code"] = 500
                line.send(_answer(message, to, body))
            case _:
                self.route(message)

    def _session(self, line: Line, message: Json) -> None:
        sender, type_ = message["from"], message["type"]
        if type_ == "open":
            session = next((one for one in self.sessions if one.name.startswith(sender)), None)
            if session is None:
                session = _Session(sender, str(uuid4()), line)
                self.sessions.append(session)
            session.line = line
            self._reach(session, session.name, f"{session.url}/sm")
            line.send(_answer(message, "mn:/session", {"code": 200, "runtimeToken": session.token}))
        elif type_ == "re-open":
            session = next((one for one in self.sessions if one.name == sender), None)
            if session is None:
                desc = "Reconnection fail. Incorrect runtime token!"
                line.send(_answer(message, "mn:/session", {"code": 500, "desc": desc}))
                return
            session.line = line
            line.send(_answer(message, "mn:/session", {"code": 200}))
        elif type_ == "close":
            for session in [one for one in self.sessions if one.name == sender]:
                self._remove(session)
            line.close()

    def _remove(self, session: _Session) -> None:
        self.sessions.remove(session)
        self.allocated = {name: one for name, one in self.allocated.items() if one is not session}
        self.listeners = {name: [one for one in every if one is not session] for name, every in self.listeners.items()}

    def _reach(self, session: _Session, *addresses: str) -> None:
        for address in addresses:
            listeners = self.listeners.setdefault(address, [])
            if session not in listeners:
                listeners.append(session)

    def _subscription(self, line: Line, session: _Session | None, message: Json) -> None:
        body, to = message.get("body") or {}, message["to"]
        resources = body.get("resources", body.get("subscribe"))
        if session is None or message["type"] not in {"subscribe", "unsubscribe"} or not isinstance(resources, list):
            line.send(_answer(message, to, {"code": 500, "desc": "java.lang.NullPointerException"}))
            return
        if message["type"] == "subscribe":
            self._reach(session, *resources)
        else:
            for address in resources:
                if session in self.listeners.get(address, []):
                    self.listeners[address].remove(session)
        line.send(_answer(message, to, {"code": 200}))

    def _allocation(self, line: Line, session: _Session | None, message: Json) -> None:
        body, to = message.get("body") or {}, message["to"]
        if message["type"] == "create" and session is not None:
            number = (body.get("value") or {}).get("number", 5)
            made = [f"{body.get('scheme', 'hyperty')}://{self.domain}/{uuid4()}" for _ in range(number)]
            self.allocated |= dict.fromkeys(made, session)
            line.send(_answer(message, to, {"code": 200, "value": {"allocated": made}}))
        elif message["type"] == "create":
            line.send(_answer(message, to, {"code": 500, "desc": "no session"}))

    def route(self, message: Json) -> None:
        """Deliver what is for no component; it is dropped where nobody listens."""
        to = message["to"]
        owner = self.allocated.get(to)
        for session in [owner] if owner is not None else self.listeners.get(to, []):
            if session.line is not None:
                session.line.send(message)

    def _session_of(self, line: Line) -> _Session | None:
        return next((one for one in self.sessions if one.line is line), None)


def _is_integer(value: object) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and value.isdecimal())


def _answer(message: Json, from_: str, body: Json) -> Json:
    return {"id": message.get("id"), "type": "response", "from": from_, "to": message.get("from"), "body": body}
