"""A running sandbox."""

from __future__ import annotations

import pytest
import trio

from sandbox.host import Sandbox


@pytest.fixture
async def sandbox(nursery: trio.Nursery) -> Sandbox:
    service = Sandbox()
    await nursery.start(service.run)
    return service
