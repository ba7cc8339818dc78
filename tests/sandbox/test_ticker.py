"""The ticker moves with the processor time of its thread, not with the clock on the wall."""

from __future__ import annotations

import threading
import time

from sandbox.ticker import CpuClockTicker


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
