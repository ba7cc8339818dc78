"""An issuer of bearer tokens with keys of its own, for tests: what an identity provider would do."""

from __future__ import annotations

import base64
import json
import warnings
from functools import lru_cache
from typing import Any, Literal

from joserfc import jwk, jwt
from joserfc.jws import JWSRegistry

from msg_node.kernel.bearer_tokens import IssuerRules
from msg_node.kernel.issuer_keys import VerificationKey, keys_of_jwks

ISSUER = "https://login.alpha.example"
AUDIENCE = "runtimes.alpha.example"
RUNTIMES = ("runtime://alpha.example/*",)

Algorithm = Literal["EdDSA", "Ed25519", "ES256", "ES384", "ES512", "RS256", "PS256"]


@lru_cache
def private_key(algorithm: Algorithm, key_id: str) -> jwk.Key:
    """A key for that algorithm; the same name, the same key."""
    parameters: jwk.KeyParameters = {"kid": key_id}
    match algorithm:
        case "EdDSA" | "Ed25519":
            return jwk.OKPKey.generate_key("Ed25519", parameters)
        case "ES256":
            return jwk.ECKey.generate_key("P-256", parameters)
        case "ES384":
            return jwk.ECKey.generate_key("P-384", parameters)
        case "ES512":
            return jwk.ECKey.generate_key("P-521", parameters)
    return jwk.RSAKey.generate_key(2048, parameters)


def part(members: object) -> str:
    """JSON as a part of a token."""
    return base64.urlsafe_b64encode(json.dumps(members).encode()).rstrip(b"=").decode()


class TokenIssuer:
    """Signs tokens with one key."""

    def __init__(self, issuer: str = ISSUER, *, algorithm: Algorithm = "ES256", key_id: str = "k1") -> None:
        self.issuer = issuer
        self.algorithm = algorithm
        self.key_id = key_id
        self.key = private_key(algorithm, f"{issuer} {key_id}")

    @property
    def jwks(self) -> dict[str, Any]:
        """The public half, as a JWK set."""
        return {"keys": [{**self.key.as_dict(private=False), "kid": self.key_id}]}

    @property
    def keys(self) -> list[VerificationKey]:
        return keys_of_jwks(json.dumps(self.jwks).encode())

    def rules(self, **changes: Any) -> IssuerRules:
        """What settings would say about it."""
        return IssuerRules(**{"issuer": self.issuer, "audience": AUDIENCE, "runtimes": RUNTIMES, **changes})

    def claims(self, runtime: object, *, now: float, **changes: Any) -> dict[str, Any]:
        """Claims of a good token; a change to None leaves one out."""
        made = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "ana",
            "iat": int(now),
            "exp": int(now) + 300,
            "runtime": runtime,
            **changes,
        }
        return {name: value for name, value in made.items() if value is not None}

    def token(self, runtime: object, *, now: float, header: dict[str, Any] | None = None, **changes: Any) -> str:
        """A token, good unless changes make it another."""
        return self.signed(self.claims(runtime, now=now, **changes), header)

    def signed(self, claims: dict[str, Any], header: dict[str, Any] | None = None) -> str:
        """Any claims, signed."""
        made = {"alg": self.algorithm, "kid": self.key_id, **(header or {})}
        made = {name: value for name, value in made.items() if value is not None}
        any_header = JWSRegistry(algorithms=[self.algorithm], strict_check_header=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the library does not like the old name of Ed25519
            return jwt.encode(made, claims, self.key, registry=any_header)
