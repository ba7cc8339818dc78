"""Unguessable names out of random bytes that the caller brings. Source: message specification, sections 5.1 and 7.1."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from uuid import UUID

SEED_BYTES = 32
_UUID_BYTES = 16


def identifiers(seed: bytes) -> Iterator[str]:
    """Yield random UUIDs (version 4) without end, all made from `seed`.

    At least `SEED_BYTES` bytes, used for nothing else.

    SHAKE-256 stretches the seed, so one read of the operating system's randomness serves a block of any size.
    """
    counter = 0
    while True:
        block = hashlib.shake_256(seed + counter.to_bytes(8, "little")).digest(_UUID_BYTES)
        yield str(UUID(bytes=block, version=4))
        counter += 1
