"""The simulation of large clusters: bounds hold at what it finds, and what is known to end first does."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks.cluster_model import FULL, Costs, Habits, Size, simulate


def sized(sessions: int, costs: Costs | None = None, habits: Habits | None = None) -> Size:
    return simulate(sessions, costs or Costs(), habits or Habits(), random.Random(1))


def test_nodes_have_room_for_their_sessions_and_those_of_one_that_dies() -> None:
    found = sized(1_000_000)
    assert found.nodes * 20_000 > 1_000_000 * (1 + 1 / found.nodes)
    assert found.busiest <= FULL
    assert found.links == found.nodes * (found.nodes - 1) // 2


def test_with_much_traffic_processors_decide_the_number_of_nodes() -> None:
    busy = Habits(messages_per_second=1.0)
    assert sized(1_000_000, habits=busy).nodes > 5 * sized(1_000_000).nodes
    cheap = replace(Costs(), crossing_us=20.0, local_us=10.0)
    assert sized(1_000_000, cheap, busy).nodes < sized(1_000_000, habits=busy).nodes / 4


def test_what_comes_back_after_the_death_of_a_node_takes_less_with_smaller_nodes_and_never_looks_through_all() -> None:
    share = [
        dict(sized(1_000_000, habits=Habits(sessions_per_node=each)).used)["engine: sessions of a dead node"]
        for each in (20_000, 10_000)
    ]
    assert 0.4 < share[1] / share[0] < 0.6
    assert share[0] < 1


@pytest.mark.parametrize(
    ("sessions", "first"),
    [(1_000_000, "engine: sessions of a dead node"), (100_000_000, "engine: announcements")],
)
def test_what_ends_first_is_named_first(sessions: int, first: str) -> None:
    used = sized(sessions).used
    assert used[0][0] == first
    assert [share for _, share in used] == sorted((share for _, share in used), reverse=True)
