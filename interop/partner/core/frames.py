"""Frames of LINK/1 as bytes, and what a partner says in them: messages, tokens and their claims.

Written from the specification of the link and of the tokens, without the node's own codec.

Source: docs/link.md; trust and hosts, section 2.7.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from interop.partner.core.keys import base64url, from_base64url, is_signed

SUBPROTOCOL: Final = "trapezoid-link.1"
HELLO, CHALLENGE, TOKEN, WELCOME, MESSAGES, ACK, REFUSE, BYE = range(1, 9)
NAMES: Final = ("?", "HELLO", "CHALLENGE", "TOKEN", "WELCOME", "MESSAGES", "ACK", "REFUSE", "BYE")
TOKEN_BYTES: Final = 4096
TOKEN_SECONDS: Final = 60
_HEADER: Final = struct.Struct("<BBHI")
_LENGTH: Final = struct.Struct("<I")


class BrokenFrameError(ValueError):
    """The other side sent what is no frame, or a token that proves nothing."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame."""

    kind: int
    arg: int
    payload: bytes

    @property
    def name(self) -> str:
        """The name of its kind."""
        return NAMES[self.kind] if self.kind < len(NAMES) else str(self.kind)


def pack(kind: int, arg: int = 0, payload: bytes = b"", *, flags: int = 0) -> bytes:
    """Write one frame."""
    return _HEADER.pack(kind, flags, 0, arg) + payload


def unpack(raw: bytes) -> Frame:
    """Read one frame. Raises BrokenFrameError."""
    if len(raw) < _HEADER.size:
        raise BrokenFrameError(f"a frame of {len(raw)} bytes")
    kind, flags, reserved, arg = _HEADER.unpack_from(raw)
    if flags or reserved or not HELLO <= kind <= BYE:
        raise BrokenFrameError(f"a frame with kind {kind}, flags {flags}, reserved {reserved}")
    return Frame(kind, arg, raw[_HEADER.size :])


def pack_messages(first: int, raws: Sequence[bytes]) -> bytes:
    """Write MESSAGES with consecutive numbers."""
    return pack(MESSAGES, first, b"".join(_LENGTH.pack(len(raw)) + raw for raw in raws))


def unpack_messages(frame: Frame) -> list[tuple[int, dict[str, object]]]:
    """Messages with their numbers. Raises BrokenFrameError."""
    found: list[tuple[int, dict[str, object]]] = []
    position = 0
    while position < len(frame.payload):
        end = position + 4
        if end > len(frame.payload):
            raise BrokenFrameError("MESSAGES ends inside a length")
        size = _LENGTH.unpack_from(frame.payload, position)[0]
        position = end + size
        if position > len(frame.payload):
            raise BrokenFrameError("MESSAGES ends inside a message")
        found.append((frame.arg + len(found), _object(frame.payload[end:position])))
    if not found or not frame.arg:
        raise BrokenFrameError("MESSAGES without a message, or numbered from 0")
    return found


def _object(raw: bytes) -> dict[str, object]:
    try:
        value = json.loads(raw)
    except ValueError as exc:
        raise BrokenFrameError("JSON that cannot be read") from exc
    if not isinstance(value, dict):
        raise BrokenFrameError("JSON that is no object")
    return value


def binding_of(certificate: bytes) -> str:
    """Channel binding of a certificate in DER. Source: RFC 5929, section 4."""
    return f"tls-server-end-point:{base64url(hashlib.sha256(certificate).digest())}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """Claims of a token: issuer, audience, endpoint, connection (its binding) and challenge."""

    issuer: str
    audience: str
    endpoint: str
    binding: str
    nonce: str


def claims_of(raw: bytes) -> dict[str, object]:
    """The claims of a token, unverified. Raises BrokenFrameError."""
    return _object(_part(raw, 1))


def _part(raw: bytes, index: int) -> bytes:
    parts = raw.decode(errors="replace").split(".")
    if len(parts) != 3:
        raise BrokenFrameError("the token is no compact JWS")
    try:
        return from_base64url(parts[index])
    except ValueError as exc:
        raise BrokenFrameError("the token is no base64url") from exc


def new_claims(contact: Contact, *, now: float, entropy: bytes) -> dict[str, object]:
    """Claims of an honest token; `entropy` has 48 fresh random bytes."""
    return {
        "iss": contact.issuer,
        "node": f"runtime://{contact.issuer}/mn-1",
        "aud": contact.audience,
        "ep": contact.endpoint,
        "nonce": contact.nonce,
        "cnonce": base64url(entropy[:32]),
        "cb": contact.binding,
        "iat": int(now),
        "exp": int(now) + 30,
        "jti": base64url(entropy[32:48]),
        "doms": [contact.issuer],
        "proto": 1,
    }


def check_token(raw: bytes, contact: Contact, keys: Mapping[str, Mapping[str, object]], *, now: float) -> None:
    """Check a token of the node under test as section 2.7, step 4, demands. Raises BrokenFrameError."""
    if len(raw) > TOKEN_BYTES:
        raise BrokenFrameError(f"the token has {len(raw)} bytes, at most {TOKEN_BYTES}")
    header, claims = _object(_part(raw, 0)), claims_of(raw)
    named = {"iss": contact.issuer, "aud": contact.audience, "ep": contact.endpoint}
    expected = {**named, "cb": contact.binding, "nonce": contact.nonce}
    for name, value in expected.items():
        if claims.get(name) != value:
            raise BrokenFrameError(f"claim {name} of the token: expected {value!r}, got {claims.get(name)!r}")
    if header.get("typ") != "rmn-auth+jwt" or header.get("alg") != "EdDSA":
        raise BrokenFrameError(f"header of the token: {header}")
    _check_times(claims, now)
    domains = claims.get("doms")
    if not isinstance(domains, list) or contact.issuer not in domains:
        raise BrokenFrameError(f"claim doms of the token: {domains!r}")
    if len(str(claims.get("jti"))) < 16:
        raise BrokenFrameError("claim jti of the token has less than 96 bits")
    record = keys.get(str(header.get("kid")))
    if record is None:
        raise BrokenFrameError(f"the token is signed by {header.get('kid')!r}, which its domain does not publish")
    if not is_signed(raw.rpartition(b".")[0], _part(raw, 2), record):
        raise BrokenFrameError("the signature of the token does not fit the key that its domain publishes")


def _check_times(claims: Mapping[str, object], now: float) -> None:
    issued, ends = claims.get("iat"), claims.get("exp")
    if not isinstance(issued, int) or not isinstance(ends, int):
        raise BrokenFrameError("the token has no times")
    if abs(now - issued) > TOKEN_SECONDS or not 0 < ends - issued <= TOKEN_SECONDS:
        raise BrokenFrameError(f"times of the token: iat {issued}, exp {ends}; now is {int(now)}")
