"""One person of a scene: a runtime, its hyperty, and how it reacts to what others send.

Reactions are the receiving half of the group chat: invitations are accepted, the reporter grants subscriptions,
children and changes of the room
go into the ledger. The active half is `group_chat`.

Source: message specification, section 9.
"""

from __future__ import annotations

import json
import ssl
import time
from dataclasses import dataclass, field
from typing import Final

import trio

from interop.ledger import Ledger
from interop.runtime_client import Incoming, RuntimeClient
from interop.scene import Person

CHAT: Final = "chat"
CHANGES: Final = "changes"
GOODBYE: Final = "goodbye"
_ANSWERS_WAITING: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPoint:
    """Address for the runtimes of one domain. No context: plain `ws://`."""

    url: str
    ssl_context: ssl.SSLContext | None = None


@dataclass(slots=True)
class RoomState:
    """The data object as its reporter holds it, and who observes it."""

    address: str = ""
    version: int = 0
    data: dict[str, object] = field(default_factory=dict)

    @property
    def subscription(self) -> str:
        """Address at which observers subscribe."""
        return f"{self.address}/subscription"

    @property
    def changes(self) -> str:
        """Address at which changes are announced."""
        return f"{self.address}/changes"

    @property
    def messages(self) -> str:
        """Address at which chat messages are created."""
        return f"{self.address}/children/messages"


def as_text(value: object) -> str:
    """The value as JSON text, members in their order: equal texts are equal byte for byte in meaning."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Participant:
    """A person with a session."""

    def __init__(self, person: Person, access_point: AccessPoint, room: RoomState, ledger: Ledger) -> None:
        self.person = person
        self.hyperty = ""
        self.invitations: list[str] = []
        self.granted: list[str] = []
        self.uncalled_for: list[str] = []
        self.traced_at_us: dict[str, int] = {}
        self.client = RuntimeClient(
            url=access_point.url, runtime=person.runtime, ssl_context=access_point.ssl_context, on_message=self._take
        )
        self._room = room
        self._ledger = ledger
        self._names: dict[str, str] = {}
        self._to_answer, self._answering = trio.open_memory_channel[Incoming](_ANSWERS_WAITING)

    @property
    def name(self) -> str:
        """The person's name."""
        return self.person.name

    @property
    def domain(self) -> str:
        """The person's domain."""
        return self.person.domain

    def meet(self, everybody: list[Participant]) -> None:
        """Learn which hyperty is whose."""
        self._names = {other.hyperty: other.name for other in everybody}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Hold the session and answer requests until cancelled or closed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer_requests)
            await nursery.start(self._hold_session, nursery.cancel_scope)
            task_status.started()

    async def _hold_session(
        self, scope: trio.CancelScope, *, task_status: trio.TaskStatus[object] = trio.TASK_STATUS_IGNORED
    ) -> None:
        await self.client.run(task_status=task_status)
        scope.cancel()

    async def _answer_requests(self) -> None:
        async for request in self._answering:
            await self.client.respond(request, self._decide(request))

    def _decide(self, request: Incoming) -> dict[str, object]:
        if request.to == self.hyperty and request.type == "create":
            self.invitations.append(request.from_)
            return {"code": 200}
        if request.to == self._room.subscription and request.type == "subscribe":
            self.granted.append(str(request.body.get("source")))
            return {"code": 200, "value": {"data": self._room.data, "version": self._room.version}}
        if request.to == self._room.subscription and request.type == "unsubscribe":
            self.granted.remove(str(request.body.get("source")))
            return {"code": 200}
        self.uncalled_for.append(f"{request.type} {request.from_} -> {request.to}")
        return {"code": 404, "reason": "no-route"}

    def _take(self, message: Incoming) -> None:
        trace = message.body.get("trace")
        if isinstance(trace, str):
            self.traced_at_us.setdefault(trace, time.monotonic_ns() // 1000)
        room = self._room
        if room.address and message.to == room.messages and message.type == "create":
            author, _, number = str(message.body.get("resource")).rpartition("#")
            self._enter(self._names.get(author, author), CHAT, number, message)
        elif room.address and message.to == room.changes and message.type == "update":
            self._enter(
                self._names.get(str(message.body.get("source")), ""), CHANGES, message.body.get("version"), message
            )
        elif message.to == self.hyperty and message.type == "event":
            self._enter(self._names.get(message.from_, ""), GOODBYE, message.body.get("number"), message)
        elif message.id is not None and message.type != "response":
            self._to_answer.send_nowait(message)
        else:
            self.uncalled_for.append(f"{message.type} {message.from_} -> {message.to}: {as_text(message.body)[:200]}")

    def _enter(self, speaker: str, subject: str, number: object, message: Incoming) -> None:
        index = int(str(number)) if str(number).isdigit() else -1
        flow = self._ledger.flow(speaker, self.name, subject)
        flow.enter_arrival(index, as_text(message.body.get("value")), message.arrived_ns)
