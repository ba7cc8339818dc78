"""What one run of a stub without a node is asked for, its link, and what came of it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from federation.core.carrier import Accepted, Carrier, CarrierDown, CarrierEvent, CarrierUp, Inbox, LinkPort, Refused
from federation.core.outbound_queue import OutboundMessage, OutboundQueue, QueueLimits
from federation.stubs.hosted_stub import HostedStub
from protofly.codec import decode
from protofly.errors import PeerError, SettingsError

MESSAGES_MAX: Final = 10_000
DELIVERIES_KEPT: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """Terms of one live run.

    Attributes:
        endpoints: URL of each endpoint that the stub may open, by name.
        messages: JSON texts that are sent once the stub is live.
        configuration: What `start` hands to the stub.
        our_domain: The domain that hosts the stub.
        peer_domain: The domain whose stub it is.
        needs_auth: Both nodes prove themselves: the stub gets tokens, and must not be live without a proof.
        authority: Certificates that TLS trusts besides those of the system.
        deliveries: The run goes on until so many messages have come.
        seconds: The run ends after this time at the latest; None: not before it is interrupted.
    """

    endpoints: Mapping[str, str]
    messages: Sequence[bytes] = ()
    configuration: Mapping[str, object] = field(default_factory=dict)
    our_domain: str = "a.example"
    peer_domain: str = "b.example"
    needs_auth: bool = True
    authority: Path | None = None
    deliveries: int = 0
    seconds: float | None = None


@dataclass(slots=True, kw_only=True)
class LiveResult:
    """Result of one live run. `fault` is the reason why the instance ended, "" if it ran to the end of the run."""

    stub: str
    was_live: bool = False
    states: list[str] = field(default_factory=list)
    sent: int = 0
    accepted: int = 0
    refused: list[dict[str, object]] = field(default_factory=list)
    deliveries: int = 0
    delivered: list[str] = field(default_factory=list)
    """The first messages that came, at most DELIVERIES_KEPT."""
    took_token: bool = False
    """The far end's token was taken without a check."""
    fault: str = ""
    is_good: bool = False
    """Live, without a fault; every message accepted, and as many came as were asked for."""


class TrialLink(LinkPort):
    """The link of a stub that runs without a node: one queue, and a list of what came. Also observes the instance."""

    def __init__(self, request: LiveRequest, result: LiveResult) -> None:
        self._queue = OutboundQueue("0f" * 16, QueueLimits(waiting_messages=MESSAGES_MAX))
        self._request = request
        self._result = result
        self._carrier: Carrier | None = None
        self._changed = trio.Event()
        self._processed: dict[str, int] = {}

    @property
    def queue(self) -> OutboundQueue:
        """See `LinkPort`."""
        return self._queue

    def send(self, raw: bytes) -> None:
        """Queue one message for the far end.

        Raises:
            SettingsError: It is no message for one recipient, or there are too many.
        """
        try:
            [message] = decode(raw)
        except (PeerError, ValueError) as exc:
            raise SettingsError(f"cannot be sent: {exc}") from exc
        now = time.monotonic()
        pending = OutboundMessage(
            message=message,
            wire=message.raw,
            msg_id=b"",
            digest="",
            ts_us=0,
            accepted_seconds=now,
            rule_id="",
            revision="",
            policy_us=0,
            deadline_seconds=now,
        )
        if self._queue.submit(pending) is not None:
            raise SettingsError(f"more than {MESSAGES_MAX:,} messages")
        self._result.sent += 1

    def handle(self, event: CarrierEvent) -> None:
        """See `LinkPort`."""
        if isinstance(event, CarrierUp):
            self._carrier, self._queue.is_carried = event.carrier, True
            self._result.was_live = True
            event.carrier.pump()
        elif isinstance(event, CarrierDown):
            self._carrier = None
            self._queue.carrier_lost(time.monotonic())
        elif isinstance(event, Accepted):
            self._result.accepted += len(self._queue.accepted(event.number))
        elif isinstance(event, Refused) and self._queue.refused(event.number) is not None:
            self._result.refused.append({"number": event.number, "code": event.code.word, "detail": event.detail})
        self._changed.set()

    def is_active(self, carrier: Carrier) -> bool:
        """See `LinkPort`."""
        return carrier is self._carrier

    @property
    def inbound(self) -> Inbox:
        """See `LinkPort`."""
        return self._take

    def _take(
        self,
        messages: Sequence[tuple[int, bytes]],
        stream: str,
        carrier: Carrier | None = None,  # noqa: ARG002
        *,
        ends_seconds: float = math.inf,  # noqa: ARG002
    ) -> int:
        """See `Inbox`; nobody is judged here."""
        for number, raw in messages:
            self._processed[stream] = max(number, self._processed.get(stream, 0))
            self._result.deliveries += 1
            if len(self._result.delivered) < DELIVERIES_KEPT:
                self._result.delivered.append(raw.decode("utf-8", "replace"))
        self._changed.set()
        return len(messages)

    async def wait_for_room(self) -> None:
        """See `LinkPort`."""
        await trio.lowlevel.checkpoint()

    def processed(self, stream: str) -> int:
        """See `LinkPort`."""
        return self._processed.get(stream, 0)

    def reported(self, text: str) -> None:
        """See `StubObserver`."""
        self._result.states.append(text)

    def line_failed(self, reason: str) -> None:
        """See `StubObserver`: the stub hears it as well."""

    def throttled(self, detail: str) -> None:
        """See `StubObserver`. A trial is slower then."""

    @property
    def is_done(self) -> bool:
        """Every message has its fate, and as many came as were asked for."""
        result = self._result
        return (
            result.was_live
            and result.accepted + len(result.refused) >= result.sent
            and result.deliveries >= self._request.deliveries
        )

    async def wait_done(self, _hosted: HostedStub) -> None:
        """Wait for the end of the run. One without messages and deliveries has none by itself."""
        is_endless = not self._request.messages and not self._request.deliveries
        while is_endless or not self.is_done:
            self._changed = trio.Event()
            await self._changed.wait()
