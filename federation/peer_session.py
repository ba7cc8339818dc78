"""A link that another node's stub opened to us: the node's side of `trapezoid-link/1`.

Until the other side has proved its domain nothing it sends is looked at. Source: docs/link.md; trust and hosts,
section 2.7.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from secrets import token_bytes

import trio

from federation.core import auth
from federation.core.auth import Claims
from federation.core.carrier import Carrier, LinkPort
from federation.core.link_frames import (
    FrameKind,
    Hello,
    LinkFrame,
    decode_frame,
    decode_hello,
    decode_messages,
    encode_frame,
    encode_messages,
    encode_welcome,
)
from federation.core.outbound_queue import LAST_NUMBER, OutboundQueue
from federation.error_groups import first_error
from federation.identity import Identity, Proof, TokenRequest
from federation.inbound_turns import InboundTurns
from federation.log_allowance import LogAllowance
from federation.resolver import VISITOR
from protofly.errors import Code, HostError, PeerError, TransportError
from protofly.limits import (
    FRAME_BYTES_MAX,
    HANDSHAKE_SECONDS,
    PENDING_LINKS,
    PENDING_LINKS_PER_ADDRESS,
    PING_SECONDS,
)
from wire.byte_channel import ByteChannel
from wire.core.address_group import address_group
from wire.core.pending import Pending, PendingTable
from wire.core.websocket import GOING_AWAY, POLICY, ServerWebSocket

logger = logging.getLogger("federation")

HIGH_WATER_BYTES = 1 << 20
READ_PAUSE_BYTES = HIGH_WATER_BYTES + FRAME_BYTES_MAX
"""More than our own messages ever leave unwritten: if those stopped the reading, two sides that send would wait for
each other for ever."""
REFUSALS_TOLD_PER_MINUTE = 60
"""In the log, of those who have proved nothing: anybody may come as often as he likes."""
REAUTHENTICATE_SECONDS = 86_400.0
RECHECK_SECONDS = 300.0
SILENT_PINGS = 3
ACK_SECONDS = 0.02
"""How long an acknowledgement may wait for company: at a low rate it would cost as much as the message itself."""
ACK_MESSAGES = 512
"""So many messages are acknowledged at once, so that the sender's window never fills for want of it."""
_BATCH_MESSAGES = 1024
_BATCH_BYTES = 256 << 10
_CODES = {code.word: code for code in reversed(Code)}


class LinkAcceptor:
    """What every incoming link needs to know.

    Args:
        endpoints: URLs under which our link endpoint is published.
        bindings: Channel bindings of our certificates.
        admit: Decides on the domain once it is known; returns the queue and the port of its link. Raises PeerError
            AUTH_POLICY.

    Attributes:
        pending: Links that are proving themselves now.
        refused: Links that were refused, or ended because of a fault of the other side.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        endpoints: frozenset[str],
        bindings: frozenset[str],
        admit: Callable[[Claims], tuple[OutboundQueue, LinkPort]],
    ) -> None:
        self.identity = identity
        self.endpoints = endpoints
        self.bindings = bindings
        self.admit = admit
        self.pending: PendingTable[trio.CancelScope] = PendingTable(
            most=PENDING_LINKS, most_per_address=PENDING_LINKS_PER_ADDRESS, replaces_own=True
        )
        self.refused = 0
        self._log_lines = LogAllowance(REFUSALS_TOLD_PER_MINUTE)

    async def serve(
        self,
        line: ByteChannel,
        websocket: ServerWebSocket,
        *,
        remote: str,
        on_proved: Callable[[], None] = lambda: None,
    ) -> None:
        """Serve one accepted WebSocket until it ends; the caller closes the line.

        Args:
            line: What the WebSocket runs on.
            websocket: Accepted, with binary frames.
            remote: Address of the client.
            on_proved: Told once the other side has proved its domain.
        """
        session = PeerSession(self, line, websocket, remote, on_proved)
        try:
            await session.run()
        except HostError as exc:
            self.refused += 1
            self._say_why(session, exc, remote)
            websocket.send([encode_frame(FrameKind.BYE, 0, exc.code.word.encode())])
            websocket.close(POLICY, exc.code.word)
            line.send_nowait(websocket.data_to_send())

    def _say_why(self, session: PeerSession, error: HostError, remote: str) -> None:
        """Log a refusal; about a domain only if that is proved.

        In whose name a stranger comes says nothing about that domain, and takes none of the lines that it has.
        """
        if session.domain:
            logger.warning("link from %s refused: %s", session.domain, error, extra={"domain": session.domain})
        elif self._log_lines.takes("strangers"):
            claimed = getattr(error, "domain", "") or "nobody in particular"
            logger.warning("link from %s refused, which claims to be %s: %s", remote, claimed, str(error))


class PeerSession(Carrier):
    """One incoming link.

    Attributes:
        domain: What the other side has proved, "" before that.
    """

    channel = "peer"

    def __init__(
        self,
        acceptor: LinkAcceptor,
        line: ByteChannel,
        websocket: ServerWebSocket,
        remote: str,
        on_proved: Callable[[], None],
    ) -> None:
        self.domain = ""
        self._remote = remote
        self._on_proved = on_proved
        self._acceptor = acceptor
        self._line = line
        self._websocket = websocket
        self._queue: OutboundQueue | None = None
        self._port: LinkPort | None = None
        self._stream = ""
        self._turns = InboundTurns(self, waits_for_room=True)
        self._processed = 0
        self._acknowledged = 0
        self._ack_due = trio.Event()
        self._heard_seconds = trio.current_time()
        self._clock_offset_seconds = time.monotonic() - self._heard_seconds
        self._is_reading = True
        self._claims: Claims
        self._proof: Proof

    async def run(self) -> None:
        """Handshake, then traffic until the connection ends.

        Raises:
            PeerError: The other side broke the protocol or could not prove itself.
        """
        early = await self._prove()
        assert self._port is not None
        try:
            self._turns.begin()
            for raw in early:
                await self._frame(decode_frame(raw))
            await self._serve_traffic()
        finally:
            self._port.carrier_lost(self)

    async def _serve_traffic(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_alive)
                nursery.start_soon(self._acknowledge_late)
                nursery.start_soon(self._watch_proof)
                await self._read()
                nursery.cancel_scope.cancel()
        except* HostError as group:
            raise first_error(group) from None

    # The handshake.

    async def _prove(self) -> list[bytes]:
        """The handshake, counted for the client's address for as long as it takes; returns what came behind it.

        Raises:
            PeerError: AUTH_LIMIT when there are too many handshakes, FETCH_TIMEOUT, and those of the handshake.
        """
        pending = self._acceptor.pending
        place = trio.CancelScope()
        entry, displaced = pending.enter(address_group(self._remote), place)
        if displaced is not None:
            displaced.holder.cancel()
        if entry is None:
            raise PeerError(Code.AUTH_LIMIT, "too many links of this address are proving themselves")
        early = None
        try:
            with place, trio.move_on_after(HANDSHAKE_SECONDS):
                early = await self._handshake(entry)
        finally:
            pending.leave(entry)
        if early is not None:
            return early
        if place.cancelled_caught:
            raise PeerError(Code.AUTH_LIMIT, "too many links of this address are proving themselves, this one longest")
        raise PeerError(Code.FETCH_TIMEOUT, "the handshake took too long")

    async def _handshake(self, entry: Pending[trio.CancelScope]) -> list[bytes]:
        hello_raw, rest = await self._next_frame([])
        hello = decode_hello(decode_frame(hello_raw))
        challenge = token_bytes(32)
        self._send(encode_frame(FrameKind.CHALLENGE, 0, challenge))
        token_raw, rest = await self._next_frame(rest)
        token = decode_frame(token_raw)
        if token.kind is not FrameKind.TOKEN:
            raise PeerError(Code.PROTOCOL_ERROR, "a TOKEN must follow the challenge", domain=hello.domain[:253])
        identity = self._acceptor.identity
        entry.waits_for_us = True
        claims = await identity.verify(
            token.payload,
            endpoints=self._acceptor.endpoints,
            bindings=self._acceptor.bindings,
            nonce=auth.nonce_text(challenge),
            asked_by=f"{VISITOR}{address_group(self._remote)}",
        )
        self.domain = claims.iss
        if claims.iss != hello.domain or claims.node != hello.node:
            raise PeerError(Code.AUTH_AUDIENCE, "HELLO and token name different nodes", domain=claims.iss)
        self._welcome(claims, hello)
        return rest

    def _welcome(self, claims: Claims, hello: Hello) -> None:
        queue, port = self._acceptor.admit(claims)
        self._websocket.allow_bytes(FRAME_BYTES_MAX)
        self._on_proved()
        self._queue, self._port, self._stream = queue, port, hello.stream
        self.origin, self._claims = hello.stream, claims
        identity = self._acceptor.identity
        self._proof = identity.take_proof(claims)
        answer = identity.answer_for(
            TokenRequest(peer_domain=claims.iss, endpoint=claims.ep, binding=claims.cb, challenge=b""), claims
        )
        self._send(encode_welcome(port.processed(hello.stream), queue.stream, answer))
        if hello.peer_stream == queue.stream:
            port.accepted(hello.delivered)
        port.carrier_live(self, peer_node=claims.node, domains=frozenset(claims.doms))

    async def _next_frame(self, early: list[bytes]) -> tuple[bytes, list[bytes]]:
        while not early:
            data = await self._line.receive()
            early = self._websocket.receive(data)
            self._line.send_nowait(self._websocket.data_to_send())
            if not early and (not data or not self._websocket.is_open):
                raise PeerError(Code.PROTOCOL_ERROR, "closed during the handshake")
        return early[0], early[1:]

    # Traffic.

    async def _read(self) -> None:
        while True:
            data = await self._line.receive()
            self._heard_seconds = trio.current_time()
            self._is_reading = False
            self._turns.begin()
            for raw in self._websocket.receive(data):
                await self._frame(decode_frame(raw))
            self._line.send_nowait(self._websocket.data_to_send())
            if not data or not self._websocket.is_open:
                return
            if self._line.backlog_bytes > READ_PAUSE_BYTES:
                self._is_reading = True
                await self._line.wait_drained()  # who does not read our answers is not read either
            assert self._port is not None
            await self._port.wait_for_room()
            self._is_reading = True

    async def _keep_alive(self) -> None:
        while True:
            await trio.sleep(PING_SECONDS)
            if trio.current_time() - self._heard_seconds > SILENT_PINGS * PING_SECONDS:
                raise PeerError(Code.TIMEOUT, "the other side is silent", domain=self._claims.iss)
            self._websocket.ping()
            self._line.send_nowait(self._websocket.data_to_send())

    async def _watch_proof(self) -> None:
        """A proof holds for a day, and only as long as its key is published.

        Source: trust and hosts, section 2.7, rule 7.
        """
        assert self._port is not None
        identity = self._acceptor.identity
        proved_seconds = trio.current_time()
        while trio.current_time() - proved_seconds < REAUTHENTICATE_SECONDS:
            await identity.wait_renewed(self._proof, seconds=RECHECK_SECONDS)
            try:
                self._port.carrier_proved(self, await identity.check_again(self._proof))
            except TransportError as exc:
                self._port.carrier_proved(self, frozenset())
                logger.info(
                    "the key of %s cannot be checked again now: %s",
                    self._claims.iss,
                    exc,
                    extra={"domain": self._claims.iss},
                )
        raise PeerError(Code.AUTH_STALE, "the proof is a day old", domain=self._claims.iss)

    async def _frame(self, frame: LinkFrame) -> None:
        assert self._port is not None
        if frame.kind is FrameKind.MESSAGES:
            raws = decode_messages(frame.payload)
            numbers = range(frame.arg, frame.arg + len(raws))
            if not frame.arg or not raws or numbers[-1] > LAST_NUMBER:
                raise PeerError(Code.PROTOCOL_ERROR, "MESSAGES carries one message or more, numbered from 1")
            await self._turns.take(list(zip(numbers, raws, strict=True)), self._stream, self._port)
            self._processed = numbers[-1]
            if self._processed - self._acknowledged >= ACK_MESSAGES:
                self._acknowledge()
            else:
                self._ack_due.set()
        elif frame.kind is FrameKind.ACK:
            self._port.accepted(frame.arg)
        elif frame.kind is FrameKind.REFUSE:
            _, _, rest = frame.payload.decode("utf-8", "replace")[:512].partition(" ")
            word, _, detail = rest.partition(" ")
            self._port.refused(frame.arg, _CODES.get(word, Code.STUB_REFUSED), detail)
        elif frame.kind is FrameKind.BYE:
            self._websocket.close()
        else:
            raise PeerError(Code.PROTOCOL_ERROR, f"{frame.kind.name} does not belong here")

    def end(self) -> None:
        """See `Carrier`."""
        self._websocket.close(GOING_AWAY)
        self._line.send_nowait(self._websocket.data_to_send())

    @property
    def heard_seconds(self) -> float:
        """See `Carrier`."""
        if not self._is_reading:  # what was heard is being digested: that is no silence of theirs
            return time.monotonic()
        return self._heard_seconds + self._clock_offset_seconds

    def probe(self) -> bool:
        """See `Carrier`."""
        self._websocket.ping()
        self._line.send_nowait(self._websocket.data_to_send())
        return True

    def _acknowledge(self) -> None:
        self._acknowledged = self._processed
        self._websocket.send([encode_frame(FrameKind.ACK, self._processed)])

    async def _acknowledge_late(self) -> None:
        while True:
            await self._ack_due.wait()
            await trio.sleep(ACK_SECONDS)
            self._ack_due = trio.Event()
            if self._acknowledged != self._processed:
                self._acknowledge()
                self._line.send_nowait(self._websocket.data_to_send())

    def pump(self) -> None:
        """Send what waits, in as few frames as fit, in one write."""
        if self._queue is None or self._line.is_closed:
            return
        while self._queue.may_take and self._line.backlog_bytes <= HIGH_WATER_BYTES:
            batch = self._queue.take_batch(_BATCH_MESSAGES, _BATCH_BYTES, time.monotonic())
            if not batch:
                return
            self._websocket.send(encode_messages([(pending.number, pending.wire) for pending in batch]))
            self._line.send_nowait(self._websocket.data_to_send())

    def _send(self, frame: bytes) -> None:
        self._websocket.send([frame])
        self._line.send_nowait(self._websocket.data_to_send())
