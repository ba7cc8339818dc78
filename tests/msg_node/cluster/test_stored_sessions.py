"""What a node stored, as other nodes read it in the engine."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import trio
import trio.testing

from msg_node.addresses.core.allocation import Origin, OwnedRow
from msg_node.addresses.core.subscriptions import SubscriptionRow
from msg_node.bus.core.moved_session import GivenSession, MovedSession
from msg_node.cluster import stored_sessions
from msg_node.cluster.stored_sessions import _ADDRESSES, _BROUGHT_BACK, StoredSessions
from msg_node.kernel.changes import Table
from msg_node.kernel.session import SessionRow
from msg_node.qos.core.leases import Amounts, Lease
from msg_node.registries.core.policy_names import PolicyNameRow
from msg_node.registries.core.twin import ThingRow
from msg_node.storage.engine import Engine
from msg_node.wiring.nodes import SessionsOfTheDead
from tests.support.postgres import Postgres, held_rows

HELD, FREE = "thing://a.example/held", "thing://a.example/free"


def test_an_address_without_a_row_of_that_node_is_found_and_one_with_a_row_is_not(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    rows = {name: held_rows(options, name) for name in ("n1", "n2")}
    rows["n1"].commit({Table.ADDRESSES: {HELD: OwnedRow(sid=1, url=HELD, origin=Origin.CLAIMED)}})
    rows["n2"].commit({Table.ADDRESSES: {FREE: OwnedRow(sid=1, url=FREE, origin=Origin.CLAIMED)}})
    stored = StoredSessions(Engine(options))
    try:
        assert stored.without_row("n1", [HELD, FREE]) == [FREE]
        assert stored.without_row("n2", [HELD]) == [HELD]
    finally:
        stored.close()
        for one in rows.values():
            one.close()


def test_the_things_of_an_agent_are_found_and_not_those_of_one_whose_name_is_longer(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    rows = held_rows(options, "n1")
    names = ("a.example/x/1", "a.example/x/2", "a.example/xy/1")
    things = {
        f"thing://{name}": ThingRow(url=name, description=msgspec.Raw(b"{}"), version=1, modified_at=0.0)
        for name in names
    }
    rows.commit({Table.TWIN_THINGS: dict(things)})
    stored = StoredSessions(Engine(options))
    try:
        found = [msgspec.json.decode(row)["url"] for row in stored.things("n1", "thing://a.example/x", most=9)]
        assert sorted(found) == list(names[:2])
        assert len(stored.things("n1", "thing://a.example/x", most=1)) == 1
        assert stored.things("n2", "thing://a.example/x", most=9) == []
    finally:
        stored.close()
        rows.close()


def a_session(sid: int, runtime: str) -> SessionRow:
    return SessionRow(sid=sid, runtime=runtime, runtime_key=runtime, token_digest=f"{sid:064x}")


def test_a_session_is_found_by_token_and_by_runtime_with_what_it_holds_and_by_an_index(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    rows, others = held_rows(options, "n1"), held_rows(options, "n2")
    long = "runtime://a.example/" + "x" * 2_000
    runtimes = {1: "runtime://a.example/ana", 2: "runtime://a.example/bo", 3: long, 4: long + "y"}
    sessions = {str(sid): a_session(sid, runtime) for sid, runtime in runtimes.items()}
    owned = {f"thing://a.example/{sid}": OwnedRow(sid, f"thing://a.example/{sid}", Origin.CLAIMED) for sid in runtimes}
    heard = {f"{sid} k s": SubscriptionRow(sid=sid, key="k", url="k", source="s") for sid in runtimes}
    for one in (rows, others):
        one.commit({Table.SESSIONS: dict(sessions), Table.ADDRESSES: dict(owned), Table.SUBSCRIPTIONS: dict(heard)})
    stored = StoredSessions(Engine(options))
    try:
        [found] = stored.sessions("n1", [f"{2:064x}"], [])
        assert msgspec.json.decode(found, type=SessionRow) == sessions["2"]
        assert stored.sessions("n1", ["0"], []) == []
        both = stored.sessions("n1", [f"{2:064x}"], [runtimes[1]])
        assert [msgspec.json.decode(row)["sid"] for row in both] == [2, 1]
        assert long in {msgspec.json.decode(row)["runtime_key"] for row in stored.sessions("n1", [], [long])}
        for held in stored.held("n1", [3, 4]):
            assert sorted(msgspec.json.decode(row)["sid"] for row in held) == [3, 4]
        with stored._engine.transaction() as connection:
            connection.execute("SET LOCAL enable_seqscan = off")
            for query, index in ((_BROUGHT_BACK, "trapezoid_row_token"), (_ADDRESSES, "trapezoid_row_of_session")):
                plan = str(connection.execute("EXPLAIN " + query, ([str(one) for one in range(40)], "n1")).fetchall())
                assert index in plan
                assert "Filter" not in plan, "each text is looked up in the index, also without statistics"
    finally:
        stored.close()
        rows.close()
        others.close()


def test_tables_of_an_older_program_get_their_indexes_and_a_row_that_is_no_json_is_stored(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    rows = held_rows(options, "n1")
    rows.commit({Table.SESSIONS: {"1": a_session(1, "runtime://a.example/ana")}})
    engine = Engine(options)
    with engine.transaction() as connection:
        connection.execute("DROP FUNCTION trapezoid_member CASCADE")
    engine.close()
    stored = StoredSessions(Engine(options))
    try:
        assert len(stored.sessions("n1", [f"{1:064x}"], [])) == 1
        rows.commit({Table.SESSIONS: {"2": msgspec.Raw(b"no json")}})
        assert len(stored.sessions("n1", [], ["runtime://a.example/ana"])) == 1
    finally:
        stored.close()
        rows.close()


def test_what_a_node_has_reserved_and_what_is_claimed_is_read_for_another_one(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    rows = {name: held_rows(options, name) for name in ("n1", "n2")}
    lease = Lease("r-1", 3, "csp", Amounts(audio=5), "turn.example", "client", "", 4e9)
    rows["n1"].commit({Table.QOS_LEASES: {"r-1": lease}})
    engine = Engine(options)
    with engine.transaction() as connection:
        values = (HELD.encode(), HELD.encode())
        connection.execute("INSERT INTO trapezoid_claim VALUES (sha256(%b), %b, 'n1', 7)", values)
    stored = StoredSessions(engine)
    try:
        assert [msgspec.json.decode(row, type=Lease) for row in stored.leases("n1")] == [lease]
        assert stored.leases("n2") == []
        assert stored.claims([HELD, FREE]) == {HELD: ("n1", 7)}
    finally:
        stored.close()
        for one in rows.values():
            one.close()


def test_the_policies_of_objects_are_found_by_object_and_node(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    rows = {name: held_rows(options, name) for name in ("n1", "n2")}
    named = {f"comm://a.example/{number}": PolicyNameRow("policy", "by", number) for number in range(3)}
    rows["n1"].commit({Table.OBJECT_POLICIES: dict(named), Table.ADDRESSES: {HELD: OwnedRow(1, HELD, Origin.CLAIMED)}})
    stored = StoredSessions(Engine(options))
    try:
        wanted = ["comm://a.example/1", "comm://a.example/2", "comm://a.example/9", HELD]
        found = stored.policies("n1", wanted)
        assert {key: msgspec.json.decode(row, type=PolicyNameRow) for key, row in found.items()} == {
            key: named[key] for key in wanted[:2]
        }
        assert stored.policies("n2", wanted) == {}
    finally:
        stored.close()
        for one in rows.values():
            one.close()


def test_the_reservations_of_all_nodes_are_read_together(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    rows = {name: held_rows(options, name) for name in ("n1", "n2")}
    for name, one in rows.items():
        lease = Lease(f"r-{name}", 1, "csp", Amounts(audio=5), "turn.example", "client", "", 4e9)
        one.commit({Table.QOS_LEASES: {lease.name: lease}})
    stored = StoredSessions(Engine(options))
    try:
        found = [msgspec.json.decode(row, type=Lease).name for row in stored.all_leases()]
        assert sorted(found) == ["r-n1", "r-n2"]
    finally:
        stored.close()
        for one in rows.values():
            one.close()


def test_a_session_on_its_way_is_read_by_its_digest_and_forgotten_after_a_time(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    rows, stored = held_rows(options, "n1"), StoredSessions(Engine(options))
    moved = msgspec.json.encode(MovedSession(session=a_session(1, "runtime://a.example/ana")))
    given = {name: GivenSession(given_at=at, moved=msgspec.Raw(moved)) for name, at in (("old", 10.0), ("new", 20.0))}
    try:
        rows.commit({Table.GIVEN_SESSIONS: dict(given)})
        found = {name: stored.given(name) for name in ("old", "new", "other")}
        assert found == {**{name: msgspec.json.encode(one) for name, one in given.items()}, "other": None}
        stored.forget_given(15.0)
        assert (stored.given("old"), stored.given("new")) == (None, found["new"])
    finally:
        stored.close()
        rows.close()


async def test_sessions_that_nobody_takes_in_go_while_a_node_runs_a_portion_at_a_time(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    options = postgres.options(postgres.new_database())
    rows, stored = held_rows(options, "n1"), StoredSessions(Engine(options))
    moved = msgspec.Raw(msgspec.json.encode(MovedSession(session=a_session(1, "runtime://a.example/ana"))))
    monkeypatch.setattr(stored_sessions, "FORGOTTEN_AT_ONCE", 2)
    state = SimpleNamespace(transitions=SimpleNamespace(rules=SimpleNamespace(grace_seconds=30.0)))
    dead = SessionsOfTheDead(cast("Any", state), cast("Any", None), stored, cast("Any", None))
    portions: list[bool] = []
    forget = stored.forget_given

    def noted(before: float) -> bool:
        portions.append(forget(before))
        return portions[-1]

    monkeypatch.setattr(stored, "forget_given", noted)

    async def until_looked(times: int) -> None:
        while len(portions) < times:  # noqa: ASYNC110  by the clock of the test
            await trio.sleep(0.05)

    def give(given_at: float, *names: str) -> None:
        rows.commit({Table.GIVEN_SESSIONS: {name: GivenSession(given_at=given_at, moved=moved) for name in names}})

    try:
        give(1.0, "1", "2", "3")
        give(time.time(), "new")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(dead.forget_given)
            await until_looked(2)
            assert portions == [True, False]
            give(1.0, "4")  # long after the start
            await until_looked(3)
            nursery.cancel_scope.cancel()
        assert [name for name in ("1", "2", "3", "4", "new") if stored.given(name)] == ["new"]
    finally:
        stored.close()
        rows.close()
