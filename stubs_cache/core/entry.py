"""What one thing in the cache is: its kind, key, size and last use, and how its bytes are sealed.

Modules are named by their content. Documents and compiled code are sealed: a MAC under this node's secret over kind,
key and bytes. Compiled code is native code in waiting; nothing that this node did not write itself may ever be loaded.

Source: trust and hosts, section 3.6, step 7; Wasmtime study, section 8 (cache).
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from enum import Enum
from typing import Final

SEAL_BYTES: Final = 32
_HEX: Final = frozenset("0123456789abcdef")


class CacheKind(Enum):
    """Kinds of entries; the value is the name of their folder."""

    MODULE = "modules"
    DOCUMENTS = "documents"
    COMPILED = "compiled"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheEntry:
    """One file of the cache. `used_at` is in Unix seconds."""

    kind: CacheKind
    key: str
    size_bytes: int
    used_at: float


def is_key(text: str) -> bool:
    """True if the text is a key: the hex of a SHA-256, as it also is the name of a file."""
    return len(text) == 64 and _HEX.issuperset(text)


def documents_key(domain: str) -> str:
    """Key of a domain's documents: a hash, for a domain may be longer than a file name."""
    return hashlib.sha256(b"domain\0" + domain.encode()).hexdigest()


def compiled_key(code_sha256: str, engine_fingerprint: str) -> str:
    """Key of compiled code: what it was compiled from, engine version, profile and processor (in the fingerprint)."""
    return hashlib.sha256(f"{code_sha256}\0{engine_fingerprint}".encode()).hexdigest()


def keys_of_stub(domain: str, module_sha256: str, code_sha256: str, engine_fingerprint: str) -> frozenset[str]:
    """Keys of everything that a stub is started from: documents, module, compiled code."""
    return frozenset({documents_key(domain), module_sha256, compiled_key(code_sha256, engine_fingerprint)})


def seal(secret: bytes, kind: CacheKind, key: str, data: bytes) -> bytes:
    """The bytes to write: MAC, then data."""
    return _mac(secret, kind, key, data) + data


def unseal(secret: bytes, kind: CacheKind, key: str, sealed: bytes) -> bytes | None:
    """The data, or None if this node did not write it under this kind and key."""
    mac, data = sealed[:SEAL_BYTES], sealed[SEAL_BYTES:]
    return data if hmac.compare_digest(mac, _mac(secret, kind, key, data)) else None


def _mac(secret: bytes, kind: CacheKind, key: str, data: bytes) -> bytes:
    # The key has a fixed length (hex of SHA-256), so the parts cannot be shifted against each other.
    return hmac.digest(secret, f"trapezoid stubs cache\0{kind.value}\0{key}\0".encode() + data, "sha256")
