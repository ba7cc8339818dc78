"""How the far end of a hosted stub proves itself: the stub carries opaque texts, the host signs and checks.

No proof survives its line. Source: trust and hosts, section 2.7.
"""

from __future__ import annotations

import logging
import time
from collections import deque

import msgspec
import trio

from federation.core.auth import Claims, StubIdentity, TokenRequest, channel_binding
from federation.egress import Channel
from federation.identity import Identity, Proof
from protofly.errors import Code, HostError, StubFaultError
from protofly.limits import HANDSHAKE_SECONDS, TOKENS_PER_MINUTE
from protofly.stub import VerifiedStub
from sandbox.core.exchange import FLAG_GRANTED, Event, GuestEvent

logger = logging.getLogger("federation")


class PeerProof:
    """The proof of one running stub.

    Attributes:
        claims: What the far end has proved; None when it has proved nothing, or on a line that is gone.
        rests_on: What `claims` rest on.
    """

    def __init__(self, verified: VerifiedStub, identity: Identity) -> None:
        self._verified = verified
        self._identity = identity
        self._channel = 0
        self._nonces: dict[int, str] = {}
        self._proving: dict[int, object] = {}
        self._token_times: deque[float] = deque(maxlen=TOKENS_PER_MINUTE)
        self.claims: Claims | None = None
        self.rests_on: Proof | None = None

    @property
    def node(self) -> str:
        """The node that has proved itself, or ""."""
        return "" if self.claims is None else self.claims.node

    @property
    def domains(self) -> frozenset[str]:
        """The domains for which it has proved itself."""
        return frozenset() if self.claims is None else frozenset(self.claims.doms)

    def forget(self) -> None:
        """What was proved counts no more."""
        self._channel, self.claims, self.rests_on = 0, None, None

    def renew(self, claims: Claims, domains: frozenset[str]) -> bool:
        """What was proved by `claims` holds for these domains; returns whether it is still what counts."""
        if self.claims is not claims:
            return False
        self.claims = msgspec.structs.replace(claims, doms=[claims.iss, *sorted(domains - {claims.iss})])
        return True

    def channel_closed(self, number: int) -> bool:
        """A channel is gone; returns whether what was proved went with it."""
        self._nonces.pop(number, None)
        self._proving.pop(number, None)
        if number != self._channel:
            return False
        self.forget()
        return True

    def token(self, number: int, challenge: bytes, channel: Channel) -> GuestEvent:
        """Answer the far end's challenge with a token of ours, or say why not."""
        now = time.time()
        try:
            if number in self._nonces or channel.bytes_channel is None:
                raise StubFaultError(Code.AUTH_LIMIT, "one token per open channel")
            if len(self._token_times) == TOKENS_PER_MINUTE and now - self._token_times[0] < 60:
                raise StubFaultError(Code.AUTH_LIMIT, "too many tokens")
            token, cnonce = self._identity.token_for(
                TokenRequest(
                    peer_domain=self._verified.domain,
                    endpoint=channel.endpoint.url,
                    binding=channel_binding(channel.bytes_channel.peer_certificate_sha256),
                    challenge=challenge,
                    stub=StubIdentity(
                        name=self._verified.name, serial=self._verified.serial, sha256=self._verified.module_sha256
                    ),
                )
            )
        except HostError as exc:
            return GuestEvent(Event.AUTH_TOKEN, number, exc.code.word.encode())
        self._token_times.append(now)
        self._nonces[number] = cnonce
        return GuestEvent(Event.AUTH_TOKEN, number, token.encode(), FLAG_GRANTED)

    async def verify(self, number: int, token: bytes, channel: Channel) -> GuestEvent:
        """Check the far end's token for a channel, and say what came of it.

        Raises:
            StubFaultError: There is no such channel.
        """
        try:
            nonce = self._nonces.pop(number, "")
            if not nonce or channel.bytes_channel is None:
                raise StubFaultError(Code.AUTH_NONCE, "nobody asked for this token")
            binding = channel_binding(channel.bytes_channel.peer_certificate_sha256)
            attempt = self._proving[number] = object()
            with trio.fail_after(HANDSHAKE_SECONDS):
                claims = await self._identity.verify(
                    token,
                    peer_domain=self._verified.domain,
                    endpoints=frozenset({channel.endpoint.url}),
                    bindings=frozenset({binding}),
                    nonce=nonce,
                )
            if self._proving.pop(number, None) is not attempt:
                raise StubFaultError(Code.AUTH_NONCE, "the channel was closed meanwhile")
            self._channel, self.claims, self.rests_on = number, claims, self._identity.take_proof(claims)
        except HostError as exc:
            logger.warning(
                "the peer %s did not prove itself: %s",
                self._verified.domain,
                exc,
                extra={"domain": self._verified.domain},
            )
            return GuestEvent(Event.PEER_VERIFIED, number, exc.code.word.encode())
        except trio.TooSlowError:
            return GuestEvent(Event.PEER_VERIFIED, number, Code.FETCH_TIMEOUT.word.encode())
        return GuestEvent(Event.PEER_VERIFIED, number, b"", FLAG_GRANTED)
