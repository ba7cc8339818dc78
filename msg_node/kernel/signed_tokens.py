"""Signed tokens (JWT): is this one signed by a key of the issuer that it names, and now. What it says is for others.

Theory of operation. The header of a token says which key and algorithm it claims, its payload which issuer; neither is
believed. The issuer named inside picks the rules and keys, the key limits the algorithm (`issuer_keys`), and only a
payload that one of that issuer's keys signed is read again, strictly, as claims. So a key of one issuer is of no use
for another, and there is no algorithm to be confused about.

Source: RFC 7515; RFC 7519; RFC 8725.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from msg_node.kernel.issuer_keys import VerificationKey
from protofly.errors import Code, PeerError
from protofly.limits import BEARER_TOKEN_CHARS
from protofly.signatures import parse_strict

ALGORITHMS: Final = (
    "EdDSA",
    "Ed25519",
    "ES256",
    "ES384",
    "ES512",
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
)
"""What can be allowed at all: signatures by a private key. Source: RFC 7518, section 3.1; RFC 8037; RFC 9864."""

_FORM: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_TYPES: Final = frozenset({"", "jwt", "at+jwt"})  # RFC 7519, section 5.1; RFC 9068, section 2.1
_LATEST_SECONDS: Final = 253_402_300_799.0  # the end of the year 9999


class TokenRefusedError(PeerError):
    """A token is not accepted. `lacks_key`: its issuer may have keys that we do not know yet."""

    def __init__(self, detail: str, *, lacks_key: bool = False) -> None:
        super().__init__(Code.BAD_TOKEN, f"the token is not accepted: {detail}")
        self.lacks_key = lacks_key


def looks_like_token(text: str) -> bool:
    """True if a text has the form of a signed token: three parts of base64url."""
    return len(text) <= BEARER_TOKEN_CHARS and _FORM.fullmatch(text) is not None


def issuer_of(token: str) -> str:
    """The issuer that a token claims, "" when it says none. Nothing of it is believed.

    Raises:
        TokenRefusedError: It is no token.
    """
    return text_claim(_members(token.split(".")[1], "payload"), "iss")


def signed_claims(token: str, keys: Iterable[VerificationKey], *, algorithms: Collection[str]) -> dict[str, object]:
    """The claims of a token, once one of these keys has signed it.

    Args:
        token: In compact form; see `looks_like_token`.
        keys: Of the issuer that the token claims.
        algorithms: Those of `ALGORITHMS` that the issuer may use.

    Raises:
        TokenRefusedError: With what is wrong.
    """
    return _claims(_signed_payload(token, keys, algorithms))


def check_times(claims: Mapping[str, object], *, skew_seconds: float, now: float) -> float:
    """Check the times of a token, and return when it stops being accepted, in seconds since the Unix epoch.

    Raises:
        TokenRefusedError: It is not accepted now, or never expires.
    """
    expires_at, begins_at, issued_at = (_moment(claims, name) for name in ("exp", "nbf", "iat"))
    if expires_at is None:
        raise TokenRefusedError("it never expires (`exp`)")
    if now >= expires_at + skew_seconds:
        raise TokenRefusedError("it has expired")
    if begins_at is not None and now < begins_at - skew_seconds:
        raise TokenRefusedError("it is not valid yet")
    if issued_at is not None and now < issued_at - skew_seconds:
        raise TokenRefusedError("it was issued in the future; compare the clocks")
    return expires_at + skew_seconds


def text_claim(members: Mapping[str, object], name: str) -> str:
    """A text, "" when it is missing.

    Raises:
        TokenRefusedError: It is something else.
    """
    value = members.get(name, "")
    if not isinstance(value, str):
        raise TokenRefusedError(f"`{name}` is no text")
    return value


def text_claims(value: object, *, is_list: bool = False) -> list[str]:
    """One text or several; with `is_list` one text is a list with spaces, as `scope` is.

    Source: RFC 6749, section 3.3.
    """
    if isinstance(value, str):
        return value.split() if is_list else [value]
    if isinstance(value, list):
        return [one for one in value if isinstance(one, str)]
    return []


def claim_at(claims: Mapping[str, object], name: str) -> object:
    """A claim by its name, or by a path such as `realm_access.roles` into claims that hold others."""
    if name in claims:
        return claims[name]
    value: object = claims
    for step in name.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _signed_payload(token: str, keys: Iterable[VerificationKey], algorithms: Collection[str]) -> bytes:
    """The payload, once one of the issuer's keys has signed it."""
    header = _members(token.split(".")[0], "header")
    algorithm, key_id = text_claim(header, "alg"), text_claim(header, "kid")
    if algorithm not in algorithms:
        raise TokenRefusedError("its algorithm is not allowed")
    if "crit" in header or "b64" in header:
        raise TokenRefusedError("its header demands an extension")
    if text_claim(header, "typ").lower().removeprefix("application/") not in _TYPES:
        raise TokenRefusedError("it is not an access token (`typ`)")
    fitting = [key for key in keys if algorithm in key.algorithms and (not key_id or key.key_id in ("", key_id))]
    if not fitting:
        raise TokenRefusedError("no key of its issuer fits (`kid`, `alg`)", lacks_key=True)
    if not key_id and len(fitting) > 1:
        raise TokenRefusedError("it does not say which key signed it (`kid`)")
    for key in fitting:
        payload = key.payload_of(token, algorithm)
        if payload is not None:
            return payload
    raise TokenRefusedError("its signature is wrong")


def _claims(payload: bytes) -> dict[str, object]:
    try:
        claims = parse_strict(payload)
    except ValueError as exc:
        raise TokenRefusedError("its payload is not JSON") from exc
    if not isinstance(claims, dict):
        raise TokenRefusedError("its payload is no object")
    return claims


def _members(part: str, name: str) -> dict[str, object]:
    """A part of a token as members, unbelieved."""
    try:
        decoded = parse_strict(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except ValueError as exc:
        raise TokenRefusedError(f"its {name} is not JSON in base64url") from exc
    if not isinstance(decoded, dict):
        raise TokenRefusedError(f"its {name} is no object")
    return decoded


def _moment(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST_SECONDS:
        raise TokenRefusedError(f"`{name}` is no point in time")
    return float(value)
