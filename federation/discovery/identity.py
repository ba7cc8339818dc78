"""Who we are towards other nodes, and who they are: the only place where the node key signs.

Source: trust and hosts, section 2.7.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from dataclasses import dataclass
from secrets import token_bytes
from typing import Protocol

import msgspec
import trio

from catalogue_client.core.state import DomainTrust
from federation.core import auth
from federation.core.auth import Claims, Expected, Issuer, TokenRequest
from federation.discovery.aliases import Aliases
from protofly.address import domain_of, valid_domain
from protofly.documents import SigningKey
from protofly.errors import Code, PeerError

logger = logging.getLogger("federation")

UNTAKEN_PROOFS = 1_000
"""Tokens are checked for strangers too, many of whom are not admitted then."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The basis of a token that was accepted: its issuer, the key that signed it, and the domains that it claims.

    A caller that relies on the token keeps it, so that no number of other tokens makes it forgotten.

    Attributes:
        domain: The issuer.
        key_id: The key.
        claimed: The domains.
        renewals: How often documents had been renewed when the check of it began.
    """

    domain: str
    key_id: str
    claimed: frozenset[str]
    renewals: int = 0


class TrustOf(Protocol):
    """Gives the verified documents of a domain, by our own discovery."""

    async def __call__(self, domain: str, *, is_refresh: bool, asked_by: str = "") -> DomainTrust:
        """Documents of `domain`; `is_refresh` asks for newer ones than the cache has, `asked_by` is who needs it."""


class Identity:
    """Signs our tokens and checks those of others.

    Args:
        node: Address of this node, for example `runtime://a.example/mn-1`.
        domains: Our domain first, then its aliases.
        trust_of: Verified documents of a domain, by our own discovery; `is_refresh` asks for newer ones than the
            cache has.
        aliases: Judges the aliases that other nodes claim; without it none counts.
    """

    def __init__(
        self, *, node: str, domains: list[str], key: SigningKey, trust_of: TrustOf, aliases: Aliases | None = None
    ) -> None:
        self.node = node
        self.domains = domains
        self._key = key
        self._trust_of = trust_of
        self._seen = auth.SeenTokens()
        self._aliases = aliases
        self._untaken: OrderedDict[tuple[str, str], Proof] = OrderedDict()
        self._watchers: dict[trio.Event, frozenset[str]] = {}
        self._renewals = 0

    @property
    def domain(self) -> str:
        """Our main domain."""
        return self.domains[0]

    def token_for(self, request: TokenRequest) -> tuple[str, str]:
        """Answer a challenge; returns the token and the counter-challenge that the far end has to answer.

        Raises:
            PeerError: AUTH_NONCE when the challenge is too short or too long.
        """
        return self._token(request, auth.nonce_text(request.challenge))

    def answer_for(self, request: TokenRequest, claims: Claims) -> str:
        """Prove ourselves to a node that has just proved itself: our token over its counter-challenge."""
        return self._token(request, claims.cnonce)[0]

    def _token(self, request: TokenRequest, nonce: str) -> tuple[str, str]:
        issuer = Issuer(self.domain, self.node, self.domains)
        claims = auth.new_claims(issuer, request, nonce, now=time.time(), random_bytes=token_bytes(48))
        return auth.make_token(claims, self._key), claims.cnonce

    async def verify(
        self,
        token: bytes,
        *,
        endpoints: frozenset[str],
        bindings: frozenset[str],
        nonce: str,
        peer_domain: str = "",
        asked_by: str = "",
    ) -> Claims:
        """Check a token of another node, with keys from our own discovery of its domain.

        What comes back names in `doms` the domains for which it counts: the main one and the aliases that hold now.

        Args:
            token: As it came.
            endpoints: Endpoints that the token may be for.
            bindings: Channel bindings that this connection may have.
            nonce: What it has to answer.
            peer_domain: Who it must be, or "" to learn it from the token.
            asked_by: Whose look-up it is if we have to find the domain first; see `Resolver.resolve`.

        Raises:
            PeerError: One of the AUTH codes; NAME_INVALID or OWN_DOMAIN for a domain that it may not claim; or why the
                domain's documents could not be had.
        """
        now, renewals = time.time(), self._renewals
        expected = Expected(self.domain, endpoints, bindings, nonce, peer_domain)
        unverified = auth.check_form(token, expected, now=now)
        domain = valid_domain(unverified.claims.iss)
        claimed = {domain, *map(valid_domain, unverified.claims.doms)}
        if not claimed.isdisjoint(self.domains):
            raise PeerError(Code.OWN_DOMAIN, "a foreign node cannot be of our domain", domain=domain)
        trust = await self._trust_of(domain, is_refresh=False, asked_by=asked_by)
        if unverified.key_id not in trust.live.node_keys:
            logger.info(
                "%s signs with a node key that is not in its cached documents: asking again",
                domain,
                extra={"domain": domain},
            )
            trust = await self._trust_of(domain, is_refresh=True, asked_by=asked_by)
        revoked = frozenset(trust.live.revoked.keys)
        claims = auth.check_signature(unverified, trust.live.node_keys, revoked=revoked, now=now)
        listed = frozenset[str]() if self._aliases is None else self._aliases.rules.listed(domain)
        if claimed - {domain, *trust.root.aliases, *listed}:
            raise PeerError(
                Code.AUTH_POLICY, "the token claims domains that the root document does not name", domain=domain
            )
        self._seen.use(claims, now=now)
        proof = Proof(domain, unverified.key_id, frozenset(claimed), renewals)
        domains = await self._domains_of(trust, proof)
        if domain_of(claims.node) not in domains:
            raise PeerError(Code.AUTH_AUDIENCE, "the node is not of the domain that it proves", domain=domain)
        self._untaken[claims.iss, claims.jti] = proof
        if len(self._untaken) > UNTAKEN_PROOFS:
            self._untaken.popitem(last=False)
        return msgspec.structs.replace(claims, doms=[domain, *sorted(domains - {domain})])

    def take_proof(self, claims: Claims) -> Proof:
        """Return the basis of claims that `verify` has just returned; only the first call gets it."""
        return self._untaken.pop((claims.iss, claims.jti), Proof(claims.iss, "", frozenset({claims.iss})))

    async def _domains_of(self, trust: DomainTrust, proof: Proof) -> frozenset[str]:
        """The domains for which a proof counts by the documents of now."""
        main = frozenset({trust.domain})
        if self._aliases is None or proof.claimed == main:
            return main
        return main | await self._aliases.proved(trust, proof.claimed - main)

    def documents_renewed(self, domain: str) -> None:
        """Have what rests on the documents of a domain checked again: they are others than before."""
        self._renewals += 1
        for event in [event for event, domains in self._watchers.items() if domain in domains]:
            event.set()

    async def wait_renewed(self, proof: Proof, renewals: int, *, seconds: float) -> int:
        """Wait until documents are renewed on which a proof rests, and no longer than `seconds`.

        A check takes time, which the other domain can draw out: what was renewed meanwhile has it begin anew at once.

        Args:
            proof: Checked last when documents had been renewed `renewals` times.
            renewals: As this returned before that check, or of the proof.
            seconds: The longest time.

        Returns:
            How often documents have been renewed by now.
        """
        if self._renewals == renewals:
            event = trio.Event()
            self._watchers[event] = proof.claimed
            try:
                with trio.move_on_after(seconds):
                    await event.wait()
            finally:
                del self._watchers[event]
        return self._renewals

    async def check_again(self, proof: Proof) -> frozenset[str]:
        """Check whether a proof still holds: its key is published, in its time, and not revoked.

        Returns:
            The domains for which it counts now.

        Raises:
            PeerError: AUTH_KEY_UNKNOWN, AUTH_KEY_REVOKED, or why the domain's documents could not be had.
        """
        now = time.time()
        trust = await self._trust_of(proof.domain, is_refresh=False)
        key = trust.live.node_keys.get(proof.key_id)
        if proof.key_id in trust.live.revoked.keys:
            raise PeerError(Code.AUTH_KEY_REVOKED, "the node key was revoked", domain=proof.domain)
        if key is None or not key.is_valid_at(now):
            raise PeerError(Code.AUTH_KEY_UNKNOWN, "the node key is published no more", domain=proof.domain)
        return await self._domains_of(trust, proof)
