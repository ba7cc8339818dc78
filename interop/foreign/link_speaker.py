"""A node that speaks LINK/1 and nothing else.

It repeats what was not acknowledged, takes each number once, and has no policy, no records and no memory after a kill.
It believes every partner that shows a token: whether a partner may be believed is tested by `interop.partner`.

Source: docs/link.md.
"""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_bytes, token_hex
from typing import Final
from uuid import uuid4

import trio

from federation.core import auth
from federation.core.link_frames import (
    SUBPROTOCOL,
    FrameKind,
    LinkFrame,
    decode_hello,
    decode_messages,
    encode_frame,
    encode_messages,
    encode_welcome,
)
from interop.foreign.simulator import ForeignNode, Json, Line, LocalRuntime
from interop.lab.link_peer import READ_BYTES, LinkLine, LinkPeer, facts_of
from protofly.errors import HostError
from wire.core.websocket import ClientWebSocket, ServerWebSocket

_AGAIN_SECONDS: Final = 0.5
_HANDSHAKE_SECONDS: Final = 10.0
_STREAM_CHARS: Final = 32
_LOST: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError, AssertionError, ValueError, ssl.SSLError)
Reach = Callable[[str], tuple[str, int]]
"""Address and port at which the link endpoint `mn.<domain>` of a domain is reached."""


@dataclass(eq=False)
class _Way:
    """What is under way between us and one domain. `waiting` are messages that were not acknowledged, by number.

    The newest of the `lines` that are up is the one that is written to.
    """

    domain: str
    stream: str = field(default_factory=lambda: token_hex(_STREAM_CHARS // 2))
    number: int = 0
    waiting: dict[int, bytes] = field(default_factory=dict)
    peer_stream: str = ""
    processed: dict[str, int] = field(default_factory=dict)
    lines: list[LinkLine] = field(default_factory=list)
    moved: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    is_dialled: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)

    def add(self, raw: bytes) -> None:
        """Number one message."""
        self.number += 1
        self.waiting[self.number] = raw
        self.moved.unpark_all()

    def acknowledged(self, number: int) -> None:
        """Everything up to a number was processed."""
        self.waiting = {one: raw for one, raw in self.waiting.items() if one > number}

    def new_numbers(self, stream: str, frame: LinkFrame) -> Iterator[bytes]:
        """The messages of a frame that were not taken before."""
        for number, raw in enumerate(decode_messages(frame.payload), frame.arg):
            if number > self.processed.get(stream, 0):
                self.processed[stream] = number
                yield raw


class LinkSpeaker(ForeignNode):
    """One node. Use: `await nursery.start(speaker.run)`; runtimes in memory are `LocalClient`s."""

    def __init__(self, peer: LinkPeer, contexts: tuple[ssl.SSLContext, ssl.SSLContext], reach: Reach) -> None:
        """Prepare a node.

        Args:
            peer: The domain and its key.
            contexts: For TLS as server and as client.
            reach: Where other domains are.
        """
        super().__init__(peer.domain, ssl_context=contexts[0])
        self._peer = peer
        self._client_context = contexts[1]
        self._reach = reach
        self._ways: dict[str, _Way] = {}
        self._listeners: dict[str, Line] = {}

    # Its runtimes.

    def join(self, runtime: LocalRuntime) -> None:
        """See `ForeignNode`."""
        self._listeners[runtime.url] = runtime

    def went(self, line: Line) -> None:
        """See `ForeignNode`."""
        self._listeners = {address: one for address, one in self._listeners.items() if one is not line}

    def forget(self) -> None:
        """See `ForeignNode`."""
        for way in self._ways.values():
            way.scope.cancel()
        self._ways.clear()
        self._listeners.clear()

    def receive(self, line: Line, text: str) -> None:
        """See `ForeignNode`."""
        message = json.loads(text)
        to = str(message["to"])
        domain = to.split("/")[2] if "://" in to else self.domain
        if to == f"domain://msg-node.{self.domain}/address-allocation":
            value = message["body"]
            made = [f"{value['scheme']}://{self.domain}/{uuid4()}" for _ in range(value["value"]["number"])]
            self._listeners |= dict.fromkeys(made, line)
            line.send(_answer(message, {"code": 200, "value": {"allocated": made}}))
        elif domain.removeprefix("registry.") == self.domain:
            self._deliver(message)
        else:
            self._send(domain.removeprefix("registry."), text.encode())

    def _deliver(self, message: Json) -> None:
        listener = self._listeners.get(message["to"])
        if listener is not None:
            listener.send(message)
        elif message.get("id") is not None and message.get("type") != "response":
            answer = _answer(message, {"code": 404, "reason": "no-route"})
            self._send(str(message["from"]).split("/")[2], json.dumps(answer).encode())

    # The link.

    def _send(self, domain: str, raw: bytes) -> None:
        way = self._way_to(domain)
        way.add(raw)
        self._dial_if_needed(way)

    def _way_to(self, domain: str) -> _Way:
        return self._ways.setdefault(domain, _Way(domain))

    def _dial_if_needed(self, way: _Way) -> None:
        if way.waiting and not way.lines and not way.is_dialled and self._nursery is not None:
            way.is_dialled = True
            self._nursery.start_soon(self._dial, way)

    async def _accept(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        assert self._ssl_context is not None
        encrypted = trio.SSLStream(stream, self._ssl_context, server_side=True, https_compatible=True)
        line = LinkLine(encrypted, ServerWebSocket(is_binary=True))
        with suppress(HostError, trio.TooSlowError, *_LOST):
            async with encrypted:
                with trio.fail_after(_HANDSHAKE_SECONDS):
                    way, stream_name = await self._welcome(line)
                await self._talk(line, way, stream_name)

    async def _welcome(self, line: LinkLine) -> tuple[_Way, str]:
        await line.accept()
        hello = decode_hello(await line.receive_kind(FrameKind.HELLO))
        await line.send(encode_frame(FrameKind.CHALLENGE, 0, token_bytes(32)))
        asked = facts_of((await line.receive_kind(FrameKind.TOKEN)).payload)
        way = self._way_to(asked["iss"])
        if hello.peer_stream == way.stream:
            way.acknowledged(hello.delivered)
        proof = self._peer.prove(asked, nonce=asked["cnonce"], endpoint=asked["ep"], binding=asked["cb"])
        await line.send(encode_welcome(way.processed.get(hello.stream, 0), way.stream, proof))
        return way, hello.stream

    async def _dial(self, way: _Way) -> None:
        """Visit a domain while something waits for it and no line to it is up."""
        with way.scope:
            while way.waiting and not way.lines:
                with suppress(HostError, trio.TooSlowError, *_LOST):
                    await self._visit(way)
                await trio.sleep(_AGAIN_SECONDS)
        way.is_dialled = False

    async def _visit(self, way: _Way) -> None:
        domain = way.domain
        address, port = self._reach(domain)
        host = f"mn.{domain}"
        inner = await trio.open_tcp_stream(address, port)
        stream = trio.SSLStream(inner, self._client_context, server_hostname=host, https_compatible=True)
        endpoint = f"wss://{host}:{port}/link"
        line = LinkLine(stream, ClientWebSocket(endpoint, subprotocol=SUBPROTOCOL))
        async with stream:
            with trio.fail_after(_HANDSHAKE_SECONDS):
                welcome = await self._introduce(line, endpoint, way)
            way.acknowledged(welcome.arg)
            way.peer_stream = welcome.payload[:_STREAM_CHARS].decode()
            await self._talk(line, way, way.peer_stream)

    async def _introduce(self, line: LinkLine, endpoint: str, way: _Way) -> LinkFrame:
        await line.flush()
        while not line.websocket.is_open:
            data = bytes(await line.stream.receive_some(READ_BYTES))
            assert data, "the line ended before its upgrade"
            line.websocket.receive(data)
        hello = {"stream": way.stream, "domain": self.domain, "node": self._peer.node, "peer_stream": way.peer_stream}
        delivered = way.processed.get(way.peer_stream, 0)
        await line.send(encode_frame(FrameKind.HELLO, 1, json.dumps({**hello, "delivered": delivered}).encode()))
        challenge = (await line.receive_kind(FrameKind.CHALLENGE)).payload
        certificate = hashlib.sha256(line.stream.getpeercert(binary_form=True)).digest()
        token = self._peer.prove(
            {"iss": way.domain},
            nonce=auth.nonce_text(challenge),
            endpoint=endpoint,
            binding=auth.channel_binding(certificate),
        )
        await line.send(encode_frame(FrameKind.TOKEN, 0, token.encode()))
        return await line.receive_kind(FrameKind.WELCOME)

    async def _talk(self, line: LinkLine, way: _Way, stream: str) -> None:
        """After the handshake, until the line ends."""
        way.lines.append(line)
        way.peer_stream = stream
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, line, way)
                while (frame := await line.receive()) is not None and frame.kind is not FrameKind.BYE:
                    await self._take(line, way, stream, frame)
                nursery.cancel_scope.cancel()
        except* _LOST:
            pass
        finally:
            way.lines.remove(line)
            way.moved.unpark_all()
            self._dial_if_needed(way)

    async def _write(self, line: LinkLine, way: _Way) -> None:
        """Write what was not acknowledged, once on each line."""
        sent = 0
        while True:
            new = [(number, raw) for number, raw in way.waiting.items() if number > sent]
            if new and way.lines[-1] is line:
                sent = new[-1][0]
                await line.send(*encode_messages(new))
            else:
                await way.moved.park()

    async def _take(self, line: LinkLine, way: _Way, stream: str, frame: LinkFrame) -> None:
        if frame.kind is FrameKind.ACK:
            way.acknowledged(frame.arg)
        elif frame.kind is FrameKind.REFUSE:
            self._refused(way.waiting.pop(frame.arg, b""), frame.payload)
        elif frame.kind is FrameKind.MESSAGES:
            for raw in way.new_numbers(stream, frame):
                self.note(raw.decode())
                self._deliver(json.loads(raw))
            await line.send(encode_frame(FrameKind.ACK, way.processed[stream]))

    def _refused(self, raw: bytes, why: bytes) -> None:
        """Our partner refused one message: its sender gets the answer, if it waits for one."""
        message = json.loads(raw) if raw else {}
        if message.get("id") is not None and message.get("type") != "response":
            status, _, rest = why.decode(errors="replace").partition(" ")
            body = {"code": int(status) if status.isdecimal() else 502, "reason": rest.partition(" ")[0]}
            self._deliver(_answer(message, body))


def _answer(message: Json, body: Json) -> Json:
    return {"id": message["id"], "type": "response", "from": message["to"], "to": message["from"], "body": body}
