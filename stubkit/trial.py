"""The scripted life of one stub: what a host and a far end do to it, and what each step of it cost.

Every step is made from what the stub has asked for so far: channels that it opened, timers that it set. The nonsense is
drawn from a fixed seed, so that a finding can be repeated.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from protofly import limits
from protofly.errors import HostError
from sandbox.core.budget import Budget
from sandbox.core.exchange import FLAG_GRANTED, FLAG_TEXT, Action, Event, GuestAction, GuestEvent
from sandbox.core.scripts import script_events
from sandbox.stub_process import ExchangeReply, StubProcess
from stubkit.complaints import complaints_about
from stubkit.line_states import LineStates

SCRIPT_SEED: Final = 20_261_121
"""Of the nonsense; the same at every run, so that a finding can be repeated."""

BURST_MESSAGES: Final = 200
CHECK_DOMAIN: Final = "check.example"
SETTINGS: Final = {
    "abi": 1,
    "our_domain": "a.example",
    "our_node": "runtime://a.example/mn-1",
    "stub_url": "runtime://a.example/mn-1/protostub/check",
    "peer_domain": CHECK_DOMAIN,
    "endpoints": ["mn"],
    "stream": "0f" * 16,
    "peer_stream": "",
    "delivered": 0,
    "configuration": {},
    "tokens": [],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStep:
    """One step of the script: what it cost, and what was wrong with the answer ("" = nothing)."""

    name: str
    events: int
    actions: int
    fuel: int
    fuel_share: float
    """Part of the fuel that the contract allows for such a call."""
    cpu_us: int
    memory_bytes: int
    state: str
    """What the stub has said of itself by then, "" for nothing."""
    complaint: str


class Trial:
    """One stub, the channels and timers that it has asked for, and what every step led to."""

    def __init__(self, stub: StubProcess, endpoints: Sequence[str], module: bytes = b"") -> None:
        self._stub = stub
        self._module = module
        self._endpoints = frozenset(endpoints)
        self._random = random.Random(SCRIPT_SEED)  # noqa: S311 (nonsense that can be repeated, no secret)
        self._channels: list[int] = []
        self._timers: list[int] = []
        self._lines = LineStates()
        self._has_instance = True
        self._has_verdict = False
        self.is_live_unproved = False
        """True if the stub said `live` before anybody had said that its far end is verified."""

    async def play(self) -> list[CheckStep]:
        """Go through the script until its end or the end of the instance."""
        steps: list[CheckStep] = []
        for name, events in self._script():
            if not self._has_instance:
                break
            if not events:
                continue  # the stub has asked for no channel or timer that the step could be about
            steps.append(await self._step(name, events))
        return steps

    def _script(self) -> Iterator[tuple[str, list[GuestEvent]]]:
        """Steps are made one after the other, as the next one depends on what the stub asked for."""
        yield "start", [self._start(), *script_events(self._module)]
        yield "message before live", [_message(1)]
        yield (
            "refusal of every channel",
            [GuestEvent(Event.CLOSED, channel, b"connect-failed refused") for channel in self._take_channels()],
        )
        yield "timers after the refusal", [GuestEvent(Event.TIMER, timer, b"") for timer in self._take_timers()]
        yield from self._connection("empty subprotocol", b"")
        yield (
            "loss of every channel",
            [GuestEvent(Event.CLOSED, channel, b"link-lost reset") for channel in self._take_channels()],
        )
        yield "timers", [GuestEvent(Event.TIMER, timer, b"") for timer in self._take_timers()]
        yield from self._connection("unexpected subprotocol", b"\xff\x00" * 50)
        yield "timers again", [GuestEvent(Event.TIMER, timer, b"") for timer in self._take_timers()]
        yield "burst of messages", [_message(number) for number in range(2, BURST_MESSAGES + 2)]
        yield "message of 1 MiB", [_message(BURST_MESSAGES + 2, 1 << 20)]
        yield (
            "unknown channel and timer",
            [GuestEvent(Event.DATA, 65_000, b"late"), GuestEvent(Event.TIMER, 0xFFFF_FFFF, b"")],
        )
        yield "drain", [GuestEvent(Event.DRAIN, 0, b"")]
        yield (
            "events after drain",
            [_message(BURST_MESSAGES + 3), GuestEvent(Event.CLOSED, 1, b""), GuestEvent(Event.DRAIN, 0, b"")],
        )

    def _connection(self, name: str, subprotocol: bytes) -> Iterator[tuple[str, list[GuestEvent]]]:
        channels = list(self._channels)
        yield f"opened, {name}", [GuestEvent(Event.OPENED, channel, subprotocol) for channel in channels]
        yield (
            "token and verdict nobody asked for",
            [
                GuestEvent(op, channel, b"auth-limit", flags)
                for channel in channels
                for op in (Event.AUTH_TOKEN, Event.PEER_VERIFIED)
                for flags in (0, FLAG_GRANTED)
            ],
        )
        for is_text in (False, True):
            flags = FLAG_TEXT if is_text else 0
            kind = "text" if is_text else "binary"
            yield (
                f"{kind} nonsense",
                [GuestEvent(Event.DATA, c, raw, flags) for c in channels for raw in self._nonsense()],
            )
        yield (
            "64 KiB of nonsense",
            [GuestEvent(Event.DATA, c, self._random.randbytes(limits.INPUT_BYTES - 64)) for c in channels],
        )

    def _nonsense(self) -> list[bytes]:
        return [b"", *[self._random.randbytes(self._random.randrange(200)) for _ in range(12)], b"{" * 500, b"\n" * 500]

    def _start(self) -> GuestEvent:
        settings = SETTINGS | {"endpoints": sorted(self._endpoints)}
        return GuestEvent(Event.START, 0, json.dumps(settings).encode())

    def _take_channels(self) -> list[int]:
        channels, self._channels = self._channels, []
        return channels

    def _take_timers(self) -> list[int]:
        timers, self._timers = self._timers, []
        return timers

    async def _step(self, name: str, events: list[GuestEvent]) -> CheckStep:
        """Hand over the events; the report's figures are those of the whole step."""
        try:
            reply = await self._stub.exchange(events)
        except HostError as exc:
            self._has_instance = False
            return self._step_of(name, events, None, str(exc))
        self._lines.given(events)
        wrong = self._lines.answered(reply.actions)
        if reply.fault is not None:
            self._has_instance = False
            complaint = f"{reply.fault.code.word}: {reply.fault.trap}"
        else:
            wrong = complaints_about(reply.actions, self._endpoints, is_first=name == "start") + wrong
            complaint = "; ".join(wrong)
        self._has_verdict |= any(event.op == Event.PEER_VERIFIED for event in events)
        self._note(reply.actions)
        return self._step_of(name, events, reply, complaint)

    def _step_of(
        self, name: str, events: Sequence[GuestEvent], reply: ExchangeReply | None, complaint: str
    ) -> CheckStep:
        """The row of the report for one batch of events. Without a reply, the figures are 0."""
        allowed = Budget().fuel_of_call(len(events), sum(len(event.payload) for event in events))
        fuel = reply.fuel if reply else 0
        return CheckStep(
            name=name,
            events=len(events),
            actions=len(reply.actions) if reply else 0,
            fuel=fuel,
            fuel_share=fuel / allowed if allowed else 0.0,
            cpu_us=reply.cpu_us if reply else 0,
            memory_bytes=reply.memory_bytes if reply else 0,
            state=self._lines.state,
            complaint=complaint,
        )

    def _note(self, actions: Sequence[GuestAction]) -> None:
        for action in actions:
            if action.op == Action.OPEN and action.arg not in self._channels:
                self._channels.append(action.arg)
            elif action.op == Action.SET_TIMER and action.payload != bytes(4) and action.arg not in self._timers:
                self._timers.append(action.arg)
            elif action.op == Action.STATUS and action.payload.partition(b" ")[0] == b"live":
                self.is_live_unproved |= not self._has_verdict


def _message(number: int, size: int = 300) -> GuestEvent:
    header = (
        b'{"id":"%d","type":"create","from":"hyperty://a.example/1","to":"hyperty://check.example/2","body":{"value":"'
    )
    text = header % number
    return GuestEvent(Event.MESSAGE, number, text + b"x" * max(0, size - len(text) - 3) + b'"}}')
