"""Events that subscribers acknowledge, without a bus: who gets them again, when, and when nobody does any more."""

from __future__ import annotations

import pytest

from msg_node.requests.core import guaranteed_events
from msg_node.requests.core.guaranteed_events import GuaranteedEvents
from protofly import codec
from protofly.limits import GUARANTEED_RETRY_SECONDS
from protofly.message import Message

THING, CHANGES = "thing://alpha.example/agent-4/lamp", "thing://alpha.example/agent-4/lamp/changes"
LIFE = 10 * GUARANTEED_RETRY_SECONDS
NOW = 1_000.0


def an_event(id_: int | None = 1, size: int = 0) -> Message:
    return codec.build(id=id_, type="event", from_=THING, to=CHANGES, body={"value": "x" * size})


def acknowledgement(id_: int | None = 1, *, from_: str = CHANGES, to: str = THING) -> Message:
    return codec.build(id=id_, type="response", from_=from_, to=to, body={"code": 200})


def again(events: GuaranteedEvents, now: float, *gone: int, most: int = 100) -> list[int]:
    return [number for number, _ in events.due(now, lives=lambda number: number not in gone, most=most)]


def test_an_event_comes_again_each_time_until_all_have_acknowledged_it() -> None:
    events = GuaranteedEvents()
    assert events.begin(an_event(), [2, 1], NOW, LIFE)
    assert again(events, NOW + GUARANTEED_RETRY_SECONDS - 1) == []
    assert again(events, NOW + GUARANTEED_RETRY_SECONDS) == [1, 2]
    assert again(events, NOW + GUARANTEED_RETRY_SECONDS) == []
    assert events.acknowledged(acknowledgement(), 1)
    assert not events.acknowledged(acknowledgement(), 1)
    assert again(events, NOW + 2 * GUARANTEED_RETRY_SECONDS) == [2]
    assert events.acknowledged(acknowledgement(), 2)
    assert (len(events), events.take_given_up()) == (0, 0)
    assert not events.acknowledged(acknowledgement(), 2)


@pytest.mark.parametrize(
    "reply",
    [
        acknowledgement(2),
        acknowledgement(None),
        acknowledgement(from_=f"{CHANGES}/x"),
        acknowledgement(to=f"{THING}/x"),
    ],
)
def test_only_the_answer_to_the_event_acknowledges_it(reply: Message) -> None:
    events = GuaranteedEvents()
    events.begin(an_event(), [1], NOW, LIFE)
    assert not events.acknowledged(reply, 1)
    assert not events.acknowledged(acknowledgement(), 2)
    assert len(events) == 1


def test_what_nobody_acknowledges_in_its_time_is_given_up_and_counted_once() -> None:
    events = GuaranteedEvents()
    events.begin(an_event(), [1, 2], NOW, LIFE)
    assert again(events, NOW + LIFE - 1) == [1, 2]
    assert again(events, NOW + LIFE) == []
    assert (len(events), events.take_given_up(), events.take_given_up()) == (0, 1, 0)


def test_a_life_shorter_than_the_pause_ends_at_its_end() -> None:
    events = GuaranteedEvents()
    events.begin(an_event(), [1], NOW, 1.0)
    assert again(events, NOW + 1.0) == []
    assert (len(events), events.take_given_up()) == (0, 1)


def test_subscribers_whose_sessions_have_ended_get_nothing_and_are_not_counted() -> None:
    events = GuaranteedEvents()
    events.begin(an_event(), [1, 2], NOW, LIFE)
    assert again(events, NOW + GUARANTEED_RETRY_SECONDS, 1) == [2]
    assert not events.acknowledged(acknowledgement(), 1)
    assert again(events, NOW + 2 * GUARANTEED_RETRY_SECONDS, 1, 2) == []
    assert (len(events), events.take_given_up()) == (0, 0)


def test_so_many_are_sent_at_once_and_the_rest_at_the_next_call() -> None:
    events = GuaranteedEvents()
    for number in range(3):
        events.begin(an_event(number), [1, 2], NOW, LIFE)
    now = NOW + GUARANTEED_RETRY_SECONDS
    assert [len(again(events, now, most=3)) for _ in range(3)] == [4, 2, 0]
    assert [len(again(events, now + GUARANTEED_RETRY_SECONDS, most=2)) for _ in range(4)] == [2, 2, 2, 0]


def test_what_cannot_be_watched_is_said() -> None:
    assert not GuaranteedEvents().begin(an_event(None), [1], NOW, LIFE)
    few = GuaranteedEvents(max_events=1)
    assert few.begin(an_event(1), [], NOW, LIFE)  # nobody is to acknowledge it
    assert few.begin(an_event(1), [1], NOW, LIFE)
    assert few.begin(an_event(1), [1], NOW, LIFE)  # the same again takes the place of the first
    assert not few.begin(an_event(2), [1], NOW, LIFE)
    small = GuaranteedEvents(max_bytes=2 * len(an_event(1).raw))
    assert [small.begin(an_event(number), [1], NOW, LIFE) for number in (1, 2, 3)] == [True, True, False]
    assert small.acknowledged(acknowledgement(1), 1)
    assert not small.begin(an_event(3, size=1), [1], NOW, LIFE)
    assert small.begin(an_event(3), [1], NOW, LIFE)


@pytest.mark.parametrize(("name", "bound"), [("_PER_SESSION", 2), ("_BYTES_PER_SESSION", 2 * len(an_event(1).raw))])
def test_each_session_has_a_bound_of_its_own_up_to_the_last_event_and_byte(
    name: str, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guaranteed_events, f"GUARANTEED{name}", bound)
    events = GuaranteedEvents()
    assert [events.begin(an_event(one), [1], NOW, LIFE, sender=7) for one in (1, 2, 3)] == [True, True, False]
    assert events.begin(an_event(3), [1], NOW, LIFE, sender=8)
    assert all(events.begin(an_event(one), [1], NOW, LIFE) for one in (4, 5, 6))  # another node has counted them
    assert events.acknowledged(acknowledgement(1), 1)
    assert [events.begin(an_event(one), [1], NOW, LIFE, sender=7) for one in (7, 8)] == [True, False]
    for number in range(2, 8):
        events.acknowledged(acknowledgement(number), 1)
    assert (len(events), events._events_of, events._bytes_of) == (0, {}, {})


@pytest.mark.parametrize("ahead_seconds", [7_200.0, -7_200.0])
def test_an_event_comes_again_and_is_given_up_in_its_time_when_the_clock_is_set_meanwhile(ahead_seconds: float) -> None:
    events, then = GuaranteedEvents(), 10_000.0
    events.begin(an_event(1), [1], then, LIFE)
    now = then + ahead_seconds + 1.0
    events.begin(an_event(2), [2], now, LIFE)
    events.clock_set(now, ahead_seconds)
    assert again(events, now + GUARANTEED_RETRY_SECONDS - 1.1) == []
    assert again(events, now + GUARANTEED_RETRY_SECONDS - 1.0) == [1]
    assert again(events, now + GUARANTEED_RETRY_SECONDS) == [2]
    assert again(events, now + LIFE - 1.0) == [2]
    assert (len(events), events.take_given_up()) == (1, 1)
    assert again(events, now + LIFE) == []
    assert (len(events), events.take_given_up()) == (0, 1)


def test_a_subscriber_that_comes_from_another_node_waits_beside_those_that_are_here_or_alone() -> None:
    events, there = GuaranteedEvents(), GuaranteedEvents()
    there.begin(an_event(1), [7], NOW, LIFE)
    there.begin(an_event(2), [7, 8], NOW, LIFE)
    there.begin(an_event(3), [8], NOW, LIFE)
    events.begin(an_event(2), [1], NOW, LIFE)
    for event, seconds in there.of_subscriber(7, NOW + 1.0):
        assert seconds == LIFE - 1.0
        events.take_over(event, 2, NOW + 1.0, seconds)
    assert len(events) == 2
    assert sorted(again(events, NOW + GUARANTEED_RETRY_SECONDS + 1.0)) == [1, 2, 2]
    assert events.acknowledged(acknowledgement(1), 2)
    assert events.acknowledged(acknowledgement(2), 2)
    assert again(events, NOW + 2 * GUARANTEED_RETRY_SECONDS + 1.0) == [1]
