"""Names in a real engine: taken by one process at a time, kept by renewals, fenced before others take over, left."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import trio

from msg_node.cluster import lease_keeper
from msg_node.cluster.core import lease
from msg_node.cluster.core.lease import LeaseState, LeaseVerdict, NameSearch
from msg_node.cluster.lease_keeper import LeaseKeeper, Wanted
from msg_node.cluster.names import Names, NodeFacts
from msg_node.storage.engine import Engine
from msg_node.storage.engine_errors import EngineError, FencedError
from msg_node.storage.engine_options import EngineOptions
from msg_node.storage.engine_rows import EngineRows
from tests.support.postgres import Postgres, held_rows

PATIENCE_SECONDS = 30
NOBODY = msgspec.structs.replace(NodeFacts(), version="1")


def keeper(options: EngineOptions, name: str, instance: str, *, is_standby: bool = False) -> LeaseKeeper:
    wanted = Wanted(name=name, instance=instance, is_standby=is_standby, facts=lambda: NOBODY)
    return LeaseKeeper(Names(Engine(options)), wanted)


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while not condition():
            await trio.lowlevel.checkpoint()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats ten times a second; no lease ends while a test goes on, however slow the machine is.

    The times of the real one are for the tests of its core, and of whole nodes.
    """
    monkeypatch.setattr(lease, "LEASE_SECONDS", 10 * PATIENCE_SECONDS)
    monkeypatch.setattr(lease, "MARGIN_SECONDS", 0.1)
    monkeypatch.setattr(lease_keeper, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(lease_keeper, "LOOK_SECONDS", 0.05)


async def test_second_process_of_a_name_is_refused_while_the_first_one_lives(shared_database: EngineOptions) -> None:
    first, second = keeper(shared_database, "twice", "a"), keeper(shared_database, "twice", "b")
    await first.take()
    with trio.fail_after(PATIENCE_SECONDS), pytest.raises(EngineError, match="node-running") as caught:
        await second.take()
    assert "cluster.standby" in caught.value.action
    await second.leave()
    assert first.state() is LeaseState.HELD
    await first.leave()
    third = keeper(shared_database, "twice", "c")
    await third.take()  # nobody is waited for who has left
    assert third.epoch == 2
    await third.leave()


async def test_of_many_that_want_a_name_at_once_one_gets_it(shared_database: EngineOptions) -> None:
    many = [keeper(shared_database, "wanted", str(number)) for number in range(6)]
    refused: list[EngineError] = []

    async def take(one: LeaseKeeper) -> None:
        try:
            await one.take()
        except EngineError as exc:
            refused.append(exc)

    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            for one in many:
                nursery.start_soon(take, one)
    assert {error.word for error in refused} == {"node-running"}
    assert [one.state() for one in many].count(LeaseState.HELD) == 1
    for one in many:
        await one.leave()


async def test_process_of_the_same_instance_waits_for_nobody_and_fences_the_one_before(
    shared_database: EngineOptions,
) -> None:
    before, after = keeper(shared_database, "again", "here"), keeper(shared_database, "again", "here")
    await before.take()
    rows = EngineRows(Engine(shared_database), "again", before.epoch)
    await after.take()
    assert after.epoch == before.epoch + 1
    with pytest.raises(FencedError):
        rows.load()
    with trio.fail_after(PATIENCE_SECONDS), pytest.raises(FencedError):
        await before.run(lambda: None, lambda: None)
    assert before.state() is LeaseState.LOST
    await before.leave()  # which does not end the lease of the other
    await trio.sleep(0.2)
    assert after.state() is LeaseState.HELD
    rows.close()
    await after.leave()


class Looks:
    """Counts how often a keeper has looked at the name that it waits for."""

    def __init__(self, one: LeaseKeeper) -> None:
        self._look = one._look
        self.count = 0
        one._look = self.look  # type: ignore[method-assign]

    def look(self, search: NameSearch) -> LeaseVerdict:
        verdict = self._look(search)
        self.count += 1
        return verdict

    async def another(self) -> None:
        """Until one has begun and ended."""
        wanted = self.count + 2  # the first of them may have begun before
        await until(lambda: self.count >= wanted)


async def test_standby_takes_over_when_nothing_was_renewed_for_a_lease(
    shared_database: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that the test moves, and renewals that it makes."""
    now = [100.0]
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(lease_keeper, "lease_clock", lambda: now[0])
    monkeypatch.setattr(lease_keeper, "BEAT_SECONDS", 2 * PATIENCE_SECONDS)
    first = keeper(shared_database, "standing", "a")
    second = keeper(shared_database, "standing", "b", is_standby=True)
    await first.take()
    looks = Looks(second)
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(second.take)
            await looks.another()
            for _ in range(8):  # more than three leases
                now[0] += 0.2
                await trio.to_thread.run_sync(first._renew)
                await looks.another()
            assert (first.state(), second._lease) == (LeaseState.HELD, None)
            now[0] += 0.45
            await looks.another()
            assert (first.state(), second._lease) == (LeaseState.LAPSED, None)  # fenced before others may take it
            now[0] += 0.1
    assert second.state() is LeaseState.HELD
    assert second.epoch == first.epoch + 1
    await trio.to_thread.run_sync(first._renew)
    assert first.state() is LeaseState.LOST
    await first.leave()
    await second.leave()


async def test_node_without_its_engine_is_fenced_and_goes_on_when_nobody_took_its_name(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 2.0)
    options = postgres.options(postgres.new_database())
    names = f"ALTER DATABASE {options.database} ALLOW_CONNECTIONS"
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{options.database}'"
    one = keeper(options, "cut-off", "a")
    await one.take()
    events: list[str] = []
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, lambda: events.append("fenced"), lambda: events.append("held"))
            postgres.run(f"{names} false", end)
            await until(lambda: events == ["fenced"])
            assert one.state() is LeaseState.LAPSED
            assert one.problem()
            postgres.run(f"{names} true")
            await until(lambda: events == ["fenced", "held"])
            assert one.problem() == ""
            nursery.cancel_scope.cancel()
    await one.leave()


async def test_members_are_listed_and_forgotten_when_they_own_nothing(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    one = keeper(options, "mn-1", "a")
    await one.take()
    names = Names(Engine(options))
    [member] = names.members()
    assert (member.name, member.epoch, member.is_running, member.facts.version) == ("mn-1", 1, True, "1")
    assert not names.remove("mn-1")  # it runs
    await one.leave()
    assert [one.is_running for one in names.members()] == [False]
    rows = held_rows(options, "mn-1", 2)
    rows.close()
    postgres.run("INSERT INTO trapezoid_row VALUES ('mn-1', 'sessions', '', '', '')", database=options.database)
    postgres.run("UPDATE trapezoid_node SET is_held = false", database=options.database)
    assert not names.remove("mn-1")  # it owns something
    postgres.run(
        "DELETE FROM trapezoid_row", "UPDATE trapezoid_node SET facts = 'of a later version'", database=options.database
    )
    assert names.members()[0].facts == NodeFacts()
    assert names.remove("mn-1")
    assert names.members() == []
    names.close()
