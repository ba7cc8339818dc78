"""Expiry of reservations, and polling of quotas that have listeners.

Source: message specification, section 14.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable

import trio

from msg_node.backends.backend import Backend
from msg_node.backends.interval import Interval
from msg_node.kernel.counts import QosWatchCount
from msg_node.kernel.service import Event
from msg_node.qos.core.qos_rest import PROVIDERS, usage_call
from msg_node.qos.core.qos_service import QosService
from protofly.counters import Counters
from protofly.errors import HostError
from protofly.limits import QOS_WATCH_SECONDS

logger = logging.getLogger("msg_node")

SWEEP_SECONDS = 1.0


class QosWatch:
    """Ends leases, and looks at the usage of providers.

    Args:
        service: Knows the leases, and what an answer means.
        backend: The broker.
        publish: Notifies listeners of events and stores them.
        domain: The domain that events come from.
        watch_seconds: Pause between two looks at usage; 0: none.

    Attributes:
        pause: Between two looks; may be changed while it runs.
        beside: Runs beside it: what one of several nodes has to do. Set once, before anything runs.
    """

    def __init__(
        self,
        service: QosService,
        backend: Backend,
        publish: Callable[[list[Event]], None],
        *,
        domain: str,
        watch_seconds: float = QOS_WATCH_SECONDS,
    ) -> None:
        self._service = service
        self._backend = backend
        self._publish = publish
        self._domain = domain
        self.pause = Interval(watch_seconds)
        self.counters = Counters(QosWatchCount)
        self.beside: Callable[[], Awaitable[None]] | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._sweep)
            if self.beside is not None:
                nursery.start_soon(self.beside)
            nursery.start_soon(self._watch)
            task_status.started()

    def sweep_once(self) -> None:
        """End leases that have expired."""
        self._publish(self._service.sweep(self._domain, time.time()))

    async def watch_once(self) -> None:
        """Look at the quotas that somebody listens to."""
        try:
            for provider in self._service.providers_seen((await self._backend.call(PROVIDERS),)):
                events = self._service.usage_seen(
                    self._domain, provider, (await self._backend.call(usage_call(provider)),)
                )
                self._publish(events)
        except HostError as error:
            self.counters[QosWatchCount.FAILED.of(error.code.word)] += 1
        except Exception:
            logger.exception("what the QoS broker says cannot be read")  # a stranger's words, and our defect
            self.counters[QosWatchCount.BROKEN] += 1

    async def _sweep(self) -> None:
        while True:
            await trio.sleep(SWEEP_SECONDS)
            self.sweep_once()

    async def _watch(self) -> None:
        while True:
            await self.pause.wait()
            await self.watch_once()
