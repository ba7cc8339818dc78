"""Restrictions of the whole domain: what operators forbid at one node is forbidden at all of them, in a moment.

Nodes announce in their engine that rows have changed; each reads them, and ends what has been forbidden elsewhere.
After a time without the engine all of them are read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final

import trio

from msg_node.admin import changes
from msg_node.admin.administered import Administered
from msg_node.kernel.changes import Table
from protofly.errors import HostError

logger = logging.getLogger("msg_node")

RETRY_SECONDS: Final = 1.0


class SharedRestrictions:
    """Follows what is forbidden and permitted again at other nodes.

    Args:
        node: What they apply to.
        read: Reads the rows of a table of the domain. Blocks. Raises HostError.
    """

    def __init__(self, node: Administered, read: Callable[[str], Mapping[str, bytes]]) -> None:
        self._node = node
        self._read = read
        self._changed = trio.Event()

    def heard(self, tables: Collection[str] | None) -> None:
        """Rows of some tables have changed; None: perhaps of all."""
        if tables is None or Table.RESTRICTIONS.value in tables:
            self._changed.set()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            try:
                rows = await trio.to_thread.run_sync(self._read, Table.RESTRICTIONS.value)
                self._take_over(rows)
            except HostError as exc:
                logger.error("cluster: restrictions of the domain cannot be read; trying again: %s", exc)
                self._changed.set()
                await trio.sleep(RETRY_SECONDS)

    def _take_over(self, rows: Mapping[str, bytes]) -> None:
        came, ended = self._node.state.restrictions.shared(rows, now=time.time())
        for one in came:
            logger.warning("another node forbids the %s %s (by %s)", one.what.value, one.subject, one.by)
            changes.enforce(self._node, one)
        for one in ended:
            logger.warning("another node has lifted the restriction of the %s %s", one.what.value, one.subject)
            changes.lifted(self._node, one.what, one.subject)
