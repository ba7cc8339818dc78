"""Thousands of keys at once in the engine: none is left out, and old statistics do not have each compared with each."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Raw

from msg_node.cluster import engine_directory, stored_sessions
from msg_node.cluster.engine_directory import EngineDirectory
from msg_node.cluster.engine_notices import EngineNotices
from msg_node.cluster.stored_sessions import StoredSessions
from msg_node.kernel.changes import Table
from msg_node.storage import engine_rows
from msg_node.storage.engine import Engine
from msg_node.storage.engine_keys import ROWS_AT_A_TIME, digests, in_order, portions
from tests.support.postgres import Postgres, held_rows

MANY = 2 * ROWS_AT_A_TIME + 1
KNOWN, UNKNOWN = "n2", "n1"
"""Of the one, the statistics have thousands of rows; of the other, none."""
OWNED = 20_000
KEYS = [f"{UNKNOWN} {number}".encode() for number in range(OWNED)]
OWN = (
    "INSERT INTO trapezoid_claim (digest, key, node) SELECT sha256(key), key, '{node}' FROM {keys}",
    "INSERT INTO trapezoid_row (node, kind, digest, key, row)"
    " SELECT '{node}', 'addresses', sha256(key), key, '{{\"sid\":1}}' FROM {keys}",
)
SERIES = "(SELECT convert_to('{node} ' || number, 'UTF8') FROM generate_series(0, {last}) AS number) AS owned (key)"
DIGESTS = [hashlib.sha256(key).digest() for key in KEYS]
STATEMENTS = {
    "find": (engine_directory._FIND, (DIGESTS,)),
    "replace": (engine_directory._REPLACE, ("n3", DIGESTS, [UNKNOWN] * OWNED, list(range(OWNED)))),
    "release": (engine_directory._RELEASE, (UNKNOWN, DIGESTS)),
    "remove rows": (engine_rows._DELETE, (["addresses"] * OWNED, DIGESTS, UNKNOWN)),
    "find rows": (engine_rows._FIND, (["addresses"] * OWNED, DIGESTS, UNKNOWN)),
    "claims": (stored_sessions._CLAIMS, (DIGESTS,)),
}


def test_keys_come_in_the_order_of_their_digests_and_in_portions_that_leave_none_out() -> None:
    keys = in_order([f"a{number}" for number in range(MANY)])
    assert digests(keys) == sorted(digests(keys))
    assert [len(some) for some in portions(keys)] == [ROWS_AT_A_TIME, ROWS_AT_A_TIME, 1]
    assert [key for some in portions(keys) for key in some] == keys


@pytest.fixture(scope="module")
def old_statistics(postgres: Postgres) -> Iterator[Engine]:
    """An engine whose statistics are of a time when a node that owns thousands of addresses owned none."""
    options = postgres.options(postgres.new_database())
    engine = Engine(options)
    engine.open()
    tables = [f"ALTER TABLE {table} SET (autovacuum_enabled = false)" for table in ("trapezoid_claim", "trapezoid_row")]
    own = {
        node: [text.format(node=node, keys=SERIES.format(node=node, last=OWNED - 1)) for text in OWN]
        for node in (KNOWN, UNKNOWN)
    }
    postgres.run(*tables, *own[KNOWN], "VACUUM ANALYZE", *own[UNKNOWN], database=options.database)
    yield engine
    engine.close()


@pytest.mark.parametrize("name", list(STATEMENTS))
def test_old_statistics_do_not_have_each_key_compared_with_each_row(old_statistics: Engine, name: str) -> None:
    query, values = STATEMENTS[name]
    with old_statistics.connected() as connection:
        found: list[tuple[Any, ...]] = connection.execute("EXPLAIN " + query, values, prepare=False).fetchall()
    plan = "\n".join(line for (line,) in found)
    assert "Nested Loop" not in plan
    assert "Join Filter" not in plan


async def test_claims_and_rows_beyond_one_statement_are_all_made_replaced_found_and_ended(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    rows = {node: held_rows(options, node) for node in ("n1", "n2")}
    one, other = (EngineDirectory(Engine(options), EngineNotices(Engine(options)), node, 1) for node in rows)
    stored = StoredSessions(Engine(options))
    keys = [f"comm://a.example/{number}" for number in range(MANY)]
    owners = await one.claim(keys)
    assert set(owners) == set(keys)
    rows["n1"].commit({Table.ADDRESSES: dict.fromkeys(keys[1:], Raw(b"{}"))})
    assert stored.without_row("n1", keys) == keys[:1]
    assert stored.claims(keys) == {key: tuple(claim) for key, claim in owners.items()}

    moved = await other.claim(keys, owners)
    assert {claim.node for claim in moved.values()} == {"n2"}
    assert await one.find(keys) == moved
    await other.release(keys[1:])
    assert (await one.find(keys)).keys() == {keys[0]}
    assert (await one.restart(keys[:2])).keys() == set(keys[:2])
    rows["n1"].commit({Table.ADDRESSES: dict.fromkeys(keys)})
    assert rows["n1"].load()[Table.ADDRESSES] == {}

    await one.claim(keys)
    await one.restart(keys[:2])
    assert (await other.find(keys)).keys() == set(keys[:2])
    for each in (one, other):
        await each.close()
    for held in rows.values():
        held.close()
    stored.close()
