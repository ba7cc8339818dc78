"""When the event loop of a node waits for company: by rates, company, and what it costs senders."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from msg_node.bus.core.gathering import FEWEST_WAITS, PAUSE_SECONDS, TRIAL_SECONDS, WINDOW_SECONDS, Gathering
from msg_node.bus.gathered_looks import gather_looks

SECONDS = 0.001


class Loop:
    """An event loop whose looks, work and messages are given; seconds are counted, not waited for."""

    def __init__(self) -> None:
        self.gathering = Gathering(SECONDS)
        self.now = 100.0
        self.messages = 0.0
        self.waited = 0

    def look(self, *, idle_seconds: float, messages: float, work_seconds: float, timeout: float = 1.0) -> float:
        """One look that finds so many messages after it waited, and the work that they are; returns how long it was put
        off."""
        put_off = self.gathering.looks(self.now, timeout, int(self.messages))
        self.waited += put_off > 0
        self.now += put_off + idle_seconds
        self.gathering.found(self.now, timeout)
        self.messages += messages
        self.now += work_seconds
        return put_off

    def open_loop(self, seconds: float, *, rate: float, work_seconds: float) -> None:
        """Messages come at a rate, whatever the node does."""
        end, due = self.now + seconds, self.now
        while self.now < end:
            put_off = self.gathering.looks(self.now, 1.0, int(self.messages))
            self.waited += put_off > 0
            self.now = max(self.now + put_off, due)
            self.gathering.found(self.now, 1.0)
            while due <= self.now:
                self.messages += 1
                due += 1 / rate
            self.now += work_seconds

    def closed_loop(self, seconds: float, *, under_way: int, work_seconds: float, elsewhere_seconds: float) -> None:
        """Senders have so many messages under way, and send the next ones when those are answered."""
        end = self.now + seconds
        while self.now < end:
            self.look(idle_seconds=elsewhere_seconds, messages=under_way, work_seconds=work_seconds)


def busy_loop() -> Loop:
    """A loop to which 4,000 messages a second come one by one, and that is busy with them."""
    loop = Loop()
    loop.open_loop(4 * WINDOW_SECONDS, rate=4_000, work_seconds=0.0002)
    return loop


def test_busy_loop_with_many_single_messages_waits_for_company() -> None:
    loop = busy_loop()

    assert loop.gathering.is_on
    put_off = loop.look(idle_seconds=0.0, messages=4, work_seconds=0.0002)
    put_off = loop.look(idle_seconds=0.0, messages=4, work_seconds=0.0002)
    assert put_off == pytest.approx(SECONDS - 0.0002)


def test_looks_while_tasks_are_ready_are_never_put_off() -> None:
    loop = busy_loop()

    assert loop.gathering.looks(loop.now, 0, int(loop.messages)) == 0.0


def test_a_look_is_not_put_off_beyond_the_next_deadline() -> None:
    loop = busy_loop()
    loop.gathering.found(loop.now, 1.0)

    assert loop.gathering.looks(loop.now, 0.0003, int(loop.messages)) == 0.0003


def test_work_that_takes_longer_than_the_wait_leaves_nothing_to_wait_for() -> None:
    loop = busy_loop()

    loop.look(idle_seconds=0.0, messages=9, work_seconds=2 * SECONDS)
    assert loop.look(idle_seconds=0.0, messages=9, work_seconds=2 * SECONDS) == 0.0


@pytest.mark.parametrize(
    ("rate", "work_seconds"),
    [
        pytest.param(500, 0.0015, id="few messages"),
        pytest.param(4_000, 0.00005, id="a loop with time to spare"),
    ],
)
def test_a_loop_looks_at_once_while_there_is_nothing_to_save(rate: float, work_seconds: float) -> None:
    loop = Loop()
    loop.open_loop(2.0, rate=rate, work_seconds=work_seconds)

    assert not loop.gathering.is_on
    assert not loop.waited


def test_a_flood_that_fills_each_look_is_read_at_once() -> None:
    loop = Loop()
    loop.closed_loop(2.0, under_way=500, work_seconds=0.01, elsewhere_seconds=0.0001)

    assert not loop.waited


def test_waiting_stops_for_a_second_when_it_brings_no_company() -> None:
    loop = busy_loop()
    loop.closed_loop(2 * WINDOW_SECONDS, under_way=1, work_seconds=0.0002, elsewhere_seconds=0.0001)

    assert not loop.gathering.is_on
    waited = loop.waited
    loop.closed_loop(PAUSE_SECONDS - 2 * WINDOW_SECONDS, under_way=1, work_seconds=0.0002, elsewhere_seconds=0.0001)
    assert loop.waited == waited


def test_a_sender_that_waits_for_each_answer_waits_longer_for_few_of_them() -> None:
    loop = Loop()
    loop.closed_loop(20.0, under_way=1, work_seconds=0.0002, elsewhere_seconds=0.0001)

    assert 0 < loop.waited <= 20 * FEWEST_WAITS
    assert loop.waited < 0.01 * loop.messages


def test_senders_that_wait_for_answers_are_slowed_down_for_one_window_a_second() -> None:
    def rate(is_gathering: bool) -> float:
        loop = Loop()
        if not is_gathering:
            loop.gathering = Gathering(0.0)
        loop.closed_loop(20.0, under_way=2, work_seconds=0.0002, elsewhere_seconds=0.0001)
        return loop.messages / 20.0

    assert rate(is_gathering=True) > 0.9 * rate(is_gathering=False)


def test_waiting_that_is_worth_it_stops_for_one_window_to_compare_again() -> None:
    loop = busy_loop()
    states = []
    for _ in range(int(2 * TRIAL_SECONDS / WINDOW_SECONDS)):
        loop.open_loop(WINDOW_SECONDS, rate=4_000, work_seconds=0.0002)
        states.append(loop.gathering.is_on)

    assert 1 <= states.count(False) <= 3


@pytest.mark.parametrize(("more", "stays_on"), [("rest", False), ("timeout", False), ("wait", True)])
def test_only_looks_that_were_put_off_count_as_waits(more: str, stays_on: bool) -> None:
    """Fewer than 16 waits in a window are no reason to go on; the last look makes them 16, or does not."""
    seconds = 2.0**-10
    gathering, now = Gathering(seconds), 128.0
    gathering.looks(now, 1.0, 0)
    gathering.is_on, gathering._next_trial = True, now + TRIAL_SECONDS
    for _ in range(15):
        gathering.found(now, 1.0)
        assert gathering.looks(now, 1.0, 0) == seconds
    gathering.found(now, 1.0)
    if more == "rest":
        assert gathering.looks(now + seconds, 1.0, 0) == 0.0
    else:
        assert gathering.looks(now, 0.0 if more == "timeout" else 1.0, 0) == (seconds if more == "wait" else 0.0)
    gathering.looks(now + 2 * WINDOW_SECONDS, 0.0, 100)
    assert gathering.is_on is stays_on


def test_looks_while_tasks_are_ready_are_no_reason_to_stop_waiting() -> None:
    seconds = 2.0**-10
    gathering, now = Gathering(seconds), 128.0
    gathering.looks(now, 1.0, 0)
    gathering.is_on, gathering._next_trial = True, now + TRIAL_SECONDS
    for _ in range(16):
        gathering.found(now, 1.0)
        gathering.looks(now, 1.0, 64)
        for _ in range(10):
            gathering.found(now, 0.0)
            assert gathering.looks(now, 0.0, 64) == 0.0
    gathering.looks(now + 2 * WINDOW_SECONDS, 0.0, 64)
    assert gathering.is_on


_WINDOW = 0.25
"""A window whose bounds are exact numbers: 250 messages, 125 looks, 35 % of its time."""


@pytest.mark.parametrize(
    ("lacking", "is_on"), [("", True), ("messages", False), ("looks", False), ("work", False), ("time", False)]
)
def test_waiting_begins_after_a_window_that_has_just_enough_of_everything(lacking: str, is_on: bool) -> None:
    gathering, began = Gathering(SECONDS), 128.0
    gathering.looks(began, 0.0, 0)
    gathering._next_trial = began + _WINDOW + (SECONDS if lacking == "time" else 0.0)
    looks = 125 - (lacking == "looks")
    work_seconds = 0.35 * _WINDOW - (SECONDS if lacking == "work" else 0.0)
    for _ in range(looks):
        gathering.found(began, 1.0)
    gathering.found(began + _WINDOW - work_seconds, 0.0)
    gathering.looks(began + _WINDOW, 0.0, 250 - (lacking == "messages"))
    assert gathering.is_on is is_on


@pytest.mark.parametrize(
    ("waits", "messages", "rate_before", "stays_on", "pauses"),
    [
        (16, 24, None, True, False),
        (15, 24, None, False, True),
        (16, 23, None, False, True),
        (16, 100, 400 / 0.85, True, False),
        (16, 100, 404 / 0.85, False, True),
    ],
)
def test_waiting_goes_on_while_it_brings_company_and_keeps_the_rate(
    waits: int, messages: int, rate_before: float | None, stays_on: bool, pauses: bool
) -> None:
    gathering, began = Gathering(2.0**-10), 128.0
    gathering.looks(began, 0.0, 0)
    gathering.is_on, gathering._rate_before = True, rate_before
    gathering._next_trial = began + TRIAL_SECONDS
    for _ in range(waits):
        gathering.found(began, 1.0)
        assert gathering.looks(began, 1.0, 0) == 2.0**-10
    gathering.looks(began + _WINDOW, 0.0, messages)
    assert gathering.is_on is stays_on
    assert (gathering._next_trial == began + _WINDOW + 1.0) is pauses
    assert gathering._rate_before is None, "the window before is compared with once"


@pytest.mark.parametrize(("trial_in", "stays_on"), [(_WINDOW, False), (_WINDOW + SECONDS, True)])
def test_waiting_that_is_worth_it_stops_at_the_time_of_the_next_trial_and_may_begin_again_at_once(
    trial_in: float, stays_on: bool
) -> None:
    gathering, began = Gathering(2.0**-10), 128.0
    gathering.looks(began, 0.0, 0)
    gathering.is_on, gathering._next_trial = True, began + trial_in
    for _ in range(16):
        gathering.found(began, 1.0)
        gathering.looks(began, 1.0, 0)
    gathering.looks(began + _WINDOW, 0.0, 1_000)
    assert gathering.is_on is stays_on
    assert gathering._next_trial == began + trial_in, "no pause follows"


async def test_loop_that_is_held_back_runs_every_task_and_meets_deadlines() -> None:
    class Always(Gathering):
        """Puts every look off that may be."""

        def looks(self, now: float, timeout: float, messages: int) -> float:
            put_off.append(min(SECONDS, timeout, now + messages))
            return put_off[-1]

    put_off: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather_looks, Always(SECONDS), int)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(10):
            for _ in range(3):
                await trio.sleep(0.002)
        nursery.cancel_scope.cancel()

    held = len(put_off)
    assert held >= 3
    await trio.sleep(0.001)
    assert len(put_off) == held  # nothing is put off after the end
