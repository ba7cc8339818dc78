"""Mistakes at the border that only a hostile partner meets: proofs, names and hops. See `mutant_node`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from federation.core import auth, border
from federation.core.border import Speaker
from federation.core.forgeries import ForgeryLimit
from federation.discovery.aliases import Aliases
from msg_node.sessions.core.session_service import SessionService
from protofly.address import domain_of
from protofly.signatures import KeyRecord


def _expecting(change: Callable[[auth.Expected, auth.Claims], auth.Expected]) -> None:
    """Have tokens held against something else than what the verifier knows by itself."""
    genuine = auth.check_form

    def check_form(token: bytes, expected: auth.Expected, *, now: float) -> auth.UnverifiedToken:
        return genuine(token, change(expected, auth._parse(token).claims), now=now)

    auth.check_form = check_form


def tokens_for_other_endpoints_believed() -> None:
    _expecting(lambda expected, claims: dataclasses.replace(expected, endpoints=frozenset({claims.ep})))


def tokens_for_other_domains_believed() -> None:
    _expecting(lambda expected, claims: dataclasses.replace(expected, audience=claims.aud))


def tokens_for_other_connections_believed() -> None:
    _expecting(lambda expected, claims: dataclasses.replace(expected, bindings=frozenset({claims.cb})))


def tokens_of_other_challenges_believed() -> None:
    _expecting(lambda expected, claims: dataclasses.replace(expected, nonce=claims.nonce))


def old_tokens_believed() -> None:
    auth._check_times = lambda *_: None


def revoked_keys_believed() -> None:
    genuine = auth.check_signature

    def check_signature(
        token: auth.UnverifiedToken, keys: Mapping[str, KeyRecord], *, revoked: frozenset[str], now: float
    ) -> auth.Claims:
        del revoked
        return genuine(token, keys, revoked=frozenset(), now=now)

    auth.check_signature = check_signature


def names_below_believed() -> None:
    genuine = Speaker.may_use

    def may_use(self: Speaker, text: str) -> bool:
        return genuine(self, text) or any(domain_of(text).endswith(f".{one}") for one in self.domains)

    Speaker.may_use = may_use  # type: ignore[method-assign]


def sources_not_looked_at() -> None:
    border.check_source = lambda *_: None


def loops_go_on() -> None:
    border.check_hops = lambda *_, **__: None


def forgers_stay() -> None:
    ForgeryLimit.is_reached = property(lambda _self: False)  # type: ignore[assignment, method-assign]


def aliases_believed_unheard() -> None:
    async def proved(_self: Aliases, _main: object, claimed: Iterable[str]) -> frozenset[str]:
        return frozenset(claimed)

    Aliases.proved = proved  # type: ignore[assignment, method-assign]


def guests_need_no_invitation() -> None:
    SessionService._is_guest = lambda *_: False  # type: ignore[method-assign]


MISTAKES_OF_PROOF_AND_NAME = (
    tokens_for_other_endpoints_believed,
    tokens_for_other_domains_believed,
    tokens_for_other_connections_believed,
    tokens_of_other_challenges_believed,
    old_tokens_believed,
    revoked_keys_believed,
    names_below_believed,
    sources_not_looked_at,
    loops_go_on,
    forgers_stay,
    aliases_believed_unheard,
    guests_need_no_invitation,
)
