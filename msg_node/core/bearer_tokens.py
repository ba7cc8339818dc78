"""Bearer tokens of local issuers (JWT): is this one signed by an issuer of ours, for us, now, and for which runtimes.

Theory of operation. The header of a token says which key and algorithm it claims, its payload which issuer; neither is
believed. The issuer named inside picks the rules and keys of the settings, the key limits the algorithm
(`issuer_keys`), and only a payload that one of that issuer's keys signed is read again, strictly, as claims. So a key
of one issuer is of no use for another, and there is no algorithm to be confused about.

Keys are an argument, and so is the time: where keys come from, a file or a look-up, is not the business of this module.
What holders are told is precise, since whoever holds a token may know what is wrong with it.

Source: RFC 7515; RFC 7519; RFC 8725; message specification, section 5.1.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msg_node.core.issuer_keys import VerificationKey
from msg_node.core.runtime_address import covers, covers_any, names_in_full
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
_SUBJECT_CHARS: Final = 512


@dataclass(frozen=True, slots=True)
class IssuerRules:
    """What the settings say about one issuer.

    Attributes:
        issuer: Its name, exactly as `iss` says it.
        audience: Our name, one of those that `aud` says.
        runtimes: Patterns of the runtimes that it may speak for at most.
        algorithms: Those of `ALGORITHMS` that it may use.
        skew_seconds: How far its clock may differ from ours.
        runtime_claim: The claim with the runtime address, or several; a final `*` stands for any rest.
        roles_claim: The claim with the roles, "" for none.
    """

    issuer: str
    audience: str
    runtimes: tuple[str, ...]
    algorithms: frozenset[str] = frozenset(ALGORITHMS)
    skew_seconds: float = 60.0
    runtime_claim: str = "runtime"
    roles_claim: str = ""


@dataclass(frozen=True, slots=True)
class TokenProof:
    """What a valid token says about the opener of one runtime.

    `expires_at` is when it stops being accepted, in seconds since the Unix epoch. `is_in_full`: it names this runtime
    and not only a pattern.
    """

    issuer: str
    subject: str
    roles: frozenset[str]
    expires_at: float
    is_in_full: bool


def looks_like_token(text: str) -> bool:
    """Whether a text has the form of a signed token: three parts of base64url."""
    return len(text) <= BEARER_TOKEN_CHARS and _FORM.fullmatch(text) is not None


def issuer_of(token: str) -> str:
    """The issuer that a token claims, "" when it says none. Nothing of it is believed.

    Raises:
        PeerError: BAD_TOKEN.
    """
    return _text(_members(token.split(".")[1], "payload"), "iss")


def check_token(
    token: str, runtime_key: str, rules: IssuerRules, keys: Sequence[VerificationKey], *, now: float
) -> TokenProof:
    """Check a token of one issuer for one runtime.

    Args:
        token: In compact form; see `looks_like_token`.
        runtime_key: Canonical key of the runtime that is to be opened.
        rules: Of the issuer that the token claims.
        keys: Of the same issuer.
        now: Seconds since the Unix epoch.

    Raises:
        PeerError: BAD_TOKEN, with what is wrong.
    """
    claims = _claims(_signed_payload(token, rules, keys))
    if _text(claims, "iss") != rules.issuer:
        raise _refused("it is of another issuer")
    if rules.audience not in _texts(claims.get("aud")):
        raise _refused("it is for another audience")
    expires_at = _check_times(claims, rules.skew_seconds, now)
    subject = _text(claims, "sub")
    if not subject or len(subject) > _SUBJECT_CHARS or not subject.isprintable():
        raise _refused("its subject (`sub`) is missing or unusable")
    granted = [pattern for pattern in _texts(_at(claims, rules.runtime_claim)) if covers(pattern.strip(), runtime_key)]
    if not granted or not covers_any(rules.runtimes, runtime_key):
        raise _refused(f"it is not for this runtime (claim `{rules.runtime_claim}`)")
    roles = frozenset(_texts(_at(claims, rules.roles_claim), is_list=True)) if rules.roles_claim else frozenset[str]()
    is_in_full = any(names_in_full(pattern.strip(), runtime_key) for pattern in granted)
    return TokenProof(rules.issuer, subject, roles, expires_at, is_in_full)


def _signed_payload(token: str, rules: IssuerRules, keys: Iterable[VerificationKey]) -> bytes:
    """The payload, once one of the issuer's keys has signed it."""
    header = _members(token.split(".")[0], "header")
    algorithm, key_id = _text(header, "alg"), _text(header, "kid")
    if algorithm not in rules.algorithms:
        raise _refused("its algorithm is not allowed")
    if "crit" in header or "b64" in header:
        raise _refused("its header demands an extension")
    if _text(header, "typ").lower().removeprefix("application/") not in _TYPES:
        raise _refused("it is not an access token (`typ`)")
    fitting = [key for key in keys if algorithm in key.algorithms and (not key_id or key.key_id in ("", key_id))]
    if not fitting:
        raise _refused("no key of its issuer fits (`kid`, `alg`)")
    if not key_id and len(fitting) > 1:
        raise _refused("it does not say which key signed it (`kid`)")
    for key in fitting:
        payload = key.payload_of(token, algorithm)
        if payload is not None:
            return payload
    raise _refused("its signature is wrong")


def _check_times(claims: Mapping[str, object], skew_seconds: float, now: float) -> float:
    """When a token stops being accepted."""
    expires_at, begins_at, issued_at = (_moment(claims, name) for name in ("exp", "nbf", "iat"))
    if expires_at is None:
        raise _refused("it never expires (`exp`)")
    if now >= expires_at + skew_seconds:
        raise _refused("it has expired")
    if begins_at is not None and now < begins_at - skew_seconds:
        raise _refused("it is not valid yet")
    if issued_at is not None and now < issued_at - skew_seconds:
        raise _refused("it was issued in the future; compare the clocks")
    return expires_at + skew_seconds


def _refused(detail: str) -> PeerError:
    return PeerError(Code.BAD_TOKEN, f"the token is not accepted: {detail}")


def _claims(payload: bytes) -> dict[str, object]:
    try:
        claims = parse_strict(payload)
    except ValueError as exc:
        raise _refused("its payload is not JSON") from exc
    if not isinstance(claims, dict):
        raise _refused("its payload is no object")
    return claims


def _members(part: str, name: str) -> dict[str, object]:
    """A part of a token as members, unbelieved."""
    try:
        decoded = parse_strict(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error) as exc:
        raise _refused(f"its {name} is not JSON in base64url") from exc
    if not isinstance(decoded, dict):
        raise _refused(f"its {name} is no object")
    return decoded


def _text(members: Mapping[str, object], name: str) -> str:
    """A text, "" when it is missing."""
    value = members.get(name, "")
    if not isinstance(value, str):
        raise _refused(f"`{name}` is no text")
    return value


def _texts(value: object, *, is_list: bool = False) -> list[str]:
    """One text or several; with `is_list` one text is a list with spaces, as `scope` is. Source: RFC 6749, 3.3."""
    if isinstance(value, str):
        return value.split() if is_list else [value]
    if isinstance(value, list):
        return [one for one in value if isinstance(one, str)]
    return []


def _at(claims: Mapping[str, object], name: str) -> object:
    """A claim by its name, or by a path such as `realm_access.roles` into claims that hold others."""
    if name in claims:
        return claims[name]
    value: object = claims
    for step in name.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _moment(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST_SECONDS:
        raise _refused(f"`{name}` is no point in time")
    return float(value)
