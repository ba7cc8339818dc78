"""Who may open a session for which runtime address, and with which roles.

The node knows only SHA-256 digests of bearer tokens. A look-up by digest tells an attacker nothing through its
timing: what he can vary is the digest, which he cannot steer towards a known one. Source: message specification,
section 5.1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from protofly.address import canonical_key
from protofly.errors import Code, PeerError

OPERATOR = "operator"
"""The role that may look at and release what other sessions hold."""


@dataclass(frozen=True, slots=True)
class Credential:
    """One accepted bearer token.

    Hex SHA-256 digest, the runtime address it is for (a final `*` stands for any rest), its roles.
    """

    digest: str
    runtime: str
    roles: frozenset[str] = frozenset()

    def is_for(self, runtime_key: str) -> bool:
        """Whether this token may open the runtime with that canonical key."""
        if self.runtime.endswith("*"):
            return runtime_key.startswith(_pattern_key(self.runtime[:-1]))
        return runtime_key == canonical_key(self.runtime)


def _pattern_key(prefix: str) -> str:
    """Canonical form of the beginning of an address: `hyperty-runtime://A.example/x` -> `runtime://a.example/x`."""
    head, slash, path = prefix.partition("://")
    authority, path_slash, path = path.partition("/")
    return canonical_key(head + slash + authority) + path_slash + path if path_slash else prefix


def digest_of(token: str) -> str:
    """Hex SHA-256 of a token: the only form in which one is kept."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class Credentials:
    """The credentials of the settings, and whether one may come without."""

    def __init__(self, credentials: Iterable[Credential] = (), *, allows_anonymous: bool = True) -> None:
        self.allows_anonymous = allows_anonymous
        self._by_digest: dict[str, list[Credential]] = {}
        for credential in credentials:
            self._by_digest.setdefault(credential.digest.lower(), []).append(credential)

    def check(self, token: str, runtime_key: str) -> str:
        """Return the digest of a token that is valid for a runtime, "" for an anonymous opener.

        Raises:
            PeerError: NO_CREDENTIALS or BAD_TOKEN.
        """
        if not token:
            if self.allows_anonymous:
                return ""
            raise PeerError(Code.NO_CREDENTIALS, "this node wants credentials")
        digest = digest_of(token)
        if not self.is_valid(digest, runtime_key):
            raise PeerError(Code.BAD_TOKEN, "the token is not valid for this runtime")
        return digest

    def is_valid(self, digest: str, runtime_key: str) -> bool:
        """Whether a digest that once passed still does; "" asks whether anonymous sessions are allowed."""
        if not digest:
            return self.allows_anonymous
        return any(credential.is_for(runtime_key) for credential in self._by_digest.get(digest, ()))

    def roles(self, digest: str, runtime_key: str) -> frozenset[str]:
        """Roles that a digest gives to a runtime."""
        matching = (one.roles for one in self._by_digest.get(digest, ()) if one.is_for(runtime_key))
        return frozenset().union(*matching)
