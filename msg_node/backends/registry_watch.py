"""Polling of an external domain registry, and reports of disconnected entries to it.

The registry is asked for news of statuses, and notified which entries the end of a session has disconnected. Both are
soft state: what is missed is made good by `expires`. Source: message specification, section 10.3.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import trio

from msg_node.backends.backend import Backend
from msg_node.backends.interval import Interval
from msg_node.kernel.counts import RegistryWatchCount
from msg_node.kernel.registrations import StatusChange
from msg_node.registries.core.registry_entry import RegistryEntry
from msg_node.registries.core.registry_relay import RegistryRelay
from msg_node.registries.core.registry_rest import UPDATED, disconnect_call
from protofly.counters import Counters
from protofly.errors import Code, HostError
from protofly.limits import REGISTRY_POLL_SECONDS

logger = logging.getLogger("msg_node")

REPORT_SECONDS = 1.0


class RegistryWatch:
    """Polls the registry, and reports to it which entries are disconnected.

    Args:
        relay: Knows what is to be said, and what an answer means.
        backend: The registry.
        publish: Notifies subscribers of changes of statuses and stores them.
        poll_seconds: Pause between two questions for news; 0: none is asked, for a registry whose news another node of
            the domain takes (it reports each piece once).

    Attributes:
        pause: Between two questions; may be changed while it runs.
    """

    def __init__(
        self,
        relay: RegistryRelay,
        backend: Backend,
        publish: Callable[[list[StatusChange]], None],
        *,
        poll_seconds: float = REGISTRY_POLL_SECONDS,
    ) -> None:
        self._relay = relay
        self._backend = backend
        self._publish = publish
        self.pause = Interval(poll_seconds)
        self.counters = Counters(RegistryWatchCount)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report_disconnects)
            nursery.start_soon(self._poll)
            task_status.started()

    async def _poll(self) -> None:
        while True:
            await self.pause.wait()
            await self.poll_once()

    async def poll_once(self) -> None:
        """Ask for news, and pass them on."""
        try:
            answer = await self._backend.call(UPDATED)
            changes = self._relay.observe(answer, time.time())
        except HostError as error:
            self.counters[RegistryWatchCount.FAILED.of(error.code.word)] += 1  # the breaker logs it when it lasts
            return
        except Exception:
            logger.exception("news of the domain registry cannot be read")  # a stranger's words, and our defect
            self.counters[RegistryWatchCount.BROKEN] += 1
            return
        self.counters[RegistryWatchCount.ANSWERED] += 1
        if changes:
            self._publish(changes)

    async def _report_disconnects(self) -> None:
        while True:
            await trio.sleep(REPORT_SECONDS)
            for entry in self._relay.unreported(time.time()):
                if not await self._report_disconnect(entry):
                    break  # it cannot be reached: again in a while
                self._relay.reported(entry)

    async def _report_disconnect(self, entry: RegistryEntry) -> bool:
        """Report to the registry that an entry cannot be reached. Returns True when it has accepted that."""
        try:
            answer = await self._backend.call(disconnect_call(entry))
        except HostError as error:
            self.counters[RegistryWatchCount.NOT_REPORTED.of(error.code.word)] += 1
            return False
        except Exception:
            logger.exception("the answer of the domain registry cannot be read")  # a stranger's words, and our defect
            self.counters[RegistryWatchCount.NOT_REPORTED.of(Code.INTERNAL.word)] += 1
            return False
        self.counters[RegistryWatchCount.REPORTED] += not answer.is_failure
        return not answer.is_failure
