"""Connectors as stubs: sandboxed code of the operator's that answers requests to one service address of our domain.

The instance is hosted as stubs of other domains are: same worker, budgets, lines and gates. In place of a link it has a
port that hands over requests and takes their answers; nothing else that it says gets anywhere. When it fails, what
waits is answered with the code of the fault, and it is started anew after a pause. Source: docs/connectors.md.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from secrets import token_hex
from typing import Any, Final

import trio

from federation.core.carrier import (
    Accepted,
    Carrier,
    CarrierDown,
    CarrierEvent,
    CarrierUp,
    Convicted,
    Inbox,
    LinkPort,
    Refused,
)
from federation.core.outbound_queue import OutboundMessage, OutboundQueue, QueueLimits
from federation.core.stub_lifecycle import StubLifecycle
from federation.core.stub_meters import StubMeters
from federation.core.stub_settings import StubSettings
from federation.core.stub_status import StepTimes
from federation.stubs.egress import EgressRules
from federation.stubs.hosted_stub import HostedStub, StubInstance, StubObserver, host
from federation.stubs.stub_host import StubHost
from federation.stubs.stub_provider import Package, StubProvider
from msg_node.backends.core.connector_requests import ConnectorQuestion, read_answer, request_bytes
from protofly.errors import Code, HostError, MisuseError, PeerError, StubFaultError, TransportError
from protofly.limits import INQUIRIES_PER_CONNECTOR, INQUIRY_SECONDS
from protofly.message import Message

logger = logging.getLogger("msg_node")

_LOG_SECONDS: Final = 60.0


@dataclass(eq=False, slots=True)
class _Request:
    """One request that waits for its answer."""

    pending: OutboundMessage
    ended: trio.Event = field(default_factory=trio.Event)
    body: Mapping[str, Any] | None = None
    error: HostError | None = None


class ConnectorPort(LinkPort):
    """The requests of one service address, on their way to its connector and back.

    Args:
        address: The service address.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.answered = self.dropped = 0
        self._queue = OutboundQueue(token_hex(16), QueueLimits(waiting_messages=INQUIRIES_PER_CONNECTOR))
        self._requests: dict[int, _Request] = {}
        self._numbers = count(1)
        self._carrier: Carrier | None = None
        self._logged_at = float("-inf")

    async def ask(self, question: ConnectorQuestion) -> Mapping[str, Any]:
        """Have the connector answer one request; returns the body of the answer.

        Raises:
            HostError: OVERLOAD; the fault that ended the connector; what it refused the request with.
        """
        number, now = next(self._numbers), time.monotonic()
        wire = request_bytes(number, question, self.address)
        message = Message(str(number).encode(), question.type, question.from_, self.address, question.body, wire)
        pending = OutboundMessage(
            message, wire, b"", "", 0, now, rule_id="", revision="", policy_us=0, deadline_seconds=INQUIRY_SECONDS
        )
        self._queue.expire(now)
        code = self._queue.submit(pending)
        if code is not None:
            raise HostError(code, "too many requests wait for this connector")
        request = self._requests[number] = _Request(pending)
        try:
            if self._carrier is not None:
                self._carrier.pump()
            await request.ended.wait()
        finally:
            del self._requests[number]
            self._queue.refused(pending.number)  # whatever its number was acknowledged with: it is done
        if request.error is not None:
            raise request.error
        assert request.body is not None
        return request.body

    def fail(self, error: HostError) -> None:
        """Answer everything that waits with an error."""
        self._queue.abandon()
        for request in self._requests.values():
            self._end(request, error=error)

    @staticmethod
    def _end(request: _Request, *, body: Mapping[str, Any] | None = None, error: HostError | None = None) -> None:
        if not request.ended.is_set():
            request.body, request.error = body, error
            request.ended.set()

    # What the instance sees.

    @property
    def queue(self) -> OutboundQueue:
        """See `LinkPort`."""
        return self._queue

    def handle(self, event: CarrierEvent) -> None:
        """See `LinkPort`."""
        if isinstance(event, CarrierUp):
            self._carrier, self._queue.is_carried = event.carrier, True
            event.carrier.pump()
        elif isinstance(event, CarrierDown):
            self._carrier = None
            self._queue.carrier_lost(time.monotonic())
        elif isinstance(event, Accepted):
            self._queue.accepted(event.number)
        elif isinstance(event, Refused):
            self._refused(self._queue.refused(event.number), HostError(event.code, event.detail))
        elif isinstance(event, Convicted):
            self._refused(event.message, HostError(Code.QUARANTINED, "this request made the connector fail twice"))

    def _refused(self, pending: OutboundMessage | None, error: HostError) -> None:
        for request in self._requests.values():
            if request.pending is pending:
                self._end(request, error=error)

    def is_active(self, carrier: Carrier) -> bool:
        """See `LinkPort`."""
        return carrier is self._carrier

    @property
    def inbound(self) -> Inbox:
        """See `LinkPort`."""
        return self._take_answers

    def _take_answers(
        self,
        messages: Sequence[tuple[int, bytes]],
        stream: str,  # noqa: ARG002
        carrier: Carrier | None = None,  # noqa: ARG002
        *,
        ends_seconds: float = math.inf,  # noqa: ARG002
    ) -> int:
        """Take answers; everything else is dropped, counted, and logged once a minute."""
        for _, raw in messages:
            try:
                number, body = read_answer(raw, self.address)
            except PeerError as exc:
                self._drop(str(exc))
                continue
            request = self._requests.get(number)
            if request is None:
                self._drop("an answer to nothing that waits")
            else:
                self.answered += 1
                self._end(request, body=body)
        return len(messages)

    def _drop(self, why: str) -> None:
        self.dropped += 1
        if time.monotonic() - self._logged_at > _LOG_SECONDS:
            self._logged_at = time.monotonic()
            logger.warning("what the connector of %s says is dropped: %s", self.address, why)

    async def wait_for_room(self) -> None:
        """See `LinkPort`. Answers are taken at once."""
        await trio.lowlevel.checkpoint()

    def processed(self, stream: str) -> int:  # noqa: ARG002
        """See `LinkPort`. Answers have no numbers of their own."""
        return 0


class ConnectorStub(StubObserver):
    """The connector of one service address: kept running, with pauses after faults.

    Args:
        name: Host of the service, such as `registry.a.example`.
        provider: Gets its module, under that name.
        parts: Run it, as they run stubs of other domains.
        allows_plaintext: Its endpoint may be without TLS.

    Attributes:
        port: Asks it.
    """

    def __init__(self, name: str, provider: StubProvider, parts: StubHost, *, allows_plaintext: bool = False) -> None:
        self.name = name
        self.port = ConnectorPort(f"domain://{name}")
        self._provider = provider
        self._parts = parts
        self._allows_plaintext = allows_plaintext
        self._life = StubLifecycle()
        self._meters = StubMeters()
        self._stub = ""
        self._module_sha256 = ""
        self._scope = trio.CancelScope()
        self._life_scope = trio.CancelScope()

    def end(self) -> None:
        """End it for good: `run` returns."""
        self._life_scope.cancel()

    def end_forbidden(self, sha256: str) -> None:
        """End it at once if it runs a module that the operator has just forbidden."""
        if self._module_sha256 == sha256:
            self._scope.cancel()

    async def run(self) -> None:
        """Keep it running until cancelled, or ended."""
        with self._life_scope:
            await self._keep_running()

    async def _keep_running(self) -> None:
        while True:
            error, pause_seconds = await self._run_once()
            logger.error("the connector of %s failed: %s", self.name, error)
            self.port.fail(error)
            with trio.move_on_after(pause_seconds):
                while True:
                    await trio.sleep(min(1.0, pause_seconds))
                    self.port.fail(error)

    def status(self) -> dict[str, object]:
        """Report for operators."""
        life, port = self._life, self.port
        facts: dict[str, object] = {"state": life.state.value, "stub": self._stub}
        return facts | {"detail": life.detail, "answered": port.answered, "dropped": port.dropped}

    async def _run_once(self) -> tuple[HostError, float]:
        """One instance from its start to its end; returns why it ended, and how long to pause."""
        life = self._life
        life.deploying(life.detail)
        try:
            package = await self._provider.package(self.name, StepTimes())
            with trio.CancelScope() as self._scope:
                await self._run_instance(package)
            self._provider.check_allowed(package.stub)
            raise MisuseError("a connector ended in good order")
        except StubFaultError as exc:
            if exc.code is Code.STUB_FAILED:
                return exc, life.unreached(str(exc), draw=_draw()).seconds
            now = trio.current_time()
            return exc, life.crashed(now, _draw(), str(exc)).at - now
        except TransportError as exc:
            return exc, life.unreached(str(exc), draw=_draw()).seconds
        except HostError as exc:
            return exc, life.unusable(str(exc), draw=_draw(), is_refused=isinstance(exc, PeerError))
        except Exception:  # a defect of ours may cost this service, never the node
            logger.exception("the connector of %s failed", self.name)
            return HostError(Code.INTERNAL), life.unusable("internal", draw=_draw(), is_refused=False)

    async def _run_instance(self, package: Package) -> None:
        parts, stub = self._parts, package.stub
        self._module_sha256 = stub.module_sha256
        self._stub = f"{stub.name} {stub.version} {stub.module_sha256}"
        process = await parts.start_worker(package)
        try:
            self._life.deployed()
            self._life.started(trio.current_time())
            settings = StubSettings(
                parts.identity.domain,
                parts.identity.node,
                self.port.address,
                self.name,
                self.port.queue.stream,
                "",
                0,
                configuration=package.terms.configuration,
            )
            rules = EgressRules(self.name, stub.endpoints, self._allows_plaintext)
            grant = package.terms.grant
            instance = StubInstance(stub, process, settings, rules, parts.opener, parts.identity, self._meters, grant)
            await host(instance, self.port, self, _for_ever)
        finally:
            process.close()

    def reported(self, text: str) -> None:
        """See `StubObserver`."""
        self._life.reported(text, trio.current_time())

    def line_failed(self, reason: str) -> None:
        """See `StubObserver`."""
        logger.warning("the connector of %s gets no line: %s", self.name, reason)

    def throttled(self, detail: str) -> None:
        """See `StubObserver`."""
        text = f"{Code.STUB_THROTTLED.word}: {detail}; raise `sandbox.cpu_share` if it needs more"
        logger.warning("the connector of %s: %s", self.name, text if detail else "it need not wait now")


async def _for_ever(_: HostedStub) -> None:
    await trio.sleep_forever()


def _draw() -> float:
    return random.random()  # noqa: S311 - jitter, no secret
