"""Nodes that write the same rows of the domain at once, in whatever order, wait for each other in one order only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from hashlib import sha256

import psycopg
import pytest
from msgspec import Raw

from msg_node.cluster.core.lease import NameRow
from msg_node.cluster.membership import Membership
from msg_node.cluster.names import Names
from msg_node.cluster.work_takeover import WorkTakeover
from msg_node.kernel.changes import Table
from msg_node.requests.core.inbox import InboxRow
from msg_node.storage.engine import Engine
from msg_node.storage.engine_options import EngineOptions
from msg_node.storage.engine_rows import DOMAIN, HOLD, EngineRows, SharedRows
from msg_node.storage.state_file import Rows
from tests.support.postgres import Postgres, held_rows

PATIENCE_SECONDS = 60
KEYS = sorted((f"key-{number}" for number in range(20)), key=lambda key: sha256(key.encode()).digest())
LOCKED = KEYS[10]
ROW = InboxRow(number=7, owner="o", request_id="d", queue="q", body=Raw(b"{}"), at=1.0, runtime_key="r")
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
ROWS_OF = "SELECT 1 FROM trapezoid_row WHERE node = %s AND kind = %s AND digest = sha256(%s) FOR UPDATE"
ADDED = "INSERT INTO trapezoid_row (node, kind, digest, key, row) VALUES (%s, %s, sha256(%b), %b, '{}')"


def rows_of(keys: list[str], *, are_gone: bool = False, table: Table = Table.RESTRICTIONS) -> Rows:
    return {table: dict.fromkeys(keys, None if are_gone else ROW)}


@pytest.fixture
def options(postgres: Postgres) -> EngineOptions:
    return postgres.options(postgres.new_database())


@pytest.fixture
def nodes(options: EngineOptions) -> Iterator[tuple[EngineRows, EngineRows]]:
    with ExitStack() as stack:
        one, two = (held_rows(options, name) for name in ("n1", "n2"))
        stack.callback(one.close)
        stack.callback(two.close)
        yield one, two


def until_both_wait(postgres: Postgres, database: str) -> None:
    with psycopg.connect(postgres.conninfo(database), autocommit=True) as connection:
        until = time.monotonic() + PATIENCE_SECONDS
        while connection.execute(WAITING, (database,)).fetchone() != (2,):
            assert time.monotonic() < until
            time.sleep(0.01)


def at_once(
    postgres: Postgres, database: str, in_the_way: tuple[str, tuple[object, ...]], *steps: Callable[[], object]
) -> None:
    """Have both steps wait for a third transaction, then for each other."""
    with ThreadPoolExecutor(len(steps)) as threads, psycopg.connect(postgres.conninfo(database)) as third:
        third.execute(*in_the_way)
        under_way = [threads.submit(step) for step in steps]
        until_both_wait(postgres, database)
        third.rollback()
        for one in under_way:
            one.result(PATIENCE_SECONDS)


@pytest.mark.parametrize("are_gone", [False, True], ids=["changed", "removed"])
def test_rows_that_are_there_are_locked_in_one_order(
    postgres: Postgres, options: EngineOptions, nodes: tuple[EngineRows, EngineRows], are_gone: bool
) -> None:
    one, two = nodes
    one.commit(rows_of(KEYS))
    in_the_way = (ROWS_OF, (DOMAIN, Table.RESTRICTIONS.value, LOCKED.encode()))
    at_once(
        postgres,
        options.database,
        in_the_way,
        lambda: one.commit(rows_of(KEYS)),
        lambda: two.commit(rows_of(KEYS[::-1], are_gone=are_gone)),
    )


def test_rows_that_are_new_are_added_in_one_order(
    postgres: Postgres, options: EngineOptions, nodes: tuple[EngineRows, EngineRows]
) -> None:
    one, two = nodes
    key = LOCKED.encode()
    in_the_way = (ADDED, (DOMAIN, Table.RESTRICTIONS.value, key, key))
    at_once(
        postgres,
        options.database,
        in_the_way,
        lambda: one.commit(rows_of(KEYS)),
        lambda: two.commit(rows_of(KEYS[::-1])),
    )


def test_what_is_on_its_way_stays_in_the_order_of_who_gave_it(
    options: EngineOptions, nodes: tuple[EngineRows, EngineRows]
) -> None:
    nodes[0].commit(rows_of(KEYS[::-1], table=Table.GIVEN_INBOX))
    shared = SharedRows(Engine(options))
    assert list(shared.read(Table.GIVEN_INBOX.value)) == KEYS[::-1]
    shared.close()


def test_two_nodes_that_believe_each_other_dead_do_not_wait_for_each_other(
    options: EngineOptions, nodes: tuple[EngineRows, EngineRows]
) -> None:
    for rows in nodes:
        rows.commit({Table.INBOX: {"7": ROW}})
    names = Names(Engine(options))
    seen: dict[str, NameRow] = {name: row for name, (row, _) in names.rows().items()}
    names.close()
    third = Engine(options)
    one = WorkTakeover(Engine(options), Membership(Names(Engine(options)), "n1"), "n1", 1)
    with third.transaction() as connection:  # n2, which is about to end the epoch of n1
        connection.execute(HOLD, ("n2", 1))
        assert not one.take_over("n2", seen["n2"])
    assert one.take_over("n2", seen["n2"])
    one.close()
    third.close()
