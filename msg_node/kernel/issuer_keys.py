"""Public keys of token issuers: from a JWK set or from PEM to keys that each verify a few algorithms and no other.

The algorithm belongs to the key and to the settings, never to the token: a token that says `none` or `HS256` finds no
key, whatever it was signed with. Source: RFC 7517; RFC 7518, section 3.1; RFC 8725, sections 3.1 and 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc import jwk, jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jws import JWSRegistry

from protofly.signatures import parse_strict

RSA_BITS: Final = 2048
"""Least length of an RSA key. Source: RFC 7518, section 3.3."""

KEYS_PER_ISSUER: Final = 64

_RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVE_ALGORITHMS: Final = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_KINDS: Final = ("RSA", "EC", "OKP")
_HEADER_CHARS: Final = 4096


class OneAlgorithm(JWSRegistry):
    """Knows one algorithm, so that the library cannot choose."""

    max_header_length = _HEADER_CHARS

    def __init__(self, algorithm: str) -> None:
        super().__init__(algorithms=(algorithm,), strict_check_header=False)  # RFC 7515, 4: unknown ones are ignored
        self._algorithm = algorithm

    def get_alg(self, name: str) -> Any:
        """See `JWSRegistry.get_alg`; without its warning about the old name of Ed25519, which issuers still write."""
        if name != self._algorithm:
            raise UnsupportedAlgorithmError(f"the key is for {self._algorithm}")
        return self.algorithms[name]


@dataclass(frozen=True, slots=True)
class VerificationKey:
    """A public key, the name that tokens know it by ("" without one), and what it may verify."""

    key_id: str
    algorithms: frozenset[str]
    key: jwk.Key

    def payload_of(self, token: str, algorithm: str) -> bytes | None:
        """The payload of a token in compact form if this key signed it with that algorithm, else None."""
        if algorithm not in self.algorithms:
            return None
        try:
            return jws.deserialize_compact(token, self.key, registry=OneAlgorithm(algorithm)).payload
        except (JoseError, ValueError, TypeError, AttributeError, RecursionError):
            return None


def keys_of_jwks(raw: bytes) -> list[VerificationKey]:
    """The signing keys of a JWK set. Keys for encryption and of unknown kinds are passed over.

    Raises:
        ValueError: It is no JWK set, or a key in it is private, weak or broken.
    """
    document = parse_strict(raw)
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list) or len(entries) > KEYS_PER_ISSUER:
        raise ValueError(f'not a JWK set: {{"keys": […]}} with at most {KEYS_PER_ISSUER} keys')
    keys = [key for entry in entries if (key := _key_of_jwk(entry)) is not None]
    if not keys:
        raise ValueError("no key in it can verify a signature")
    return keys


def key_of_pem(pem: str) -> VerificationKey:
    """One public key, `-----BEGIN PUBLIC KEY-----`; it has no name.

    Raises:
        ValueError: It is none, or one that cannot verify tokens here.
    """
    try:
        public = serialization.load_pem_public_key(pem.encode())
    except Exception as exc:  # the library raises what it likes for what it cannot read
        raise ValueError("not a public key in PEM") from exc
    kind, possible = _abilities(public)
    if kind is None:
        raise ValueError("neither RSA, P-256, P-384, P-521 nor Ed25519")
    return VerificationKey("", frozenset(possible), jwk.JWKRegistry.import_key(pem, kind))


def _key_of_jwk(entry: object) -> VerificationKey | None:
    """The key of one entry, None for one that is not for signatures or of a kind unknown here."""
    if not isinstance(entry, dict):
        raise ValueError("an entry of the JWK set is no object")
    kind, key_id, algorithm = (_text(entry, name) for name in ("kty", "kid", "alg"))
    name = f"key {key_id!r}" if key_id else "a key without kid"
    if kind == "oct":
        raise ValueError(f"{name} is a shared secret; only public keys verify tokens here")
    if kind not in _KINDS or _text(entry, "use") not in ("", "sig"):
        return None
    if "d" in entry:
        raise ValueError(f"{name} is private; give this node public keys only")
    if kind == "RSA" and len(_text(entry, "n")) * 6 < RSA_BITS:  # before the library warns about it
        raise ValueError(f"{name}: RSA keys have {RSA_BITS} bits at least")
    try:
        key = jwk.JWKRegistry.import_key(entry, kind)
        _, possible = _abilities(key.public_key)
    except (JoseError, ValueError, TypeError, KeyError) as exc:
        raise ValueError(f"{name}: {exc}") from exc
    if algorithm:
        possible = tuple(one for one in possible if one == algorithm)
    return VerificationKey(key_id, frozenset(possible), key) if possible else None


def _abilities(public: object) -> tuple[Literal["RSA", "EC", "OKP"] | None, tuple[str, ...]]:
    """The kind of a public key in JOSE's words, and the algorithms that it verifies."""
    match public:
        case rsa.RSAPublicKey():
            if public.key_size < RSA_BITS:
                raise ValueError(f"RSA keys have {RSA_BITS} bits at least")
            return "RSA", _RSA_ALGORITHMS
        case ec.EllipticCurvePublicKey() if public.curve.name in _CURVE_ALGORITHMS:
            return "EC", (_CURVE_ALGORITHMS[public.curve.name],)
        case ed25519.Ed25519PublicKey():
            return "OKP", ("EdDSA", "Ed25519")  # one algorithm by its old and its new name: RFC 8037, RFC 9864
    return None, ()


def _text(entry: dict[str, object], name: str) -> str:
    value = entry.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"`{name}` of a key is no text")
    return value
