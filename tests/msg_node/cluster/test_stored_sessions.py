"""What a node stored, as other nodes read it in the engine."""

from __future__ import annotations

import msgspec

from msg_node.addresses.core.allocation import Origin, OwnedRow
from msg_node.cluster.stored_sessions import StoredSessions
from msg_node.kernel.changes import Table
from msg_node.registries.core.twin import ThingRow
from msg_node.storage.engine import Engine
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
