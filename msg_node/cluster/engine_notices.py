"""Hears what nodes of one domain announce to each other in their engine (LISTEN and NOTIFY), over one connection.

What is announced while nobody listens is not heard later. So followers are notified with None whenever the connection
begins: what they knew may have changed, and they read it anew.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Final

import trio
from psycopg import sql

from msg_node.storage.engine import Engine
from msg_node.storage.engine_errors import EngineError

logger = logging.getLogger("msg_node")

NOTIFY_SECONDS: Final = 0.5
RETRY_SECONDS: Final = 1.0
AT_ONCE: Final = 100

Heard = Callable[[Collection[str] | None], None]
"""Called with what was announced on a channel, or with None when something may have been missed."""


class EngineNotices:
    """Listens for all parts of a node.

    Args:
        engine: Its connection belongs to this alone.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._followers: defaultdict[str, list[Heard]] = defaultdict(list)
        self._must_stop = threading.Event()

    def follow(self, channel: str, heard: Heard) -> None:
        """Have announcements on a channel reported, in the task of `run`; before that begins."""
        self._followers[channel].append(heard)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen until cancelled."""
        token = trio.lowlevel.current_trio_token()

        def report(channel: str, payloads: Collection[str] | None) -> None:
            token.run_sync_soon(self._report, channel, payloads)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen_in_thread, report)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._must_stop.set()

    def _report(self, channel: str, payloads: Collection[str] | None) -> None:
        for heard in self._followers[channel]:
            heard(payloads)

    async def _listen_in_thread(self, report: Callable[[str, Collection[str] | None], None]) -> None:
        with trio.CancelScope(shield=True):  # `_must_stop` is what ends it, soon
            await trio.to_thread.run_sync(self._listen_until_stopped, report, limiter=trio.CapacityLimiter(1))

    # In a thread.

    def _listen_until_stopped(self, report: Callable[[str, Collection[str] | None], None]) -> None:
        while not self._must_stop.is_set():
            try:
                self._listen(report)
            except EngineError as exc:
                logger.warning("cluster: what other nodes announce is not heard: %s", exc)
                self._engine.close()
                for channel in self._followers:
                    report(channel, None)
                self._must_stop.wait(RETRY_SECONDS)
        self._engine.close()

    def _listen(self, report: Callable[[str, Collection[str] | None], None]) -> None:
        with self._engine.connected() as connection:
            for channel in self._followers:
                connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
            for channel in self._followers:
                report(channel, None)
            while not self._must_stop.is_set():
                heard: defaultdict[str, list[str]] = defaultdict(list)
                for notice in connection.notifies(timeout=NOTIFY_SECONDS, stop_after=AT_ONCE):
                    heard[notice.channel].append(notice.payload)
                for channel, payloads in heard.items():
                    report(channel, payloads)
