from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.columns.clock_graph import ClockGraph, Delay, Offset

A, B, C, D = "a.example", "b.example", "c.example", "d.example"


def both_ways(
    offsets: dict[str, int], first: str, second: str, *, there_us: int, back_us: int, messages: int = 100
) -> list[Delay]:
    """What is measured between two clocks when the lines take so long."""
    ahead = offsets[second] - offsets[first]
    return [Delay(first, second, there_us + ahead, messages), Delay(second, first, back_us - ahead, messages)]


def found(delays: list[Delay]) -> dict[str, Offset]:
    return {offset.domain: offset for offset in ClockGraph(delays).offsets()}


def test_a_clock_that_is_two_and_a_half_seconds_ahead_is_found() -> None:
    clocks = {A: 0, B: 2_500_000, C: 0}
    pairs = [(A, B), (B, C), (A, C)]
    offsets = found([delay for pair in pairs for delay in both_ways(clocks, *pair, there_us=9_000, back_us=9_000)])
    assert {domain: one.offset_us for domain, one in offsets.items()} == clocks


def test_lines_that_differ_mislead_by_half_the_difference_and_the_bound_says_so() -> None:
    offsets = found(both_ways({A: 0, B: 0}, A, B, there_us=10_000, back_us=2_000))
    assert offsets[B].offset_us - offsets[A].offset_us == 4_000
    assert max(offsets[A].error_us, offsets[B].error_us) == 6_000


def test_a_pair_with_one_message_timed_by_a_clock_that_jumped_moves_nobody() -> None:
    clocks = {A: 0, B: 0, C: 0}
    sound = [delay for pair in ((A, B), (B, C)) for delay in both_ways(clocks, *pair, there_us=9_000, back_us=9_000)]
    for jump_us in (5_000_000, -5_000_000):
        jumped = [Delay(A, C, 9_000 + jump_us, 1), Delay(C, A, 9_000, 1)]
        offsets = found(sound + jumped)
        assert max(abs(one.offset_us) for one in offsets.values()) < 10


def test_the_reference_is_the_domain_that_is_named_or_else_the_first() -> None:
    clocks = {A: 40, B: 0, C: 20, D: 60}
    chain = [(B, C), (C, A), (A, D)]
    delays = [delay for pair in chain for delay in both_ways(clocks, *pair, there_us=9_000, back_us=9_000)]
    for references, expected in ((["x.example", C], {A: 20, B: -20, C: 0, D: 40}), ([], {A: 0, B: -40, C: -20, D: 20})):
        offsets = {one.domain: one for one in ClockGraph(delays).offsets(references)}
        assert {domain: one.offset_us for domain, one in offsets.items()} == expected
        [reference] = [domain for domain, one in offsets.items() if not one.error_us]
        assert {one.reference for one in offsets.values()} == {reference}
        assert expected[reference] == 0


def test_drifts_are_relative_to_the_reference_too() -> None:
    delays = both_ways({A: 0, B: 0}, A, B, there_us=9, back_us=9)
    drifting = [replace(delays[0], drift_ppb=46_000), replace(delays[1], drift_ppb=-46_000)]
    assert [one.drift_ppb for one in ClockGraph(drifting).offsets()] == [0, 46_000]


def test_a_domain_that_only_listens_has_no_offset() -> None:
    one_way = Delay(A, C, 10_000, 500)
    assert set(found([*both_ways({A: 0, B: 0}, A, B, there_us=1, back_us=1), one_way])) == {A, B}


def test_what_a_domain_sends_itself_says_nothing_about_its_clock() -> None:
    both = both_ways({A: 0, B: 3}, A, B, there_us=9, back_us=9)
    assert ClockGraph([*both, Delay(A, A, 40, 9_000), Delay(C, C, 0, 1)]).offsets() == ClockGraph(both).offsets()


def test_domains_without_a_way_to_each_other_are_components_of_their_own() -> None:
    clocks = {A: 0, B: 10, C: 0, D: 30}
    delays = both_ways(clocks, C, D, there_us=5, back_us=5) + both_ways(clocks, A, B, there_us=5, back_us=5)
    offsets = found(delays)
    assert [offsets[domain].component for domain in (A, B, C, D)] == [0, 0, 1, 1]
    assert offsets[D].offset_us - offsets[C].offset_us == 30


def test_records_that_came_as_soon_as_they_left_leave_no_doubt_and_sooner_ones_say_nothing() -> None:
    delays = both_ways({A: 0, B: 30}, A, B, there_us=4, back_us=-4)
    assert [(one.offset_us, one.error_us) for one in ClockGraph(delays).offsets()] == [(0, 0), (34, 0)]
    assert ClockGraph(both_ways({A: 0, B: 30}, A, B, there_us=4, back_us=-5)).offsets() == []


def test_pairs_and_messages_are_counted_in_both_directions() -> None:
    clocks = {A: 0, B: 0, C: 0}
    delays = both_ways(clocks, A, B, there_us=1, back_us=1, messages=70)
    delays += both_ways(clocks, A, C, there_us=1, back_us=1, messages=30)
    offsets = found(delays)
    assert [(offsets[domain].pairs, offsets[domain].messages) for domain in (A, B, C)] == [(2, 200), (1, 140), (1, 60)]


def test_no_traffic_gives_no_offsets() -> None:
    assert ClockGraph([]).offsets() == []


line_us = st.integers(0, 200_000)


@given(
    clocks=st.lists(st.integers(-5_000_000, 5_000_000), min_size=2, max_size=7),
    lines=st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 6), line_us, line_us, st.integers(1, 10_000)), min_size=1
    ),
)
def test_the_true_offset_is_never_farther_away_than_the_bound(
    clocks: list[int], lines: list[tuple[int, int, int, int, int]]
) -> None:
    names = [f"d{number}.example" for number in range(len(clocks))]
    true = dict(zip(names, clocks, strict=True))
    delays: dict[tuple[str, str], Delay] = {}
    for first, second, there_us, back_us, messages in lines:
        if first < second < len(names):
            pair = both_ways(true, names[first], names[second], there_us=there_us, back_us=back_us, messages=messages)
            delays |= {(delay.src_domain, delay.dst_domain): delay for delay in pair}
    offsets = ClockGraph(delays.values()).offsets()
    for one in offsets:
        [zero] = [other for other in offsets if other.component == one.component and other.error_us == 0][:1]
        wrong_us = abs((one.offset_us - zero.offset_us) - (true[one.domain] - true[zero.domain]))
        assert wrong_us <= one.error_us + 1


def test_a_pair_measured_before_a_clock_was_set_and_one_after_say_nothing_together() -> None:
    before, after = {A: 0, B: 0, C: 0}, {A: 0, B: 2_000_000, C: 0}
    delays = [
        *both_ways(before, A, B, there_us=9_000, back_us=9_000),
        *both_ways(after, B, C, there_us=9_000, back_us=9_000),
        *both_ways(after, A, C, there_us=9_000, back_us=9_000),
    ]
    assert len(found(delays)) == 2
    assert {abs(one.offset_us) for one in found(delays).values()} <= {0, 2_000_000}


def test_of_many_pairs_only_those_of_the_clock_that_was_set_say_nothing() -> None:
    others = (A, C, D, "e.example")
    still = dict.fromkeys((B, *others), 0)
    delays = [
        *(one for pair in combinations(others, 2) for one in both_ways(still, *pair, there_us=9_000, back_us=9_000)),
        *(one for other in (A, C) for one in both_ways(still, B, other, there_us=9_000, back_us=9_000)),
    ]
    after = still | {B: 2_000_000}
    delays += [one for other in others[2:] for one in both_ways(after, B, other, there_us=9_000, back_us=9_000)]
    assert {domain: one.offset_us for domain, one in found(delays).items()} == dict.fromkeys(others, 0)


def test_pairs_that_differ_by_what_their_lines_explain_all_count() -> None:
    still = {A: 0, B: 0, C: 0}
    lopsided = [
        *both_ways(still, A, B, there_us=18_000, back_us=0),
        *both_ways(still, B, C, there_us=18_000, back_us=0),
        *both_ways(still, A, C, there_us=0, back_us=18_000),
    ]
    assert {one.pairs for one in found(lopsided).values()} == {2}
