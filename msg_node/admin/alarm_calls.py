"""Calls of the webhook of alarms: in order, each again until it is taken, and nothing else waits for them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from protofly.errors import HostError
from protofly.pauses import doubling_seconds

logger = logging.getLogger("msg_node")

MOST_WAITING: Final = 256
RETRY_SECONDS: Final = 5.0
RETRY_MAX_SECONDS: Final = 300.0

Call = Callable[[bytes], Awaitable[None]]
"""Calls the webhook with a JSON text. Raises HostError."""


class AlarmCalls:
    """The calls that wait for the webhook.

    Args:
        call: Calls it; None: there is none.

    Attributes:
        call: May be replaced at any time; what waits goes to the new one, or is dropped when there is none any more.
    """

    def __init__(self, call: Call | None) -> None:
        self.call = call
        self._waiting: deque[bytes] = deque()
        self._dropped = 0
        self._came = trio.Event()

    def add(self, body: bytes) -> None:
        """Have the webhook called with a JSON text; beyond `MOST_WAITING` the oldest call is dropped, and logged."""
        if self.call is None:
            return
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append(body)
        self._came.set()

    async def run(self) -> None:
        """Make the calls until cancelled."""
        while True:
            self._came = trio.Event()
            if not self._waiting:
                await self._came.wait()
            await self._make_all()

    async def _make_all(self) -> None:
        failures = 0
        while self._waiting:
            body, call = self._waiting[0], self.call
            if call is None:
                self._waiting.clear()
                return
            try:
                await call(body)
            except HostError as error:
                failures += 1
                if failures == 1:
                    text = "the webhook of alarms cannot be called, and is called again: %s"
                    logger.warning(text, error.detail or error.code.word)
                await trio.sleep(doubling_seconds(RETRY_SECONDS, failures, RETRY_MAX_SECONDS))
                continue
            except Exception:  # a defect of ours may cost a call, never the node
                logger.exception("the webhook of alarms was not called")
            if self._waiting and self._waiting[0] is body:
                self._waiting.popleft()
            if failures:
                logger.info("the webhook of alarms takes calls again; %d were dropped meanwhile", self._dropped)
                failures = self._dropped = 0
