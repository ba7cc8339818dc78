"""Runs one stub outside of a node, until it is live or does not become so: for commands that try a domain.

Its start can be tried without a line, and once it is live one message of ours can go through it and back. Nothing stays
at the far end. The far end takes the newest line of a domain, so it may send here what is for users of a running node:
the trial ends at the first such message, before the stub can acknowledge it, and the far end sends it again.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from secrets import token_bytes, token_hex
from typing import Final

import trio

from catalogue_client.core.state import DomainTrust
from federation.core.border import OutwardBorder
from federation.core.carrier import Accepted, Carrier, CarrierEvent, CarrierUp, Convicted, Inbox, LinkPort, Refused
from federation.core.message_ids import MessageIds
from federation.core.outbound_queue import OutboundMessage, OutboundQueue
from federation.core.round_trip import WAIT_SECONDS, RoundTrip, answer_to, question
from federation.core.stub_meters import StubMeters
from federation.core.stub_settings import StubSettings
from federation.core.stub_status import StubAddresses
from federation.discovery.dialler import Dialler
from federation.discovery.identity import Identity
from federation.discovery.name_client import DnsClient
from federation.stubs.chosen_stubs import read_choice
from federation.stubs.egress import EgressRules, LineOpener
from federation.stubs.hosted_stub import HostedStub, StubInstance, host
from msg_node.settings.model import Settings
from msg_node.settings.tables.peers import PeerSettings
from msg_node.wiring import meaning
from msg_node.wiring.peer_stubs import stub_choice
from protofly import codec
from protofly.documents import SigningKey
from protofly.errors import Code, HostError, PeerError, StubFaultError, TransportError
from protofly.limits import REQUEST_TTL_SECONDS
from protofly.message import Message
from protofly.stub import VerifiedStub
from sandbox.core.budget import Budget
from sandbox.core.scripts import script_events
from sandbox.host import Sandbox

LIVE_SECONDS: Final = 10.0
_GOODBYE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A stub to be tried.

    Attributes:
        stub: Verified.
        configuration: What its `start` event hands to it.
        identity: Proves us, and verifies the far end.
        allows_plaintext: Lines without TLS are allowed.
    """

    stub: VerifiedStub
    configuration: Mapping[str, object]
    identity: Identity
    allows_plaintext: bool


@dataclass(frozen=True, slots=True)
class StartCost:
    """Cost of starting a stub: time, linear memory, and the fuel of its first events."""

    compile_seconds: float
    start_seconds: float
    memory_bytes: int
    fuel: int


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of a trial: seconds until the stub was live, and of a message to the far end and back.

    Attributes:
        trip: Its answer, or why there is none; None: nothing was sent. LINK_ELSEWHERE: they sent something else first.
        is_accepted: The far end answers for it.
    """

    live_seconds: float
    trip: RoundTrip | HostError | None = None
    trip_seconds: float = 0.0
    is_accepted: bool = False


class _Contact(LinkPort):
    """A link without messages but one of ours: whether its stub is live, and what it said before, matters.

    Args:
        asked: That message; None: there is none.
    """

    def __init__(self, asked: Message | None) -> None:
        self._queue = OutboundQueue(token_hex(16))
        self.is_up = trio.Event()
        self.has_ended = False
        self.said = ""
        """The state that the stub reported last, or why a line could not be opened."""
        self.live_at = 0.0
        self._asked = asked
        self.is_accepted = False
        self.is_answered = trio.Event()
        self.outcome: RoundTrip | HostError | None = None

    @property
    def queue(self) -> OutboundQueue:
        """See `LinkPort`."""
        return self._queue

    def handle(self, event: CarrierEvent) -> None:
        """See `LinkPort`."""
        match event:
            case CarrierUp():
                self.live_at = self.live_at or time.monotonic()
                self.is_up.set()
            case Accepted():
                self.is_accepted = True
            case Refused():
                self._conclude(PeerError(event.code, event.detail))
            case Convicted():
                self._conclude(StubFaultError(Code.QUARANTINED, event.message.trap or "our message"))
            case _:
                pass

    def _conclude(self, outcome: RoundTrip | HostError) -> None:
        self.outcome = self.outcome or outcome
        self.is_answered.set()

    def is_active(self, carrier: Carrier) -> bool:  # noqa: ARG002
        """See `LinkPort`."""
        return self._asked is not None

    @property
    def inbound(self) -> Inbox:
        """See `LinkPort`."""
        return self._take

    def _take(
        self,
        messages: Sequence[tuple[int, bytes]],
        stream: str,  # noqa: ARG002
        carrier: Carrier | None = None,  # noqa: ARG002
        *,
        ends_seconds: float = math.inf,  # noqa: ARG002
    ) -> int:
        """See `Inbox`; the first message that is not for us ends the stub before it can acknowledge it."""
        for _, raw in messages:
            try:
                found = None if self._asked is None else answer_to(self._asked, codec.decode(raw)[0])
            except codec.BrokenMessageError:
                found = None
            if found is None:
                raise PeerError(Code.LINK_ELSEWHERE, "they sent messages for users of ours, which the trial leaves")
            self._conclude(found)
        return len(messages)

    async def wait_for_room(self) -> None:
        """See `LinkPort`."""
        await trio.lowlevel.checkpoint()

    def processed(self, stream: str) -> int:  # noqa: ARG002
        """See `LinkPort`."""
        return 0

    def reported(self, text: str) -> None:
        """See `StubObserver`."""
        self.said = self.said if self.has_ended else text

    def line_failed(self, reason: str) -> None:
        """See `StubObserver`."""
        self.reported(reason)

    def throttled(self, detail: str) -> None:
        """See `StubObserver`. A trial is slower then."""


async def try_start(settings: Settings, stub: VerifiedStub, configuration: Mapping[str, object]) -> StartCost:
    """Compile a stub, start it in a worker, and hand it its first events; what it asks for is not done.

    Raises:
        HostError: It cannot be compiled or run, or traps.
    """
    start = _start_settings(settings, stub, configuration, token_hex(16))
    async with _sandbox(settings) as sandbox:
        ready = time.monotonic()
        code = await sandbox.compile(stub.module)
        compiled = time.monotonic()
        process = await sandbox.start_worker(stub.domain, code, _budget(settings))
        try:
            events = [start.start_event(sorted(stub.endpoints)), *script_events(stub.module)]
            reply = await process.exchange(events)
        finally:
            process.close()
        if reply.fault is not None:
            raise StubFaultError(reply.fault.code, reply.fault.trap, domain=stub.domain, fault=reply.fault.trap)
        return StartCost(compiled - ready, time.monotonic() - compiled, reply.memory_bytes, reply.fuel)


async def try_stub(settings: Settings, candidate: Candidate, *, makes_trip: bool = False) -> Trial:
    """Run a stub until it is live, under an address of its own, and end it.

    Args:
        settings: Loaded and checked.
        candidate: The stub.
        makes_trip: Once it is live, send one message through it to the node of its domain, and wait for the answer.

    Raises:
        TransportError: It does not become live; the detail has what it said last.
        HostError: It cannot be run.
    """
    stub = candidate.stub
    node = candidate.identity.node
    asked = question(node, stub.domain, token_hex(8)) if makes_trip else None
    contact, began = _Contact(asked), time.monotonic()
    start = _start_settings(settings, stub, candidate.configuration, contact.queue.stream)
    trip_seconds = 0.0

    async def until_live(hosted: HostedStub) -> None:
        nonlocal trip_seconds
        with trio.move_on_after(LIVE_SECONDS):
            await contact.is_up.wait()
        contact.has_ended = True
        if asked is not None and contact.is_up.is_set():
            sent = time.monotonic()
            contact.queue.submit(_made_ready(asked, node, start.stub_url))
            hosted.pump()
            with trio.move_on_after(WAIT_SECONDS):
                await contact.is_answered.wait()
            trip_seconds = time.monotonic() - sent
        hosted.drain()
        await trio.sleep(_GOODBYE_SECONDS)

    async with _sandbox(settings) as sandbox:
        code = await sandbox.compile(stub.module)
        process = await sandbox.start_worker(stub.domain, code, Budget())
        rules = EgressRules(stub.domain, stub.endpoints, candidate.allows_plaintext)
        names = DnsClient(settings.discovery.nameservers, believes_ad=settings.discovery.trust_ad_bit)
        dialler = Dialler(names, allow_addresses=meaning.allowed_addresses(settings))
        opener = LineOpener(dialler, meaning.client_context(settings))
        instance = StubInstance(stub, process, start, rules, opener, candidate.identity, StubMeters())
        try:
            await host(instance, contact, contact, until_live)
        except StubFaultError as exc:
            if exc.code is not Code.LINK_ELSEWHERE:
                raise TransportError(exc.code, exc.detail, phase="connect") from exc
            contact.outcome = contact.outcome or exc
        finally:
            process.close()
    if not contact.is_up.is_set():
        detail = f"the stub did not become live within {LIVE_SECONDS:.0f} s: {contact.said}"
        raise TransportError(Code.CONNECT_FAILED, detail, phase="connect")
    live_seconds = contact.live_at - began
    if asked is None:
        return Trial(live_seconds)
    late = TransportError(Code.GATEWAY_TIMEOUT, f"no answer within {WAIT_SECONDS:.0f} s")
    return Trial(live_seconds, contact.outcome or late, trip_seconds, contact.is_accepted)


async def connect_once(settings: Settings, peer: PeerSettings, stub: VerifiedStub | None = None) -> float:
    """Try the stub that an entry chooses; returns the seconds until it was live.

    Args:
        settings: With the entry.
        peer: The entry.
        stub: What it chooses, if that was read already.

    Raises:
        HostError: See `try_stub`.
    """
    choice = stub_choice(settings, peer)
    key = SigningKey.from_seed("unpublished", token_bytes(32))
    node = f"runtime://{settings.node.domain}/{settings.node.name}"
    identity = Identity(node=node, domains=list(settings.own_domains), key=key, trust_of=_trust_nobody)
    candidate = Candidate(
        stub=stub or read_choice(choice),
        configuration=choice.configuration,
        identity=identity,
        allows_plaintext=peer.insecure_plaintext,
    )
    return (await try_stub(settings, candidate)).live_seconds


async def _trust_nobody(domain: str, *, is_refresh: bool, asked_by: str = "") -> DomainTrust:  # noqa: ARG001
    """A chosen stub proves nothing, so nobody asks. Raises HostError."""
    raise HostError(Code.BROKEN_TRUST, f"nothing of {domain} is believed")


@asynccontextmanager
async def _sandbox(settings: Settings) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(insecure_no_seccomp=settings.sandbox.insecure_no_seccomp)
    async with trio.open_nursery() as nursery:
        await nursery.start(sandbox.run)
        yield sandbox
        nursery.cancel_scope.cancel()


def _budget(settings: Settings) -> Budget:
    return Budget(memory_bytes=settings.sandbox.memory_bytes, batch_seconds=settings.sandbox.batch_seconds)


def _start_settings(
    settings: Settings, stub: VerifiedStub, configuration: Mapping[str, object], stream: str
) -> StubSettings:
    domain = settings.node.domain
    node = f"runtime://{domain}/{settings.node.name}"
    url = StubAddresses(node, token_bytes(32)).of(stub.domain)
    return StubSettings(domain, node, url, stub.domain, stream, "", 0, configuration=configuration)


def _made_ready(asked: Message, node: str, stub_url: str) -> OutboundMessage:
    """Take our message over the border, as the link of a node does."""
    now = time.time()
    crossing = OutwardBorder(node, stub_url).cross(asked, MessageIds(token_bytes(8)).next(now))
    return OutboundMessage(
        asked,
        crossing.wire,
        crossing.msg_id,
        "",
        int(now * 1e6),
        time.monotonic(),
        rule_id="",
        revision="",
        policy_us=0,
        deadline_seconds=REQUEST_TTL_SECONDS,
    )
