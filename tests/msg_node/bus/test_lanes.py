"""Lanes: order, sharing, and nobody left behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msg_node.bus.core.lanes import Lanes


def test_readers_go_together_and_writers_alone_in_order_of_arrival() -> None:
    lanes = Lanes()
    assert lanes.enter("a", 1, is_sharing=True)
    assert lanes.enter("a", 2, is_sharing=True)
    assert not lanes.enter("a", 3, is_sharing=False)
    assert not lanes.enter("a", 4, is_sharing=True)  # behind the writer, who would wait for ever otherwise
    assert lanes.enter("b", 5, is_sharing=False)
    assert lanes.leave("a", 1) == []
    assert lanes.leave("a", 2) == [3]
    assert lanes.follow("a", 3, 6)
    assert lanes.leave("a", 3) == []
    assert lanes.leave("a", 6) == [4]
    assert lanes.leave("a", 4) == lanes.leave("b", 5) == []
    assert len(lanes) == 0


def test_only_who_goes_in_a_lane_hands_its_place_on_and_who_is_in_none_leaves_nothing() -> None:
    lanes = Lanes()
    assert not lanes.follow("a", 1, 2)
    assert lanes.leave("a", 1) == []
    lanes.enter("a", 1, is_sharing=False)
    assert not lanes.enter("a", 2, is_sharing=False)
    assert not lanes.follow("a", 2, 3)
    assert lanes.leave("a", 3) == []  # who is not in it starts nobody
    assert lanes.leave("a", 2) == []  # who waits may give up
    assert lanes.leave("a", 1) == []
    assert len(lanes) == 0


def test_all_readers_behind_a_writer_begin_together_and_the_next_writer_waits() -> None:
    lanes = Lanes()
    lanes.enter("a", 1, is_sharing=False)
    for number, is_sharing in ((2, True), (3, True), (4, False), (5, True)):
        assert not lanes.enter("a", number, is_sharing=is_sharing)
    assert lanes.leave("a", 1) == [2, 3]
    assert lanes.leave("a", 2) == []
    assert lanes.leave("a", 3) == [4]
    assert lanes.leave("a", 4) == [5]


@given(steps=st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(0, 5)), max_size=80))
def test_everybody_goes_once_in_order_and_writers_are_alone(steps: list[tuple[bool, bool, int]]) -> None:
    lanes = Lanes()
    sharing: dict[int, bool] = {}
    going: list[int] = []
    left: set[int] = set()
    began: list[int] = []
    for number, (enters, is_sharing, index) in enumerate(steps):
        present = [one for one in sharing if one not in left]
        if enters or not present:
            sharing[number] = is_sharing
            started = [number] if lanes.enter("lane", number, is_sharing=is_sharing) else []
        else:
            gone = present[index % len(present)]
            left.add(gone)
            going = [one for one in going if one != gone]
            started = lanes.leave("lane", gone)
        going += started
        began += started
        assert len(going) <= 1 or all(sharing[one] for one in going)
    while going:
        one = going.pop(0)
        started = lanes.leave("lane", one)
        going += started
        began += started
    assert began == sorted(began)
    assert len(began) == len(set(began))
    assert set(began) | left == set(sharing)
    assert len(lanes) == 0
