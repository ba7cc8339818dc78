"""A foreign domain inside the test: genuine keys and documents, and whatever behaviour the test wants behind them."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
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
from interop.authority import DevelopmentAuthority
from interop.domain_files import HOST
from protofly.documents import Endpoint, Revoked
from stubkit.keys import KeyRing, make_keys
from stubkit.sign import RootTerms, StubRelease, sign_manifest, sign_root
from tests.support.guests import custom_section
from tests.support.live_documents import sign_live
from wire.core.websocket import ClientWebSocket, ServerWebSocket, WebSocket

LINK_STUB = Path(__file__).parents[2] / "examples" / "stubs" / "trapezoid_link" / "link.wasm"
WELL_KNOWN = "/.well-known/rethink-mn"
ROOT, MANIFEST, MODULE = f"{WELL_KNOWN}/root/1", f"{WELL_KNOWN}/manifest/foreignStub", "/module.wasm"
READ_BYTES = 65_536
Stream = trio.SSLStream[trio.SocketStream]
Behaviour = Callable[[Stream], Awaitable[None]]


class ForeignDomain:
    """One domain: a site that serves `files`, and a link endpoint that behaves as `behaviour` says."""

    def __init__(self, domain: str, authority: DevelopmentAuthority) -> None:
        self.domain = domain
        self.keys = make_keys()
        self.aliases: tuple[str, ...] = ()
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.connections = 0
        self.peer = LinkPeer(domain, self.keys)
        self.behaviour: Behaviour = self.peer.serve
        self.site_port = self.link_port = 0
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(*authority.certificate_for(domain))

    def claim(self, *aliases: str) -> None:
        """Name these aliases in the root, when it is published first, and in tokens."""
        self.aliases = aliases
        self.peer.domains = [self.domain, *aliases]

    @property
    def records(self) -> dict[str, list[str]]:
        """What the name server says of it."""
        return {
            self.domain: [f"A {HOST}"],
            f"mn.{self.domain}": [f"A {HOST}"],
            f"_rethink-mn.{self.domain}": [
                'TXT "v=rmn1; id=1; mode=enforce"',
                f"SVCB 1 {self.domain}. port={self.site_port}",
            ],
        }

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; whatever a client does to a connection is that connection's matter."""
        async with trio.open_nursery() as nursery:
            self.site_port = await nursery.start(self._listen, self._serve_site)
            self.link_port = await nursery.start(self._listen, self._serve_link)
            self.publish()
            task_status.started()

    async def _listen(self, serve: Behaviour, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        async def handle(stream: trio.SocketStream) -> None:
            encrypted = trio.SSLStream(stream, self._context, server_side=True, https_compatible=True)
            try:
                async with encrypted:
                    await serve(encrypted)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

        [listener] = await trio.open_tcp_listeners(0, host=HOST)
        task_status.started(listener.socket.getsockname()[1])
        await trio.serve_listeners(handle, [listener])

    async def _serve_site(self, stream: Stream) -> None:
        request = b""
        while b"\r\n\r\n" not in request:
            data = await stream.receive_some(READ_BYTES)
            if not data:
                return
            request += data
        path = request.split(b" ", 2)[1].decode()
        self.asked.append(path)
        status, body = self.page(path, request.decode("latin-1"))
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        await stream.send_all(f"{head}Connection: close\r\n\r\n".encode() + body)

    def page(self, path: str, head: str) -> tuple[str, bytes]:
        """What the site answers to a request with this head."""
        assert head.startswith("GET ")
        body = self.files.get(path)
        return ("200 OK", body) if body is not None else ("404 Not Found", b"none")

    async def _serve_link(self, stream: Stream) -> None:
        self.connections += 1
        await self.behaviour(stream)

    def publish(
        self,
        *,
        module: bytes | None = None,
        serial: int = 1,
        signed_by: KeyRing | None = None,
        now: float | None = None,
        live_seconds: float = 48 * 3600.0,
        connect: Sequence[str] = ("mn",),
        ranges: Sequence[str] = (),
        events: Sequence[str] = (),
        endpoints: Sequence[Endpoint] = (),
        revoked: Revoked | None = None,
    ) -> None:
        """Sign and serve root, manifest, module and live; `signed_by` signs what `live` and `pkg` keys should."""
        signers, moment = signed_by or self.keys, time.time() if now is None else now
        mark = custom_section("of", self.domain.encode())  # else the cache knows the module from another domain
        code = LINK_STUB.read_bytes() + mark if module is None else module
        root = self.files.get(ROOT) or sign_root(
            self.keys, domain=self.domain, now=time.time(), terms=RootTerms(aliases=self.aliases)
        )
        release = StubRelease(
            domain=self.domain,
            name="foreignStub",
            serial=serial,
            version=f"1.{serial}.0",
            urls=[f"https://{self.domain}{MODULE}"],
            connect=connect,
            needs_auth=not ranges,
            ranges=ranges,
            events=events,
        )
        manifest = sign_manifest(signers, code, release, now=time.time())
        live = sign_live(
            signers,
            root_envelope=root,
            serial=serial,
            endpoints=[Endpoint(name="mn", url=f"wss://mn.{self.domain}:{self.link_port}/link"), *endpoints],
            manifests={"default": manifest},
            now=moment,
            validity_seconds=live_seconds,
            revoked=revoked,
        )
        self.files = {WELL_KNOWN: live, ROOT: root, MANIFEST: manifest, MODULE: code}


class LinkLine:
    """Frames of LINK/1 over one TLS connection, for either side."""

    def __init__(self, stream: Stream, websocket: WebSocket) -> None:
        self.stream = stream
        self.websocket = websocket
        self._frames: list[LinkFrame] = []

    async def send(self, *frames: bytes) -> None:
        self.websocket.send(frames)
        await self.flush()

    async def flush(self) -> None:
        data = self.websocket.data_to_send()
        if data:
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

    def __init__(self, domain: str, keys: KeyRing) -> None:
        self.domain = domain
        self.domains = [domain]
        self.node = f"runtime://{domain}/mn-1"
        self.keys = keys
        self.heard: list[dict[str, Any]] = []
        self.acknowledges = True
        self.lines: list[LinkLine] = []
        self.moved = trio.lowlevel.ParkingLot()
        self.has_ended = trio.Event()

    def prove(self, asked: dict[str, str], *, nonce: str, endpoint: str, binding: str) -> str:
        issuer = auth.Issuer(self.domain, self.node, self.domains)
        request = auth.TokenRequest(asked["iss"], endpoint, binding, b"")
        claims = auth.new_claims(issuer, request, nonce, now=time.time(), random_bytes=token_bytes(48))
        return auth.make_token(claims, self.keys.node[0])

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
        await line.receive_kind(FrameKind.WELCOME)
        return line

    async def visit_unproved(self, host_domain: str, port: int, context: ssl.SSLContext) -> LinkLine:
        """The same up to our token, not yet judged."""
        host = f"mn.{host_domain}"
        inner = await trio.open_tcp_stream(HOST, port)
        stream = trio.SSLStream(inner, context, server_hostname=host, https_compatible=True)
        endpoint = f"wss://{host}:{port}/link"
        line = LinkLine(stream, ClientWebSocket(endpoint, subprotocol=SUBPROTOCOL))
        await line.flush()
        hello = {"stream": token_hex(16), "peer_stream": "", "delivered": 0, "domain": self.domain, "node": self.node}
        while not line.websocket.is_open:
            line.websocket.receive(bytes(await stream.receive_some(READ_BYTES)))
        await line.send(encode_frame(FrameKind.HELLO, 1, json.dumps(hello).encode()))
        challenge = (await line.receive_kind(FrameKind.CHALLENGE)).payload
        certificate = hashlib.sha256(stream.getpeercert(binary_form=True)).digest()
        binding = auth.channel_binding(certificate)
        token = self.prove({"iss": host_domain}, nonce=auth.nonce_text(challenge), endpoint=endpoint, binding=binding)
        await line.send(encode_frame(FrameKind.TOKEN, 0, token.encode()))
        return line


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
