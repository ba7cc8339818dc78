"""What `python -m tests.system.restarts` takes for a fault, of messages between two runtimes."""

from __future__ import annotations

from typing import cast

import pytest

from tests.system.restarts import Pairing
from tests.system.wandering import Wanderer

NOBODY = cast("Wanderer", None)
"""Nothing is sent here."""


def pairing(*, acknowledged: list[int], seen: list[int], events: list[int]) -> Pairing:
    one = Pairing(NOBODY, NOBODY)
    one.acknowledged, one.seen, one.events = acknowledged, seen, events
    return one


def test_gaps_are_no_fault_since_a_dead_node_may_take_unacknowledged_messages_along() -> None:
    assert pairing(acknowledged=[1, 5], seen=[1, 4, 5, 9], events=[2, 7]).faults() == []


@pytest.mark.parametrize(
    ("acknowledged", "seen", "events", "fault"),
    [
        ([], [1, 3, 2], [], "requests out of order, or twice"),
        ([], [1, 2, 2], [], "requests out of order, or twice"),
        ([], [], [1, 3, 2], "events out of order, or twice"),
        ([], [], [1, 1], "events out of order, or twice"),
        ([1, 2], [1], [], "requests that were answered and not seen"),
    ],
)
def test_what_comes_out_of_order_or_twice_and_what_was_answered_but_never_came_is_a_fault(
    acknowledged: list[int], seen: list[int], events: list[int], fault: str
) -> None:
    assert pairing(acknowledged=acknowledged, seen=seen, events=events).faults() == [fault]
