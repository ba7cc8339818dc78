"""The line between two domains does what its faults say, and is a good line otherwise."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing

from interop.free_ports import free_ports
from interop.lab.line_proxy import Line

ADDRESS = "127.42.1.2"
PATIENCE_SECONDS = 30.0


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Line, Callable[[], Awaitable[trio.SocketStream]]]]:
    """A line to a server that sends back what comes."""
    [port] = free_ports(1)

    async def echo(stream: trio.SocketStream) -> None:
        async with stream:
            async for data in stream:
                await stream.send_all(data)

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(trio.serve_tcp, echo, port, host="127.0.0.1"))
            line = Line(ADDRESS, [port])
            await nursery.start(line.run)
            async with AsyncExitStack() as dialled:

                async def dial() -> trio.SocketStream:
                    return await dialled.enter_async_context(await trio.open_tcp_stream(ADDRESS, port))

                yield line, dial
            nursery.cancel_scope.cancel()


async def ask(stream: trio.SocketStream, data: bytes = b"hello") -> bytes:
    await stream.send_all(data)
    came = b""
    while len(came) < len(data) and (part := await stream.receive_some()):
        came += part
    return came


async def test_a_good_line_passes_bytes_in_both_directions() -> None:
    async with echoing() as (_, dial):
        stream = await dial()
        data = b"x" * 300_000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, data)
            came = 0
            while came < len(data):
                came += len(await stream.receive_some())
        assert came == len(data)


async def test_a_cut_line_ends_old_and_new_connections_until_it_is_healed() -> None:
    async with echoing() as (line, dial):
        old = await dial()
        assert await ask(old) == b"hello"
        line.cut()
        assert await old.receive_some() == b""
        new = await dial()
        assert await new.receive_some() == b""
        line.heal()
        assert await ask(await dial()) == b"hello"


async def test_a_dropped_connection_ends_and_the_next_one_passes() -> None:
    async with echoing() as (line, dial):
        old = await dial()
        assert await ask(old) == b"hello"
        line.drop()
        assert await old.receive_some() == b""
        assert await ask(await dial()) == b"hello"


async def test_a_silent_line_holds_bytes_and_connections_until_it_is_healed() -> None:
    async with echoing() as (line, dial):
        stream = await dial()
        assert await ask(stream) == b"hello"
        line.silence()
        await stream.send_all(b"held")
        with trio.move_on_after(0.1) as waited:
            await stream.receive_some()
        assert waited.cancelled_caught
        line.heal()
        assert await stream.receive_some() == b"held"


async def test_a_slow_line_delays_and_a_narrow_one_limits() -> None:
    async with echoing() as (line, dial):
        stream = await dial()
        line.delay_seconds = 0.1
        began = time.monotonic()
        assert await ask(stream) == b"hello"
        assert time.monotonic() - began >= 0.2
        line.heal()
        line.bytes_per_second = 1000
        began = time.monotonic()
        assert await ask(stream, b"x" * 200) == b"x" * 200
        assert time.monotonic() - began >= 0.14


@asynccontextmanager
async def collecting(arrived: list[bytes]) -> AsyncIterator[tuple[Line, trio.Nursery]]:
    """A line to a server that keeps what comes."""
    [port] = free_ports(1)

    async def collect(stream: trio.SocketStream) -> None:
        async with stream:
            while data := await stream.receive_some():
                arrived.append(bytes(data))

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(trio.serve_tcp, collect, port, host="127.0.0.1"))
            line = Line(ADDRESS, [port])
            await nursery.start(line.run)
            yield line, nursery
            nursery.cancel_scope.cancel()


async def test_a_line_that_is_reordered_ends_for_the_near_side_and_brings_the_rest_late() -> None:
    arrived: list[bytes] = []
    async with collecting(arrived) as (line, nursery):
        async with await trio.open_tcp_stream(ADDRESS, line.ports[0]) as old:
            await old.send_all(b"first")
            while arrived != [b"first"]:  # noqa: ASYNC110 - another task collects
                await trio.sleep(0.01)
            nursery.start_soon(line.reorder, 1.0)
            await trio.testing.wait_all_tasks_blocked(0.01)
            await old.send_all(b"before")
            assert not await old.receive_some()
        async with await trio.open_tcp_stream(ADDRESS, line.ports[0]) as new:
            await new.send_all(b"after")
            while len(arrived) < 3:  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert arrived == [b"first", b"after", b"before"]


async def test_a_line_that_vanishes_refuses_connections_until_it_is_healed() -> None:
    async with echoing() as (line, dial):
        stream = await dial()
        assert await ask(stream) == b"hello"
        line.vanish()
        await trio.testing.wait_all_tasks_blocked(0.05)
        with pytest.raises(OSError, match="connect"):
            await dial()
        line.heal()
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert await ask(await dial()) == b"hello"


async def test_new_connections_for_a_diverted_port_go_elsewhere() -> None:
    async with echoing() as (line, dial), trio.open_nursery() as nursery:

        async def refuse(stream: trio.SocketStream) -> None:
            async with stream:
                await stream.receive_some()
                await stream.send_all(b"other")

        [listener] = await nursery.start(partial(trio.serve_tcp, refuse, 0, host="127.0.0.1"))
        line.diverted[line.ports[0]] = listener.socket.getsockname()[1]
        assert await ask(await dial()) == b"other"
        line.diverted.clear()
        assert await ask(await dial()) == b"hello"
        nursery.cancel_scope.cancel()
