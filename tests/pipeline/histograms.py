"""Histograms of a test's own values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from protofly.log_linear import bucket_of


def histogram_of(values: Iterable[int]) -> dict[int, int]:
    """Counts by bucket, ascending."""
    return dict(sorted(Counter(map(bucket_of, values)).items()))
