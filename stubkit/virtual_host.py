"""A host in virtual time around one real instance: it keeps timers and channels, and everything repeats exactly."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from protofly.errors import Code, StubFaultError
from sandbox.core.exchange import Action, Event, GuestAction, GuestEvent
from sandbox.core.scripts import script_events
from sandbox.stub_process import StubProcess
from stubkit.trial import SETTINGS

BEGINS_MS: Final = 1_795_219_200_000
"""Unix time at the start of each instance."""
NANOSECONDS_PER_MILLISECOND: Final = 1_000_000
DAY_MS: Final = 86_400_000
_NOTED: Final = frozenset(map(int, (Action.OPEN, Action.CLOSE, Action.STATUS, Action.SET_TIMER)))
FIRED_TIMERS: Final = 10_000
"""So many in one wait are a fault: a stub that sets its timer anew each millisecond would go on for ever."""


@dataclass(slots=True)
class Cost:
    """The cost and the number of answers of all calls so far."""

    calls: int = 0
    fuel: int = 0
    cpu_us: int = 0
    memory_bytes: int = 0
    actions: list[GuestAction] = field(default_factory=list)


class VirtualHost:
    """Gives events to one instance. Clock and random bytes are a function of the calls so far.

    Attributes:
        stub: The instance.
        cost: Of the calls since `take_cost`.
        state: The state that it reported last, "" for none.
        channels: Numbers of the channels that the stub has opened and nobody closed, with the bytes of `open`.
    """

    def __init__(self, stub: StubProcess, module: bytes) -> None:
        self.stub = stub
        self._script = script_events(module)
        self.cost = Cost()
        self.state = ""
        self.channels: dict[int, bytes] = {}
        self._timers: dict[int, int] = {}
        self._now_ms = BEGINS_MS
        self._calls = 0
        stub.use_sources(lambda: self._now_ms * NANOSECONDS_PER_MILLISECOND, self._random_bytes)

    def _random_bytes(self, size: int) -> bytes:
        self._calls += 1
        return hashlib.sha256(b"%d" % self._calls).digest()[:size]

    @property
    def idle_ms(self) -> int:
        """Time until a timer fires; a day when none is set."""
        return min(self._timers.values(), default=self._now_ms + DAY_MS) - self._now_ms

    def take_cost(self) -> Cost:
        """The cost since the last time; counting begins anew."""
        cost, self.cost = self.cost, Cost()
        return cost

    def _with_script(self, events: tuple[GuestEvent, ...]) -> list[GuestEvent]:
        if not self._script:
            return list(events)
        return [one for event in events for one in ([event, *self._script] if event.op == Event.START else [event])]

    async def give(self, *events: GuestEvent) -> list[GuestAction]:
        """Hand over events in one exchange; `start` is followed by the script of the module, if it has one.

        Raises:
            StubFaultError: The fault that ended the instance.
        """
        for event in events:
            if event.op == Event.CLOSED:
                self.channels.pop(event.arg, None)
            elif event.op == Event.TIMER:
                self._timers.pop(event.arg, None)
        reply = await self.stub.exchange(self._with_script(events))
        cost = self.cost
        cost.calls += 1
        cost.fuel += reply.fuel
        cost.cpu_us += reply.cpu_us
        cost.memory_bytes = reply.memory_bytes
        cost.actions += reply.actions
        for action in reply.actions:
            if action.op in _NOTED:
                self._note(action)
        if reply.fault is not None:
            raise StubFaultError(reply.fault.code, reply.fault.trap)
        return reply.actions

    def _note(self, action: GuestAction) -> None:
        if action.op == Action.OPEN:
            self.channels[action.arg] = action.payload
        elif action.op == Action.CLOSE:
            self.channels.pop(action.arg, None)
        elif action.op == Action.STATUS:
            self.state = action.payload.decode("utf-8", "replace").partition(" ")[0]
        elif action.op == Action.SET_TIMER:
            self._timers.pop(action.arg, None)
            if delay_ms := int.from_bytes(action.payload[:4], "little"):
                self._timers[action.arg] = self._now_ms + delay_ms

    async def wait(self, wait_ms: int) -> list[GuestAction]:
        """Let time pass; timers that are due fire in their order, each at its own time.

        Raises:
            StubFaultError: See `give`; also for too many timers.
        """
        until_ms, actions, fired = self._now_ms + wait_ms, list[GuestAction](), 0
        while self._timers:
            due_ms, timer = min((due_ms, timer) for timer, due_ms in self._timers.items())
            if due_ms > until_ms:
                break
            fired += 1
            if fired > FIRED_TIMERS:
                raise StubFaultError(Code.STUB_OUTPUT, f"more than {FIRED_TIMERS:,} timers in one wait")
            self._now_ms = due_ms
            actions += await self.give(GuestEvent(Event.TIMER, timer, b""))
        self._now_ms = until_ms
        return actions


def start_event(members: dict[str, Any]) -> GuestEvent:
    """The event `start` with the usual settings, and these."""
    return GuestEvent(Event.START, 0, msgspec.json.encode({**SETTINGS, **members}))
