from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from interop.figures import median, milliseconds, percentile


def test_without_samples_there_is_no_figure() -> None:
    assert percentile([], 0.5) is None
    assert milliseconds(None) is None


def test_percentiles_are_measured_values() -> None:
    samples = list(range(1, 101))
    assert (percentile(samples, 0.5), percentile(samples, 0.99), percentile(samples, 1.0)) == (50, 99, 100)
    assert median([3.0, 1.0, 2.0]) == 2.0


def test_nanoseconds_become_milliseconds() -> None:
    assert milliseconds(1_234_567) == 1.235


@given(samples=st.lists(st.floats(0, 1e9), min_size=1), share=st.floats(0.01, 1.0))
def test_the_share_of_samples_not_above_the_percentile_is_at_least_the_share(
    samples: list[float], share: float
) -> None:
    value = percentile(samples, share)
    assert value in samples
    assert value is not None
    assert sum(sample <= value for sample in samples) >= share * len(samples) * 0.999_999
