"""How long a reader pauses for those who do not keep up: side by side, each for its own patience at most."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from msg_node.bus.runtime_port import wait_relief


class Receiver:
    """Is congested until a moment."""

    def __init__(self, patience_seconds: float, until: float) -> None:
        self.is_slow = False
        self.patience_seconds = patience_seconds
        self._until = until

    @property
    def is_congested(self) -> bool:
        return trio.current_time() < self._until

    async def wait_relief(self) -> None:
        await trio.sleep_until(self._until)


@pytest.mark.parametrize(
    ("receivers", "waited_seconds", "are_slow"),
    [
        ([(1.0, 0.0)], 0.0, [False]),
        ([(1.0, 0.5)], 0.5, [False]),
        ([(1.0, 9.0)], 1.0, [True]),
        ([(1.0, 9.0)] * 100, 1.0, [True] * 100),
        ([(1.0, 0.9), (1.0, 0.8), (1.0, 0.4)], 0.9, [False] * 3),
        ([(1.0, 9.0), (3.0, 2.0)], 2.0, [True, False]),
    ],
    ids=["free", "relieved in time", "slow", "a hundred slow ones", "relieved one after the other", "patient"],
)
async def test_a_reader_goes_on_after_the_longest_patience_however_many_it_waits_for(
    receivers: list[tuple[float, float]], waited_seconds: float, are_slow: list[bool], autojump_clock: MockClock
) -> None:
    assert autojump_clock.rate == 0
    began = trio.current_time()
    blockers = [Receiver(patience, began + until) for patience, until in receivers]
    await wait_relief(set(blockers))
    assert trio.current_time() - began == pytest.approx(waited_seconds)
    assert [one.is_slow for one in blockers] == are_slow


async def test_who_had_its_pause_is_waited_for_no_more(autojump_clock: MockClock) -> None:
    assert autojump_clock.rate == 0
    slow, began = Receiver(1.0, trio.current_time() + 9.0), trio.current_time()
    slow.is_slow = True
    await wait_relief({slow})
    assert trio.current_time() == began
