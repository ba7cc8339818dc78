"""Session tokens that our own domain signs: what is in them, and whether one still counts.

A runtime logs in with the assertion of an identity provider and gets a token (JWT, RFC 9068) that opens sessions of
that runtime, like a token of any issuer that the settings name: `credentials` checks signature, issuer, audience, time
and runtime. What only we know is checked here: that the token was neither renewed nor revoked (`issued_tokens`), and
that its provider is still believed.

    iss domain://idm.<d>            sub      <issuer of the assertion> <user>
    aud domain://msg-node.<d>       runtime  the one that logged in
    jti <login>.<number>            auth_time, iat, exp, roles

The token does not prove its runtime *in full*: a runtime address says nothing about who its user is, so a login never
gets at the session that another user has under the same address.

Source: message specification, section 13.2; RFC 9068, section 2.2; OpenID Connect Core 1.0, section 2 (`auth_time`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from joserfc import jwk, jws

from msg_node.identity.core.assertions import Asserted
from msg_node.identity.core.issued_tokens import REVOKED, IssuedTokens, TokenMark
from msg_node.kernel.bearer_tokens import IssuerRules, TokenProof, check_claims
from msg_node.kernel.credentials import JWT
from msg_node.kernel.issuer_keys import OneAlgorithm, VerificationKey, keys_of_jwks
from msg_node.kernel.signed_tokens import TokenRefusedError, looks_like_token, signed_claims
from protofly.documents import SigningKey
from protofly.limits import SESSION_TOKEN_MAX_SECONDS, SESSION_TOKEN_SKEW_SECONDS

_TYPE: Final = "at+jwt"
_NUMBER_DIGITS: Final = 15


@dataclass(frozen=True, slots=True)
class TokenLife:
    """Seconds that a token counts, and seconds after its login in which it can be renewed."""

    token_seconds: float
    login_seconds: float


class IssuedToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """The claims of a token of ours. Times in seconds since the Unix epoch."""

    iss: str
    sub: str
    aud: str
    client_id: str
    runtime: str
    exp: int
    iat: int
    auth_time: int
    jti: str
    roles: tuple[str, ...] = ()

    @property
    def login(self) -> str:
        """The login that it belongs to."""
        return self.jti.partition(".")[0]

    @property
    def number(self) -> int:
        """Its number in that login."""
        return number_of(self.jti)


class RenewedBeforeError(TokenRefusedError):
    """A token was to be renewed a second time: its login has ended. `mark` is to be made durable."""

    def __init__(self, mark: TokenMark) -> None:
        super().__init__("it was renewed before, so somebody has a copy of it; its login has ended")
        self.mark = mark


def own_rules(domain: str, domains: Iterable[str]) -> IssuerRules:
    """Return the rules for tokens of our own. `domains`: ours, with the aliases."""
    return IssuerRules(
        issuer=f"domain://idm.{domain}",
        audience=f"domain://msg-node.{domain}",
        runtimes=tuple(f"runtime://{one}/*" for one in domains),
        algorithms=frozenset({"EdDSA", "ES256"}),
        skew_seconds=SESSION_TOKEN_SKEW_SECONDS,
        roles_claim="roles",
        proves_in_full=False,
    )


def holder(subject: str) -> tuple[str, str]:
    """Issuer of the assertion and user that a subject of ours names."""
    issuer, _, user = subject.partition(" ")
    return issuer, user


def number_of(token_id: str) -> int:
    """The number of a token in its login.

    Raises:
        TokenRefusedError: It has none.
    """
    number = token_id.rpartition(".")[2]
    if not (number.isascii() and number.isdigit() and len(number) <= _NUMBER_DIGITS):
        raise TokenRefusedError("its name (`jti`) is none of ours")
    return int(number)


class SessionTokens:
    """Signs tokens, and knows which of them count.

    Args:
        rules: See `own_rules`.
        keys: Private keys of the domain; the first one signs, all of them verify.
        life: See `TokenLife`.
        issued: What was renewed and revoked.
        believes: Whether a provider is (still) one of ours.
    """

    def __init__(
        self,
        rules: IssuerRules,
        keys: Sequence[SigningKey],
        life: TokenLife,
        issued: IssuedTokens,
        *,
        believes: Callable[[str], bool],
    ) -> None:
        self.rules = rules
        self.issued = issued
        self._believes = believes
        self.sign_with(keys, life)

    def sign_with(self, keys: Sequence[SigningKey], life: TokenLife) -> None:
        """Sign with the first of these keys from now on, and verify with all of them and with no others."""
        self.public_keys = [key.jwk() for key in keys]
        self.verification_keys: list[VerificationKey] = keys_of_jwks(msgspec.json.encode({"keys": self.public_keys}))
        self._life = life
        self._header = {"alg": self.public_keys[0]["alg"], "kid": self.public_keys[0]["kid"], "typ": _TYPE}
        self._private = jwk.import_key(keys[0].to_pem().decode(), "OKP" if keys[0].alg == "ed25519" else "EC")

    def begin(self, asserted: Asserted, runtime: str, *, login: str, now: float) -> tuple[str, IssuedToken]:
        """A token for somebody who has just logged in, as text and as claims.

        Args:
            asserted: The identity that a provider asserts.
            runtime: Canonical address of the runtime that the token is for.
            login: A fresh random name, without a dot.
            now: Seconds since the Unix epoch.
        """
        return self._signed(
            IssuedToken(
                iss=self.rules.issuer,
                sub=f"{asserted.issuer} {asserted.user}",
                aud=self.rules.audience,
                client_id=runtime,
                runtime=runtime,
                exp=0,
                iat=0,
                auth_time=int(now),
                jti=f"{login}.0",
                roles=tuple(sorted(asserted.roles)),
            ),
            now,
        )

    def renew(self, token: str, runtime: str, *, now: float) -> tuple[str, IssuedToken, TokenMark]:
        """The token in place of one that counts, which then counts no more; the mark is to be made durable.

        Raises:
            PeerError: BAD_TOKEN, QUOTA or OVERLOAD. `RenewedBeforeError` when it was renewed before.
        """
        old = self._read(token, runtime, now)
        if self.issued.least(old.login) < REVOKED and old.number < self.issued.least(old.login):
            raise RenewedBeforeError(self._ended(old, now))
        self._check(old.sub, old.jti, old.auth_time)
        if now >= old.auth_time + self._life.login_seconds:
            raise TokenRefusedError("its login is too long ago; log in again")
        text, new = self._signed(msgspec.structs.replace(old, jti=f"{old.login}.{old.number + 1}"), now)
        until = max(old.exp, new.exp) + self.rules.skew_seconds
        return text, new, self.issued.renew(old.login, old.sub, old.number, until=until, now=now)

    def revoke(self, token: str, runtime: str, *, now: float) -> TokenMark:
        """The login of a token ends, whichever of its tokens this is; the mark is to be made durable.

        Raises:
            PeerError: BAD_TOKEN, QUOTA or OVERLOAD.
        """
        return self._ended(self._read(token, runtime, now), now)

    def revoke_all(self, subject: str, *, now: float, moment: float | None = None) -> TokenMark:
        """All logins of a user up to a moment end; the mark is to be made durable.

        Args:
            subject: As tokens say it (`sub`).
            now: Seconds since the Unix epoch.
            moment: The moment; None: now.

        Raises:
            PeerError: QUOTA or OVERLOAD.
        """
        return self.issued.revoke_all(
            subject, moment=now if moment is None else moment, until=self._latest_end(now), now=now
        )

    def credential_of(self, subject: str) -> str:
        """The credential of sessions that a user has opened with our tokens."""
        return f"{JWT} {self.rules.issuer} {subject}"

    def check(self, proof: TokenProof) -> str:
        """Check what a token of ours proves otherwise; return its login.

        Raises:
            TokenRefusedError: It was renewed or revoked, or its provider is none any more.
        """
        self._check(proof.subject, proof.token_id, proof.signed_in_at)
        return proof.token_id.partition(".")[0]

    def _check(self, subject: str, token_id: str, signed_in_at: float) -> None:
        least = self.issued.least(token_id.partition(".")[0])
        if least >= REVOKED or signed_in_at < self.issued.least_moment(subject):
            raise TokenRefusedError("it was revoked")
        if number_of(token_id) < least:
            raise TokenRefusedError("it was renewed; use the newer one")
        if not self._believes(holder(subject)[0]):
            raise TokenRefusedError("its identity provider does not count here any more")

    def _read(self, token: str, runtime: str, now: float) -> IssuedToken:
        """The claims of a token of ours that has its time, and is for that runtime."""
        if not looks_like_token(token):
            raise TokenRefusedError("it is no signed token")
        claims = signed_claims(token, self.verification_keys, algorithms=self.rules.algorithms)
        check_claims(claims, runtime, self.rules, now=now)
        try:
            issued = msgspec.convert(claims, IssuedToken)
        except msgspec.ValidationError as exc:
            raise TokenRefusedError("its claims are none of ours") from exc
        number_of(issued.jti)
        return issued

    def _ended(self, claims: IssuedToken, now: float) -> TokenMark:
        return self.issued.revoke(claims.login, claims.sub, until=self._latest_end(now), now=now)

    def _latest_end(self, now: float) -> float:
        """Return when all tokens of now have expired, whatever the settings were when they were signed."""
        return now + SESSION_TOKEN_MAX_SECONDS + self.rules.skew_seconds

    def _signed(self, claims: IssuedToken, now: float) -> tuple[str, IssuedToken]:
        ends_at = min(now + self._life.token_seconds, claims.auth_time + self._life.login_seconds)
        claims = msgspec.structs.replace(claims, iat=int(now), exp=int(ends_at))
        registry = OneAlgorithm(self._header["alg"])
        payload = msgspec.json.encode(claims)
        return jws.serialize_compact(self._header, payload, self._private, registry=registry), claims
