"""Failed lines ask for fresh documents: at once the first time, then ever more rarely, whatever the domain does."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from federation.core.renewal import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    STEADY_SECONDS,
    Renewal,
    has_moved,
)
from protofly.documents import Endpoint, Permissions
from tests.support.repository import World


def asked_during(renewal: Renewal, seconds: float, *, fails_every: float, since: float = 0.0) -> list[float]:
    """When documents are asked for by a node whose lines fail again and again."""
    asked, now = [], since
    while now < since + seconds:
        renewal.failed(now)
        if renewal.due_in(now) == 0.0:
            renewal.asked(now, draw=0.5)
            asked.append(now)
        now += fails_every
    return asked


def test_nothing_is_asked_without_a_failure() -> None:
    renewal = Renewal()
    assert renewal.due_in(0.0) is None
    renewal.succeeded(0.0)
    assert renewal.due_in(3_600.0) is None


def test_the_first_failure_asks_at_once_and_the_pauses_double_to_ten_minutes() -> None:
    asked = asked_during(Renewal(), 3_600.0, fails_every=0.5)
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert (asked[0], pauses[:4]) == (0.0, [60.0, 120.0, 240.0, 480.0])
    assert set(pauses[4:]) == {LONGEST_PAUSE_SECONDS}


def test_one_failure_asks_once() -> None:
    renewal = Renewal()
    renewal.failed(0.0)
    renewal.asked(0.0, draw=0.5)
    assert renewal.due_in(3_600.0) is None


def test_a_failure_during_the_pause_is_kept_for_its_end() -> None:
    renewal = Renewal()
    renewal.failed(0.0)
    renewal.asked(0.0, draw=0.5)
    renewal.failed(10.0)
    assert renewal.due_in(10.0) == FIRST_PAUSE_SECONDS - 10.0


@pytest.mark.parametrize(("held_seconds", "asks_at_once"), [(STEADY_SECONDS - 1, False), (STEADY_SECONDS, True)])
def test_only_a_line_that_has_held_begins_anew(held_seconds: float, asks_at_once: bool) -> None:
    renewal = Renewal()
    asked_during(renewal, 600.0, fails_every=0.5)
    renewal.succeeded(600.0)
    renewal.failed(600.0 + held_seconds)
    assert (renewal.due_in(600.0 + held_seconds) == 0.0) is asks_at_once
    if asks_at_once:
        renewal.asked(600.0 + held_seconds, draw=0.5)
        renewal.failed(600.0 + held_seconds)
        assert renewal.due_in(600.0 + held_seconds) == FIRST_PAUSE_SECONDS


def test_a_domain_that_takes_every_line_for_a_moment_does_not_make_us_ask_more() -> None:
    renewal, asked = Renewal(), []
    for second in range(3_600):
        renewal.succeeded(second)
        renewal.failed(second + 0.5)
        if renewal.due_in(second + 0.5) == 0.0:
            renewal.asked(second + 0.5, draw=0.5)
            asked.append(second)
    assert len(asked) <= 10


def test_success_takes_the_wish_back() -> None:
    renewal = Renewal()
    renewal.failed(0.0)
    renewal.succeeded(0.1)
    assert renewal.due_in(1.0) is None


def test_pauses_are_spread() -> None:
    pauses = []
    for draw in (0.0, 0.999):
        renewal = Renewal()
        renewal.failed(0.0)
        renewal.asked(0.0, draw=draw)
        renewal.failed(0.0)
        pauses.append(renewal.due_in(0.0) or 0.0)
    assert pauses == [pytest.approx(54.0), pytest.approx(66.0, abs=0.1)]


@pytest.mark.parametrize(
    ("endpoints", "is_other"),
    [
        ({"mn": "wss://mn.b.example/link"}, False),
        ({"mn": "wss://mn.b.example/link", "more": "wss://more.b.example/"}, False),
        ({"mn": "wss://new.b.example/link"}, True),
        ({"more": "wss://mn.b.example/link"}, True),
        ({"mn": "wss://mn.b.example/link", "later": "wss://later.b.example/"}, True),
    ],
)
async def test_a_stub_has_moved_when_an_endpoint_that_it_uses_is_another_or_gone(
    tmp_path: Path, endpoints: dict[str, str], *, is_other: bool
) -> None:
    world = World(tmp_path)
    world.b.publish_stub(permissions=Permissions(connect=["mn", "later"]))
    world.b.publish_live(endpoints=[Endpoint(name="mn", url="wss://mn.b.example/link")])
    stub = await world.provide()
    world.b.publish_live(endpoints=[Endpoint(name=name, url=url) for name, url in endpoints.items()])
    assert has_moved(stub, await world.refresh()) is is_other
    world.close()
