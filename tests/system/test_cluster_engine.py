"""The engine of three nodes is killed under traffic: it comes back on its files, or its replica takes its place.

Real processes over a real engine; claims and messages are judged by the checker in `interop/lab/core/operations.py`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from tests.support.postgres import PASSWORD, Postgres, running_postgres
from tests.system.contention import contention
from tests.system.restarts import NAMES, Talk, talk_in, under_traffic
from tests.system.test_cluster import until_synchronous
from tests.system.wandering import PATIENCE_SECONDS, Domain

RATE = 500
RUN_SECONDS = 280
KILLS = 3


def epochs(engine: Postgres, domain: Domain) -> dict[str, int]:
    """Of the names of the nodes."""
    return dict(engine.rows("SELECT name, epoch FROM trapezoid_node", domain.database))


async def until_settled(engine: Postgres, domain: Domain) -> None:
    """Wait until each address is stored by the one node that the directory names: who released one forgets it then."""
    query = """SELECT convert_from(held.key, 'UTF8'), held.node FROM trapezoid_row AS held WHERE kind = 'addresses'
        AND NOT EXISTS (SELECT 1 FROM trapezoid_claim AS claim WHERE claim.key = held.key AND claim.node = held.node)"""
    left: list[tuple[str, str]] = []
    with trio.move_on_after(PATIENCE_SECONDS):
        while left := engine.rows(query, domain.database):  # noqa: ASYNC110  nodes do
            await trio.sleep(0.1)
    assert left == []


async def check(all_of_them: Talk, engine: Postgres, domain: Domain) -> None:
    """Nothing acknowledged is lost, doubled or out of order, and each address has one owner."""
    for one in all_of_them.pairings:
        assert one.faults() == []
    await all_of_them.check_owned()
    await until_settled(engine, domain)
    query = "SELECT convert_from(key, 'UTF8') FROM trapezoid_row WHERE kind = 'addresses'"
    stored = [key for (key,) in engine.rows(query, domain.database)]
    assert {address for one in all_of_them.pairings for address in one.allocated} <= set(stored)
    assert len(stored) == len(set(stored))


async def kill_often(engine: Postgres, all_of_them: Talk) -> None:
    """Kill the engine under traffic, and start it on its files; each kill comes once all get on again."""
    async with contention(all_of_them.nodes), under_traffic(all_of_them, RATE):
        for _ in range(KILLS):
            await trio.to_thread.run_sync(engine.kill)
            await trio.to_thread.run_sync(engine.start)
            await all_of_them.go_on()


async def fail_over(first: Postgres, second: Postgres, all_of_them: Talk) -> None:
    """Kill the engine under traffic, and promote its replica."""
    async with contention(all_of_them.nodes), under_traffic(all_of_them, RATE):
        await trio.to_thread.run_sync(first.kill)
        second.run("SELECT pg_promote()", "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
        await all_of_them.go_on()


@contextmanager
def synchronous_replica(first: Postgres) -> Iterator[Postgres]:
    """A replica for whose disk each commit waits from here on."""
    with tempfile.TemporaryDirectory(prefix="trapezoid-pg-") as folder:
        second = first.replica(Path(folder))
        second.start()
        try:
            first.run("SELECT pg_reload_conf()")
            yield second
        finally:
            second.stop()


@pytest.mark.long
async def test_engine_that_is_killed_often_under_traffic_of_three_nodes_loses_nothing_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with trio.fail_after(RUN_SECONDS), running_postgres() as engine:
        domain = Domain(tmp_path, engine, NAMES)
        async with talk_in(domain) as all_of_them:
            before = epochs(engine, domain)
            await kill_often(engine, all_of_them)
            assert epochs(engine, domain) == before, "a node has lost its name"
            assert sum(person.moves for person in all_of_them.people) == 0, "a session has lost its node"
            await check(all_of_them, engine, domain)


@pytest.mark.long
async def test_replica_of_an_engine_that_was_killed_under_traffic_of_three_nodes_has_all_that_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with trio.fail_after(RUN_SECONDS), running_postgres() as first:
        domain = Domain(tmp_path, first, NAMES)
        with synchronous_replica(first) as second:
            domain.replicas = (second.port,)
            await until_synchronous(first)
            async with talk_in(domain) as all_of_them:
                before = epochs(first, domain)
                await fail_over(first, second, all_of_them)
                assert epochs(second, domain) == before, "a node has lost its name"
                assert sum(person.moves for person in all_of_them.people) == 0, "a session has lost its node"
                await check(all_of_them, second, domain)
