"""Counters: only what is in the table can be counted."""

from __future__ import annotations

import pytest

from protofly.counters import CODES, Counted, Counters
from protofly.errors import Code


class Sample(Counted):
    """A table: for tests."""

    IN = "frames in", "frames"
    REFUSED = "refused {}", "messages, by code", CODES
    STATES = "state {}", "states", ["up", "down"]


def test_numbers_begin_at_0_and_are_items_once_counted() -> None:
    counters = Counters(Sample)
    assert (counters[Sample.IN], counters["frames in"], counters) == (0, 0, {})
    counters[Sample.IN] += 2
    counters["frames in"] += 1
    assert counters == {"frames in": 3}


@pytest.mark.parametrize("name", ["frames out", "refused", "refused {}", "refused nonsense", "state sideways", ""])
def test_what_the_table_does_not_have_can_be_neither_read_nor_counted(name: str) -> None:
    counters = Counters(Sample)
    with pytest.raises(KeyError):
        counters[name] += 1
    with pytest.raises(KeyError):
        counters[name]
    assert counters == {}


def test_a_labelled_counter_has_one_number_for_each_label() -> None:
    counters = Counters(Sample)
    for code in Code:
        counters[Sample.REFUSED.of(code.word)] += 1
    counters[Sample.STATES.of("up")] += 1
    assert set(counters) == {*Sample.REFUSED.names, "state up"}


def test_a_counter_says_what_it_counts_and_by_what() -> None:
    assert (Sample.IN.meaning, Sample.IN.labels, Sample.IN.names) == ("frames", (), ("frames in",))
    assert (Sample.STATES.meaning, Sample.STATES.labels) == ("states", ("up", "down"))
    assert Sample.STATES.names == ("state up", "state down")


def test_what_was_counted_is_shown_in_order_as_plain_text() -> None:
    counters = Counters(Sample)
    counters[Sample.STATES.of("up")] += 1
    counters[Sample.IN] += 1
    assert list(counters.shown().items()) == [("frames in", 1), ("state up", 1)]
    assert {type(name) for name in counters.shown()} == {str}
    assert counters.as_members() == {"frames_in": 1, "state_up": 1}
