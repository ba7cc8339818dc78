"""The lines of the simulated network, by themselves."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from tests.simulation.lines import End, Line, wait_readable, wait_writable
from tests.simulation.virtual_process import JumpingClock


def play(main: Callable[[Line], Awaitable[None]]) -> None:
    clock = JumpingClock()
    trio.run(main, Line(random.Random(1), clock), clock=clock)


async def read(end: End, size: int) -> bytes:
    data = b""
    while len(data) < size:
        await wait_readable(end)
        part = end.recv(size - len(data))
        if not part:
            break
        data += part
    return data


def test_bytes_arrive_later_and_in_order_whatever_pieces_they_come_in() -> None:
    async def main(line: Line) -> None:
        near, far = line.join()
        sent = random.Random(2).randbytes(300_000)
        assert near.send(sent) == len(sent)
        near.close()
        assert await read(far, len(sent) + 1) == sent
        assert trio.current_time() > 0.0

    play(main)


def test_a_silent_line_holds_bytes_until_it_is_whole_again() -> None:
    async def main(line: Line) -> None:
        near, far = line.join()
        line.is_silent = True
        near.send(b"held")
        await trio.sleep(60.0)
        with pytest.raises(BlockingIOError):
            far.recv(9)
        line.heal()
        assert await read(far, 4) == b"held"
        assert 60.0 < trio.current_time() < 61.0

    play(main)


def test_who_is_not_read_has_to_wait_until_somebody_reads() -> None:
    async def main(line: Line) -> None:
        near, far = line.join()
        accepted = near.send(b"x" * 1_000_000)
        assert accepted < 1_000_000
        with pytest.raises(BlockingIOError):
            near.send(b"x")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, far, accepted)
            await wait_writable(near)
        assert near.send(b"x") == 1

    play(main)


def test_a_dropped_connection_loses_what_was_on_its_way_and_ends_for_both() -> None:
    async def main(line: Line) -> None:
        near, far = line.join()
        near.send(b"arrives")
        assert await read(far, 7) == b"arrives"
        near.send(b"lost")
        line.drop()
        assert await read(far, 1) == await read(near, 1) == b""
        for end in (near, far):
            with pytest.raises(BrokenPipeError):
                end.send(b"x")
        assert not line.connections

    play(main)


def test_what_is_on_its_way_arrives_after_the_end_for_the_side_that_opened_the_connection() -> None:
    async def main(line: Line) -> None:
        near, far = line.join()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(line.reorder, 2.0)
            await trio.testing.wait_all_tasks_blocked()
            near.send(b"late")
            assert await read(near, 1) == b""
            far.send(b"to nobody")
            assert trio.current_time() < 1.5
            assert await read(far, 4) == b"late"
            assert trio.current_time() >= 2.0
        assert await read(far, 1) == b""

    play(main)


def test_sending_to_an_end_that_was_closed_breaks_the_connection() -> None:
    async def main(line: Line) -> None:
        near, far = line.join()
        far.close()
        near.send(b"x")
        await trio.sleep(1.0)
        with pytest.raises(BrokenPipeError):
            near.send(b"x")

    play(main)


def test_a_task_that_waits_on_an_end_that_its_own_side_closes_is_notified() -> None:
    async def main(line: Line) -> None:
        near, _far = line.join()

        async def wait() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await wait_readable(near)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            near.notify_closing()
            near.close()

    play(main)
