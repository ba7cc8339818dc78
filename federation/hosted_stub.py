"""One run of a foreign domain's stub, from `start` to its end: events in, actions out, one exchange in flight.

While the worker thinks, what happens piles up and becomes the next batch: at a low rate a batch is one message, in a
flood it is hundreds, and nobody decides which. Source: design, sections 3 and 4; docs/abi.md.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from federation.core.carrier import (
    Accepted,
    Carrier,
    CarrierDown,
    CarrierProved,
    CarrierUp,
    Convicted,
    LinkPort,
    Refused,
)
from federation.core.outbound_queue import OutboundMessage, OutboundQueue
from federation.core.stub_lifecycle import REPORTABLE, StubState
from federation.core.stub_meters import StubMeters
from federation.core.stub_settings import StubSettings
from federation.egress import Egress
from federation.error_groups import first_error
from federation.identity import Identity
from federation.inbound_turns import InboundTurns
from federation.peer_proof import PeerProof
from federation.peer_session import RECHECK_SECONDS
from protofly.errors import Code, HostError, PeerError, StubFaultError
from protofly.stub import VerifiedStub
from sandbox.core.exchange import Action, Event, GuestAction, GuestEvent
from sandbox.core.grants import Grants, Ledger
from sandbox.host import StubProcess

logger = logging.getLogger("federation")

BATCH_MESSAGES = 1024
BATCH_BYTES = 256 << 10
EVENT_QUEUE_BYTES = 1 << 20
EGRESS_HIGH_WATER_BYTES = 1 << 20

_MESSAGE = int(Event.MESSAGE)
_LOG_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


_TRAP_CHARS = 256
_CODES = {code.word: code for code in reversed(Code)}


class HostedStub(Carrier):
    """A running stub instance, with its timers, channels and proofs; made anew after every fault.

    Args:
        on_state: Called with each status that the stub reports: the word, and text after a space.
        allows_http: It may open channels of kind `http`.

    Attributes:
        is_live: It has said that messages may go and come.
    """

    channel = "stub"

    def __init__(
        self,
        verified: VerifiedStub,
        process: StubProcess,
        settings: StubSettings,
        *,
        queue: OutboundQueue,
        port: LinkPort,
        identity: Identity,
        on_state: Callable[[str], None],
        meters: StubMeters,
        allows_http: bool = True,
    ) -> None:
        self._verified, self._process, self._settings = verified, process, settings
        self._queue, self._port = queue, port
        self._turns = InboundTurns(self)
        self._identity = identity
        self._on_state = on_state
        self._meters = meters
        self._egress: Egress | None = None
        self._nursery: trio.Nursery | None = None
        self._events: deque[GuestEvent] = deque()
        self._event_bytes = 0
        self._wake = trio.Event()
        self._has_ended = False
        self._room = trio.lowlevel.ParkingLot()
        self._timers: dict[int, trio.CancelScope] = {}
        self._peer_stream = settings.peer_stream
        self._proof = PeerProof(verified, identity)
        auth = verified.manifest.permissions.auth
        self._ledger = Ledger(Grants(frozenset(verified.endpoints), auth=auth, http=allows_http))
        self.is_live = False
        self._handlers: dict[int, Callable[[GuestAction], None]] = {
            Action.OPEN: self._open,
            Action.REFUSED: self._refused,
            Action.SET_TIMER: self._set_timer,
            Action.REQUEST_AUTH_TOKEN: self._request_token,
            Action.VERIFY_PEER: lambda action: self._start(self._verify_peer, action),
            Action.STATUS: self._status,
            Action.PEER_STREAM: self._name_peer_stream,
            Action.LOG: self._log,
        }

    # What the link, the lines and the supervisor call.

    @property
    def heard_seconds(self) -> float:
        """See `Carrier`."""
        return 0.0 if self._egress is None else self._egress.heard_seconds

    def probe(self) -> bool:
        """See `Carrier`."""
        return self._egress is not None and self._egress.probe()

    def pump(self) -> None:
        """Wake the exchange loop."""
        self._wake.set()

    def emit(self, event: GuestEvent) -> None:
        """Queue one event for the guest."""
        if event.op == Event.CLOSED:
            self._channel_closed(event.arg)
        self._events.append(event)
        self._event_bytes += len(event.payload)
        self._wake.set()

    def _channel_closed(self, number: int) -> None:
        """No proof survives its line."""
        self._ledger.close_channel(number)
        if self._proof.channel_closed(number) and self.is_live:
            self.is_live = False
            self._on_state(StubState.DISCONNECTED.value)
            self._port.handle(CarrierDown(self))

    async def wait_for_room(self) -> None:
        """Wait while the guest has too much to read already."""
        while self._event_bytes > EVENT_QUEUE_BYTES:
            await self._room.park()

    def end(self) -> None:
        """See `Carrier`."""
        self._start(self._end)

    async def _end(self) -> None:
        raise StubFaultError(Code.STUB_FAILED, "the numbers of the stream are used up", domain=self._verified.domain)

    def drain(self) -> None:
        """Ask the stub to finish."""
        self.emit(GuestEvent(Event.DRAIN, 0, b""))

    async def run(
        self, open_egress: Callable[[HostedStub, trio.Nursery], Egress], *, beside: Callable[[], Awaitable[None]]
    ) -> None:
        """Run the instance until it fails.

        Args:
            open_egress: Makes its lines.
            beside: Runs as long as the instance does.

        Raises:
            StubFaultError: What ended it; the worker process may be dead as well (STUB_DIED, STUB_TIMEOUT).
        """
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._egress = open_egress(self, nursery)
                nursery.start_soon(beside)
                nursery.start_soon(self._watch_process)
                self.emit(self._settings.start_event(sorted(self._verified.endpoints)))
                try:
                    while True:
                        await self._wait_for_work()
                        await self._exchange()
                finally:
                    nursery.cancel_scope.cancel()
        except* StubFaultError as group:
            raise first_error(group) from None
        finally:
            self._port.handle(CarrierDown(self))

    # The exchange.

    async def _watch_process(self) -> None:
        """A worker that ends while nobody asks it anything is missed as well; else the next exchange finds out."""
        await self._process.wait_ended()
        self._has_ended = True
        self._wake.set()

    async def _wait_for_work(self) -> None:
        while not self._events and not (self._may_send and self._queue.may_take):
            if self._has_ended:
                raise StubFaultError(Code.STUB_DIED, "the worker ended", domain=self._verified.domain, fault="died")
            self._wake = trio.Event()
            if (
                self.is_live
                and self._queue.waiting
                and self._egress is not None
                and self._egress.backlog_bytes > EGRESS_HIGH_WATER_BYTES
            ):
                with trio.move_on_after(0.05):  # a slow line: look again soon, whatever else happens
                    await self._egress.wait_drained()
                continue
            await self._wake.wait()

    @property
    def _may_send(self) -> bool:
        return (
            self.is_live
            and self._port.is_active(self)
            and self._egress is not None
            and self._egress.backlog_bytes <= EGRESS_HIGH_WATER_BYTES
        )

    def _take_events(self) -> tuple[list[GuestEvent], list[OutboundMessage]]:
        """The next batch: everything that happened, then messages. Returns the messages as well."""
        events = list(self._events)
        self._events.clear()
        self._event_bytes = 0
        self._room.unpark_all()
        batch: list[OutboundMessage] = []
        if self._may_send:
            batch = self._queue.take_batch(BATCH_MESSAGES, BATCH_BYTES, time.monotonic())
            events += map(_as_event, batch)
        return events, batch

    async def _exchange(self) -> None:
        events, batch = self._take_events()
        if not events:
            await trio.lowlevel.checkpoint()
            return
        started = time.monotonic()
        try:
            reply = await self._process.exchange(events)
        except StubFaultError as exc:
            self._convict([pending.number for pending in batch], exc.fault or exc.code.word)
            raise
        elapsed_us = int((time.monotonic() - started) * 1e6)
        self._meters.exchanged(
            messages=len(batch),
            elapsed_us=elapsed_us,
            fuel=reply.fuel,
            cpu_us=reply.cpu_us,
            memory_bytes=reply.memory_bytes,
        )
        share = reply.fuel // len(batch) if batch else 0
        for pending in batch:
            pending.stub_us, pending.fuel = elapsed_us, share
        self._turns.begin()
        data = sum(event.op == Event.DATA for event in events[: len(events) - len(batch)])
        self._ledger.begin_answer(len(batch) + data)
        await self._perform(reply.actions)
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
            raise StubFaultError(fault.code, fault.trap, domain=self._verified.domain, fault=fault.trap)

    def _convict(self, numbers: list[int], trap: str) -> None:
        self._meters.traps += 1
        convicted = self._queue.suspect(numbers) if numbers else None
        if convicted is not None:
            convicted.trap = trap[:_TRAP_CHARS]
            self._port.handle(Convicted(convicted))

    # Actions.

    async def _perform(self, actions: list[GuestAction]) -> None:
        """Do what the stub asks, in its order; neighbouring sends and deliveries go as one.

        Raises:
            StubFaultError: The stub broke the contract. A refused action does not: the stub is notified and it counts.
        """
        index, end = 0, len(actions)
        while index < end:
            action = actions[index]
            stop = index + 1
            if action.op in (Action.DELIVER, Action.SEND):
                while (
                    stop < end
                    and actions[stop].op == action.op
                    and (action.op == Action.DELIVER or actions[stop].arg == action.arg)
                ):
                    stop += 1
            try:
                if action.op == Action.DELIVER:
                    await self._deliver(actions[index:stop])
                else:
                    self._perform_run(actions[index:stop])
            except StubFaultError as exc:
                if exc.code is not Code.STUB_DENIED or self._ledger.count_denial():
                    raise
                self._denied(action, exc)
            index = stop

    def _perform_run(self, actions: list[GuestAction]) -> None:
        """One action, or several sends that belong together."""
        action = actions[0]
        assert self._egress is not None
        if action.op == Action.SEND:
            self._ledger.check_channel(action.arg)
            self._egress.send(action.arg, [item.payload for item in actions])
        elif action.op == Action.ACCEPTED:
            self._port.handle(Accepted(action.arg))
        elif action.op == Action.CLOSE:
            self._egress.close(action.arg)
        else:
            self._ledger.count_request(action.op, time.monotonic())
            handler = self._handlers.get(action.op)
            if handler is None:
                raise StubFaultError(Code.STUB_OUTPUT, f"unknown action {action.op}", domain=self._verified.domain)
            handler(action)

    def _denied(self, action: GuestAction, exc: StubFaultError) -> None:
        """Answer the stub that it may not; a channel that it wanted is closed."""
        logger.info("stub %s of %s: %s", self._verified.name, self._verified.domain, exc, extra=self._about())
        if action.op == Action.OPEN and action.arg not in self._ledger.channels:
            self.emit(GuestEvent(Event.CLOSED, action.arg, f"{exc.code.word} {exc.detail}".encode()[:256]))
        elif action.op == Action.REQUEST_AUTH_TOKEN:
            self.emit(GuestEvent(Event.AUTH_TOKEN, action.arg, exc.code.word.encode()))

    def _open(self, action: GuestAction) -> None:
        assert self._egress is not None
        request, endpoint = self._egress.rules.read_request(action.payload)
        self._ledger.open_channel(action.arg, request.endpoint, action.flags)
        try:
            self._egress.open(action.arg, action.flags, request, endpoint)
        except StubFaultError:
            self._ledger.close_channel(action.arg)
            raise

    async def _deliver(self, actions: list[GuestAction]) -> None:
        if not self.is_live:
            raise StubFaultError(
                Code.STUB_DENIED, "messages come only after the peer was verified", domain=self._verified.domain
            )
        try:
            messages = [(action.arg, action.payload) for action in actions]
            await self._turns.take(messages, self._peer_stream, self._port)
        except PeerError as exc:
            raise StubFaultError(exc.code, exc.detail, domain=self._verified.domain) from exc

    def _name_peer_stream(self, action: GuestAction) -> None:
        self._peer_stream = action.payload.decode("ascii", "replace")[:64]

    def _refused(self, action: GuestAction) -> None:
        text = action.payload.decode("utf-8", "replace")[:512]
        status, _, rest = text.partition(" ")
        word, _, detail = rest.partition(" ")
        code = _CODES.get(word, Code.STUB_REFUSED)
        self._port.handle(Refused(action.arg, code, detail if code.word == word else f"{status} {rest}"))

    def _status(self, action: GuestAction) -> None:
        text = action.payload.decode("utf-8", "replace")[:512]
        state = REPORTABLE.get(text.partition(" ")[0])
        if state is None:
            raise StubFaultError(Code.STUB_OUTPUT, "unknown status", domain=self._verified.domain)
        if state is StubState.LIVE and self._verified.manifest.permissions.auth and not self._proof.node:
            raise StubFaultError(
                Code.STUB_FAILED, "the stub said live before the peer was verified", domain=self._verified.domain
            )
        was_live, self.is_live = self.is_live, state is StubState.LIVE
        self._on_state(text)
        if state is StubState.FAILED:
            raise StubFaultError(
                Code.STUB_FAILED, text.partition(" ")[2] or "the stub gave up", domain=self._verified.domain
            )
        if self.is_live and not was_live:
            self._port.handle(CarrierUp(self, self._proof.node, self._proof.domains))
        elif was_live and not self.is_live:
            self._proof.forget()
            self._port.handle(CarrierDown(self))

    def _set_timer(self, action: GuestAction) -> None:
        delay_ms = self._ledger.set_timer(action.arg, action.payload)
        old = self._timers.pop(action.arg, None)
        if old is not None:
            old.cancel()
        if delay_ms:
            scope = self._timers[action.arg] = trio.CancelScope()
            self._start(self._ring, action.arg, delay_ms / 1000, scope)

    async def _ring(self, number: int, delay_seconds: float, scope: trio.CancelScope) -> None:
        with scope:
            await trio.sleep(delay_seconds)
            if self._timers.get(number) is scope:
                del self._timers[number]
                self._ledger.timer_fired(number)
            self.emit(GuestEvent(Event.TIMER, number, b""))

    def _start(self, function: Callable[..., object], *arguments: object) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(function, *arguments)  # type: ignore[arg-type]

    # Proof of identity: the stub carries opaque texts, the host signs and checks.

    def _request_token(self, action: GuestAction) -> None:
        assert self._egress is not None
        self._ledger.request_token(action.arg, action.payload)
        self.emit(self._proof.token(action.arg, action.payload, self._egress.channel(action.arg)))

    async def _verify_peer(self, action: GuestAction) -> None:
        assert self._egress is not None
        try:
            outcome = await self._proof.verify(action.arg, action.payload, self._egress.channel(action.arg))
        except StubFaultError as exc:
            outcome = GuestEvent(Event.PEER_VERIFIED, action.arg, exc.code.word.encode())
        if self.is_live:
            self._port.handle(CarrierProved(self, self._proof.domains))
        self.emit(outcome)
        await self._watch_proof()

    async def _watch_proof(self) -> None:
        """What was proved holds as long as its key is published, and for the aliases that documents prove now.

        Returns when something else was proved meanwhile, or nothing.

        Raises:
            StubFaultError: STUB_FAILED when the key holds no more: the far end has to prove itself anew.
        """
        while (claims := self._proof.claims) is not None and (rests_on := self._proof.rests_on) is not None:
            await self._identity.wait_renewed(rests_on, seconds=RECHECK_SECONDS)
            domains = frozenset[str]()
            try:
                domains = await self._identity.check_again(rests_on)
            except HostError as exc:
                logger.info(
                    "the proof of %s cannot be checked again now: %s", self._verified.domain, exc, extra=self._about()
                )
                if exc.code in (Code.AUTH_KEY_REVOKED, Code.AUTH_KEY_UNKNOWN):
                    raise StubFaultError(Code.STUB_FAILED, exc.detail, domain=self._verified.domain) from exc
            if not self._proof.renew(claims, domains):
                return
            if self.is_live:
                self._port.handle(CarrierProved(self, domains))

    def _log(self, action: GuestAction) -> None:
        text = self._ledger.log_line(action.payload, time.monotonic())
        if text is None:
            self._meters.log_lines_dropped += 1
        else:
            level = _LOG_LEVELS[min(action.arg, 3)]
            logger.log(
                level, "stub %s of %s: %s", self._verified.name, self._verified.domain, text, extra=self._about()
            )

    def _about(self) -> dict[str, str]:
        """Fields of a line in the log."""
        return {"domain": self._verified.domain, "stub": self._verified.name}


_make_event: Callable[..., GuestEvent] = partial(tuple.__new__, GuestEvent)


def _as_event(pending: OutboundMessage) -> GuestEvent:
    """A message for the guest. Made as the tuple that it is: half the time of the constructor, once per message."""
    return _make_event((_MESSAGE, pending.number, pending.wire, 0))
