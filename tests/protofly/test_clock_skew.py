"""By how much two clocks disagree, in words, and when a clock is suspect."""

from __future__ import annotations

import pytest

from protofly.clock_skew import off_by

SUSPECT = "; is one of the two clocks wrong?"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, f"0 s{SUSPECT}"),
        (119.0, f"119 s{SUSPECT}"),
        (120.0, f"2 min{SUSPECT}"),
        (120.5, f"2 min{SUSPECT}"),
        (3_600.0, f"60 min{SUSPECT}"),
        (7_199.5, f"120 min{SUSPECT}"),
        (7_200.0, f"2 h{SUSPECT}"),
        (7_200.5, f"2 h{SUSPECT}"),
        (86_399.0, f"24 h{SUSPECT}"),
        (86_400.0, "24 h"),
        (172_799.0, "48 h"),
        (172_800.0, "2 days"),
        (172_801.0, "2 days"),
        (40 * 86_400.0, "40 days"),
        (float(10**300), "115741 days"),
    ],
)
def test_small_differences_suspect_a_clock_and_large_ones_do_not(seconds: float, text: str) -> None:
    assert off_by(seconds) == text
