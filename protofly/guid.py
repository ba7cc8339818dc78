"""GUIDs: a user's name that no domain assigned, made from the user's public key and a salt.

The holder of the key can prove to own a GUID, and nobody else can: the name is a hash of the key. So it stays
when its user changes provider, and is lost with the key. The curve is secp256k1 throughout.

Source: data formats, sections 4.2 and 4.4.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from protofly.errors import Code, PeerError
from protofly.limits import GUID_KEY_CHARS
from protofly.signatures import base64url

Encoding = Literal["raw", "der"]
"""How a signature is written: 64 bytes r‖s, as JOSE says, or ASN.1 DER, as browser clients and old servers do."""

GUID_CHARS: Final = 43

_SCHEME: Final = "user-guid://"
_GUID: Final = re.compile(rf"[A-Za-z0-9_-]{{{GUID_CHARS}}}")
_ROUNDS: Final = 10_000
_GUID_BYTES: Final = 32
_RAW_BYTES: Final = 64
_BEGIN: Final = "-----BEGIN PUBLIC KEY-----"
_END: Final = "-----END PUBLIC KEY-----"
_ECDSA: Final = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)  # RFC 6979: no randomness to go wrong


def derive_guid(public_key: str, salt: str) -> str:
    """The GUID of a key text and a salt; some milliseconds of CPU.

    Args:
        public_key: As a record holds it: PEM with its marks; line ends and outer blanks do not count.
        salt: Text, taken as it is.
    """
    text = public_key.replace("\r", "").replace("\n", "").strip(" \t")
    password, grain = text.encode("utf-8", "surrogatepass"), salt.encode("utf-8", "surrogatepass")
    return base64url(hashlib.pbkdf2_hmac("sha256", password, grain, _ROUNDS, _GUID_BYTES))


def bare_guid(text: str) -> str:
    """A GUID without the scheme `user-guid://`, which may stand before it.

    Raises:
        PeerError: BAD_BODY when it is none.

    Source: message specification, section 12.1.
    """
    guid = text[len(_SCHEME) :] if text[: len(_SCHEME)].lower() == _SCHEME else text
    if not _GUID.fullmatch(guid):
        raise PeerError(Code.BAD_BODY, f"not a GUID: {GUID_CHARS} characters of base64url")
    return guid


def guid_address(guid: str) -> str:
    """Return the address of the user with this GUID."""
    return _SCHEME + guid


def public_key_text(key: ec.EllipticCurvePublicKey) -> str:
    """A public key as records hold it: PEM in one line."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return f"{_BEGIN}{base64.b64encode(der).decode()}{_END}"


def load_public_key(text: str) -> ec.EllipticCurvePublicKey:
    """The key of a text like that of `public_key_text`; old programs write the URL alphabet, without padding.

    Raises:
        ValueError: It is none, or one of another curve.
    """
    text = text.replace("\r", "").replace("\n", "").strip(" \t")
    if len(text) > GUID_KEY_CHARS or not (text.startswith(_BEGIN) and text.endswith(_END)):
        raise ValueError("not a public key in PEM")
    body = text[len(_BEGIN) : -len(_END)].strip(" \t").rstrip("=")
    der = base64.b64decode(body.translate(_STANDARD) + "=" * (-len(body) % 4), validate=True)
    try:
        key = serialization.load_der_public_key(der)
    except Exception as exc:  # the library raises what it likes for what it cannot read
        raise ValueError("not a public key") from exc
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256K1):
        raise ValueError("not a key of the curve secp256k1")
    return key


_STANDARD: Final = str.maketrans("-_", "+/")


def load_private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """The key that `private_key_pem` wrote.

    Raises:
        ValueError: It is none, or one of another curve.
    """
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as exc:
        raise ValueError("not an unencrypted PKCS #8 private key") from exc
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256K1):
        raise ValueError("not a key of the curve secp256k1")
    return key


def private_key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as unencrypted PKCS #8; the caller protects the file it goes to."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def sign(data: bytes, key: ec.EllipticCurvePrivateKey, *, encoding: Encoding = "raw") -> bytes:
    """Sign with ECDSA and SHA-256; the same data, the same signature."""
    der = key.sign(data, _ECDSA)
    if encoding == "der":
        return der
    r, s = decode_dss_signature(der)
    return r.to_bytes(32) + s.to_bytes(32)


def is_signed(data: bytes, signature: bytes, key: ec.EllipticCurvePublicKey) -> bool:
    """True if a signature holds: 64 bytes are r‖s, everything else has to be strict DER."""
    if len(signature) == _RAW_BYTES:
        signature = encode_dss_signature(int.from_bytes(signature[:32]), int.from_bytes(signature[32:]))
    try:
        key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True
