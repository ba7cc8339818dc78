"""Buckets of histograms: sixteen for each doubling."""

from __future__ import annotations

from collections import Counter

import pytest

from protofly.log_linear import bucket_of, pairs_of


@pytest.mark.parametrize(
    ("value", "bucket"),
    [(-7, -2), (-1, -2), (0, -1), (1, 0), (2, 16), (3, 24), (4, 32), (5, 36), (16, 64), (17, 65), (31, 79), (32, 80)],
)
def test_a_value_has_its_bucket(value: int, bucket: int) -> None:
    assert bucket_of(value) == bucket


def test_buckets_are_written_in_order_with_their_counts_and_none_as_none() -> None:
    assert pairs_of(Counter({36: 1, -1: 2, 16: 3})) == ((-1, 2), (16, 3), (36, 1))
    assert pairs_of(Counter()) is None
