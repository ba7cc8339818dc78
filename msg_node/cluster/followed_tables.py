"""Tables of the domain that each of its nodes has in memory: what one changes is read by the others, in a moment.

Nodes announce the keys of the rows that they change. Each reads these rows; after a time without the engine, or when
too many have changed, all of the table. Of two nodes that change a row at once the one whose transaction ends last
counts, at both.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final, Protocol

import trio

from msg_node.kernel.changes import FOLLOWED, Table
from msg_node.kernel.domain_records import DomainRecords, keys_of
from protofly.errors import HostError

logger = logging.getLogger("msg_node")

RETRY_SECONDS: Final = 1.0
READ_AT_ONCE: Final = 500
"""After more changed rows, all are read."""


class FollowedTable(Protocol):
    """One of the tables, as this node has it in memory."""

    def follow(self, key: str, raw: bytes | None) -> None:
        """Take over a row, or its absence. Nothing is journalled. Raises HostError: STORAGE."""

    def follow_all(self, rows: Mapping[str, bytes]) -> None:
        """Take over all rows; others are gone. Nothing is journalled. Raises HostError: STORAGE."""


class FollowedTables:
    """Follows what other nodes change.

    Args:
        tables: Each of `FOLLOWED`.
        records: Reads their rows.
    """

    def __init__(self, tables: Mapping[Table, FollowedTable], records: DomainRecords) -> None:
        assert tables.keys() == FOLLOWED
        self._tables = tables
        self._records = records
        self._changed: dict[Table, set[str] | None] = {}
        self._wanted = trio.Event()

    def heard(self, payloads: Collection[str] | None) -> None:
        """Rows were announced; None: any may have changed."""
        for table in self._tables:
            keys = keys_of(table.value, payloads)
            if keys != []:
                self._note(table, keys)

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            changed, self._changed = self._changed, {}
            for table, keys in changed.items():
                try:
                    await self._read(table, keys)
                except HostError as exc:
                    logger.error("cluster: %s of the domain cannot be read; trying again: %s", table.value, exc)
                    self._note(table, keys)
                    await trio.sleep(RETRY_SECONDS)

    def _note(self, table: Table, keys: Collection[str] | None) -> None:
        known = self._changed.setdefault(table, set())
        if known is not None and keys is not None and len(known) + len(keys) <= READ_AT_ONCE:
            known.update(keys)
        else:
            self._changed[table] = None
        self._wanted.set()

    async def _read(self, table: Table, keys: set[str] | None) -> None:
        of_node, kind = self._tables[table], table.value
        if keys is None:
            of_node.follow_all(await trio.to_thread.run_sync(self._records.load, kind))
            return
        rows = await trio.to_thread.run_sync(self._records.find, kind, keys)
        for key in keys:
            of_node.follow(key, rows.get(key))
