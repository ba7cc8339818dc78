"""Keys and signatures of a partner: DSSE envelopes and compact JWS, written here from their specifications.

Nothing of the node's own implementation is used, so that a mistake in it does not hide itself.

Source: trust and hosts, sections 2.7 and 3.3; DSSE 1.0.2; RFC 7515; RFC 8032.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

Members = Mapping[str, object]
Algorithm = Literal["ed25519", "p256"]
TOKEN_TYPE: Final = "rmn-auth+jwt"  # noqa: S105 - a media type
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_ECDSA: Final = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)


def base64url(raw: bytes) -> str:
    """Base64url without padding. Source: RFC 4648, section 5."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """The bytes behind base64url without padding. Raises ValueError."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def as_json(value: object) -> bytes:
    """Compact JSON, members in their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Key:
    """One private key, by the id under which documents name it; the same name and seed give the same key."""

    name: str
    seed: str
    alg: Algorithm = "ed25519"

    @property
    def _secret(self) -> bytes:
        return hashlib.sha256(f"{self.seed} {self.name}".encode()).digest()

    @property
    def _private(self) -> Ed25519PrivateKey | ec.EllipticCurvePrivateKey:
        if self.alg == "ed25519":
            return Ed25519PrivateKey.from_private_bytes(self._secret)
        return ec.derive_private_key(int.from_bytes(self._secret) % (_P256_ORDER - 1) + 1, ec.SECP256R1())

    @property
    def public(self) -> bytes:
        """The public half: 32 bytes, or an uncompressed point."""
        public = self._private.public_key()
        if isinstance(public, Ed25519PublicKey):
            return public.public_bytes_raw()
        return public.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    def record(self) -> dict[str, object]:
        """The public half as documents carry it."""
        return {"alg": self.alg, "pub": base64url(self.public)}

    def sign(self, data: bytes) -> bytes:
        """64 bytes; for P-256 r‖s."""
        private = self._private
        if isinstance(private, Ed25519PrivateKey):
            return private.sign(data)
        r, s = decode_dss_signature(private.sign(data, _ECDSA))
        return r.to_bytes(32) + s.to_bytes(32)

    def sign_der(self, data: bytes) -> bytes:
        """A P-256 signature in DER, which documents must not carry."""
        private = self._private
        if isinstance(private, Ed25519PrivateKey):
            raise TypeError("Ed25519 has no DER form")
        return private.sign(data, _ECDSA)


def is_signed(data: bytes, signature: bytes, record: Mapping[str, object]) -> bool:
    """True if an Ed25519 key record fits a signature; other algorithms are not judged here."""
    try:
        Ed25519PublicKey.from_public_bytes(from_base64url(str(record.get("pub")))).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def pre_authentication(kind: str, payload: bytes) -> bytes:
    """The bytes that a DSSE signature covers. Source: DSSE 1.0.2."""
    return b"DSSEv1 %d %b %d %b" % (len(kind.encode()), kind.encode(), len(payload), payload)


def envelope(payload: bytes, kind: str, signatures: Sequence[tuple[str, bytes]]) -> bytes:
    """A DSSE envelope with these signatures: pairs of key id and bytes."""
    return as_json(
        {
            "payloadType": kind,
            "payload": base64.b64encode(payload).decode(),
            "signatures": [{"keyid": name, "sig": base64.b64encode(sig).decode()} for name, sig in signatures],
        }
    )


def signed(payload: bytes, kind: str, keys: Sequence[Key]) -> bytes:
    """A DSSE envelope signed by these keys."""
    data = pre_authentication(kind, payload)
    return envelope(payload, kind, [(key.name, key.sign(data)) for key in keys])


def token(claims: Members, key: Key, *, header: Members | None = None) -> bytes:
    """A compact JWS; `header` replaces members of the header. Source: RFC 7515, section 3.1."""
    head = {"alg": "EdDSA" if key.alg == "ed25519" else "ES256", "typ": TOKEN_TYPE, "kid": key.name, **(header or {})}
    text = f"{base64url(as_json(head))}.{base64url(as_json(claims))}"
    return f"{text}.{base64url(key.sign(text.encode()))}".encode()
