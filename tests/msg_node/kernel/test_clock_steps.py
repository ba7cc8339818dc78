"""When a clock counts as set."""

from __future__ import annotations

import pytest

from msg_node.kernel.clock_steps import SET_SECONDS, ClockSteps


def test_a_clock_that_goes_on_like_the_steady_one_was_not_set_however_late_one_looks() -> None:
    steps = ClockSteps(1_000.0, 5.0)
    assert [steps.seen(1_000.0 + passed, 5.0 + passed) for passed in (0.0, 1.0, 3_600.0)] == [0.0, 0.0, 0.0]


def test_a_clock_that_is_slewed_was_not_set_however_far_it_comes() -> None:
    steps = ClockSteps(1_000.0, 0.0)
    assert {steps.seen(1_000.0 + 1.5 * second, float(second)) for second in range(10)} == {0.0}


def test_a_clock_that_was_set_says_so_once_and_by_how_much() -> None:
    steps = ClockSteps(999.0, 4.0)
    seen = [steps.seen(*at) for at in ((1_000.0, 5.0), (4_601.0, 6.0), (4_602.0, 7.0), (1_003.0, 8.0), (1_004.0, 9.0))]
    assert seen == [0.0, 3_600.0, 0.0, -3_600.0, 0.0]
    assert steps.seen(1_005.0 + SET_SECONDS, 10.0) == SET_SECONDS


@pytest.mark.parametrize(("step", "seen"), [(1.0, 1.0), (-1.0, -1.0), (0.875, 0.0), (-0.875, 0.0)])
def test_a_step_of_a_second_is_one_and_less_is_a_clock_that_is_slewed(step: float, seen: float) -> None:
    steps = ClockSteps(1000.0, 8.0)
    assert steps.seen(1002.0 + step, 10.0) == seen


def test_a_clock_that_was_set_before_the_first_look_was_set() -> None:
    """A session may be lost, and the clock set, in the first second of a node."""
    assert ClockSteps(1_000.0, 5.0).seen(8_200.5, 5.5) == 7_200.0
