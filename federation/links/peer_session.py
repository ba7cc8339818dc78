"""A link that another node's stub opened to us, once it has proved its domain: the node's side of `trapezoid-link/1`.

The handshake before it is `link_acceptor`. Source: docs/link.md; trust and hosts, section 2.7.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass

import trio

from federation.core.auth import Claims, TokenRequest
from federation.core.carrier import Accepted, Carrier, CarrierDown, CarrierProved, CarrierUp, LinkPort, read_refusal
from federation.core.link_frames import (
    FrameKind,
    Hello,
    LinkFrame,
    decode_frame,
    decode_messages,
    encode_frame,
    encode_messages,
    encode_welcome,
)
from federation.core.outbound_queue import LAST_NUMBER
from federation.discovery.identity import Identity, Proof
from federation.error_groups import first_error
from federation.links.inbound import InboundTurns
from protofly.errors import Code, HostError, PeerError, TransportError
from protofly.limits import FRAME_BYTES_MAX, PING_SECONDS
from wire.byte_channel import ByteChannel
from wire.core.websocket import GOING_AWAY, POLICY, ServerWebSocket

logger = logging.getLogger("federation")

HIGH_WATER_BYTES = 1 << 20
READ_PAUSE_BYTES = HIGH_WATER_BYTES + FRAME_BYTES_MAX
"""More than our own messages ever leave unwritten: if those stopped the reading, two sides that send would wait for
each other for ever."""
REAUTHENTICATE_SECONDS = 86_400.0
RECHECK_SECONDS = 300.0
SILENT_PINGS = 3
DRAIN_SECONDS = 2.0
"""A link that is to end in good order ends after so long although what it brought is still being taken: receivers of
ours that pause its reading must not hold it, nor the far end that has them flooded."""
ACK_SECONDS = 0.02
"""Seconds that an acknowledgement may wait for others: alone it would cost as much as the message."""
ACK_MESSAGES = 512
"""So many messages are acknowledged at once, so that the sender's window never fills for want of it."""
_BATCH_MESSAGES = 1024
_BATCH_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class ProvedPeer:
    """A node that has proved its domain and was admitted.

    Attributes:
        hello: How it introduced itself.
        claims: What its token says.
        proof: What the claims rest on.
        port: Its link.
        early: Frames that came behind the handshake.
    """

    hello: Hello
    claims: Claims
    proof: Proof
    port: LinkPort
    early: list[bytes]


class PeerSession(Carrier):
    """One incoming link, from the proof to the end of the connection."""

    channel = "peer"

    def __init__(self, peer: ProvedPeer, line: ByteChannel, websocket: ServerWebSocket, identity: Identity) -> None:
        self.origin = peer.hello.stream
        self._peer = peer
        self._line = line
        self._websocket = websocket
        self._identity = identity
        self._queue = peer.port.queue
        self._turns = InboundTurns(self, waits_for_room=True)
        self._drained_by = math.inf
        self._processed = 0
        self._acknowledged = 0
        self._ack_due = trio.Event()
        self._heard_seconds = trio.current_time()
        self._clock_offset_seconds = time.monotonic() - self._heard_seconds
        self._is_reading = True
        self._traffic = trio.CancelScope()

    @property
    def _domain(self) -> str:
        return self._peer.claims.iss

    @property
    def _port(self) -> LinkPort:
        return self._peer.port

    async def run(self) -> None:
        """Welcome the other side, then carry until the connection ends.

        Raises:
            PeerError: The other side broke the protocol, or its proof holds no more.
        """
        self._welcome()
        try:
            await self._serve_traffic()
        finally:
            self._port.handle(CarrierDown(self))

    def _welcome(self) -> None:
        hello, claims, port = self._peer.hello, self._peer.claims, self._port
        self._websocket.allow_bytes(FRAME_BYTES_MAX)
        request = TokenRequest(peer_domain=claims.iss, endpoint=claims.ep, binding=claims.cb, challenge=b"")
        answer = self._identity.answer_for(request, claims)
        self._websocket.send([encode_welcome(port.processed(hello.stream), self._queue.stream, answer)])
        self._line.send_nowait(self._websocket.data_to_send())
        if hello.peer_stream == self._queue.stream:
            port.handle(Accepted(hello.delivered))
        port.handle(CarrierUp(self, claims.node, frozenset(claims.doms)))

    async def _serve_traffic(self) -> None:
        try:
            async with trio.open_nursery() as nursery:
                self._traffic = nursery.cancel_scope
                nursery.start_soon(self._keep_alive)
                nursery.start_soon(self._acknowledge_late)
                nursery.start_soon(self._watch_proof)
                await self._read()
                nursery.cancel_scope.cancel()
        except* HostError as group:
            raise first_error(group) from None

    async def _read(self) -> None:
        self._is_reading = False
        self._turns.begin()
        for raw in self._peer.early:
            await self._frame(decode_frame(raw))
        self._is_reading = True
        while True:
            data = await self._line.receive()
            self._heard_seconds = trio.current_time()
            self._is_reading = False
            self._turns.begin()
            for raw in self._websocket.receive(data):
                await self._frame(decode_frame(raw))
                await self._turns.give_way()
            self._line.send_nowait(self._websocket.data_to_send())
            if not data or not self._websocket.is_open:
                return
            if self._line.backlog_bytes > READ_PAUSE_BYTES:
                self._is_reading = True
                await self._line.wait_drained()  # a peer that does not read our answers is not read either
            await self._port.wait_for_room()
            self._is_reading = True

    async def _keep_alive(self) -> None:
        while True:
            await trio.sleep(PING_SECONDS)
            if trio.current_time() - self._heard_seconds > SILENT_PINGS * PING_SECONDS:
                raise PeerError(Code.TIMEOUT, "the other side is silent", domain=self._domain)
            self._websocket.ping()
            self._line.send_nowait(self._websocket.data_to_send())

    async def _watch_proof(self) -> None:
        """A proof holds for a day, and only as long as its key is published.

        Source: trust and hosts, section 2.7, rule 7.
        """
        identity, proof = self._identity, self._peer.proof
        proved_seconds, renewals = trio.current_time(), proof.renewals
        while trio.current_time() - proved_seconds < REAUTHENTICATE_SECONDS:
            renewals = await identity.wait_renewed(proof, renewals, seconds=RECHECK_SECONDS)
            try:
                self._port.handle(CarrierProved(self, await identity.check_again(proof)))
            except TransportError as exc:
                self._port.handle(CarrierProved(self, frozenset()))
                logger.info(
                    "the key of %s cannot be checked again now: %s",
                    self._domain,
                    exc,
                    extra={"domain": self._domain},
                )
        raise PeerError(Code.AUTH_STALE, "the proof is a day old", domain=self._domain)

    async def _frame(self, frame: LinkFrame) -> None:
        if frame.kind is FrameKind.MESSAGES:
            raws = decode_messages(frame.payload)
            numbers = range(frame.arg, frame.arg + len(raws))
            if not frame.arg or not raws or numbers[-1] > LAST_NUMBER:
                raise PeerError(Code.PROTOCOL_ERROR, "MESSAGES carries one message or more, numbered from 1")
            await self._turns.take(list(zip(numbers, raws, strict=True)), self.origin, self._port)
            if self._turns.is_over:
                return
            self._processed = numbers[-1]
            if self._processed - self._acknowledged >= ACK_MESSAGES:
                self._acknowledge()
            else:
                self._ack_due.set()
        elif frame.kind is FrameKind.ACK:
            self._port.handle(Accepted(frame.arg))
        elif frame.kind is FrameKind.REFUSE:
            self._port.handle(read_refusal(frame.arg, frame.payload))
        elif frame.kind is FrameKind.BYE:
            self._websocket.close()
        else:
            raise PeerError(Code.PROTOCOL_ERROR, f"{frame.kind.name} does not belong here")

    def end(self) -> None:
        """See `Carrier`."""
        self._take_no_more()
        self._websocket.close(GOING_AWAY)
        self._line.send_nowait(self._websocket.data_to_send())

    def _take_no_more(self) -> None:
        """Acknowledge what has been taken, so that it does not come again, and take nothing behind it."""
        self._processed = self._port.processed(self.origin)
        if self._processed > self._acknowledged:
            self._acknowledge()
        self._turns.is_over = True

    def drain(self) -> None:
        """See `Carrier`. It ends when nothing is being taken, so that all that was taken is acknowledged."""
        self._drained_by = min(self._drained_by, trio.current_time() + DRAIN_SECONDS)
        self._ack_due.set()

    def cut_off(self, code: Code) -> None:
        """See `Carrier`."""
        self._take_no_more()
        self._websocket.send([encode_frame(FrameKind.BYE, 0, code.word.encode())])
        self._websocket.close(POLICY, code.word)
        self._line.send_nowait(self._websocket.data_to_send())
        self._line.close()

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
            if self._drained_by < math.inf:
                self._ack_due.set()
                if self._has_ended_in_order():
                    return

    def _has_ended_in_order(self) -> bool:
        """End a link that drains once nothing is being taken, or its time is over; True when it has ended."""
        if not self._is_reading and trio.current_time() < self._drained_by:
            return False
        self.end()
        if not self._is_reading:
            self._traffic.cancel()
        return True

    def pump(self) -> None:
        """Send what waits, in as few frames as fit, in one write."""
        if self._line.is_closed:
            return
        while self._queue.may_take and self._line.backlog_bytes <= HIGH_WATER_BYTES:
            batch = self._queue.take_batch(_BATCH_MESSAGES, _BATCH_BYTES, time.monotonic())
            if not batch:
                return
            self._websocket.send(encode_messages([(pending.number, pending.wire) for pending in batch]))
            self._line.send_nowait(self._websocket.data_to_send())
