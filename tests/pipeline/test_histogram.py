from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.columns import histogram
from pipeline.columns.count_maps import quantiles
from protofly.log_linear import bucket_of
from tests.pipeline.histograms import histogram_of

LARGEST = 2**63 - 1
EDGES = sorted(
    {value for power in range(63) for value in (2**power - 1, 2**power, 2**power + 1, 2**power + 2**power // 16)}
    | {-(2**63), -7, -1, 0, LARGEST, *range(200)}
)
values = st.integers(0, 2**62).map(lambda value: value) | st.integers(0, 62).flatmap(
    lambda power: st.integers(2**power, 2 ** (power + 1) - 1)
)


@pytest.mark.parametrize(
    ("value", "bucket"),
    [
        (0, -1),
        (-1, -2),
        (-(2**63), -2),
        (1, 0),
        (2, 16),
        (3, 24),
        (15, 62),
        (16, 64),
        (17, 65),
        (31, 79),
        (32, 80),
        (33, 80),
        (34, 81),
        (LARGEST, 1007),
    ],
)
def test_buckets_are_where_the_text_says(value: int, bucket: int) -> None:
    assert bucket_of(value) == bucket


@given(value=values)
def test_a_value_lies_within_the_bounds_of_its_bucket(value: int) -> None:
    bucket = bucket_of(value)
    assert histogram.lower_bound(bucket) <= value <= histogram.upper_bound(bucket)


@pytest.mark.parametrize("value", range(1, 16))
def test_below_sixteen_every_value_is_answered_exactly(value: int) -> None:
    assert histogram.middle_of(bucket_of(value)) == value


def test_buckets_meet_without_gap_or_overlap() -> None:
    occupied = [bucket for bucket in range(1008) if histogram.lower_bound(bucket) <= histogram.upper_bound(bucket)]
    for below, above in itertools.pairwise(occupied):
        assert histogram.upper_bound(below) + 1 == histogram.lower_bound(above)


@given(sample=st.lists(values, min_size=1, max_size=200), per_mille=st.integers(1, 1000))
def test_a_quantile_is_off_by_at_most_the_stated_part(sample: list[int], per_mille: int) -> None:
    true = sorted(sample)[histogram.rank(len(sample), per_mille) - 1]
    found = histogram.quantile(histogram_of(sample), per_mille)
    assert found is not None
    assert abs(found - true) <= true / 32


def test_an_empty_histogram_has_no_quantile() -> None:
    assert histogram.quantile({}, 500) is None


def test_arrays_and_plain_python_agree_on_every_magnitude() -> None:
    assert histogram.buckets_of(np.array(EDGES, np.int64)).tolist() == [bucket_of(value) for value in EDGES]


@given(value=st.integers(-(2**63), LARGEST) | values)
def test_arrays_and_plain_python_agree_on_any_value(value: int) -> None:
    assert histogram.buckets_of(np.array([value], np.int64)).tolist() == [bucket_of(value)]


@pytest.mark.parametrize("per_mille", [1, 500, 950, 1000])
def test_quantiles_of_arrays_are_those_of_plain_python(per_mille: int) -> None:
    maps = [{bucket_of(value): 1} for value in EDGES]
    maps += [{}, {-2: 3, -1: 2, 16: 1}, {3: 5, 80: 4, 200: 1}, {64: 999, 700: 1}]
    column = pa.array([list(one.items()) for one in maps], pa.map_(pa.int32(), pa.int64()))
    expected = [histogram.quantile(one, per_mille) for one in maps]
    assert quantiles(column, per_mille).to_pylist() == expected
    assert quantiles(column.slice(5, 100), per_mille).to_pylist() == expected[5:105]
    assert quantiles(column.slice(0, 0), per_mille).to_pylist() == []
    assert quantiles(column.slice(len(EDGES) - 1, 2), per_mille).to_pylist() == [expected[len(EDGES) - 1], None]
    assert quantiles(column.slice(len(EDGES), 1), per_mille).to_pylist() == [None]


@pytest.mark.parametrize(
    ("count", "per_mille", "expected"),
    [(0, 500, 1), (1, 0, 1), (1, 990, 1), (2, 500, 1), (3, 500, 2), (10, 950, 10), (1000, 990, 990), (1001, 990, 991)],
)
def test_a_rank_is_rounded_up_and_begins_at_one(count: int, per_mille: int, expected: int) -> None:
    assert histogram.rank(count, per_mille) == expected
