"""Keys and signature envelopes (DSSE) of the signed documents: what is signed, by which key, and does it hold.

Theory of operation. A document travels as a DSSE envelope: payload bytes, their type, and signatures over
`DSSEv1 <length> <type> <length> <payload>`. The algorithm belongs to the key record, never to the envelope, so an
envelope cannot talk us into another one. The key id inside an envelope is a hint; signers are counted by key material.
Ed25519 is checked strictly: no small-order or non-canonical key, no scalar beyond the group order.

Source: trust and hosts, section 3.3; DSSE 1.0.2; RFC 8032.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Final, Literal, Self

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from protofly.errors import Code, MisuseError, PeerError

SIGNATURES_MAX: Final = 32
"""Most signatures in one envelope: bounds the work that a stranger's document can cause."""

VERIFICATIONS_MAX: Final = 64
"""Most signature checks for one envelope; only signatures without a hint cost more than one each."""

_NESTING_LEVELS: Final = 32
_ED25519_PRIME: Final = 2**255 - 19
_ED25519_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
_ED25519_SMALL_ORDER_Y: Final = frozenset(
    {
        0,
        1,
        _ED25519_PRIME - 1,
        int.from_bytes(bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little"),
        int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little"),
    }
)
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A point in time with its offset, RFC 3339 on the wire."""

KeyId = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")]


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A public key as documents carry it. `nbf` and `exp` bound the use of node keys."""

    alg: Literal["ed25519", "p256"]
    pub: Annotated[str, msgspec.Meta(max_length=128)]
    nbf: Moment | None = None
    exp: Moment | None = None

    def is_valid_at(self, now: float) -> bool:
        """True if `now` (Unix seconds) lies inside the key's own bounds."""
        return (self.nbf is None or self.nbf.timestamp() <= now) and (self.exp is None or now < self.exp.timestamp())


_DOMAIN_MARK = "Domain: "


def domain_of_pem(pem: bytes) -> str:
    """Read the domain from the header of a file of `SigningKey.to_pem`; "" if it has none."""
    for line in pem.split(b"-----BEGIN", 1)[0].splitlines():
        if line.startswith(_DOMAIN_MARK.encode("ascii")):
            return line.removeprefix(_DOMAIN_MARK.encode("ascii")).decode("ascii", "replace").strip()
    return ""


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key with the id under which documents name its public half."""

    key_id: str
    private: Ed25519PrivateKey | ec.EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def from_seed(cls, key_id: str, seed: bytes, *, alg: Literal["ed25519", "p256"] = "ed25519") -> Self:
        """Make a key from 32 random bytes; the same seed gives the same key."""
        if len(seed) != 32:
            raise MisuseError(f"a key seed is 32 bytes, not {len(seed)}")
        if alg == "ed25519":
            return cls(key_id, Ed25519PrivateKey.from_private_bytes(seed))
        return cls(key_id, ec.derive_private_key(int.from_bytes(seed) % (_P256_ORDER - 1) + 1, ec.SECP256R1()))

    @classmethod
    def from_pem(cls, key_id: str, pem: bytes) -> Self:
        """Load an unencrypted PKCS #8 key.

        Raises:
            ValueError: Not such a key, or of another algorithm.
        """
        try:
            private = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{key_id} is not an unencrypted PKCS #8 private key") from error
        if isinstance(private, Ed25519PrivateKey):
            return cls(key_id, private)
        if isinstance(private, ec.EllipticCurvePrivateKey) and isinstance(private.curve, ec.SECP256R1):
            return cls(key_id, private)
        raise ValueError(f"{key_id} is neither an Ed25519 nor a P-256 key")

    @property
    def alg(self) -> Literal["ed25519", "p256"]:
        """Algorithm word of the key record."""
        return "ed25519" if isinstance(self.private, Ed25519PrivateKey) else "p256"

    def to_pem(self, domain: str = "") -> bytes:
        """Return the private key as unencrypted PKCS #8; the caller protects the file that it goes to.

        `domain` is whose key it is; it goes before the PEM as explanatory text (RFC 7468, section 2), so that it stays
        with the key when the file is copied. `domain_of_pem` reads it.
        """
        mark = f"{_DOMAIN_MARK}{domain}\n".encode("ascii") if domain else b""
        return mark + self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def record(self, *, nbf: datetime | None = None, exp: datetime | None = None) -> KeyRecord:
        """The public half, for a document."""
        public = self.private.public_key()
        if isinstance(public, Ed25519PublicKey):
            raw = public.public_bytes_raw()
        else:
            raw = public.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        return KeyRecord(alg=self.alg, pub=base64url(raw), nbf=nbf, exp=exp)

    def jwk(self) -> dict[str, str]:
        """The public half as a JSON Web Key. Source: RFC 7517; RFC 8037."""
        public = self.private.public_key()
        common = {"kid": self.key_id, "use": "sig"}
        if isinstance(public, Ed25519PublicKey):
            return {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": base64url(public.public_bytes_raw()), **common}
        numbers = public.public_numbers()
        x, y = base64url(numbers.x.to_bytes(32)), base64url(numbers.y.to_bytes(32))
        return {"kty": "EC", "crv": "P-256", "alg": "ES256", "x": x, "y": y, **common}

    def sign(self, data: bytes) -> bytes:
        """Sign `data`: 64 bytes, for P-256 as r‖s."""
        if isinstance(self.private, Ed25519PrivateKey):
            return self.private.sign(data)
        r, s = decode_dss_signature(self.private.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32) + s.to_bytes(32)


@lru_cache(maxsize=1024)
def _public_key(alg: str, pub: str) -> Ed25519PublicKey | ec.EllipticCurvePublicKey | None:
    """The key behind a record, or None if it is malformed or weak."""
    raw = from_base64url(pub)
    try:
        if alg == "p256":
            # One encoding only: the same key under two spellings must not count twice.
            is_uncompressed = len(raw) == 65 and raw[0] == 4
            return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), raw) if is_uncompressed else None
        y = int.from_bytes(raw, "little") & ((1 << 255) - 1)
        if len(raw) != 32 or y >= _ED25519_PRIME or y in _ED25519_SMALL_ORDER_Y:
            return None
        return Ed25519PublicKey.from_public_bytes(raw)
    except ValueError:
        return None


def is_usable(key: KeyRecord) -> bool:
    """True if the record holds a well-formed key that is not weak."""
    return _public_key(key.alg, key.pub) is not None


def verify_signature(key: KeyRecord, signature: bytes, data: bytes) -> bool:
    """Check one 64-byte signature strictly. Source: trust and hosts, section 7, row 20."""
    public = _public_key(key.alg, key.pub)
    if public is None or len(signature) != 64:
        return False
    try:
        if isinstance(public, Ed25519PublicKey):
            if int.from_bytes(signature[32:], "little") >= _ED25519_ORDER:
                return False
            public.verify(signature, data)
        else:
            r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
            public.verify(encode_dss_signature(r, s), data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


@dataclass(frozen=True, slots=True)
class EnvelopeSignature:
    """One signature and the hint of whose it is ("" = any of the role's keys)."""

    key_id: str
    signature: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A decoded DSSE envelope. Nothing in it is believed before its signatures are counted."""

    payload_type: str
    payload: bytes
    signatures: tuple[EnvelopeSignature, ...]

    def signers(self, keys: Mapping[str, KeyRecord], *, allowed: Iterable[str], excluded: Collection[str] = ()) -> int:
        """Count the different keys of `allowed` (ids in `keys`) that signed the payload, without those of `excluded`.

        Keys count by their material: one key under two ids is one signer. An excluded id excludes its material.
        """
        data = pae(self.payload_type, self.payload)
        barred = {_material(keys[key_id]) for key_id in excluded if key_id in keys}
        candidates = {key_id: keys[key_id] for key_id in allowed if key_id in keys}
        attempts: list[tuple[KeyRecord, bytes]] = []
        for entry in self.signatures:
            hinted = candidates.get(entry.key_id)
            tried = (hinted,) if hinted else (() if entry.key_id else tuple(candidates.values()))
            attempts.extend((key, entry.signature) for key in tried)
        found: set[tuple[str, str]] = set()
        for key, signature in attempts[:VERIFICATIONS_MAX]:
            material = _material(key)
            if material not in barred | found and verify_signature(key, signature, data):
                found.add(material)
        return len(found)


def _material(key: KeyRecord) -> tuple[str, str]:
    return key.alg, key.pub


def pae(payload_type: str, payload: bytes) -> bytes:
    """The bytes that are signed: pre-authentication encoding of DSSE version 1."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign_envelope(payload: bytes, payload_type: str, keys: Sequence[SigningKey]) -> bytes:
    """Wrap `payload` into an envelope signed by each of `keys`."""
    data = pae(payload_type, payload)
    return msgspec.json.encode(
        {
            "payloadType": payload_type,
            "payload": base64.b64encode(payload).decode(),
            "signatures": [{"keyid": k.key_id, "sig": base64.b64encode(k.sign(data)).decode()} for k in keys],
        }
    )


class _WireSignature(msgspec.Struct, frozen=True, kw_only=True):
    sig: str
    keyid: str = ""


class _WireEnvelope(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    payload: str
    payload_type: str
    signatures: Annotated[list[_WireSignature], msgspec.Meta(min_length=1, max_length=SIGNATURES_MAX)]


def decode_envelope(raw: bytes, *, domain: str = "") -> Envelope:
    """Decode an envelope without believing it.

    Raises:
        PeerError: ENVELOPE_MALFORMED, blaming `domain`.
    """
    try:
        wire = msgspec.convert(parse_strict(raw), _WireEnvelope)
        signatures = tuple(EnvelopeSignature(entry.keyid, _from_base64(entry.sig)) for entry in wire.signatures)
        return Envelope(wire.payload_type, _from_base64(wire.payload), signatures)
    except (ValueError, RecursionError) as error:
        raise PeerError(Code.ENVELOPE_MALFORMED, str(error)[:200], domain=domain) from error


def parse_strict(raw: bytes) -> object:
    """Parse JSON as signed documents have to be written: UTF-8, no duplicate members, no NaN, no lone surrogates.

    Raises:
        ValueError: Anything else; `RecursionError` is mapped to it.
    """
    try:
        text = raw.decode("utf-8")
        value = json.loads(
            text, object_pairs_hook=_unique_members, parse_constant=_refuse_constant, parse_float=_finite
        )
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if text.count("[") + text.count("{") > _NESTING_LEVELS:
        _check_depth(value)
    return value


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member appears twice")
    return members


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("number out of range")
    return number


def _check_depth(value: object) -> None:
    level: list[object] = [value]
    for _ in range(_NESTING_LEVELS):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise ValueError("nested too deeply")


def base64url(raw: bytes) -> str:
    """Base64 in the URL alphabet without padding, as key records and fingerprints use it."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def is_fingerprint(text: str) -> bool:
    """True if a text can be a SHA-256 in base64url: 43 characters, in the one spelling that 32 bytes have."""
    return len(from_base64url(text)) == hashlib.sha256().digest_size


def from_base64url(text: str) -> bytes:
    """Decode base64url; b"" unless `text` is the one canonical spelling of its bytes."""
    try:
        raw = base64.urlsafe_b64decode(text + "==")  # padding that is too long is ignored
    except (ValueError, binascii.Error):
        return b""
    return raw if base64url(raw) == text else b""


def _from_base64(text: str) -> bytes:
    """Decode base64 of either alphabet, as DSSE allows; raises ValueError."""
    return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
