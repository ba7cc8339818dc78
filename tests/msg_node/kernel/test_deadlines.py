"""Deadlines against the plainest list of them: a dictionary that is searched from end to end."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from msg_node.kernel.deadlines import Deadlines

KEYS = st.sampled_from(["a", "b", "c", "d", "e"])
TIMES = st.floats(min_value=0, max_value=8, allow_nan=False)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, TIMES),
        st.tuples(st.just("discard"), KEYS, TIMES),
        st.tuples(st.just("take"), st.just(""), TIMES),
    ),
    max_size=60,
)


@given(steps=STEPS, limit=st.integers(1, 6))
def test_what_is_due_is_taken_once_in_order_and_never_early(steps: list[tuple[str, str, float]], limit: int) -> None:
    deadlines, plain = Deadlines(), dict[str, int]()
    for verb, key, at in steps:
        if verb == "set":
            deadlines.set(key, at)
            plain[key] = math.ceil(at)
        elif verb == "discard":
            deadlines.discard(key)
            plain.pop(key, None)
        else:
            taken = deadlines.take_due(at, limit)
            seconds = [plain.pop(key) for key in taken]
            assert seconds == sorted(seconds)
            assert all(second <= at for second in seconds)
            assert len(taken) == limit or all(second > at for second in plain.values())
        assert len(deadlines) == len(plain)
        assert deadlines.next_second() == min(plain.values(), default=None)


def test_moving_deadlines_use_bounded_memory() -> None:
    deadlines = Deadlines()
    deadlines.set("first", 1)  # an early one, so that nothing is popped by the way
    for second in range(2, 5000):
        deadlines.set("a", second)
    assert len(deadlines._seconds) <= 68
    assert len(deadlines._buckets) == 2


def test_after_many_moves_the_earliest_is_still_due_first() -> None:
    deadlines, seconds = Deadlines(), [5, 3, 4, 1, 2]
    for second in seconds:
        deadlines.set(f"stays {second}", 10_000 + second)
    deadlines.set("first", 0)  # so that nothing is popped by the way
    for second in range(1, 200):
        deadlines.set("moves", second)
    deadlines.discard("moves")
    assert len(deadlines._seconds) < 100
    assert deadlines.take_due(20_000, 10) == ["first", *(f"stays {second}" for second in sorted(seconds))]
