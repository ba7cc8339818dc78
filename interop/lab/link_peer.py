"""A partner that speaks the link protocol by hand: it proves itself properly, and then says whatever it is made to say.

It stands on the frames and tokens of the protocol and on nothing of the node around them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import time
from contextlib import suppress
from secrets import token_bytes, token_hex
from typing import Any, cast

import trio

from federation.core import auth
from federation.core.link_frames import (
    SUBPROTOCOL,
    FrameKind,
    LinkFrame,
    decode_frame,
    decode_messages,
    encode_frame,
    encode_messages,
    encode_welcome,
)
from interop.domain_files import HOST
from protofly.signatures import SigningKey
from wire.core.websocket import ClientWebSocket, ServerWebSocket, WebSocket

READ_BYTES = 65_536
Stream = trio.SSLStream[trio.SocketStream]


class LinkLine:
    """Frames of LINK/1 over one TLS connection, for either side."""

    def __init__(self, stream: Stream, websocket: WebSocket) -> None:
        self.stream = stream
        self.websocket = websocket
        self._frames: list[LinkFrame] = []
        self._writing = trio.Lock()

    async def send(self, *frames: bytes) -> None:
        """Send frames at once."""
        self.websocket.send(frames)
        await self.flush()

    async def flush(self) -> None:
        """Write what waits to be written, behind what another task writes."""
        async with self._writing:
            if data := self.websocket.data_to_send():
                await self.stream.send_all(data)

    async def receive(self) -> LinkFrame | None:
        """The next frame, None at the end."""
        while not self._frames:
            data = bytes(await self.stream.receive_some(READ_BYTES))
            self._frames += [decode_frame(raw) for raw in self.websocket.receive(data)]
            await self.flush()
            if not data or not (self._frames or self.websocket.is_open):
                return None
        return self._frames.pop(0)

    async def receive_kind(self, kind: FrameKind) -> LinkFrame:
        """The next frame of a kind; others are left aside. Raises AssertionError if the line ends before."""
        while (frame := await self.receive()) is not None:
            if frame.kind is kind:
                return frame
        raise AssertionError(f"the line ended before {kind.name}")

    async def close_reason(self) -> str:
        """With which word the other side ends the line; whatever else it sends before is left aside."""
        word = ""
        with suppress(trio.BrokenResourceError):
            while (frame := await self.receive()) is not None:
                if frame.kind is FrameKind.BYE:
                    word = frame.payload.decode()
        return word

    async def accept(self) -> None:
        """The server's side of the WebSocket handshake."""
        websocket = cast("ServerWebSocket", self.websocket)
        while websocket.request_path is None:
            data = bytes(await self.stream.receive_some(READ_BYTES))
            websocket.receive(data)
            if not data:
                return
        websocket.accept(subprotocol=SUBPROTOCOL, is_binary=True)
        await self.flush()


def facts_of(token: bytes) -> dict[str, str]:
    """The claims of a token, unverified."""
    part = token.split(b".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))))


def message(from_: str, to: str, *, id_: object = None, value: object = 0) -> bytes:
    """One message as a foreign node would send it."""
    body = {"value": value, "via": [f"runtime://{from_.split('/')[2]}/mn-1"]}
    header = {} if id_ is None else {"id": id_}
    return json.dumps({**header, "type": "create", "from": from_, "to": to, "body": body}).encode()


class LinkPeer:
    """A node that proves itself properly with its domain's keys, acknowledges everything and grants every request."""

    def __init__(self, domain: str, key: SigningKey) -> None:
        self.domain = domain
        self.domains = [domain]
        self.node = f"runtime://{domain}/mn-1"
        self.key = key
        self.heard: list[dict[str, Any]] = []
        self.acknowledges = True
        self.lines: list[LinkLine] = []
        self.moved = trio.lowlevel.ParkingLot()
        self.has_ended = trio.Event()

    def prove(self, asked: dict[str, str], *, nonce: str, endpoint: str, binding: str) -> str:
        """A token of ours for the domain that asked."""
        issuer = auth.Issuer(self.domain, self.node, self.domains)
        request = auth.TokenRequest(asked["iss"], endpoint, binding, b"")
        claims = auth.new_claims(issuer, request, nonce, now=time.time(), random_bytes=token_bytes(48))
        return auth.make_token(claims, self.key)

    async def serve(self, stream: Stream) -> None:
        """The node's side."""
        line = LinkLine(stream, ServerWebSocket(is_binary=True))
        await line.accept()
        await line.receive_kind(FrameKind.HELLO)
        await line.send(encode_frame(FrameKind.CHALLENGE, 0, token_bytes(32)))
        asked = facts_of((await line.receive_kind(FrameKind.TOKEN)).payload)
        proof = self.prove(asked, nonce=asked["cnonce"], endpoint=asked["ep"], binding=asked["cb"])
        await line.send(encode_welcome(0, token_hex(16), proof))
        self.lines.append(line)
        await self.talk(line)

    async def talk(self, line: LinkLine) -> None:
        """After the handshake, until the line ends."""
        number = 1
        while (frame := await line.receive()) is not None:
            if frame.kind is not FrameKind.MESSAGES:
                continue
            raws = decode_messages(frame.payload)
            requests = [json.loads(raw) for raw in raws]
            self.heard += requests
            self.moved.unpark_all()
            if not self.acknowledges:
                continue
            answers = [_granted(one) for one in requests if one.get("id") is not None and one["type"] != "response"]
            await line.send(
                encode_frame(FrameKind.ACK, frame.arg + len(raws) - 1),
                *encode_messages(list(enumerate(answers, number))),
            )
            number += len(answers)
        self.has_ended.set()

    async def hear(self, count: int) -> None:
        """Until so many messages are here."""
        while len(self.heard) < count:
            await self.moved.park()

    async def visit(self, host_domain: str, port: int, context: ssl.SSLContext) -> LinkLine:
        """The client's side: connect to the link endpoint of `host_domain`, prove ourselves, be welcome."""
        line = await self.visit_unproved(host_domain, port, context)
        try:
            await line.receive_kind(FrameKind.WELCOME)
        except BaseException:
            await trio.aclose_forcefully(line.stream)
            raise
        return line

    async def visit_unproved(self, host_domain: str, port: int, context: ssl.SSLContext) -> LinkLine:
        """The same up to our token, not yet judged."""
        host = f"mn.{host_domain}"
        inner = await trio.open_tcp_stream(HOST, port)
        stream = trio.SSLStream(inner, context, server_hostname=host, https_compatible=True)
        endpoint = f"wss://{host}:{port}/link"
        line = LinkLine(stream, ClientWebSocket(endpoint, subprotocol=SUBPROTOCOL))
        try:
            await self._introduce(line, host_domain, endpoint)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return line

    async def _introduce(self, line: LinkLine, host_domain: str, endpoint: str) -> None:
        stream = line.stream
        await line.flush()
        hello = {"stream": token_hex(16), "peer_stream": "", "delivered": 0, "domain": self.domain, "node": self.node}
        while not line.websocket.is_open:
            data = bytes(await stream.receive_some(READ_BYTES))
            assert data, "the line ended before its upgrade"
            line.websocket.receive(data)
        await line.send(encode_frame(FrameKind.HELLO, 1, json.dumps(hello).encode()))
        challenge = (await line.receive_kind(FrameKind.CHALLENGE)).payload
        certificate = hashlib.sha256(stream.getpeercert(binary_form=True)).digest()
        binding = auth.channel_binding(certificate)
        token = self.prove({"iss": host_domain}, nonce=auth.nonce_text(challenge), endpoint=endpoint, binding=binding)
        await line.send(encode_frame(FrameKind.TOKEN, 0, token.encode()))


def _granted(request: dict[str, Any]) -> bytes:
    return json.dumps(
        {
            "id": request["id"],
            "type": "response",
            "from": request["to"],
            "to": request["from"],
            "body": {"code": 200},
        }
    ).encode()
