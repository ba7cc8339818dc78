"""Takes the state that a node kept for itself over into the engine of its domain, in one transaction. Blocking.

The rows become those of the node's name, as if it had written them there: a node that starts under the name goes on
with them, and while none has, they are those of a node that has left, so sessions come back at any node, and another
one goes on with what is parked. Tables of the domain (`SHARED`) are added to; what the engine has under a key stays.
A mark of the contents is written beside them, so the same state is never adopted twice, whatever dies in between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Final

import psycopg
from psycopg.rows import TupleRow

from msg_node.cluster.engine_directory import CLAIM
from msg_node.kernel.changes import FOLLOWED, SHARED, Rows, Table
from msg_node.kernel.domain_records import RECORDS_CHANNEL
from msg_node.storage.engine import Engine
from msg_node.storage.engine_errors import EngineError
from msg_node.storage.engine_keys import in_order, portions
from msg_node.storage.engine_line import LONG_SECONDS
from msg_node.storage.engine_rows import ANNOUNCE, DOMAIN, HOLD, PUT_NEW, SHARED_CHANNEL, lock_order

_MARK: Final = """INSERT INTO trapezoid_row (node, kind, digest, key, row)
    VALUES (%s, 'adopted', sha256(%b::bytea), %b, %b) ON CONFLICT (node, kind, digest) DO NOTHING RETURNING 1"""
_ANY: Final = "SELECT EXISTS (SELECT 1 FROM trapezoid_row WHERE node = %s)"

Tables = Mapping[Table, Rows]


def adopt_state(engine: Engine, held: tuple[str, int], tables: Tables, claimed: Collection[str]) -> bool:
    """Make rows those of a name in the engine.

    Args:
        engine: Where they go.
        held: The name and the epoch under which we hold it.
        tables: All rows of the state of before.
        claimed: Addresses that its sessions own, and their runtimes; who has one in the engine already keeps it.

    Returns:
        False when the engine has adopted exactly this before; nothing was changed.

    Raises:
        EngineError: `engine-taken`, the name has rows there already; nothing was changed. FencedError, or the engine
            cannot be used.
    """
    node, _ = held
    with engine.transaction(LONG_SECONDS) as connection:
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute(HOLD, held)
        mark = _digest(tables)
        if connection.execute(_MARK, (DOMAIN, mark, mark, node.encode())).fetchone() is None:
            return False
        found = connection.execute(_ANY, (node,)).fetchone()
        if found is not None and found[0]:
            action = "adopt under a name that no node has: `--as NAME`"
            raise EngineError("engine-taken", engine.place, f"the name {node} has state there already", action)
        for table, rows in sorted(tables.items(), key=lambda item: item[0].value):
            _put(connection, DOMAIN if table in SHARED else node, table, rows)
        for some in portions(in_order(claimed)):
            connection.execute(CLAIM, (node, list(some)))
        shared = sorted(table.value for table in SHARED if tables.get(table))
        followed = sorted(table.value for table in FOLLOWED if tables.get(table))
        connection.execute(ANNOUNCE, (SHARED_CHANNEL, shared))
        connection.execute(ANNOUNCE, (RECORDS_CHANNEL, [f"{kind} " for kind in followed]))
    return True


def _put(connection: psycopg.Connection[TupleRow], node: str, table: Table, rows: Rows) -> None:
    items = list(rows.items())
    if node == DOMAIN:  # other nodes may add the same
        items.sort(key=lambda item: lock_order(table.value, item[0].encode()))
    for some in portions(items):
        kinds, keys = [table.value] * len(some), [key.encode() for key, _ in some]
        connection.execute(PUT_NEW, (node, kinds, keys, [row for _, row in some]))


def _digest(tables: Tables) -> bytes:
    """A digest that is equal for equal states only."""
    digest = hashlib.sha256()
    for table in Table:
        for key, row in sorted(tables.get(table, {}).items()):
            for part in (table.value.encode(), key.encode(), row):
                digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()
