"""Unguessable names out of random bytes that the caller brings. Source: message specification, sections 5.1 and 7.1."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import count

SEED_BYTES = 32
_UUID_BYTES = 16
_UUID_DIGITS = 2 * _UUID_BYTES
_VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""Two bits of a digit are free in the variant of RFC 9562. Source: RFC 9562, sections 4.1 and 5.4."""


def identifiers(seed: bytes) -> Iterator[str]:
    """Yield random UUIDs (version 4) without end, all made from `seed`; each is `identifier(seed, number)`.

    At least `SEED_BYTES` bytes, used for nothing else.

    BLAKE2b stretches the seed, so one read of the operating system's randomness serves a block of any size.
    """
    for number in count():
        yield identifier(seed, number)


def identifier(seed: bytes, number: int) -> str:
    """The random UUID (version 4) of that number, from 0, that is made from `seed`."""
    if number == 0:
        name = seed.hex()  # what is left of the seed is unknown still, and enough for the others
    else:
        name = blake2b(seed + number.to_bytes(8, "little"), digest_size=_UUID_BYTES).hexdigest()
    return f"{name[:8]}-{name[8:12]}-4{name[13:16]}-{_VARIANTS[name[16]]}{name[17:20]}-{name[20:_UUID_DIGITS]}"
