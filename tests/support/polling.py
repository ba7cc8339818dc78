"""A socket.io client that speaks packet by packet, over long-polling or a WebSocket, and does only what a test asks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import h11
import trio

from msg_node.connectors.core.engine_io import decode_payload, encode_payload
from tests.support.runtime_rig import SESSION, Json, RuntimeRig, Wire, a_message, runtime_address
from wire.core.websocket import ClientWebSocket

PATH = "/socket.io/?EIO=3"


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def packets(self) -> list[bytes]:
        return decode_payload(self.body)


class HttpLine:
    """One kept-alive HTTP connection."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._protocol = h11.Connection(h11.CLIENT)

    async def ask(
        self, method: str, target: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a request; `answer` waits for what comes."""
        whole = [("Host", "localhost"), ("Content-Length", str(len(body))), *(headers or {}).items()]
        events = [h11.Request(method=method, target=target, headers=whole), h11.Data(data=body), h11.EndOfMessage()]
        await self.wire.write(b"".join(self._protocol.send(event) or b"" for event in events))

    async def answer(self) -> Answer:
        """The answer; its line must not end before."""
        status, headers, body = 0, dict[str, str](), b""
        while True:
            event = self._protocol.next_event()
            if event is h11.NEED_DATA:
                data = await self.wire.read()
                assert data, "the line has ended"
                self._protocol.receive_data(data)
            elif isinstance(event, h11.Response):
                status = event.status_code
                headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                if self._protocol.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
                    self._protocol.start_next_cycle()
                return Answer(status, headers, body)

    async def fetch(self, method: str, target: str, **more: Any) -> Answer:
        await self.ask(method, target, **more)
        return await self.answer()


def said(message: Json) -> bytes:
    """A message as the client puts it into a packet."""
    return b"42" + json.dumps(["message", json.dumps(message, ensure_ascii=False)], ensure_ascii=False).encode()


def heard(packets: list[bytes]) -> list[Json]:
    """The messages among packets of the node."""
    return [json.loads(one[2:])[1] for one in packets if one.startswith(b"42")]


class PollingRuntime:
    """A runtime on polling: one line for its GETs, one for its POSTs."""

    def __init__(self, rig: RuntimeRig, gets: HttpLine, posts: HttpLine, sid: str, name: str) -> None:
        self._rig = rig
        self.gets = gets
        self.posts = posts
        self.sid = sid
        self.address = runtime_address(name)
        self.packets: list[bytes] = []

    @property
    def target(self) -> str:
        return f"{PATH}&transport=polling&sid={self.sid}"

    async def post(self, *packets: bytes) -> Answer:
        return await self.posts.fetch("POST", self.target, body=encode_payload(packets))

    async def poll(self) -> list[bytes]:
        """One GET, to its answer."""
        return (await self.gets.fetch("GET", self.target)).packets

    async def say(self, *messages: Json) -> None:
        answer = await self.post(*map(said, messages))
        assert (answer.status, answer.body) == (200, b"ok")

    async def next(self) -> Json:
        """The next message of the node."""
        while not (messages := heard(self.packets)):
            self.packets = await self.poll()
        self.packets = [one for one in self.packets if one.startswith(b"42")][1:]
        return messages[0]

    async def ask(self, type_: str, to: str, body: Mapping[str, object] | None = None, *, id_: object = 1) -> Json:
        await self.say(a_message(type_, self.address, to, body, id_=id_))
        while (message := await self.next()).get("id") != id_:
            pass
        return message

    async def web_socket(self, *, sid: str = "") -> EngineSocket:
        """A WebSocket that wants to take the session over; nothing said on it yet."""
        return await engine_socket(self._rig, sid=sid or self.sid)


class EngineSocket:
    """An Engine.IO WebSocket."""

    def __init__(self, wire: Wire, websocket: ClientWebSocket) -> None:
        self.wire = wire
        self.websocket = websocket
        self.packets: list[bytes] = []

    async def say(self, *packets: bytes) -> None:
        self.websocket.send(packets)
        await self.wire.write(self.websocket.data_to_send())

    async def next(self) -> bytes:
        """The next packet; b"" when the node has ended the connection."""
        while not self.packets:
            data = await self.wire.read()
            self.packets += self.websocket.receive(data)
            with contextlib.suppress(trio.BrokenResourceError):
                await self.wire.write(self.websocket.data_to_send())
            if not data and not self.packets:
                return b""
        return self.packets.pop(0)

    async def rest(self) -> list[bytes]:
        """Everything up to the end of the connection."""
        packets = []
        while packet := await self.next():
            packets.append(packet)
        return packets

    async def message(self) -> Json:
        """The next message; other packets are passed over."""
        while not (found := heard([packet := await self.next()])):
            assert packet, "the connection has ended"
        return found[0]


async def engine_socket(rig: RuntimeRig, *, sid: str = "", origin: str = "") -> EngineSocket:
    """A WebSocket at the Engine.IO path; `is_open` says whether it was taken."""
    wire = await rig.connect()
    target = f"ws://localhost{PATH}&transport=websocket" + (f"&sid={sid}" if sid else "")
    headers = {"Origin": origin} if origin else {}
    websocket = ClientWebSocket(target, is_binary=False, headers=headers)
    socket = EngineSocket(wire, websocket)
    await wire.write(websocket.data_to_send())
    while websocket.is_waiting and (data := await wire.read()):
        socket.packets += websocket.receive(data)
    return socket


async def polling(rig: RuntimeRig, name: str = "ana", **headers: str) -> PollingRuntime:
    """A runtime that has shaken hands and knows that it has, without a session."""
    gets, posts = HttpLine(await rig.connect()), HttpLine(await rig.connect())
    answer = await gets.fetch("GET", f"{PATH}&transport=polling&t=abc&b64=1", headers=headers)
    (greeting,) = answer.packets
    runtime = PollingRuntime(rig, gets, posts, json.loads(greeting[1:])["sid"], name)
    assert await runtime.poll() == [b"40"]
    return runtime


async def opened_polling(rig: RuntimeRig, name: str = "ana") -> PollingRuntime:
    """A runtime on polling with a session."""
    runtime = await polling(rig, name)
    reply = await runtime.ask("open", SESSION, id_="open")
    assert reply["body"]["code"] == 200, reply
    return runtime
