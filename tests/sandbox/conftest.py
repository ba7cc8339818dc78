"""A running sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import trio

from sandbox.host import Sandbox


@pytest.fixture
async def sandbox(nursery: trio.Nursery) -> AsyncIterator[Sandbox]:
    service = Sandbox()
    await nursery.start(service.run)
    yield service
