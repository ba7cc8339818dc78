"""A far end that owes something and says nothing: asked after two seconds, stalled after five, until it is heard."""

from __future__ import annotations

import logging
import time

import pytest

from federation.core.carrier import Accepted, CarrierDown, CarrierUp
from federation.core.line_watch import PROBE_SECONDS, STALLED_SECONDS, LineWatch, Sight
from federation.links.domain_link import DomainLink
from federation.links.link_events import LOG_LINES_PER_MINUTE
from protofly.codec import body_members
from protofly.errors import Code
from protofly.limits import REQUEST_TTL_SECONDS
from tests.support.sides import Bus, Clock, MemoryCarrier, chat, request

STEP = 0.25


def looked(
    watch: LineWatch, *, until: float, since: float = 0.0, heard: float = 0.0, is_owed: bool = True
) -> list[tuple[float, Sight]]:
    """What a look every quarter of a second sees, and when."""
    seen, now = [], since
    while now <= until:
        sight = watch.look(now, heard=heard, is_owed=is_owed)
        if sight is not None:
            seen.append((now, sight))
        now += STEP
    return seen


def test_silence_while_something_is_owed_is_asked_about_and_then_a_stall() -> None:
    watch = LineWatch()
    assert looked(watch, until=60.0) == [(PROBE_SECONDS, Sight.SILENT), (STALLED_SECONDS, Sight.STALLED)]
    assert (watch.is_stalled, watch.silent_since) == (True, 0.0)


def test_silence_while_nothing_is_owed_is_rest() -> None:
    watch = LineWatch()
    assert looked(watch, until=3_600.0, is_owed=False) == []
    assert looked(watch, since=3_600.0, until=3_601.0) == []  # the hour before does not count
    assert not watch.is_stalled


def test_silence_counts_from_when_something_is_owed_again() -> None:
    watch = LineWatch()
    assert (watch.is_stalled, watch.silent_since, watch.stalled_seconds) == (False, None, 0.0)
    assert looked(watch, until=3.0) == [(2.0, Sight.SILENT)]
    assert looked(watch, since=3.25, until=99.75, is_owed=False) == []
    assert looked(watch, since=100.0, until=200.0) == [(102.0, Sight.SILENT), (105.0, Sight.STALLED)]


def test_a_node_that_is_heard_in_time_is_not_stalled() -> None:
    watch = LineWatch()
    now = 0.0
    while now < 100.0:
        assert watch.look(now, heard=now - PROBE_SECONDS + STEP, is_owed=True) is None
        now += STEP
    assert not watch.is_stalled


def test_an_answer_to_the_ping_begins_the_silence_anew() -> None:
    watch = LineWatch()
    assert looked(watch, until=4.0) == [(2.0, Sight.SILENT)]
    assert looked(watch, since=4.25, until=30.0, heard=4.1) == [(6.25, Sight.SILENT), (9.25, Sight.STALLED)]


@pytest.mark.parametrize("is_owed", [True, False])
def test_a_stall_ends_when_something_is_heard_and_by_nothing_else(is_owed: bool) -> None:
    watch = LineWatch()
    looked(watch, until=6.0)
    assert looked(watch, since=6.25, until=30.0, is_owed=is_owed) == []
    assert watch.is_stalled
    assert watch.look(30.25, heard=30.0, is_owed=is_owed) is Sight.HEARD_AGAIN
    assert (watch.is_stalled, watch.stalled_seconds) == (False, 30.25)


def test_a_machine_that_slept_asks_before_it_accuses() -> None:
    """All of us stood still: the first look after that cannot know who was silent."""
    watch = LineWatch()
    watch.look(0.0, heard=0.0, is_owed=True)
    assert watch.look(600.0, heard=0.0, is_owed=True) is Sight.SILENT
    assert watch.look(600.25, heard=600.1, is_owed=True) is None


# On a link.


class Line(MemoryCarrier):
    """A carrier whose far end says something when the test says so."""

    heard = 0.0
    probes = 0
    knows_pings = True

    @property
    def heard_seconds(self) -> float:
        return self.heard

    def probe(self) -> bool:
        self.probes += 1
        return self.knows_pings


class Stalling:
    """A live link, its line, and a clock of its own."""

    def __init__(self) -> None:
        self.bus = Bus("a.example", clock=Clock(time.monotonic() - 3_600.0))
        self.link: DomainLink = self.bus.link_to("b.example")
        self.line = Line(self.link)
        self.link.handle(CarrierUp(self.line, "runtime://b.example/mn-1"))
        self.now = time.monotonic()

    def passes(self, seconds: float) -> None:
        for _ in range(int(seconds / STEP)):
            self.now += STEP
            while self.link.tick(self.now):
                pass

    def hears(self) -> None:
        self.line.heard = self.now

    def takes(self) -> None:
        """The far end takes everything and says so."""
        self.link.flush()
        self.link.handle(Accepted(1 << 31))
        self.hears()


def test_a_stalled_line_is_seen_by_operators_and_senders_and_ends_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "federation")
    near = Stalling()
    near.link.send(request(1))
    near.link.flush()
    near.passes(STALLED_SECONDS + 2 * STEP)
    assert (near.link.state, near.link.is_live, near.line.probes) == ("stalled", True, 1)
    assert "1 messages are not taken, 1 requests wait" in near.link.machine.detail
    assert near.link.machine.silent_seconds(near.now) >= STALLED_SECONDS
    near.passes(REQUEST_TTL_SECONDS)
    [answer] = near.bus.answers
    members = body_members(answer.body)
    assert (near.bus.answer_codes, members["source"]) == ([Code.GATEWAY_TIMEOUT], "runtime://a.example/mn-1")
    assert "b.example is stalled: nothing heard for 15 s" in str(members["description"])
    assert members["value"] == {"link": "stalled", "silentSeconds": 15.0}
    near.hears()
    near.passes(STEP)
    assert (near.link.state, near.link.machine.detail, near.link.counters["stalls"]) == ("live", "", 1)
    lines = [one.getMessage() for one in caplog.records if "stalled" in one.getMessage() or "again" in one.getMessage()]
    assert [one.split(":")[0] for one in lines] == [
        "the link to b.example is stalled",
        "the link to b.example is heard again after 20 s",
    ]


def test_a_timeout_of_a_line_that_is_heard_blames_no_stall() -> None:
    near = Stalling()
    near.link.send(request(1))
    near.takes()
    for _ in range(20):
        near.passes(1.0)
        near.hears()
    [answer] = near.bus.answers
    assert "value" not in body_members(answer.body)
    assert near.link.counters["stalls"] == 0


def test_a_slow_reply_over_a_line_that_answers_pings_is_no_stall() -> None:
    near = Stalling()
    near.link.send(request(1, ttl=60))
    near.takes()
    near.passes(PROBE_SECONDS + STEP)
    assert near.line.probes == 1
    near.hears()
    near.passes(STEP)
    assert near.link.state == "live"


def test_a_line_without_pings_is_stalled_by_what_it_does_not_take_alone() -> None:
    near = Stalling()
    near.line.knows_pings = False
    near.link.send(request(1, ttl=600))
    near.takes()
    near.passes(60.0)
    assert near.link.state == "live"
    near.link.send(chat(2))
    near.link.flush()
    near.passes(STALLED_SECONDS + 2 * STEP)
    assert near.link.state == "stalled"


def test_an_idle_link_is_never_stalled_nor_asked() -> None:
    near = Stalling()
    near.passes(600.0)
    assert (near.link.state, near.line.probes) == ("live", 0)


def test_a_lost_carrier_ends_the_stall_and_a_new_one_begins_anew() -> None:
    near = Stalling()
    near.link.send(chat(1))
    near.link.flush()
    near.passes(STALLED_SECONDS + 2 * STEP)
    near.link.handle(CarrierDown(near.line))
    assert (near.link.state, near.link.machine.silent_seconds(near.now)) == ("disconnected", 0.0)
    near.link.handle(CarrierUp(Line(near.link), "runtime://b.example/mn-1"))
    near.passes(STEP)
    assert near.link.state == "live"


def test_a_second_carrier_does_not_hide_a_stall_and_takes_over_when_the_first_is_lost() -> None:
    near = Stalling()
    near.link.send(chat(1))
    near.link.flush()
    near.passes(STALLED_SECONDS + 2 * STEP)
    near.link.handle(CarrierUp(Line(near.link), "runtime://b.example/mn-2"))
    assert near.link.state == "stalled"
    near.link.handle(CarrierDown(near.line))
    assert near.link.state == "live"


def test_a_far_end_that_stalls_all_the_time_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    near = Stalling()
    for number in range(50):
        near.link.send(chat(number))
        near.link.flush()
        near.passes(STALLED_SECONDS + 2 * STEP)
        near.hears()
        near.passes(STEP)
    assert near.link.counters["stalls"] == 50
    assert len([one for one in caplog.records if "stalled" in one.getMessage()]) <= LOG_LINES_PER_MINUTE
