"""The engine of a node is silent, and closes nothing: requests are answered, and a stop says what was not stored."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from tests.support.postgres import PASSWORD, Postgres, running_postgres
from tests.support.runtime_rig import ALLOCATION, Runtime, code_and_reason

from .pair import Pair

PATIENCE_SECONDS = 60


async def allocates(runtime: Runtime) -> tuple[int, str]:
    return code_and_reason(await runtime.ask("create", ALLOCATION, {"scheme": "hyperty", "value": {"number": 1}}))


@contextmanager
def silence(engine: Postgres) -> Iterator[None]:
    engine.pause()
    try:
        yield
    finally:
        engine.go_on()


async def until_allocated(runtime: Runtime) -> None:
    """Until the node is connected again."""
    with trio.fail_after(PATIENCE_SECONDS):
        while (await allocates(runtime))[0] != 200:  # noqa: ASYNC110  nothing here is notified of it
            await trio.sleep(0.1)


@pytest.mark.long
async def test_requests_under_way_when_the_engine_falls_silent_are_answered_and_the_stop_is_not_called_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with running_postgres() as engine:
        pair = Pair(tmp_path, engine, engine.new_database())
        async with pair.node("n1", seconds=180) as node:
            ana = await node.opened("ana")
            await until_allocated(ana)
            with silence(engine):
                assert await allocates(ana) == (503, "state-unavailable")
            await until_allocated(ana)
            with silence(engine):
                assert await allocates(ana) == (503, "state-unavailable")
                node.child.send_signal(signal.SIGTERM)
                assert await node.child.wait() == 3
