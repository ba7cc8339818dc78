"""When the other nodes of a domain count as dead, and for how long they may have work that nobody has gone on with."""

from __future__ import annotations

import pytest
import trio

from msg_node.cluster import membership as module
from msg_node.cluster.core.lease import LEASE_SECONDS
from msg_node.cluster.membership import TAKEN_OVER_SECONDS, Membership
from msg_node.cluster.names import Names, NodeFacts
from msg_node.cluster.work_takeover import WorkTakeover
from msg_node.storage.engine import Engine
from tests.support.postgres import Postgres, held_rows

PATIENCE_SECONDS = 30


async def test_work_of_a_dead_node_does_not_wait_for_another_lease_after_a_neighbour_has_ended_its_epoch(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    options = postgres.options(postgres.new_database())
    for name in ("n1", "n2", "n3"):
        held_rows(options, name).close()
    names = Names(Engine(options))
    assert names.renew("n1", 1, NodeFacts(bus="n1:1"))
    now = 100.0
    membership = Membership(Names(Engine(options)), "n2", lambda: now)
    third = Names(Engine(options))
    neighbour = WorkTakeover(Engine(options), Membership(third, "n3"), "n3", 1)
    async with trio.open_nursery() as nursery:
        await nursery.start(membership.run)
        assert not membership.is_dead("n1")
        assert membership.unreachable([]) == ["n1"]
        row = names.read("n1")
        assert row is not None
        assert await neighbour.end("n1", row)
        with trio.fail_after(PATIENCE_SECONDS):
            while not membership.is_dead("n1"):
                await trio.lowlevel.checkpoint()
        assert membership.dead() == []
        assert membership.unreachable([]) == ["n1"], "what it has parked is still its own"
        now += LEASE_SECONDS + 0.1
        with trio.fail_after(PATIENCE_SECONDS):
            while [name for name, _ in membership.dead()] != ["n1"]:
                await trio.lowlevel.checkpoint()
        now += TAKEN_OVER_SECONDS
        with trio.fail_after(PATIENCE_SECONDS):
            while membership.unreachable([]):
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    for one in (neighbour, names, third):
        one.close()
