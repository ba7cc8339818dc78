"""Performs what the machine of a link decides: pumps carriers, answers senders, writes records, wakes tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from secrets import token_hex
from typing import Protocol

import trio

from federation.core.carrier import Carrier
from federation.core.link_machine import (
    NAME_STREAM,
    RELIEVED,
    Answer,
    CameUp,
    CannotProbe,
    Delivered,
    EndCarrier,
    Ended,
    HeardAgain,
    LinkAction,
    LinkMachine,
    NewStream,
    Probe,
    Pump,
    Quarantine,
    Signal,
    SpeaksFor,
    Stalled,
    Switched,
    WentDown,
)
from federation.core.outbound_queue import OutboundMessage
from federation.core.stub_status import StubStatus
from federation.inbound import Inbound
from federation.link_context import LinkObserver, LocalBus
from federation.link_events import LinkEvents
from federation.link_records import LinkRecords
from federation.need import Need
from federation.paused_senders import PausedSenders
from federation.traces import Traces
from protofly.errors import Code

logger = logging.getLogger("federation")


class Performer(Protocol):
    """The link for which actions are performed."""

    domain: str
    machine: LinkMachine
    stub: StubStatus
    records: LinkRecords
    events: LinkEvents
    inward: Inbound
    senders: PausedSenders
    need: Need

    @property
    def is_idle(self) -> bool:
        """True when nobody needs the link."""


class LinkEffects:
    """The effects of one link's actions.

    Attributes:
        has_traced: A message whose way is followed was sent.
    """

    def __init__(self, link: Performer, bus: LocalBus, observer: LinkObserver, traces: Traces) -> None:
        self._link = link
        self._observer = observer
        self._traces = traces
        self._came_up = trio.Event()
        self._switched = trio.Event()
        self.has_traced = False
        self._performers: dict[type, Callable[..., object]] = {
            Delivered: self._delivered,
            Ended: self._ended,
            Answer: lambda action, _now: bus.answer(action.reply),
            Pump: lambda action, _now: action.carrier.pump(),
            EndCarrier: lambda action, _now: action.carrier.end(),
            Probe: self._probe,
            CameUp: self._carrier_up,
            Switched: self._is_switched,
            SpeaksFor: lambda action, _now: link.inward.carrier_proved(action.event.carrier, action.event.domains),
            WentDown: self._carrier_down,
            Stalled: lambda action, _now: link.events.stalled(action.detail),
            HeardAgain: lambda action, _now: link.events.heard_again(action.seconds),
            Quarantine: self._quarantine,
            Signal: self._signalled,
        }

    async def wait_live(self) -> None:
        """Wait until a carrier is up."""
        while not self._link.machine.carriers:
            await self._came_up.wait()

    async def wait_carried_by_another(self, carrier: Carrier) -> None:
        """Wait until messages do not go by this carrier."""
        while self._link.machine.carriers and self._link.machine.carriers[0] is carrier:
            self._switched = trio.Event()
            await self._switched.wait()

    def perform(self, actions: Iterable[LinkAction], now: float) -> None:
        """Do what the machine decided, in order; `now` is when it did, in monotonic seconds."""
        for action in actions:
            self._performers[type(action)](action, now)

    def _delivered(self, action: Delivered, now: float) -> None:
        self._link.records.delivered(action.messages, now)
        if action.relieves:
            self._link.senders.relieve()
        if self.has_traced:
            self._trace_delivered(action.messages, now)

    def _ended(self, action: Ended, now: float) -> None:
        message = action.message.message
        self._link.records.ended(action.message, action.outcome, action.code, now)
        if message.peek.trace:
            self._traces.hop(message.trace, action.outcome, now)

    def _probe(self, action: Probe, now: float) -> None:
        if not action.carrier.probe():
            self._link.machine.handle(CannotProbe(), now)

    def _signalled(self, signal: Signal, now: float) -> None:
        if signal is RELIEVED:
            self._link.senders.relieve()
        elif signal is NAME_STREAM:
            self.perform(self._link.machine.handle(NewStream(token_hex(16)), now), now)

    def _trace_delivered(self, messages: Iterable[OutboundMessage], now: float) -> None:
        for one in messages:
            if one.message.peek.trace:
                self._traces.hop(one.message.trace, "stub", one.handed_seconds)
                self._traces.hop(one.message.trace, "acknowledged", now)

    def _carrier_up(self, action: CameUp, _now: float) -> None:
        event = action.event
        self._link.inward.carrier_live(event.carrier, event.domains, is_node=bool(event.peer_node))
        self._came_up.set()
        self._link.events.came_up(event.carrier.direction, peer_node=event.peer_node)
        self._mark_way()
        self._observer.on_live(self._link.domain)

    def _is_switched(self, _action: Switched, _now: float) -> None:
        self._switched.set()
        self._mark_way()

    def _carrier_down(self, down: WentDown, _now: float) -> None:
        self._link.inward.carrier_lost(down.carrier)
        self._link.events.went_down(down.carrier.direction, waiting=down.waiting, detail=down.detail)
        self._mark_way()
        if down.was_active:
            self._switched.set()
            self._link.senders.look_again()
        if down.was_last:
            self._observer.on_lost(self._link.domain)
            self._came_up = trio.Event()
            if not self._link.is_idle:
                self._link.need.arise()

    def _mark_way(self) -> None:
        machine = self._link.machine
        self._link.records.carried(
            channel=machine.carried_by, peer_node=machine.peer_node, stub_version=self._link.stub.started_sha256
        )

    def _quarantine(self, action: Quarantine, _now: float) -> None:
        message, domain = action.message, self._link.domain
        msg_id = message.msg_id.hex()
        about = {"domain": domain, "msg_id": msg_id, "code": Code.QUARANTINED.word}
        logger.error("message %s killed the stub of %s twice and is quarantined", msg_id, domain, extra=about)
        self._observer.quarantine(domain, message)
