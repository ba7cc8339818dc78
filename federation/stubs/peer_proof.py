"""Tokens between the far end of a hosted stub and us: the stub carries opaque texts, the host signs and checks.

Source: trust and hosts, section 2.7.
"""

from __future__ import annotations

import time
from collections import deque

import trio

from federation.core.auth import Claims, StubIdentity, TokenRequest, channel_binding
from federation.discovery.identity import Identity, Proof
from federation.stubs.egress import Channel
from protofly.errors import Code, PeerError, StubFaultError
from protofly.limits import HANDSHAKE_SECONDS, TOKENS_PER_MINUTE
from protofly.stub import VerifiedStub


class PeerProof:
    """The tokens of one running stub: one of ours for each channel, and then one of theirs that answers it."""

    def __init__(self, stub: VerifiedStub, identity: Identity) -> None:
        self._stub = stub
        self._identity = identity
        self._nonces: dict[int, str] = {}
        self._proving: dict[int, object] = {}
        self._token_times: deque[float] = deque(maxlen=TOKENS_PER_MINUTE)

    def channel_closed(self, number: int) -> None:
        """A channel is gone: what was asked on it is answered by nothing any more."""
        self._nonces.pop(number, None)
        self._proving.pop(number, None)

    def token(self, number: int, challenge: bytes, channel: Channel) -> str:
        """Answer the far end's challenge with a token of ours.

        Raises:
            StubFaultError: AUTH_LIMIT for a second token on a channel, or for too many in a minute.
            PeerError: AUTH_NONCE; see `Identity.token_for`.
        """
        now = time.time()
        if number in self._nonces or channel.bytes_channel is None:
            raise StubFaultError(Code.AUTH_LIMIT, "one token per open channel")
        if len(self._token_times) == TOKENS_PER_MINUTE and now - self._token_times[0] < 60:
            raise StubFaultError(Code.AUTH_LIMIT, "too many tokens")
        stub = self._stub
        token, cnonce = self._identity.token_for(
            TokenRequest(
                peer_domain=stub.domain,
                endpoint=channel.endpoint.url,
                binding=channel_binding(channel.bytes_channel.peer_certificate_sha256),
                challenge=challenge,
                stub=StubIdentity(name=stub.name, serial=stub.serial, sha256=stub.module_sha256),
            )
        )
        self._token_times.append(now)
        self._nonces[number] = cnonce
        return token

    async def verify(self, number: int, token: bytes, channel: Channel) -> tuple[Claims, Proof]:
        """Check the far end's token for a channel; returns what it proves, and what that rests on.

        Raises:
            StubFaultError: AUTH_NONCE: nobody asked for it, or the channel was closed meanwhile.
            PeerError: See `Identity.verify`; FETCH_TIMEOUT.
        """
        nonce = self._nonces.pop(number, "")
        if not nonce or channel.bytes_channel is None:
            raise StubFaultError(Code.AUTH_NONCE, "nobody asked for this token")
        binding = channel_binding(channel.bytes_channel.peer_certificate_sha256)
        attempt = self._proving[number] = object()
        with trio.move_on_after(HANDSHAKE_SECONDS) as patience:
            claims = await self._identity.verify(
                token,
                peer_domain=self._stub.domain,
                endpoints=frozenset({channel.endpoint.url}),
                bindings=frozenset({binding}),
                nonce=nonce,
            )
        if patience.cancelled_caught:
            raise PeerError(Code.FETCH_TIMEOUT, "the check of the token took too long", domain=self._stub.domain)
        if self._proving.pop(number, None) is not attempt:
            raise StubFaultError(Code.AUTH_NONCE, "the channel was closed meanwhile")
        return claims, self._identity.take_proof(claims)
