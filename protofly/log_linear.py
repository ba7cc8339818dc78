"""Buckets of log-linear histograms, in which node and pipeline count.

A positive value x with k = ⌊log2 x⌋ falls into bucket 16·k + m, where m are the four bits that follow the leading
one. Zero has the bucket -1, and whatever is below it -2. Source: pipeline study, section 8.3.
"""

from __future__ import annotations

from collections import Counter

_PARTS = 16
_MANTISSA_BITS = 4
ZERO = -1
NEGATIVE = -2


def bucket_of(value: int) -> int:
    """Bucket of one value."""
    if value <= 0:
        return ZERO if value == 0 else NEGATIVE
    exponent = value.bit_length() - 1
    return _PARTS * exponent + ((value << _MANTISSA_BITS >> exponent) & (_PARTS - 1))


def pairs_of(counts: Counter[int]) -> tuple[tuple[int, int], ...] | None:
    """Buckets with their counts in order, as records carry them; None for none."""
    return tuple(sorted(counts.items())) or None
