"""Days, times, and for how long somebody vouches for a node."""

from __future__ import annotations

import pytest

from pipeline.core.utc_days import end_us, moment, vouched_until
from protofly.errors import SettingsError
from tests.pipeline.rows import DAY_US, MONDAY_US


def test_a_day_ends_at_the_midnight_behind_it() -> None:
    assert end_us("2026-03-02") == MONDAY_US + DAY_US
    assert end_us("2024-02-28") + DAY_US == end_us("2024-02-29")


def test_a_time_is_reported_to_the_second() -> None:
    assert moment(MONDAY_US + 999_999) == "2026-03-02 00:00:00 UTC"
    assert moment(0) == "never"


def test_a_word_counts_up_to_the_end_of_its_day_and_the_grace_behind_it() -> None:
    assert vouched_until([], grace_s=120) == {}
    words = ["mn-1.a.example=2026-03-02", "odd=name=2026-03-03"]
    monday = MONDAY_US + DAY_US + 120_000_000
    assert vouched_until(words, grace_s=120) == {"mn-1.a.example": monday, "odd=name": monday + DAY_US}


@pytest.mark.parametrize("word", ["mn-1.a.example", "=2026-03-02", "mn-1.a.example=", "mn-1.a.example=2026-3-2"])
def test_half_a_word_is_refused(word: str) -> None:
    with pytest.raises(SettingsError):
        vouched_until([word], grace_s=120)
