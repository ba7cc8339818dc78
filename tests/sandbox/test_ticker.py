"""The ticker moves with the processor time of its thread, not with the clock on the wall."""

from __future__ import annotations

import hashlib
import threading
import time

from protofly import limits
from sandbox.ticker import REST_PERIODS, CpuClockTicker


def test_ticks_come_while_the_thread_works_and_not_while_it_waits() -> None:
    ticks: list[int] = []
    moved = threading.Event()

    def tick() -> None:
        ticks.append(1)
        moved.set()

    ticker = CpuClockTicker(tick, period_seconds=0.001)
    ticker.start()
    ticker.guest_starts()
    deadline = time.monotonic() + 5.0
    while len(ticks) < 5 and time.monotonic() < deadline:
        sum(range(1000))
    assert len(ticks) >= 5
    ticks.clear()
    moved.clear()
    moved.wait(0.05)  # this thread waits, so its clock stands still although a guest is said to run
    assert len(ticks) <= 2
    ticker.guest_stops()


def test_ticker_that_fell_asleep_wakes_for_the_next_guest() -> None:
    ticked = threading.Event()
    ticker = CpuClockTicker(ticked.set, period_seconds=0.0005)
    ticker.start()
    for _ in range(3):
        ticked.clear()
        ticker.guest_starts()
        deadline = time.monotonic() + 5.0
        while not ticked.is_set() and time.monotonic() < deadline:
            sum(range(1000))
        ticker.guest_stops()
        assert ticked.is_set()
        threading.Event().wait(0.03)  # long enough for it to fall asleep


def test_a_guest_that_begins_while_the_ticker_rests_runs_that_rest_longer_and_no_more() -> None:
    period = 0.02
    ticks: list[float] = []
    ticker = CpuClockTicker(lambda: ticks.append(time.monotonic()), period_seconds=period)
    ticker.start()
    ticker.guest_starts()
    ticker.guest_stops()  # it is awake now, and rests
    ticker.guest_starts()
    began, deadline = time.thread_time(), time.monotonic() + 20.0
    while len(ticks) < 4 and time.monotonic() < deadline:
        hashlib.sha256(bytes(100_000))  # without Python's lock, as a guest
    spent = time.thread_time() - began
    ticker.guest_stops()
    assert len(ticks) >= 4
    assert 3 * period < spent < (REST_PERIODS + 3 + 3) * period  # four at rest would be 20 periods
    assert REST_PERIODS * limits.CPU_TICK_SECONDS <= 0.010  # what docs/abi.md says
