"""The rows of one node in the engine: read and written like the state file, on the condition of the node's epoch."""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec
from psycopg.rows import TupleRow

from msg_node.kernel.changes import Table
from msg_node.storage.engine import Engine
from msg_node.storage.engine_errors import EngineError
from msg_node.storage.state_file import NO_TEXT, Rows, refuse_unwritable

ROWS_AT_A_TIME: Final = 2_000
_HOLD: Final = "SELECT trapezoid_hold(%s, %s)"
_DELETE: Final = """DELETE FROM trapezoid_row WHERE node = %s AND (kind, digest) IN
    (SELECT kind, sha256(key) FROM unnest(%b::text[], %b::bytea[]) AS gone (kind, key))"""
_PUT: Final = """INSERT INTO trapezoid_row (node, kind, digest, key, row)
    SELECT %s, kind, sha256(key), key, row FROM unnest(%b::text[], %b::bytea[], %b::bytea[])
        WITH ORDINALITY AS put (kind, key, row, place) ORDER BY place
    ON CONFLICT (node, kind, digest) DO UPDATE SET row = excluded.row"""
_LOAD: Final = "SELECT kind, key, row FROM trapezoid_row WHERE node = %s ORDER BY number"

_Put = tuple[str, bytes, bytes]


class EngineRows:
    """Rows of `node`, for as long as `epoch` is the newest of its name. One thread uses it at a time.

    Args:
        engine: Its connection belongs to these rows alone.
        node: Name of the node.
        epoch: Under which its lease is held.
    """

    def __init__(self, engine: Engine, node: str, epoch: int) -> None:
        self._engine = engine
        self._held = (node, epoch)

    def load(self) -> dict[Table, dict[str, bytes]]:
        """Read all rows.

        Raises:
            EngineError: FencedError when another process holds the name.
        """
        node, _ = self._held
        rows: dict[Table, dict[str, bytes]] = {table: {} for table in Table}
        kinds = {table.value: of_table for table, of_table in rows.items()}
        with self._engine.transaction() as connection:  # ends before the long one, for others may wait for it
            connection.execute(_HOLD, self._held)
        with self._engine.transaction() as connection:
            connection.execute("SET LOCAL statement_timeout = 0")  # a million rows take longer than a usual statement
            found: list[TupleRow] = connection.execute(_LOAD, (node,), binary=True).fetchall()
        for kind, key, row in found:
            if kind in kinds:  # others are of a newer version, which will want them back
                kinds[kind][key.decode()] = row
        return rows

    def commit(self, rows: Rows) -> None:
        """Write rows in one transaction; None removes a row. Tries again at once if the connection had been lost.

        Raises:
            HostError: STATE_UNAVAILABLE: nothing of it counts, or, when the connection was lost, perhaps all of it;
                writing a row twice does no harm. STORAGE: rows that have no JSON text have been removed from `rows`.
        """
        try:
            gone, put = _texts(rows)
        except NO_TEXT as exc:
            refuse_unwritable(rows, exc)
            raise
        try:
            self._commit(gone, put)
        except EngineError as exc:
            if not exc.is_lost:
                raise
            self._commit(gone, put)

    def _commit(self, gone: list[tuple[str, bytes]], put: list[_Put]) -> None:
        node, _ = self._held
        with self._engine.transaction() as connection:
            connection.execute(_HOLD, self._held)
            if gone:
                kinds, keys = map(list, zip(*gone, strict=True))
                connection.execute(_DELETE, (node, kinds, keys))
            items = iter(put)
            while some := list(islice(items, ROWS_AT_A_TIME)):
                connection.execute(_PUT, (node, *map(list, zip(*some, strict=True))))

    def close(self) -> None:
        """Close the connection."""
        self._engine.close()


def _texts(rows: Rows) -> tuple[list[tuple[str, bytes]], list[_Put]]:
    """Rows that are gone, and rows with their text."""
    gone: list[tuple[str, bytes]] = []
    put: list[_Put] = []
    for table, of_table in rows.items():
        for key, row in of_table.items():
            name = key.encode()
            if row is None:
                gone.append((table.value, name))
            else:
                put.append((table.value, name, msgspec.json.encode(row)))
    return gone, put
