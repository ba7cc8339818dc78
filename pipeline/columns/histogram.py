"""Log-linear histograms: exact counts in buckets whose bounds never change.

Theory of operation. A positive value x with k = ⌊log2 x⌋ falls into bucket 16·k + m, where m are the four bits that
follow the leading one. So every power of two is cut into 16 equal parts; below 16 each value has a bucket of its own.
Zero has the bucket −1 and everything below zero the bucket −2, so that nothing is left out. Counts of equal buckets
add up: over hours, over days, over the records of two domains; the order does not matter, and there is no randomness,
so the same records give the same bytes on every run.

A quantile is the middle of the bucket that holds the wanted rank. A bucket is at most 1/16 of its lower bound wide,
so the answer is off by at most 1/32 (3.1 %) of the true value.

Nodes count the exchanges of their stubs in the same buckets (`protofly.log_linear`); the arrays here agree with that
on every value from −2⁶³ to 2⁶³ − 1, and a test says so.
Source: pipeline study, section 8.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from protofly.log_linear import NEGATIVE, ZERO

MANTISSA_BITS: Final = 4
PARTS: Final = 1 << MANTISSA_BITS
HIGHEST: Final = 63 * PARTS - 1


def lower_bound(bucket: int) -> int:
    """Smallest value in a bucket; 0 for that of negative values, which has none."""
    if bucket < 0:
        return 0
    exponent, mantissa = divmod(bucket, PARTS)
    return -(-((PARTS + mantissa) << exponent) // PARTS)


def upper_bound(bucket: int) -> int:
    """Largest value in a bucket; −1 for that of negative values."""
    if bucket < 0:
        return 0 if bucket == ZERO else -1
    exponent, mantissa = divmod(bucket, PARTS)
    return -(-((PARTS + mantissa + 1) << exponent) // PARTS) - 1


def middle_of(bucket: int) -> int:
    """Value that represents a bucket: the middle of its bounds, rounded down; 0 for negative values."""
    lower = lower_bound(bucket)
    return lower + max(0, upper_bound(bucket) - lower) // 2


def quantile(histogram: Mapping[int, int], per_mille: int) -> int | None:
    """Value at a rank, at most 1/32 of the true one away from it; None for an empty histogram.

    Args:
        histogram: Counts by bucket.
        per_mille: 500 for the median, 950, 990 …; an integer, so that no rounding decides about a rank.
    """
    wanted = rank(sum(histogram.values()), per_mille)
    seen = 0
    for bucket, count in sorted(histogram.items()):
        seen += count
        if seen >= wanted:
            return middle_of(bucket)
    return None


def rank(count: int, per_mille: int) -> int:
    """Rank, from 1, of a quantile among `count` sorted values: ⌈count · per_mille / 1000⌉, at least 1."""
    return max(1, -(-count * per_mille // 1000))


def buckets_of(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Buckets of an array of values."""
    # Rounding to a double may reach the next power of two. What comes out for zero and below is not looked at.
    exponent = np.frexp(values.astype(np.float64))[1].astype(np.int64) - 1
    exponent -= values >> exponent == 0
    small = values << np.maximum(MANTISSA_BITS - exponent, 0)
    large = values >> np.maximum(exponent - MANTISSA_BITS, 0)
    mantissa = np.where(exponent < MANTISSA_BITS, small, large) & (PARTS - 1)
    return np.where(values > 0, exponent * PARTS + mantissa, np.where(values == 0, ZERO, NEGATIVE))
