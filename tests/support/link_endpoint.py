"""A real /link endpoint on loopback TLS, identities of both domains, and a client of LINK/1 that a test scripts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
import trustme

from catalogue_client.core.state import DomainTrust
from federation.core import auth
from federation.core.alias_rules import AliasRules
from federation.core.auth import TokenRequest
from federation.core.carrier import LinkPort
from federation.core.link_frames import (
    SUBPROTOCOL,
    FrameKind,
    LinkFrame,
    decode_frame,
    decode_messages,
    encode_frame,
    encode_messages,
)
from federation.discovery.aliases import Aliases
from federation.discovery.identity import Identity
from federation.links.domain_link import DomainLink
from federation.links.link_acceptor import LinkAcceptor
from protofly.documents import KeyRecord, SigningKey
from protofly.errors import Code, HostError, PeerError, TransportError
from protofly.limits import FRAME_BYTES_MAX
from protofly.message import Message
from tests.support.lines import binding_of, certificate_of, client_context, server_context
from tests.support.repository import PublishedDomain, World, signing_key
from tests.support.services import PATIENCE_SECONDS
from tests.support.sides import Bus, chat, node_of
from wire.byte_channel import ByteChannel
from wire.core.websocket import ClientWebSocket, ServerWebSocket

ENDPOINT = "wss://mn.b.example/link"
OUR_STREAM = "a" * 32


class Documents:
    """Verified documents of both domains, as each node's own discovery has them; `refreshes` counts the asking."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.published = {domain.domain: domain for domain in world.published}
        self.keys = {name: signing_key("N1", of=name) for name in self.published}
        self.known: dict[str, DomainTrust] = {}
        self.asked: Counter[str] = Counter()
        self.refreshes: Counter[str] = Counter()
        self.askers: Counter[str] = Counter()
        self.claimed: Counter[tuple[str, str]] = Counter()
        self.failure: HostError | None = None
        for name in self.published:
            self.publish_keys(name, self.keys[name])

    def publish_keys(self, domain: str, *keys: SigningKey, **changes: Any) -> None:
        """A new live document with these node keys."""
        records: Mapping[str, KeyRecord] = {key.key_id: key.record() for key in keys}
        self.published[domain].publish_live(node_keys=dict(records), **changes)

    async def trust_of(self, domain: str, is_refresh: bool, asked_by: str = "") -> DomainTrust:
        self.asked[domain] += 1
        self.askers[asked_by] += 1
        if self.failure is not None:
            raise self.failure
        if domain not in self.published:
            raise PeerError(Code.NO_SUCH_DOMAIN, "nobody publishes this", domain=domain)
        if is_refresh or domain not in self.known:
            self.refreshes[domain] += 1
            self.known[domain] = await self.world.refresh(self.published[domain])
        return self.known[domain]

    async def alias_trust_of(self, alias: str, *, of: str) -> DomainTrust:
        """As `trust_of`; `claimed` counts for whom an alias was looked up."""
        self.claimed[alias, of] += 1
        return await self.trust_of(alias, is_refresh=False)

    def identity(
        self,
        domain: str,
        *,
        key: SigningKey | None = None,
        domains: list[str] | None = None,
        rules: AliasRules | None = None,
    ) -> Identity:
        """The identity of a domain's node; with `rules` it believes aliases."""
        return Identity(
            node=node_of(domain),
            domains=domains or [domain],
            key=key or self.keys[domain],
            trust_of=self.trust_of,
            aliases=None if rules is None else Aliases(rules, self.alias_trust_of),
        )


class LinkEndpoint:
    """What a node of b.example does for links: TLS, upgrade, then the product's acceptor."""

    def __init__(self, documents: Documents, *, bus: Bus | None = None, certificate: trustme.LeafCert | None = None):
        self.documents = documents
        self.bus = bus or Bus("b.example")
        self.link = self.bus.link_to("a.example")
        self.certificate = certificate or certificate_of("mn.b.example")
        self.refusal: PeerError | None = None
        self.failures: list[BaseException] = []
        self.lines: list[ByteChannel] = []
        self.sessions = 0
        self.ended = 0
        self.acceptor = LinkAcceptor(
            identity=documents.identity("b.example"),
            endpoints=frozenset({ENDPOINT}),
            bindings=frozenset({binding_of(self.certificate)}),
            admit=self._admit,
            log_clock=lambda: 90.0,
        )

    async def _admit(self, _claims: auth.Claims, _stream: str) -> LinkPort:
        if self.refusal is not None:
            raise self.refusal
        return self.link

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as self._drains, trio.open_nursery() as connections:
            port = listener.socket.getsockname()[1]
            task_status.started(port)
            await trio.serve_listeners(self._serve, [listener], handler_nursery=connections)

    async def _serve(self, stream: trio.SocketStream) -> None:
        try:
            context = server_context(self.certificate)
            remote = stream.socket.getpeername()[0]
            line = await ByteChannel.over(stream, drain_nursery=self._drains, context=context, server_side=True)
            self.lines.append(line)
            async with line:
                if (websocket := await _asked_websocket(line)) is None:
                    return
                websocket.accept(subprotocol=SUBPROTOCOL, is_binary=True)
                line.send_nowait(websocket.data_to_send())
                self.sessions += 1
                await self.acceptor.serve(line, websocket, remote=str(remote))
                await line.aclose()
        except TransportError:
            return
        except Exception as exc:  # what would have ended the node
            self.failures.append(exc)
        finally:
            self.ended += 1

    def cut(self) -> None:
        """Every line breaks."""
        for line in self.lines:
            line.close()
        self.lines.clear()


async def _asked_websocket(line: ByteChannel) -> ServerWebSocket | None:
    """A WebSocket that has read the client's request; None if the line ends before."""
    websocket = ServerWebSocket(max_bytes=FRAME_BYTES_MAX)
    while websocket.request_path is None:
        data = await line.receive()
        websocket.receive(data)
        if not data:
            return None
    return websocket


class LinkClient:
    """The client's side of LINK/1, honest unless the test says otherwise."""

    def __init__(self, line: ByteChannel, identity: Identity) -> None:
        self.line = line
        self.identity = identity
        self.websocket = ClientWebSocket(ENDPOINT, subprotocol=SUBPROTOCOL, max_bytes=FRAME_BYTES_MAX)
        self._frames: list[LinkFrame] = []
        self.challenge = b""
        self.welcome: LinkFrame | None = None
        self.counter_challenge = ""
        self.patience_seconds = PATIENCE_SECONDS

    async def upgrade(self) -> None:
        self.line.send_nowait(self.websocket.data_to_send())
        while not self.websocket.is_open:
            data = await self.line.receive()
            assert data, "refused"
            self._take(data)

    def _take(self, data: bytes) -> None:
        self._frames += [decode_frame(raw) for raw in self.websocket.receive(data)]
        self.line.send_nowait(self.websocket.data_to_send())

    def send_raw(self, *frames: bytes) -> None:
        """Several frames in one write."""
        self.websocket.send(frames)
        self.line.send_nowait(self.websocket.data_to_send())

    def send(self, kind: FrameKind, arg: int = 0, payload: bytes = b"") -> None:
        self.send_raw(encode_frame(kind, arg, payload))

    def send_messages(self, *raws: bytes, first: int = 1) -> None:
        self.send_raw(*encode_messages([(first + index, raw) for index, raw in enumerate(raws)]))

    async def receive(self) -> LinkFrame | None:
        """The next frame, None at the end of the connection."""
        with trio.fail_after(self.patience_seconds):
            while not self._frames:
                data = await self.line.receive()
                self._take(data)
                if not self._frames and (not data or not self.websocket.is_open):
                    return None
        return self._frames.pop(0)

    async def receive_kind(self, kind: FrameKind) -> LinkFrame:
        """The next frame of one kind; acknowledgements on the way are skipped."""
        while (frame := await self.receive()) is not None:
            if frame.kind is kind:
                return frame
            assert frame.kind is FrameKind.ACK, frame
        raise AssertionError(f"the connection ended before {kind.name}")

    async def receive_messages(self, count: int) -> list[tuple[int, bytes]]:
        """So many messages with their numbers."""
        found: list[tuple[int, bytes]] = []
        while len(found) < count:
            frame = await self.receive_kind(FrameKind.MESSAGES)
            found += enumerate(decode_messages(frame.payload), frame.arg)
        return found

    async def code_of_bye(self) -> str:
        """The word with which the node ends the connection."""
        frame = await self.receive_kind(FrameKind.BYE)
        assert await self.receive() is None
        return frame.payload.decode()

    # The handshake, step by step.

    def say_hello(self, **members: Any) -> None:
        domain = self.identity.domain
        hello = {"stream": OUR_STREAM, "peer_stream": "", "delivered": 0, "domain": domain, "node": self.identity.node}
        self.send(FrameKind.HELLO, 1, json.dumps(hello | members).encode())

    async def receive_challenge(self) -> bytes:
        frame = await self.receive()
        assert frame is not None
        assert frame.kind is FrameKind.CHALLENGE
        self.challenge = frame.payload
        return frame.payload

    def token(self, challenge: bytes | None = None, *, endpoint: str = ENDPOINT, binding: str = "") -> bytes:
        token, self.counter_challenge = self.identity.token_for(
            TokenRequest(
                peer_domain="b.example",
                endpoint=endpoint,
                binding=binding or auth.channel_binding(self.line.peer_certificate_sha256),
                challenge=self.challenge if challenge is None else challenge,
            )
        )
        return token.encode()

    async def handshake(self, **members: Any) -> LinkFrame:
        """All of it; returns WELCOME."""
        self.say_hello(**members)
        await self.receive_challenge()
        self.send(FrameKind.TOKEN, 0, self.token())
        self.welcome = await self.receive_kind(FrameKind.WELCOME)
        return self.welcome


class LinkRig:
    """An endpoint of b.example that runs, and clients of a.example for it."""

    def __init__(self, endpoint: LinkEndpoint, port: int, drains: trio.Nursery) -> None:
        self.endpoint = endpoint
        self.port = port
        self._drains = drains

    @property
    def bus(self) -> Bus:
        return self.endpoint.bus

    @property
    def link(self) -> DomainLink:
        return self.endpoint.link

    @property
    def documents(self) -> Documents:
        return self.endpoint.documents

    @asynccontextmanager
    async def client(self, identity: Identity | None = None) -> AsyncIterator[LinkClient]:
        """A connection after the WebSocket upgrade."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        line = await ByteChannel.over(
            stream, drain_nursery=self._drains, context=client_context(), server_hostname="mn.b.example"
        )
        async with line:
            client = LinkClient(line, identity or self.documents.identity("a.example"))
            await client.upgrade()
            yield client

    @asynccontextmanager
    async def live_client(self, identity: Identity | None = None, **members: Any) -> AsyncIterator[LinkClient]:
        """A connection after the whole handshake."""
        async with self.client(identity) as client:
            await client.handshake(**members)
            yield client

    async def wait_until(self, condition: Any) -> None:
        """Until something is so; each turn of the scheduler looks again, and no clock is asked but the last one."""
        with trio.fail_after(PATIENCE_SECONDS):
            while not condition():
                await trio.lowlevel.checkpoint()


def make_world(folder: Any, *, code: bytes | None = None) -> World:
    """A client's world in which a.example and b.example publish."""
    b = PublishedDomain("b.example") if code is None else PublishedDomain("b.example", code=code)
    return World(folder, b, PublishedDomain("a.example"))


@asynccontextmanager
async def link_rig(world: World, **settings: Any) -> AsyncIterator[LinkRig]:
    """An endpoint of b.example on loopback; at its end nothing may have happened that would have ended a node."""
    endpoint = LinkEndpoint(Documents(world), **settings)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(endpoint.run)
        yield LinkRig(endpoint, port, nursery)
        nursery.cancel_scope.cancel()
    assert endpoint.failures == []


def from_a(number: int, **body: Any) -> bytes:
    return chat(number, **body).raw


def from_b(number: int, **body: Any) -> Message:
    return chat(number, from_="b.example", to="a.example", **body)


def send(rig: LinkRig, *messages: Message) -> None:
    """The bus of b.example sends, then ends its round."""
    for message in messages:
        assert rig.link.send(message) is None
    rig.link.flush()
