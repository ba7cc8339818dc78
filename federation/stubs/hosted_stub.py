"""One run of a foreign domain's stub, from `start` to its end: events in, actions out, one exchange in flight.

While the worker thinks, what happens piles up and becomes the next batch: at a low rate a batch is one message, in a
flood it is hundreds, and nobody decides which. Source: design, sections 3 and 4; docs/abi.md.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

import trio

from federation.core.carrier import Carrier, CarrierDown, Convicted, LinkPort
from federation.core.outbound_queue import OutboundMessage
from federation.core.stub_grant import WHOLE_GRANT, StubGrant
from federation.core.stub_meters import StubMeters
from federation.core.stub_settings import StubSettings
from federation.discovery.identity import Identity
from federation.error_groups import first_error
from federation.stubs.egress import Channel, Egress, EgressRules, LineOpener
from federation.stubs.far_end import FarEnd
from federation.stubs.running_stub import RunningStub
from federation.stubs.stub_actions import StubActions
from federation.stubs.stub_messages import StubMessages
from protofly.errors import Code, StubFaultError
from protofly.stub import VerifiedStub
from sandbox.core.exchange import Event, GuestEvent
from sandbox.core.grants import Grants
from sandbox.core.scripts import script_events
from sandbox.host import StubProcess

BATCH_MESSAGES: Final = 1024
BATCH_BYTES: Final = 256 << 10
EGRESS_HIGH_WATER_BYTES: Final = 1 << 20
SLOW_LINE_SECONDS: Final = 0.05
"""A slow line is looked at again soon, whatever else happens."""

_MESSAGE: Final = int(Event.MESSAGE)
_TRAP_CHARS: Final = 256


@dataclass(frozen=True, slots=True)
class StubInstance:
    """One instance of a stub, before it runs.

    Attributes:
        stub: The package.
        process: A worker that has loaded it.
        settings: What its first event says.
        rules: What it may reach.
        opener: Opens its lines.
        identity: Signs for it, and checks what its far end proves.
        meters: What the stub of this domain has used, over all its runs.
        grant: What the operator grants it at most.
        now: The clock of its exchanges and shares: monotonic seconds.
    """

    stub: VerifiedStub
    process: StubProcess
    settings: StubSettings
    rules: EgressRules
    opener: LineOpener
    identity: Identity
    meters: StubMeters
    grant: StubGrant = WHOLE_GRANT
    now: Callable[[], float] = time.monotonic

    @property
    def grants(self) -> Grants:
        """The permissions that its manifest asks for and the node allows."""
        return self.grant.permissions(self.stub)


class StateObserver(Protocol):
    """Follows the states of one stub."""

    def reported(self, text: str) -> None:
        """The stub reports a state: its word, and text after a space."""

    def line_failed(self, reason: str) -> None:
        """A line of the stub could not be opened."""


class StubObserver(StateObserver, Protocol):
    """Follows one instance of a stub."""

    def throttled(self, detail: str) -> None:
        """It has used up its share of the node, and waits before each exchange; or has enough again: no detail."""


_Result = TypeVar("_Result")


async def host(
    instance: StubInstance,
    port: LinkPort,
    observer: StubObserver,
    until: Callable[[HostedStub], Awaitable[_Result]],
) -> _Result:
    """Run one instance until `until` returns; then its lines are closed, and its link has a carrier less.

    Returns:
        What `until` returned.

    Raises:
        StubFaultError: What ended it before; the worker process may be dead as well (STUB_DIED, STUB_TIMEOUT).
    """
    hosted: HostedStub | None = None
    try:
        async with trio.open_nursery() as nursery:
            hosted = HostedStub(instance, port, observer, nursery)
            nursery.start_soon(hosted.run)
            result = await until(hosted)
            nursery.cancel_scope.cancel()
    except* StubFaultError as group:
        raise first_error(group) from None
    finally:
        if hosted is not None:
            port.handle(CarrierDown(hosted))
    return result


class HostedStub(Carrier):
    """A running instance: exchanges batches with its worker, and carries the messages of its link.

    Attributes:
        stub: The instance, as those that serve it see it.
        egress: Its lines.
    """

    channel = "stub"

    def __init__(
        self, instance: StubInstance, port: LinkPort, observer: StubObserver, handler_nursery: trio.Nursery
    ) -> None:
        self.running = running = RunningStub(instance.stub, instance.grants, instance.meters)
        self.egress = Egress(
            instance.rules, instance.opener, running, handler_nursery=handler_nursery, on_ended=self._line_ended
        )
        self._instance = instance
        self._process = instance.process
        self._now = instance.now
        self._queue, self._port = port.queue, port
        self._observer = observer
        self._nursery = handler_nursery
        self._far_end = FarEnd(self, running, instance.identity, port, observer.reported)
        self._contact = self._far_end.contact
        messages = StubMessages(self, running, self._contact, port, instance.settings.peer_stream)
        self._actions = StubActions(running, self.egress, self._far_end, messages, handler_nursery)
        self._has_ended = False
        instance.meters.processor.share = instance.process.budget.cpu_share

    # What the link and the supervisor call.

    @property
    def is_live(self) -> bool:
        """True while messages go and come."""
        return self._contact.is_live

    @property
    def heard_seconds(self) -> float:
        """See `Carrier`."""
        return self.egress.heard_seconds

    def probe(self) -> bool:
        """See `Carrier`."""
        return self.egress.probe()

    def pump(self) -> None:
        """See `Carrier`."""
        self.running.wake()

    def end(self) -> None:
        """See `Carrier`."""
        self._nursery.start_soon(self._end)

    async def _end(self) -> None:
        raise self.running.fault(Code.STUB_FAILED, "the numbers of the stream are used up")

    def cut_off(self, code: Code) -> None:
        """See `Carrier`. Its process is stopped with the scope of the link."""

    def drain(self) -> None:
        """See `Carrier`. The stub says goodbye and closes its lines, which takes a moment."""
        self.running.emit(GuestEvent(Event.DRAIN, 0, b""))

    def _line_ended(self, channel: Channel, reason: str) -> None:
        """A line is gone, and with it what was open or proved on it."""
        if not channel.is_open and reason != "closed":
            self._observer.line_failed(reason)
        self.running.ledger.close_channel(channel.number)
        self._far_end.channel_closed(channel.number)

    # The exchange.

    async def run(self) -> None:
        """Start the stub, and exchange batches with it until cancelled.

        Raises:
            StubFaultError: What ended it.
        """
        self._nursery.start_soon(self._watch_process)
        self.running.emit(self._instance.settings.start_event(sorted(self.running.stub.endpoints)))
        for event in script_events(self._instance.stub.module):
            self.running.emit(event)
        while True:
            await self._wait_for_work()
            await self._exchange()
            await self._wait_for_share()

    async def _watch_process(self) -> None:
        """A worker that ends while nobody asks it anything is missed as well; else the next exchange finds out."""
        await self._process.wait_ended()
        self._has_ended = True
        self.running.wake()

    async def _wait_for_work(self) -> None:
        while not self.running.events and not (self._may_send and self._queue.may_take):
            if self._has_ended:
                raise self.running.fault(Code.STUB_DIED, "the worker ended", "died")
            if self._contact.is_live and self._queue.waiting and self.egress.backlog_bytes > EGRESS_HIGH_WATER_BYTES:
                with trio.move_on_after(SLOW_LINE_SECONDS):
                    await self.egress.wait_drained()
            else:
                await self.running.wait_woken()

    @property
    def _may_send(self) -> bool:
        return (
            self._contact.is_live
            and self._port.is_active(self)
            and self.egress.backlog_bytes <= EGRESS_HIGH_WATER_BYTES
        )

    def _take_events(self) -> tuple[list[GuestEvent], list[OutboundMessage]]:
        """The next batch: everything that happened, then messages. Returns the messages as well."""
        events = self.running.take_events()
        batch: list[OutboundMessage] = []
        if self._may_send:
            batch = self._queue.take_batch(BATCH_MESSAGES, BATCH_BYTES, self._now())
            events += map(_as_event, batch)
        return events, batch

    async def _exchange(self) -> None:
        events, batch = self._take_events()
        if not events:
            await trio.lowlevel.checkpoint()
            return
        started = self._now()
        try:
            reply = await self._process.exchange(events)
        except StubFaultError as exc:
            self._convict([pending.number for pending in batch], exc.fault or exc.code.word)
            raise
        elapsed_us = int((self._now() - started) * 1e6)
        self.running.meters.exchanged(
            messages=len(batch),
            elapsed_us=elapsed_us,
            fuel=reply.fuel,
            cpu_us=reply.cpu_us,
            memory_bytes=reply.memory_bytes,
        )
        share = reply.fuel // len(batch) if batch else 0
        for pending in batch:
            pending.stub_us, pending.fuel = elapsed_us, share
        data = sum(event.op == Event.DATA for event in events[: len(events) - len(batch)])
        try:
            await self._actions.perform(reply.actions, heard=len(batch) + data)
        finally:
            self._pay(reply.cpu_us)
        if reply.fault is not None:
            fault = reply.fault
            self._convict(
                [
                    event.arg
                    for event in events[fault.first_event : fault.first_event + fault.event_count]
                    if event.op == Event.MESSAGE
                ],
                fault.trap,
            )
            raise self.running.fault(fault.code, fault.trap, fault.trap)

    async def _wait_for_share(self) -> None:
        """Wait while the stub has taken more than its share; a worker that ends is noticed at once."""
        pause_seconds = self.running.meters.pause_seconds
        if pause_seconds:
            began = self._now()
            with trio.move_on_after(pause_seconds):
                await self._process.wait_ended()
            self.running.meters.paused_us += int((self._now() - began) * 1e6)

    def _pay(self, cpu_us: int) -> None:
        """Take the cost of one exchange from the shares of the stub, and report when one of them is used up."""
        meters, now = self.running.meters, self._now()
        if meters.take(cpu_us, self.running.ledger.unasked, now):
            self._observer.throttled(meters.shortage(now))

    def _convict(self, numbers: list[int], trap: str) -> None:
        self.running.meters.traps += 1
        convicted = self._queue.suspect(numbers) if numbers else None
        if convicted is not None:
            convicted.trap = trap[:_TRAP_CHARS]
            self._port.handle(Convicted(convicted))


_make_event: Callable[..., GuestEvent] = partial(tuple.__new__, GuestEvent)


def _as_event(pending: OutboundMessage) -> GuestEvent:
    """A message for the stub. Made as the tuple that it is: half the time of the constructor, once per message."""
    return _make_event((_MESSAGE, pending.number, pending.wire, 0))
