"""Unguessable names out of random bytes that the caller brings. Source: message specification, sections 5.1 and 7.1."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

SEED_BYTES = 32
_UUID_BYTES = 16
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""Two bits of a digit are free in the variant of RFC 9562. Source: RFC 9562, sections 4.1 and 5.4."""


def identifiers(seed: bytes) -> Iterator[str]:
    """Yield random UUIDs (version 4) without end, all made from `seed`.

    At least `SEED_BYTES` bytes, used for nothing else.

    SHAKE-256 stretches the seed, so one read of the operating system's randomness serves a block of any size.
    """
    counter = 0
    while True:
        name = hashlib.shake_256(seed + counter.to_bytes(8, "little")).hexdigest(_UUID_BYTES)
        variant = _VARIANTS[name[16]]
        yield f"{name[:8]}-{name[8:12]}-4{name[13:16]}-{variant}{name[17:20]}-{name[20:]}"
        counter += 1
