from __future__ import annotations

import io
from pathlib import Path

import pytest
import trio
from rich.console import Console

from interop import patience
from interop.demo_view import DemoView
from interop.group_chat import ChatStep
from interop.ledger import Ledger
from interop.patience import MOST_CROWDED, Patience, comes, crowding, end_without_progress


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lasting(seconds: float, crowd: float) -> float:
    """How long patience lasts that is asked every second."""
    clock = Clock()
    one = Patience(seconds, clock=clock, crowd=lambda: crowd)
    while not one.is_over():
        clock.now += 1.0
    return clock.now - 100.0


@pytest.mark.parametrize(("crowd", "lasts"), [(1.0, 30.0), (2.0, 60.0), (8.0, 240.0)])
def test_a_second_counts_less_while_more_want_a_processor_than_there_are(crowd: float, lasts: float) -> None:
    assert lasting(30.0, crowd) == lasts


def test_patience_that_nobody_waits_for_lasts_as_long_as_it_says() -> None:
    clock = Clock()
    one = Patience(5.0, clock=clock, crowd=lambda: 1.0)
    clock.now += 4.9
    assert not one.is_over()
    clock.now += 0.2
    assert one.is_over()


@pytest.mark.parametrize(
    ("loads", "processors", "expected"),
    [("0.10 0.20 0.30 1/372 20210", 2, 1.0), ("9.1 8.0 7.0 6/372 1", 2, 3.0), ("1 1 1 900/901 1", 2, MOST_CROWDED)],
)
def test_the_crowd_is_who_wants_a_processor_at_this_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads: str, processors: int, expected: float
) -> None:
    (tmp_path / "loadavg").write_text(loads)
    monkeypatch.setattr(patience, "_LOAD_FILE", tmp_path / "loadavg")
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    assert crowding() == expected


def test_without_that_file_the_average_of_the_last_minute_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "_LOAD_FILE", tmp_path / "nowhere")
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (8.0, 1.0, 1.0))
    assert crowding() == 4.0


async def test_what_comes_is_waited_for_and_what_does_not_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    del autojump_clock
    there = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_set_later, there)
        assert await comes(there.wait, seconds=60.0)
    assert not await comes(trio.sleep_forever, seconds=3.0)


async def test_a_scope_ends_when_nothing_has_moved_for_as_long_as_patience_lasts(
    autojump_clock: trio.testing.MockClock,
) -> None:
    del autojump_clock
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(lambda: end_without_progress(scope, lambda: 7, seconds=3.0))
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_a_scope_goes_on_as_long_as_there_is_progress(autojump_clock: trio.testing.MockClock) -> None:
    steps = 0
    began = autojump_clock.current_time()
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(lambda: end_without_progress(scope, lambda: steps, seconds=30.0))
            for steps in range(1, 21):  # noqa: B007 - it is looked at
                await trio.sleep(20.0)
        nursery.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert autojump_clock.current_time() - began == pytest.approx(400.0)


async def test_steps_and_messages_are_progress_of_a_demo() -> None:
    view = DemoView(Console(file=io.StringIO()))
    ledger = Ledger()
    seen = [view.progress()]
    view.doing("a scene")
    seen.append(view.progress())
    view.watch(ledger)
    flow = ledger.flow("ana", "bob", "chat")
    flow.enter_due(1, "hello", 1)
    seen.append(view.progress())
    flow.enter_arrival(1, "hello", 2)
    seen.append(view.progress())
    view.stepped(ChatStep(title="said", detail="", taken_ms=1.0))
    seen.append(view.progress())
    assert len(set(seen)) == 5
    assert view.progress() == seen[-1]


async def _set_later(event: trio.Event) -> None:
    await trio.sleep(2.0)
    event.set()
