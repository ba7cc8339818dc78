"""Services beside a test: started before it, ended after it; and waiting for what they do."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

PATIENCE_SECONDS = 30.0
"""A test that waits longer for something that must come has failed."""


@asynccontextmanager
async def running(*services: Callable[..., Awaitable[Any]], seconds: float = math.inf) -> AsyncIterator[trio.Nursery]:
    """Start services in order, and cancel them when the block ends, which may take so many seconds.

    Yields the nursery, for tasks that end with them.
    """
    with trio.fail_after(seconds):
        async with trio.open_nursery() as nursery:
            for service in services:
                await nursery.start(service)
            yield nursery
            nursery.cancel_scope.cancel()


async def until(condition: Callable[[], Any]) -> None:
    """Let other tasks run until the condition holds.

    Raises:
        trio.TooSlowError: it does not within `PATIENCE_SECONDS`.
    """
    with trio.fail_after(PATIENCE_SECONDS):
        while not condition():
            await trio.lowlevel.checkpoint()
