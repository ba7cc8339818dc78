"""A runtime that speaks dialect A in HTTP requests, one by one, and does only what a test asks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from typing import Any, NamedTuple

import h11

from tests.support.polling import Answer, HttpLine
from tests.support.runtime_rig import SESSION, SM, Json, RuntimeRig, Wire, a_message, runtime_address

MESSAGES = "/messages"


class ServerEvent(NamedTuple):
    """One server-sent event."""

    name: str
    id: str
    data: str


class EventLine:
    """One GET whose answer is a stream of events."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_over = False
        self._protocol = h11.Connection(h11.CLIENT)
        self._text = b""

    async def ask(self, target: str, headers: Mapping[str, str]) -> None:
        """Send the request and wait for the head of the answer."""
        whole = [("Host", "localhost"), ("Accept", "text/event-stream"), *headers.items()]
        request = h11.Request(method="GET", target=target, headers=whole)
        await self.wire.write((self._protocol.send(request) or b"") + (self._protocol.send(h11.EndOfMessage()) or b""))
        while not self.status:
            await self._more()

    async def _more(self) -> None:
        event = self._protocol.next_event()
        if event is h11.NEED_DATA:
            data = await self.wire.read()
            assert data, "the line has ended"
            self._protocol.receive_data(data)
        elif isinstance(event, h11.Response):
            self.status = event.status_code
            self.headers = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            self._text += event.data
        elif isinstance(event, h11.EndOfMessage):
            self.is_over = True

    async def event(self) -> ServerEvent | None:
        """The next event; comments are passed over. None at the end of the stream."""
        while True:
            while b"\n\n" not in self._text:
                if self.is_over:
                    return None
                await self._more()
            block, _, self._text = self._text.partition(b"\n\n")
            fields = [line.partition(": ") for line in block.decode().split("\n") if not line.startswith(":")]
            if fields:
                named = {name: value for name, _, value in fields}
                data = "\n".join(value for name, _, value in fields if name == "data")
                return ServerEvent(named["event"], named.get("id", ""), data)

    async def message(self) -> Json:
        """The next message."""
        event = await self.event()
        assert event is not None, "the stream has ended"
        message: Json = json.loads(event.data)
        return message


class HttpRuntime:
    """A runtime over HTTP: one line for its posts, others for what hangs."""

    def __init__(self, rig: RuntimeRig, posts: HttpLine, name: str, **connection: Any) -> None:
        self.rig = rig
        self.posts = posts
        self.address = runtime_address(name)
        self.token = ""
        self._connection = connection
        self._polls: HttpLine | None = None
        self._numbers = count(1)
        self._read_up_to = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    async def post(self, message: Json | bytes, **headers: str) -> Answer:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.posts.fetch("POST", MESSAGES, body=body, headers={**self.headers, **named})

    async def say(self, *messages: Json) -> None:
        for message in messages:
            answer = await self.post(message, Prefer="respond-async")
            assert (answer.status, answer.body) == (202, b""), answer

    async def ask(self, type_: str, to: str, body: Mapping[str, object] | None = None, *, from_: str = "") -> Json:
        """Post a request and return the reply, which comes in the answer."""
        message = a_message(type_, from_ or self.address, to, body, id_=f"q{next(self._numbers)}")
        answer = await self.post(message)
        assert answer.status in (200, 202), answer
        reply: Json = json.loads(answer.body)
        assert reply["id"] == message["id"]
        return reply

    async def open(self, body: Mapping[str, object] | None = None) -> Json:
        reply = await self.ask("open", SESSION, body)
        self.token = reply["body"].get("runtimeToken", "")
        return reply

    async def subscribed(self, *addresses: str) -> Json:
        return await self.ask("subscribe", SM, {"resources": list(addresses), "source": self.address})

    async def poll(self, wait: int = 5, *, after: str = "") -> Answer:
        """One GET for messages, on a line of its own."""
        if self._polls is None:
            self._polls = HttpLine(await self.rig.connect(**self._connection))
        named = {"Last-Event-ID": after} if after else {}
        return await self._polls.fetch("GET", f"{MESSAGES}?wait={wait}", headers={**self.headers, **named})

    async def polled(self, wait: int = 5) -> list[Json]:
        """Messages of a poll, acknowledged by the next one."""
        answer = await self.poll(wait, after=self._read_up_to)
        assert answer.status == 200, answer
        self._read_up_to = answer.headers["last-event-id"]
        messages: list[Json] = json.loads(answer.body)
        return messages

    async def stream(self, *, after: str = "", target: str = MESSAGES) -> EventLine:
        """A stream of events on a line of its own."""
        line = EventLine(await self.rig.connect(**self._connection))
        await line.ask(target, {**self.headers, **({"Last-Event-ID": after} if after else {})})
        return line


async def http_runtime(rig: RuntimeRig, name: str = "ana", **connection: Any) -> HttpRuntime:
    """A runtime without a session."""
    return HttpRuntime(rig, HttpLine(await rig.connect(**connection)), name, **connection)


async def opened_http(rig: RuntimeRig, name: str = "ana", **connection: Any) -> HttpRuntime:
    """A runtime with a session."""
    runtime = await http_runtime(rig, name, **connection)
    reply = await runtime.open()
    assert reply["body"]["code"] == 200, reply
    return runtime
