"""What one stub asks for, done by the host within what the stub may. Source: docs/abi.md, "Actions"."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import trio

from federation.stubs.egress import Egress
from federation.stubs.far_end import FarEnd
from federation.stubs.running_stub import RunningStub
from federation.stubs.stub_messages import StubMessages
from federation.stubs.stub_timers import StubTimers
from protofly.errors import Code, StubFaultError
from sandbox.core.exchange import Action, Event, GuestAction, GuestEvent

logger = logging.getLogger("federation")

_LOG_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)


class StubActions:
    """Performs the actions of one stub, in their order.

    What the stub may not do is refused: the ledger counts it, and the stub gets an event where it waits for one. What
    breaks the contract of the ABI ends the stub.

    Args:
        stub: Whose actions they are.
        egress: Its lines.
        far_end: What it says about the node that it reaches.
        messages: What it says about messages.
        nursery: Runs what takes time.
    """

    def __init__(
        self, running: RunningStub, egress: Egress, far_end: FarEnd, messages: StubMessages, nursery: trio.Nursery
    ) -> None:
        self._running = running
        self._egress = egress
        self._far_end = far_end
        self._messages = messages
        self._handlers: dict[int, Callable[[GuestAction], None]] = {
            Action.OPEN: self._open,
            Action.REFUSED: messages.refused,
            Action.SET_TIMER: StubTimers(running, nursery).set,
            Action.REQUEST_AUTH_TOKEN: self._request_token,
            Action.VERIFY_PEER: lambda action: nursery.start_soon(far_end.verify, action, egress),
            Action.STATUS: far_end.status,
            Action.PEER_STREAM: messages.name_peer_stream,
            Action.LOG: self._log,
        }

    async def perform(self, actions: list[GuestAction], *, heard: int) -> None:
        """Do what the stub asks, in its order, turn by turn; neighbouring sends and deliveries go as one.

        Args:
            actions: One answer of the stub.
            heard: So many messages and pieces of data were in the batch that it answers.

        Raises:
            StubFaultError: The stub broke the contract.
        """
        self._messages.turns.begin()
        self._running.ledger.begin_answer(heard)
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
                    await self._messages.deliver(actions[index:stop])
                else:
                    self._perform_run(actions[index:stop])
            except StubFaultError as exc:
                if exc.code is not Code.STUB_DENIED or self._running.ledger.count_denial():
                    raise
                self._refuse(action, exc)
            await self._messages.turns.give_way()
            index = stop

    def _perform_run(self, actions: list[GuestAction]) -> None:
        """One action, or several sends that belong together."""
        action = actions[0]
        if action.op == Action.SEND:
            self._running.ledger.check_channel(action.arg)
            self._egress.send(action.arg, [item.payload for item in actions])
        elif action.op == Action.ACCEPTED:
            self._messages.accepted(action)
        elif action.op == Action.CLOSE:
            self._egress.close(action.arg)
        else:
            self._running.ledger.count_request(action.op, time.monotonic())
            handler = self._handlers.get(action.op)
            if handler is None:
                raise self._running.fault(Code.STUB_OUTPUT, f"unknown action {action.op}")
            handler(action)

    def _refuse(self, action: GuestAction, exc: StubFaultError) -> None:
        """Answer the stub that it may not; a channel that it wanted is closed."""
        stub = self._running.stub
        logger.info("stub %s of %s: %s", stub.name, stub.domain, exc, extra=self._running.about())
        if action.op == Action.OPEN and action.arg not in self._running.ledger.channels:
            self._running.emit(GuestEvent(Event.CLOSED, action.arg, f"{exc.code.word} {exc.detail}".encode()[:256]))
        elif action.op == Action.REQUEST_AUTH_TOKEN:
            self._running.emit(GuestEvent(Event.AUTH_TOKEN, action.arg, exc.code.word.encode()))

    def _open(self, action: GuestAction) -> None:
        request, endpoint = self._egress.rules.read_request(action.payload)
        self._running.ledger.open_channel(action.arg, request.endpoint, action.flags)
        try:
            self._egress.open(action.arg, action.flags, request, endpoint)
        except StubFaultError:
            self._running.ledger.close_channel(action.arg)
            raise

    def _request_token(self, action: GuestAction) -> None:
        self._running.ledger.request_token(action.arg, action.payload)
        self._far_end.request_token(action, self._egress.channel(action.arg))

    def _log(self, action: GuestAction) -> None:
        running = self._running
        text = running.ledger.log_line(action.payload, time.monotonic())
        if text is None:
            running.meters.log_lines_dropped += 1
        else:
            level, stub = _LOG_LEVELS[min(action.arg, 3)], running.stub
            logger.log(level, "stub %s of %s: %s", stub.name, stub.domain, text, extra=running.about())
