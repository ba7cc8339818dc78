"""A stub without a sandbox: the test says what the guest answers. For what the host must do, whatever a guest does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import trio

from protofly.errors import StubFaultError
from sandbox.core.budget import Budget
from sandbox.core.exchange import Action, ChannelKind, Event, GuestAction, GuestEvent
from sandbox.stub_process import ExchangeReply, Fault

Answer = Sequence[GuestAction] | Fault | StubFaultError
Script = Callable[[GuestEvent], Answer]


class ScriptedProcess:
    """Stands in for `StubProcess`. `seen` are all events in order; the script is asked for each one.

    Each exchange says that it took `cpu_us` of the processor.
    """

    pid = 1
    budget = Budget()
    cpu_us = 1

    def __init__(self, script: Script = lambda _event: ()) -> None:
        self.script = script
        self.seen: list[GuestEvent] = []
        self.batches: list[int] = []
        self._say: list[GuestAction] = []

    async def exchange(self, events: list[GuestEvent]) -> ExchangeReply:
        await trio.lowlevel.checkpoint()
        self.batches.append(len(events))
        actions: list[GuestAction] = []
        for index, event in enumerate(events):
            self.seen.append(event)
            answer = self.script(event)
            if isinstance(answer, StubFaultError):
                raise answer
            if isinstance(answer, Fault):
                return ExchangeReply(actions, 1, 1, 65536, Fault(answer.code, answer.trap, index, 1))
            actions += answer
        return ExchangeReply(actions, 1, self.cpu_us, 65536, None)

    async def wait_ended(self) -> None:
        await trio.sleep_forever()

    def close(self) -> None:
        """Nothing runs."""

    def events(self, op: Event) -> list[GuestEvent]:
        return [event for event in self.seen if event.op == op]

    def payloads(self, op: Event) -> list[bytes]:
        return [event.payload for event in self.events(op)]


def act(op: Action, arg: int = 0, payload: bytes | str = b"", flags: int = 0) -> GuestAction:
    return GuestAction(op, arg, payload.encode() if isinstance(payload, str) else payload, flags)


def opening(channel: int = 1, *, kind: ChannelKind = ChannelKind.WEBSOCKET, **members: Any) -> GuestAction:
    return act(Action.OPEN, channel, json.dumps({"endpoint": "mn"} | members), kind)


def status(text: str) -> GuestAction:
    return act(Action.STATUS, 0, text)
