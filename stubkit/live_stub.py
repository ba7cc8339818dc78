"""Fresh instances of one stub for tests, and its conversation once it is live: messages out, a far end that accepts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from protofly.errors import StubFaultError
from sandbox.core.budget import Budget
from sandbox.core.exchange import Action, Event, GuestAction, GuestEvent
from stubkit.cases import Script
from stubkit.complaints import complaints_about
from stubkit.sandboxed import CompiledStub
from stubkit.scripted_run import CasePlayer
from stubkit.trial import CHECK_DOMAIN
from stubkit.virtual_host import VirtualHost

MESSAGE_BYTES: Final = 547
"""Size of a usual message: a request with an identity, as runtimes send it."""


_SCHEDULED: Final = 2  # CPUCLOCK_SCHED of Linux: all threads, in nanoseconds


class NotLiveError(Exception):
    """The script does not make the stub live."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Cost of a message, averaged over a run.

    Attributes:
        hop_us: Of the whole hop to the worker and back, by the wall clock.
        hop_cpu_us: The same on a processor: this process and the worker. Other programs disturb it least.
        cpu_us: Of the guest alone, on a processor.
        first_memory_bytes: After a tenth of the messages.
    """

    messages: int
    batch: int
    hop_us: float
    hop_cpu_us: float
    cpu_us: float
    fuel: float
    first_memory_bytes: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class StubUnderTest:
    """One compiled stub, and the script of its author."""

    compiled: CompiledStub
    script: Script

    @asynccontextmanager
    async def instance(self) -> AsyncIterator[VirtualHost]:
        """A fresh instance, not started."""
        stub = await self.compiled.sandbox.start_worker(CHECK_DOMAIN, self.compiled.code, Budget())
        try:
            yield VirtualHost(stub, self.compiled.module)
        finally:
            stub.close()

    @asynccontextmanager
    async def live_instance(self) -> AsyncIterator[VirtualHost]:
        """A fresh instance that the script has made live.

        Raises:
            NotLiveError: It is not, or there is no such script.
        """
        if self.script.live is None:
            raise NotLiveError("the script has no member `live`")
        case = self.script.case(self.script.live.case)
        async with self.instance() as host:
            results = await CasePlayer(host, self.script, case).play()
            problem = next((one.problem for one in results if one.problem), "")
            if problem or host.state != "live":
                raise NotLiveError(problem or f"after case {case.name!r} the stub is not live")
            host.take_cost()
            yield host

    @property
    def endpoints(self) -> frozenset[str]:
        """Names that it may open."""
        return frozenset(self.script.endpoints)

    def complaints(self, actions: list[GuestAction]) -> str:
        """Describe the actions that no host could perform, joined by "; "; "" if all are in order.

        Messages (`deliver`) are left out: hosts refuse those themselves.
        """
        judged = [action for action in actions if action.op != Action.DELIVER]
        return "; ".join(complaints_about(judged, self.endpoints))

    async def carry(self, host: VirtualHost, messages: int, batch: int) -> Rate:
        """Send messages in batches through a live instance, its far end accepting each batch.

        Raises:
            StubFaultError: The fault of the instance.
        """
        assert self.script.live is not None
        sent = first_memory = 0
        hop_seconds = hop_cpu_seconds = 0.0
        host.take_cost()
        fuel = cpu_us = memory = 0
        while sent < messages:
            size = min(batch, messages - sent)
            events = [numbered_message(sent + index + 1) for index in range(size)]
            accepting = self.script.live.accepting(sent + size)
            began, cpu_began = time.perf_counter(), _cpu_seconds(host.stub.pid)
            await host.give(*events)
            if accepting:
                await host.give(*accepting)
            hop_seconds += time.perf_counter() - began
            hop_cpu_seconds += _cpu_seconds(host.stub.pid) - cpu_began
            sent += size
            cost = host.take_cost()
            fuel, cpu_us, memory = fuel + cost.fuel, cpu_us + cost.cpu_us, cost.memory_bytes
            if not first_memory and sent * 10 >= messages:
                first_memory = memory
        hop_us, hop_cpu_us = hop_seconds / messages * 1e6, hop_cpu_seconds / messages * 1e6
        return Rate(messages, batch, hop_us, hop_cpu_us, cpu_us / messages, fuel / messages, first_memory, memory)


def _cpu_seconds(worker_pid: int) -> float:
    """Time on a processor of this process and a worker so far. The clock of a process: clock_getcpuclockid(3)."""
    return time.process_time() + time.clock_gettime(~worker_pid << 3 | _SCHEDULED)


def numbered_message(number: int, size: int = MESSAGE_BYTES) -> GuestEvent:
    """A message whose text has its number, between `#` and `#`."""
    head = (
        b'{"id":%d,"type":"create","from":"hyperty://a.example/alice","to":"hyperty://%s/bob",'
        b'"body":{"identity":{"idp":"a.example"},"value":"#%d# \\"caf\\u00e9\\"'
    ) % (number, CHECK_DOMAIN.encode(), number)
    return GuestEvent(Event.MESSAGE, number, head + b"x" * max(0, size - len(head) - 3) + b'"}}')


async def fault_of(host: VirtualHost, *events: GuestEvent) -> str:
    """The fault that these events lead to, "" for none."""
    try:
        await host.give(*events)
    except StubFaultError as exc:
        return str(exc)
    return ""
