"""Services beside a test: started before it, ended after it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio


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
