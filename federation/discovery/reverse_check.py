"""Answers a domain that proves itself whether a link of it would be admitted; nobody learns about other domains.

The proof is the one that opens a link: a token over a challenge of ours, made for us, for this purpose, for the
certificate that the client sees, and used once. A challenge is known by its own bytes, so strangers fill no table.

What a domain hears that has proved itself is what `Visitors` decide about its link. One that has not, hears one code,
at one time after it asked, whatever the reason is: that its documents are not found, that they do not name the key, or
that we look nothing up of a domain to which our policy does not talk. Asking in the name of another domain shows
nothing of it. The link itself is not so careful, since its refusals are words that operators need.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable
from secrets import token_bytes
from typing import Final

import trio

from federation.core.auth import Claims
from federation.core.contact_trouble import Side, advice
from federation.discovery.identity import Identity
from federation.discovery.resolver import VISITOR
from protofly.errors import Code, HostError, PeerError
from protofly.limits import HANDSHAKE_SECONDS, PENDING_REVERSE_CHECKS, PENDING_REVERSE_CHECKS_PER_ADDRESS
from protofly.reverse_check import ReverseAnswer, ReverseProof, endpoint_of
from protofly.signatures import base64url, from_base64url
from wire.core.address_group import address_group
from wire.core.pending import PendingTable

logger = logging.getLogger("federation")

CHALLENGE_SECONDS: Final = 60.0
_RANDOM_BYTES: Final = 16
_TIME_BYTES: Final = 8
_MARK_BYTES: Final = 16
_BY_FORM: Final = frozenset(
    {
        Code.AUTH_MALFORMED,
        Code.AUTH_AUDIENCE,
        Code.AUTH_ENDPOINT,
        Code.AUTH_BINDING,
        Code.AUTH_NONCE,
        Code.AUTH_STALE,
    }
)
"""Refusals that depend on the token and on what was expected, and on nothing that we know of its domain."""
_AFTER_PROOF: Final = frozenset({Code.AUTH_REPLAY, Code.AUTH_POLICY})
"""Refusals of a token whose signature holds: its domain may know them."""


class ReverseChecks:
    """Judges proofs.

    Args:
        identity: Verifies tokens; the one that verifies those of links.
        bindings: Channel bindings of the certificates that clients of the site see.
        foresee: Raises PeerError if a link with these claims would be refused; changes nothing.
        clock: Seconds since the Unix epoch.

    Attributes:
        bindings: The same.
        pending: Proofs that are being judged now.
    """

    def __init__(
        self,
        identity: Identity,
        *,
        bindings: frozenset[str],
        foresee: Callable[[Claims], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.bindings = bindings
        self.pending: PendingTable[trio.CancelScope] = PendingTable(
            most=PENDING_REVERSE_CHECKS, most_per_address=PENDING_REVERSE_CHECKS_PER_ADDRESS
        )
        self._identity = identity
        self._foresee = foresee
        self._clock = clock
        self._secret = token_bytes(32)

    def challenge(self) -> str:
        """A new challenge, good for `CHALLENGE_SECONDS`."""
        text = int(self._clock() * 1000).to_bytes(_TIME_BYTES, "big") + token_bytes(_RANDOM_BYTES)
        return base64url(text + self._mark(text))

    async def judge(self, proof: ReverseProof, *, remote: str) -> ReverseAnswer:
        """Say whether the domain that proves itself would be admitted.

        Args:
            proof: As it came.
            remote: Address of the client.

        Raises:
            PeerError: AUTH_LIMIT when too many are judged at once; those of `_BY_FORM` for a token that is not for us,
                not for this, or not of now.
        """
        place = trio.CancelScope()
        entry, displaced = self.pending.enter(address_group(remote), place)
        if displaced is not None:
            displaced.holder.cancel()
        if entry is None:
            raise PeerError(Code.AUTH_LIMIT, "too many proofs of this address are judged at once")
        try:
            with place:
                return await self._judged(proof, remote)
        finally:
            self.pending.leave(entry)
        raise PeerError(Code.AUTH_LIMIT, "too many proofs are judged at once, and most are of this address")

    async def _judged(self, proof: ReverseProof, remote: str) -> ReverseAnswer:
        self._check_challenge(proof.challenge)
        answers_at = trio.current_time() + HANDSHAKE_SECONDS
        claims: Claims | None = None
        try:
            with trio.move_on_at(answers_at):
                claims = await self._identity.verify(
                    proof.token.encode(),
                    endpoints=frozenset({endpoint_of(self._identity.domain)}),
                    bindings=self.bindings,
                    nonce=proof.challenge,
                    asked_by=f"{VISITOR}{address_group(remote)}",
                )
        except HostError as exc:
            if exc.code in _BY_FORM:
                raise
            if exc.code in _AFTER_PROOF:
                return _refused(exc.code)
        if claims is None:
            await trio.sleep_until(answers_at)
            return _refused(Code.AUTH_UNPROVED)
        self._identity.take_proof(claims)
        domain, answer = claims.iss, ReverseAnswer(admitted=True, code="ok")
        try:
            self._foresee(claims)
        except PeerError as exc:
            answer = _refused(exc.code)
        logger.info("%s asked whether we would admit it: %s", domain, answer.code, extra={"domain": domain})
        return answer

    def _check_challenge(self, text: str) -> None:
        """Raises PeerError AUTH_NONCE for a challenge that is none of ours, or too old."""
        raw = from_base64url(text)
        content, mark = raw[:-_MARK_BYTES], raw[-_MARK_BYTES:]
        is_ours = len(content) == _TIME_BYTES + _RANDOM_BYTES and hmac.compare_digest(mark, self._mark(content))
        age = self._clock() - int.from_bytes(content[:_TIME_BYTES], "big") / 1000
        if not is_ours or not -1.0 <= age <= CHALLENGE_SECONDS:
            raise PeerError(Code.AUTH_NONCE, "no challenge of this node, or of more than a minute ago: ask for one")

    def _mark(self, text: bytes) -> bytes:
        return hmac.digest(self._secret, text, "sha256")[:_MARK_BYTES]


def _refused(code: Code) -> ReverseAnswer:
    return ReverseAnswer(admitted=False, code=code.word, hint=advice(Side.REFUSAL, code.word, time.time()))
