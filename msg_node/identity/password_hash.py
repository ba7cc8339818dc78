"""Argon2id hashes of passwords (RFC 9106), as texts that hold their own parameters. Slow on purpose: for threads."""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from msg_node.identity.core.password_login import bytes_of_password

_SALT_BYTES: Final = 16
_HASH_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class HashCost:
    """Cost of one hash: memory in KiB, and passes over it."""

    memory_kib: int
    passes: int

    def hash(self, password: str) -> str:
        """Hash a password with a fresh salt."""
        salt = secrets.token_bytes(_SALT_BYTES)
        kdf = Argon2id(salt=salt, length=_HASH_BYTES, iterations=self.passes, lanes=1, memory_cost=self.memory_kib)
        return kdf.derive_phc_encoded(bytes_of_password(password))

    def hash_of_nobody(self) -> str:
        """A text that looks like a hash at this cost, takes as long to be checked, and is that of no password."""
        salt, digest = (
            base64.b64encode(secrets.token_bytes(length)).decode().rstrip("=") for length in (_SALT_BYTES, _HASH_BYTES)
        )
        return f"$argon2id$v=19$m={self.memory_kib},t={self.passes},p=1${salt}${digest}"

    def is_of(self, text: str) -> bool:
        """True for a hash that was made at this cost."""
        return f"$m={self.memory_kib},t={self.passes},p=1$" in text


def is_right(password: str, text: str) -> bool:
    """True if a hash is that of a password."""
    try:
        Argon2id.verify_phc_encoded(bytes_of_password(password), text)
    except (InvalidKey, ValueError):
        return False
    return True
