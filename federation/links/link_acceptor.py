"""Accepts links that the stubs of other nodes open to us: the handshake, and who is admitted.

Until the other side has proved its domain nothing it sends is looked at. Source: docs/link.md; trust and hosts,
section 2.7.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from secrets import token_bytes

import trio

from federation.core import auth
from federation.core.auth import Claims
from federation.core.carrier import LinkPort
from federation.core.link_frames import FrameKind, decode_frame, decode_hello, encode_frame
from federation.discovery.identity import Identity
from federation.discovery.resolver import VISITOR
from federation.links.peer_session import PeerSession, ProvedPeer
from federation.log_allowance import LogAllowance
from protofly.errors import Code, HostError, PeerError
from protofly.limits import HANDSHAKE_SECONDS, PENDING_LINKS, PENDING_LINKS_PER_ADDRESS
from wire.byte_channel import ByteChannel
from wire.core.address_group import address_group
from wire.core.pending import Pending, PendingTable
from wire.core.websocket import POLICY, ServerWebSocket

logger = logging.getLogger("federation")

REFUSALS_LOGGED_PER_MINUTE = 60
"""Of clients that have proved nothing: anybody may come as often as they like."""


class LinkAcceptor:
    """Accepts incoming links.

    Args:
        endpoints: URLs under which our link endpoint is published.
        bindings: Channel bindings of our certificates.
        admit: Decides on the domain once it and the name of its stream are known; returns the port of its link. Raises
            PeerError: AUTH_POLICY, LINK_ELSEWHERE where another node of ours has that link.
        log_clock: Seconds; decides which minute a line of the log belongs to.

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
        admit: Callable[[Claims, str], Awaitable[LinkPort]],
        log_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.identity = identity
        self.endpoints = endpoints
        self.bindings = bindings
        self.admit = admit
        self.pending: PendingTable[trio.CancelScope] = PendingTable(
            most=PENDING_LINKS, most_per_address=PENDING_LINKS_PER_ADDRESS, replaces_own=True
        )
        self.refused = 0
        self._log_lines = LogAllowance(REFUSALS_LOGGED_PER_MINUTE, log_clock)

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
            on_proved: Called once the other side has proved its domain.
        """
        handshake = LinkHandshake(self, line, websocket, remote)
        try:
            proved = await handshake.run()
            on_proved()
            await PeerSession(proved, line, websocket, self.identity).run()
        except HostError as exc:
            self.refused += 1
            self._say_why(handshake.domain, exc, remote)
            websocket.send([encode_frame(FrameKind.BYE, 0, exc.code.word.encode())])
            websocket.close(POLICY, exc.code.word)
            line.send_nowait(websocket.data_to_send())

    def _say_why(self, domain: str, error: HostError, remote: str) -> None:
        """Log a refusal; about a domain only if that is proved.

        The name that a stranger gives says nothing about that domain, and takes none of the lines that it has.
        """
        if domain:
            logger.warning("link from %s refused: %s", domain, error, extra={"domain": domain})
        elif self._log_lines.takes("strangers"):
            claimed = getattr(error, "domain", "") or "nobody in particular"
            logger.warning("link from %s refused, which claims to be %s: %s", remote, claimed, str(error))


class LinkHandshake:
    """The handshake of one incoming link: HELLO, challenge, token.

    Attributes:
        domain: What the other side has proved, "" before that.
    """

    def __init__(self, acceptor: LinkAcceptor, line: ByteChannel, websocket: ServerWebSocket, remote: str) -> None:
        self.domain = ""
        self._acceptor = acceptor
        self._line = line
        self._websocket = websocket
        self._remote = remote

    async def run(self) -> ProvedPeer:
        """Have the other side prove its domain; counted for the client's address for as long as it takes.

        Raises:
            PeerError: AUTH_LIMIT when there are too many handshakes, FETCH_TIMEOUT, PROTOCOL_ERROR, what
                `Identity.verify` and `LinkAcceptor.admit` raise.
        """
        pending = self._acceptor.pending
        place = trio.CancelScope()
        entry, displaced = pending.enter(address_group(self._remote), place)
        if displaced is not None:
            displaced.holder.cancel()
        if entry is None:
            raise PeerError(Code.AUTH_LIMIT, "too many links of this address are proving themselves")
        proved = None
        try:
            with place, trio.move_on_after(HANDSHAKE_SECONDS):
                proved = await self._prove(entry)
        finally:
            pending.leave(entry)
        if proved is not None:
            return proved
        if place.cancelled_caught:
            raise PeerError(Code.AUTH_LIMIT, "too many links of this address are proving themselves, this one longest")
        raise PeerError(Code.FETCH_TIMEOUT, "the handshake took too long")

    async def _prove(self, entry: Pending[trio.CancelScope]) -> ProvedPeer:
        hello_raw, rest = await self._next_frame([])
        hello = decode_hello(decode_frame(hello_raw))
        challenge = token_bytes(32)
        self._websocket.send([encode_frame(FrameKind.CHALLENGE, 0, challenge)])
        self._line.send_nowait(self._websocket.data_to_send())
        token_raw, rest = await self._next_frame(rest)
        token = decode_frame(token_raw)
        if token.kind is not FrameKind.TOKEN:
            raise PeerError(Code.PROTOCOL_ERROR, "a TOKEN must follow the challenge", domain=hello.domain[:253])
        entry.waits_for_us = True
        identity = self._acceptor.identity
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
        port = await self._acceptor.admit(claims, hello.stream)
        return ProvedPeer(hello, claims, identity.take_proof(claims), port, rest)

    async def _next_frame(self, early: list[bytes]) -> tuple[bytes, list[bytes]]:
        while not early:
            data = await self._line.receive()
            early = self._websocket.receive(data)
            self._line.send_nowait(self._websocket.data_to_send())
            if not early and (not data or not self._websocket.is_open):
                raise PeerError(Code.PROTOCOL_ERROR, "closed during the handshake")
        return early[0], early[1:]
