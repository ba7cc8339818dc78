"""Proof that the node at the other end speaks for its domain: one short-lived signed token each way.

The host signs, never the stub: the only member of a token that a stub influences is `nonce`. The fixed `typ` and the
key's own use keep the signature from meaning anything elsewhere. The verifier goes through the checks in the order of
the specification, cheap ones first, and takes the key from its own discovery, never from anything in the token.
Source: trust and hosts, section 2.7; RFC 7515 (compact JWS).
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from protofly.clock_skew import off_by
from protofly.documents import KeyRecord, SigningKey, verify_signature
from protofly.errors import Code, PeerError
from protofly.limits import CHALLENGE_BYTES_MAX, CHALLENGE_BYTES_MIN, TOKEN_BYTES, TOKEN_SECONDS, TOKEN_SKEW_SECONDS
from protofly.signatures import base64url, parse_strict

TOKEN_TYPE = "rmn-auth+jwt"  # noqa: S105 - a media type
WITHOUT_TLS = "none"
"""Channel binding of a connection without TLS; only where the operator allowed it by name."""

_ALGORITHMS = {"ed25519": "EdDSA", "p256": "ES256"}
_REMEMBERED_TOKENS = 10_000

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


class StubIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The stub that a proof names as ours; a claim, not verified by us."""

    name: _Text
    serial: int
    sha256: _Text


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a token. Times are seconds since the Unix epoch."""

    iss: _Text
    node: _Text
    aud: _Text
    ep: _Text
    nonce: _Text
    cnonce: str
    cb: _Text
    iat: int
    exp: int
    jti: _Text
    stub: StubIdentity | None = None
    doms: Annotated[list[_Text], msgspec.Meta(min_length=1, max_length=16)]
    proto: int = 1


class _Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    alg: str
    typ: str
    kid: _Text


@dataclass(frozen=True, slots=True)
class Expected:
    """The facts that a verifier knows by itself and compares with the token.

    `issuer` is "" while only the token says who comes (the node side); `bindings` holds every channel binding that
    this connection may have.
    """

    audience: str
    endpoints: frozenset[str]
    bindings: frozenset[str]
    nonce: str
    issuer: str = ""


def channel_binding(certificate_sha256: bytes) -> str:
    """Claim text for a certificate hash. Source: RFC 5929 (tls-server-end-point)."""
    return f"tls-server-end-point:{base64url(certificate_sha256)}" if certificate_sha256 else WITHOUT_TLS


def nonce_text(challenge: bytes) -> str:
    """Claim text for a challenge.

    Raises:
        PeerError: AUTH_NONCE when its length is out of bounds.
    """
    if not CHALLENGE_BYTES_MIN <= len(challenge) <= CHALLENGE_BYTES_MAX:
        raise PeerError(Code.AUTH_NONCE, f"a challenge has {CHALLENGE_BYTES_MIN} to {CHALLENGE_BYTES_MAX} bytes")
    return base64url(challenge)


def make_token(claims: Claims, key: SigningKey) -> str:
    """Sign claims with a node key."""
    header = {"alg": _ALGORITHMS[key.alg], "typ": TOKEN_TYPE, "kid": key.key_id}
    signed = f"{base64url(msgspec.json.encode(header))}.{base64url(msgspec.json.encode(claims))}"
    return f"{signed}.{base64url(key.sign(signed.encode()))}"


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """A token whose form and facts were checked; its signature was not, so nothing in it may be believed."""

    claims: Claims
    key_id: str
    algorithm: str
    signed: bytes
    signature: bytes


def check_form(token: bytes, expected: Expected, *, now: float) -> UnverifiedToken:
    """Everything that can be checked without a key.

    Raises:
        PeerError: AUTH_MALFORMED, AUTH_AUDIENCE, AUTH_ENDPOINT, AUTH_BINDING, AUTH_NONCE, AUTH_STALE.
    """
    unverified = _parse(token)
    claims = unverified.claims
    blame = claims.iss
    if claims.aud != expected.audience or (expected.issuer and claims.iss != expected.issuer):
        raise PeerError(Code.AUTH_AUDIENCE, "the token is for somebody else", domain=blame)
    if claims.ep not in expected.endpoints:
        raise PeerError(Code.AUTH_ENDPOINT, "the token is for another endpoint", domain=blame)
    if claims.cb not in expected.bindings:
        raise PeerError(Code.AUTH_BINDING, "the token is for another connection", domain=blame)
    if claims.nonce != expected.nonce:
        raise PeerError(Code.AUTH_NONCE, "the token answers another challenge", domain=blame)
    _check_times(claims, now)
    return unverified


def _check_times(claims: Claims, now: float) -> None:
    if not 0 < claims.exp - claims.iat <= TOKEN_SKEW_SECONDS:
        detail = f"a token is valid for 1 to {TOKEN_SKEW_SECONDS:.0f} s, this one for {claims.exp - claims.iat}"
        raise PeerError(Code.AUTH_STALE, detail, domain=claims.iss)
    if abs(now - claims.iat) > TOKEN_SKEW_SECONDS:
        side = "before" if now > claims.iat else "after"
        detail = f"the token was made {side} our now, by {off_by(abs(now - claims.iat))}"
        raise PeerError(Code.AUTH_STALE, detail, domain=claims.iss)


def check_signature(
    token: UnverifiedToken, keys: Mapping[str, KeyRecord], *, revoked: frozenset[str], now: float
) -> Claims:
    """Check the signature with the issuer's published node keys.

    Raises:
        PeerError: AUTH_KEY_UNKNOWN, AUTH_KEY_REVOKED or AUTH_SIGNATURE.
    """
    blame = token.claims.iss
    key = keys.get(token.key_id)
    if key is None or _ALGORITHMS.get(key.alg) != token.algorithm:
        raise PeerError(Code.AUTH_KEY_UNKNOWN, "the domain publishes no such node key", domain=blame)
    if token.key_id in revoked:
        raise PeerError(Code.AUTH_KEY_REVOKED, "the node key was revoked", domain=blame)
    if not key.is_valid_at(now):
        raise PeerError(Code.AUTH_KEY_UNKNOWN, "the node key is not valid now", domain=blame)
    if not verify_signature(key, token.signature, token.signed):
        raise PeerError(Code.AUTH_SIGNATURE, "the signature does not hold", domain=blame)
    return token.claims


def _parse(token: bytes) -> UnverifiedToken:
    if len(token) > TOKEN_BYTES:
        raise PeerError(Code.AUTH_MALFORMED, "the token is too long")
    parts = token.split(b".")
    if len(parts) != 3:
        raise PeerError(Code.AUTH_MALFORMED, "not a compact JWS")
    try:
        header = msgspec.convert(parse_strict(_decoded(parts[0])), _Header)
        claims = msgspec.convert(parse_strict(_decoded(parts[1])), Claims)
        signature = _decoded(parts[2])
    except (ValueError, RecursionError) as exc:
        raise PeerError(Code.AUTH_MALFORMED, "the token cannot be read") from exc
    if header.typ != TOKEN_TYPE or header.alg not in _ALGORITHMS.values():
        raise PeerError(Code.AUTH_MALFORMED, "not an authentication token", domain=claims.iss)
    return UnverifiedToken(claims, header.kid, header.alg, parts[0] + b"." + parts[1], signature)


def _decoded(part: bytes) -> bytes:
    """Base64url without padding, in its one canonical spelling."""
    try:
        raw = base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4))
    except binascii.Error as exc:
        raise ValueError("not base64url") from exc
    if base64url(raw).encode() != part:
        raise ValueError("not canonical base64url")
    return raw


class SeenTokens:
    """Ids of tokens that were used, until they could not be used anyway."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, float] = OrderedDict()

    def use(self, claims: Claims, *, now: float) -> None:
        """Use a token up.

        Raises:
            PeerError: AUTH_REPLAY.
        """
        while self._seen and (next(iter(self._seen.values())) < now or len(self._seen) >= _REMEMBERED_TOKENS):
            self._seen.popitem(last=False)
        key = f"{claims.iss} {claims.jti}"
        if key in self._seen:
            raise PeerError(Code.AUTH_REPLAY, "the token was used before", domain=claims.iss)
        self._seen[key] = claims.exp + 2 * TOKEN_SKEW_SECONDS


@dataclass(frozen=True, slots=True)
class Issuer:
    """The signer of a token: main domain, address of the node, and all domains that it speaks for, main one first."""

    domain: str
    node: str
    domains: list[str]


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """The purpose of one token.

    Attributes:
        peer_domain: Whom it is for.
        endpoint: URL of the endpoint at which the connection arrived.
        binding: Channel binding of the connection.
        challenge: What the far end asked; empty when the token answers the challenge in a token of theirs.
        stub: The stub that speaks for us, if one does.
    """

    peer_domain: str
    endpoint: str
    binding: str
    challenge: bytes
    stub: StubIdentity | None = None


def new_claims(issuer: Issuer, request: TokenRequest, nonce: str, *, now: float, random_bytes: bytes) -> Claims:
    """Claims of a token of ours that answers `nonce`.

    Args:
        issuer: Who signs it.
        request: What it is for.
        nonce: Text of the challenge; see `nonce_text`.
        now: Seconds since the Unix epoch.
        random_bytes: 48 fresh ones: the challenge for the far end, then the token's id.
    """
    issued = int(now)
    return Claims(
        iss=issuer.domain,
        node=issuer.node,
        aud=request.peer_domain,
        ep=request.endpoint,
        nonce=nonce,
        cnonce=base64url(random_bytes[:32]),
        cb=request.binding,
        iat=issued,
        exp=issued + int(TOKEN_SECONDS),
        jti=base64url(random_bytes[32:]),
        stub=request.stub,
        doms=issuer.domains,
    )
