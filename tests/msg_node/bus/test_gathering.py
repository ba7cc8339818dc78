"""When the event loop of a node waits for company: by rates, company, and what it costs senders."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from msg_node.bus.core.gathering import (
    CALM_SECONDS,
    FEWEST_WAITS,
    PAUSE_SECONDS,
    TRIAL_SECONDS,
    WINDOW_SECONDS,
    Gathering,
    Progress,
)
from msg_node.bus.gathered_looks import gather_looks

SECONDS = 0.001


class Loop:
    """An event loop whose looks, work and messages are given; seconds are counted, not waited for."""

    def __init__(self) -> None:
        self.gathering = Gathering(SECONDS)
        self.now = 100.0
        self.messages = 0.0
        self.turns = 0
        self.worked_seconds = 0.0
        self.waited = 0
        self._next_watch = 100.0

    def before_look(self, timeout: float) -> float:
        """What the node does before a look: returns how long that is put off."""
        if self.gathering.is_on:
            put_off = self.gathering.looks(self.now, timeout, int(self.messages))
            self.waited += put_off > 0
            self._next_watch = self.now
            return put_off
        if self.now >= self._next_watch:
            progress = Progress(int(self.messages), self.turns, self.worked_seconds)
            self._next_watch = self.now + self.gathering.watch(self.now, progress)
        return 0.0

    def work(self, seconds: float) -> None:
        """What a look found is handled."""
        self.turns += 1
        self.worked_seconds += seconds
        self.now += seconds

    def look(self, *, idle_seconds: float, messages: float, work_seconds: float, timeout: float = 1.0) -> float:
        """One look that finds so many messages after it waited, and the work that they are; returns how long it was put
        off."""
        put_off = self.before_look(timeout)
        self.now += put_off + idle_seconds
        self.gathering.found(self.now, timeout)
        self.messages += messages
        self.work(work_seconds)
        return put_off

    def open_loop(self, seconds: float, *, rate: float, work_seconds: float) -> None:
        """Messages come at a rate, whatever the node does."""
        end, due = self.now + seconds, self.now
        while self.now < end:
            put_off = self.before_look(1.0)
            self.now = max(self.now + put_off, due)
            self.gathering.found(self.now, 1.0)
            while due <= self.now:
                self.messages += 1
                due += 1 / rate
            self.work(work_seconds)

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


WINDOW = 0.25
"""A window whose bounds are exact numbers."""
WAIT = 2.0**-10
BEGAN = 128.0


def waiting(rate: int = 4_000, began: float = BEGAN) -> Gathering:
    """Puts looks off from `began` on, after a window with so many messages a second."""
    gathering = Gathering(WAIT)
    gathering.watch(began - WINDOW, Progress(0, 0, 0.0))
    gathering.watch(began, Progress(int(rate * WINDOW), int(rate * WINDOW), WINDOW))
    assert gathering.is_on
    return gathering


def wait(gathering: Gathering, looks: int, messages: int, now: float = BEGAN) -> None:
    """So many looks are put off."""
    for _ in range(looks):
        gathering.found(now, 1.0)
        assert gathering.looks(now, 1.0, messages) == WAIT


@pytest.mark.parametrize(("more", "stays_on"), [("rest", False), ("timeout", False), ("wait", True)])
def test_only_looks_that_were_put_off_count_as_waits(more: str, stays_on: bool) -> None:
    """Fewer than 16 waits in a window are no reason to go on; the last look makes them 16, or does not."""
    gathering = waiting()
    wait(gathering, 15, 1_000)
    gathering.found(BEGAN, 1.0)
    if more == "rest":
        assert gathering.looks(BEGAN + WAIT, 1.0, 1_000) == 0.0
    else:
        assert gathering.looks(BEGAN, 0.0 if more == "timeout" else 1.0, 1_000) == (WAIT if more == "wait" else 0.0)
    gathering.looks(BEGAN + WINDOW, 0.0, 2_000)
    assert gathering.is_on is stays_on


def test_looks_while_tasks_are_ready_are_no_reason_to_stop_waiting() -> None:
    gathering = waiting()
    for _ in range(16):
        wait(gathering, 1, 2_000)
        for _ in range(10):
            gathering.found(BEGAN, 0.0)
            assert gathering.looks(BEGAN, 0.0, 2_000) == 0.0
    gathering.looks(BEGAN + WINDOW, 0.0, 2_000)
    assert gathering.is_on


@pytest.mark.parametrize(("lacking", "is_on"), [("", True), ("messages", False), ("turns", False), ("work", False)])
def test_waiting_begins_after_a_window_that_has_just_enough_of_everything(lacking: str, is_on: bool) -> None:
    gathering, work = Gathering(SECONDS), 0.35 * WINDOW
    assert gathering.watch(BEGAN, Progress(1_000, 100, work)) == WINDOW_SECONDS
    gathering.watch(
        BEGAN + WINDOW,
        Progress(
            1_250 - (lacking == "messages"),
            225 - (lacking == "turns"),
            2 * work - (SECONDS if lacking == "work" else 0.0),
        ),
    )
    assert gathering.is_on is is_on


@pytest.mark.parametrize(("messages", "seconds"), [(249, 0.5), (250, WINDOW_SECONDS)])
def test_a_loop_with_few_messages_is_watched_less_often(messages: int, seconds: float) -> None:
    gathering = Gathering(SECONDS)
    gathering.watch(BEGAN, Progress(0, 0, 0.0))

    assert gathering.watch(BEGAN + WINDOW, Progress(messages, 0, 0.0)) == seconds


def test_watching_twice_at_one_moment_decides_nothing() -> None:
    gathering = Gathering(SECONDS)
    gathering.watch(BEGAN, Progress(0, 0, 0.0))

    assert gathering.watch(BEGAN, Progress(9_000, 9_000, 9.0)) == WINDOW_SECONDS
    assert not gathering.is_on


@pytest.mark.parametrize(
    ("waits", "messages", "stays_on"),
    [(16, 850, True), (15, 850, False), (16, 849, False), (567, 850, False), (566, 850, True)],
)
def test_waiting_goes_on_while_it_brings_company_and_keeps_the_rate(waits: int, messages: int, stays_on: bool) -> None:
    gathering = waiting(rate=4_000)
    wait(gathering, waits, 1_000 + messages)
    gathering.looks(BEGAN + WINDOW, 0.0, 1_000 + messages)

    assert gathering.is_on is stays_on
    if not stays_on:
        rest = gathering.watch(BEGAN + WINDOW + 0.25, Progress(9_000, 9_000, 9.0))
        assert rest == 0.75, "a pause of a second follows"


def test_the_rate_before_waiting_is_compared_with_that_of_the_first_window_alone() -> None:
    gathering = waiting(rate=4_000)
    wait(gathering, 16, 2_000)
    gathering.looks(BEGAN + WINDOW, 0.0, 2_000)
    wait(gathering, 16, 2_100, BEGAN + WINDOW)
    gathering.looks(BEGAN + 2 * WINDOW, 0.0, 2_100)

    assert gathering.is_on


@pytest.mark.parametrize(("earlier_seconds", "stays_on"), [(WAIT, True), (0.0, False)])
def test_waiting_that_is_worth_it_stops_at_the_time_of_the_next_trial_and_may_begin_again_at_once(
    earlier_seconds: float, stays_on: bool
) -> None:
    gathering, end = waiting(), BEGAN + 5.0 - earlier_seconds
    wait(gathering, 16, 99_000)
    gathering.looks(end, 0.0, 99_000)
    assert gathering.is_on is stays_on
    if not stays_on:
        assert gathering.watch(end, Progress(99_000, 99_000, 0.0)) == WINDOW_SECONDS
        gathering.watch(end + WINDOW, Progress(100_000, 100_000, WINDOW))
        assert gathering.is_on


async def test_loop_that_is_held_back_runs_every_task_and_meets_deadlines() -> None:
    class Always(Gathering):
        """Puts every look off that may be."""

        def watch(self, now: float, progress: Progress) -> float:
            self.is_on = True
            return super().watch(now, progress)

        def looks(self, now: float, timeout: float, messages: int) -> float:
            put_off.append(min(SECONDS, timeout, now + messages))
            return put_off[-1]

    put_off: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather_looks, Always(SECONDS), lambda: Progress(0, 0, 0.0))
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(10):
            for _ in range(3):
                await trio.sleep(0.002)
        nursery.cancel_scope.cancel()

    held = len(put_off)
    assert held >= 3
    await trio.sleep(0.001)
    assert len(put_off) == held  # nothing is put off after the end


async def test_a_loop_has_the_instrument_only_while_looks_are_put_off(mock_clock: trio.testing.MockClock) -> None:
    class OneWindow(Gathering):
        """Puts looks off from its second call to `watch` on, for one look."""

        def watch(self, now: float, progress: Progress) -> float:
            del now, progress
            watched.append(trio.current_time())
            self.is_on = len(watched) == 2
            return WINDOW_SECONDS if self.is_on else CALM_SECONDS

        def looks(self, now: float, timeout: float, messages: int) -> float:
            del now, timeout, messages
            looked.append(trio.current_time())
            self.is_on = False
            return 0.0

    watched: list[float] = []
    looked: list[float] = []
    mock_clock.autojump_threshold = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gather_looks, OneWindow(SECONDS), lambda: Progress(0, 0, 0.0))
        await trio.sleep(2 * CALM_SECONDS + 2 * WINDOW_SECONDS)
        nursery.cancel_scope.cancel()
    began = watched[0]
    assert [one - began for one in watched] == pytest.approx(
        [0.0, CALM_SECONDS, CALM_SECONDS + WINDOW_SECONDS, 2 * CALM_SECONDS + WINDOW_SECONDS]
    )
    assert all(CALM_SECONDS <= one - began <= CALM_SECONDS + WINDOW_SECONDS for one in looked)


def test_looks_after_the_end_of_waiting_prolong_no_pause() -> None:
    gathering = waiting()
    wait(gathering, 15, 1_000)
    gathering.looks(BEGAN + WINDOW, 1.0, 2_000)
    assert not gathering.is_on

    assert gathering.looks(BEGAN + 3 * WINDOW, 1.0, 9_000) == 0.0
    assert gathering.watch(BEGAN + 3 * WINDOW, Progress(9_000, 9_000, 9.0)) == PAUSE_SECONDS - 2 * WINDOW


@pytest.mark.parametrize(("waits", "messages", "stays_on"), [(16, 24, True), (16, 23, False), (15, 500, False)])
def test_each_window_counts_its_own_waits_and_messages(waits: int, messages: int, stays_on: bool) -> None:
    gathering = waiting()
    wait(gathering, 16, 2_000)
    gathering.looks(BEGAN + WINDOW, 0.0, 2_000)
    wait(gathering, waits, 2_000 + messages, BEGAN + WINDOW)
    gathering.looks(BEGAN + 2 * WINDOW, 0.0, 2_000 + messages)

    assert gathering.is_on is stays_on


@pytest.mark.parametrize(("messages", "put_off"), [(24, WAIT), (23, 0.0)])
def test_a_window_ends_with_its_first_waits_when_they_brought_no_company(messages: int, put_off: float) -> None:
    gathering = waiting()
    wait(gathering, 16, 1_000 + messages)
    gathering.found(BEGAN + WINDOW / 4, 1.0)

    assert gathering.looks(BEGAN + WINDOW / 4, 1.0, 1_000 + messages) == put_off


@pytest.mark.parametrize(("seconds", "is_on"), [(WINDOW_SECONDS, False), (WINDOW_SECONDS - WAIT, True)])
def test_a_window_without_enough_waits_is_the_last_one_as_soon_as_it_is_full(seconds: float, is_on: bool) -> None:
    gathering = waiting(began=0.0)
    gathering.looks(seconds, 0.0, 9_000)

    assert gathering.is_on is is_on


def test_a_look_that_waits_for_nothing_prolongs_no_wait() -> None:
    gathering = waiting()
    gathering.found(BEGAN, 1.0)
    gathering.found(BEGAN + WAIT / 2, 0.0)

    assert gathering.looks(BEGAN + WAIT / 2, 1.0, 1_000) == WAIT / 2


def test_from_the_start_of_the_clock_on_a_loop_is_watched_and_its_first_look_is_not_put_off() -> None:
    gathering = Gathering(WAIT)
    assert gathering.watch(0.0, Progress(0, 0, 0.0)) == WINDOW_SECONDS
    assert gathering.watch(WINDOW, Progress(1_000, 1_000, WINDOW)) == WINDOW_SECONDS
    assert gathering.is_on

    assert gathering.looks(WINDOW, 1.0, 1_000) == 0.0


def test_after_a_trial_begins_only_what_comes_from_then_on_is_a_reason_to_wait() -> None:
    gathering, end = waiting(), BEGAN + 5.0
    wait(gathering, 16, 99_000)
    gathering.looks(end, 0.0, 99_000)

    assert gathering.watch(end + WAIT, Progress(99_000, 99_000, 99.0)) == WINDOW_SECONDS
    assert not gathering.is_on
