"""A node whose sandbox is replaced by nothing: the same path, the link protocol spoken by a Python object in the node.

It exists to show what the sandbox costs. It runs no foreign code at all: what the verified module would do is written
out below. `python -m benchmarks.bare_node --config node.toml` takes the place of `python -m trapezoid serve`.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import cast

import msgspec
import trio

from federation.core.link_frames import (
    SUBPROTOCOL,
    VERSION,
    FrameKind,
    Hello,
    decode_frame,
    decode_messages,
    encode_frame,
    encode_messages,
)
from msg_node.app import serve
from msg_node.settings.load import load_settings
from sandbox.core.budget import Budget
from sandbox.core.exchange import FLAG_GRANTED, Action, ChannelKind, Event, GuestAction, GuestEvent
from sandbox.host import Sandbox
from sandbox.stub_process import ExchangeReply, StubProcess

_CHANNEL = 1
_OPEN = msgspec.json.encode({"endpoint": "mn", "subprotocol": SUBPROTOCOL})


class LinkClient:
    """The client side of `trapezoid-link/1`, as the stub speaks it, without its reconnection."""

    def __init__(self) -> None:
        self._settings: dict[str, object] = {}
        self._resume = 0
        self._stream = b""

    def handle(self, events: list[GuestEvent]) -> list[GuestAction]:
        """Answer events with actions, as `handle` of the module does."""
        actions: list[GuestAction] = []
        numbered = [(event.arg, event.payload) for event in events if event.op == Event.MESSAGE]
        for event in events:
            if event.op != Event.MESSAGE:
                actions += self._answer(event)
        for frame in encode_messages(numbered):
            actions.append(GuestAction(Action.SEND, _CHANNEL, frame))
        return actions

    def _answer(self, event: GuestEvent) -> list[GuestAction]:
        match event.op:
            case Event.START:
                self._settings = msgspec.json.decode(event.payload)
                return [
                    GuestAction(Action.STATUS, 0, b"created"),
                    GuestAction(Action.OPEN, _CHANNEL, _OPEN, ChannelKind.WEBSOCKET),
                ]
            case Event.OPENED:
                return [GuestAction(Action.STATUS, 0, b"in-progress"), self._send(self._hello())]
            case Event.AUTH_TOKEN:
                return [self._send(encode_frame(FrameKind.TOKEN, 0, event.payload))]
            case Event.PEER_VERIFIED:
                return self._verified(granted=bool(event.flags & FLAG_GRANTED))
            case Event.DATA:
                return self._frame(event.payload)
            case Event.CLOSED:
                return [GuestAction(Action.STATUS, 0, b"failed the line was closed")]
        return []

    def _hello(self) -> bytes:
        settings = self._settings
        hello = Hello(
            stream=str(settings["stream"]),
            domain=str(settings["our_domain"]),
            node=str(settings["our_node"]),
            peer_stream=str(settings["peer_stream"]),
            delivered=int(str(settings["delivered"])),
        )
        return encode_frame(FrameKind.HELLO, VERSION, msgspec.json.encode(hello))

    def _verified(self, *, granted: bool) -> list[GuestAction]:
        if not granted:
            return [GuestAction(Action.STATUS, 0, b"failed the peer is not verified")]
        resumed = [GuestAction(Action.ACCEPTED, self._resume, b"")] if self._resume else []
        return [GuestAction(Action.PEER_STREAM, 0, self._stream), *resumed, GuestAction(Action.STATUS, 0, b"live")]

    def _frame(self, raw: bytes) -> list[GuestAction]:
        frame = decode_frame(raw)
        if frame.kind is FrameKind.CHALLENGE:
            return [GuestAction(Action.REQUEST_AUTH_TOKEN, _CHANNEL, frame.payload)]
        if frame.kind is FrameKind.WELCOME:
            self._resume, self._stream = frame.arg, frame.payload[:32]
            return [GuestAction(Action.VERIFY_PEER, _CHANNEL, frame.payload[32:])]
        if frame.kind is FrameKind.ACK:
            return [GuestAction(Action.ACCEPTED, frame.arg, b"")]
        if frame.kind is FrameKind.MESSAGES:
            raws = decode_messages(frame.payload)
            delivered = [GuestAction(Action.DELIVER, frame.arg + index, one) for index, one in enumerate(raws)]
            return [*delivered, self._send(encode_frame(FrameKind.ACK, frame.arg + len(raws) - 1))]
        return []

    @staticmethod
    def _send(frame: bytes) -> GuestAction:
        return GuestAction(Action.SEND, _CHANNEL, frame)


class BareProcess:
    """In place of a worker: no process, no module, a function call."""

    pid = 0

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._client = LinkClient()

    async def exchange(self, events: list[GuestEvent]) -> ExchangeReply:
        """One batch in, one batch out, without leaving the process."""
        await trio.lowlevel.checkpoint()
        return ExchangeReply(self._client.handle(events), 0, 0, 0, None)

    async def wait_ended(self) -> None:
        """There is no process that could end."""
        await trio.sleep_forever()

    def close(self) -> None:
        """Nothing to end."""


class BareSandbox(Sandbox):
    """In place of the sandbox: verified modules are compiled to nothing."""

    @property
    def fingerprint(self) -> str:
        """No engine."""
        return "bare"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Nothing to keep alive."""
        task_status.started()
        await trio.sleep_forever()

    async def compile(self, module: bytes) -> bytes:  # noqa: ARG002 - the module is verified, and not run
        """No code."""
        await trio.lowlevel.checkpoint()
        return b"\0"

    async def start_worker(self, domain: str, code: bytes, budget: Budget) -> StubProcess:  # noqa: ARG002
        """No worker."""
        await trio.lowlevel.checkpoint()
        return cast("StubProcess", BareProcess(budget))


def _print_ready(facts: dict[str, object]) -> None:
    sys.stdout.write(f"ready {msgspec.json.encode(facts).decode()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    settings = load_settings(Path(sys.argv[sys.argv.index("--config") + 1]))
    trio.run(partial(serve, settings, on_ready=_print_ready, sandbox=BareSandbox()))
