"""Runs one stub outside of a node, until it is live or does not become so: for commands that try a domain.

Only the connection is tried: no message is sent, and nothing stays at the far end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from secrets import token_bytes, token_hex
from typing import Final

import trio

from federation.core.carrier import Carrier, CarrierEvent, CarrierUp, Inbox, LinkPort
from federation.core.outbound_queue import OutboundQueue
from federation.core.stub_meters import StubMeters
from federation.core.stub_settings import StubSettings
from federation.core.stub_status import StubAddresses
from federation.dialler import Dialler
from federation.egress import EgressRules, LineOpener
from federation.hosted_stub import HostedStub, StubInstance, host
from federation.identity import Identity
from federation.name_client import DnsClient
from msg_node.settings.model import Settings
from msg_node.wiring import meaning
from protofly.errors import Code, StubFaultError, TransportError
from protofly.stub import VerifiedStub
from sandbox.core.budget import Budget
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


class _Contact(LinkPort):
    """A link without messages: only whether its stub is live, and what it said before, matters."""

    def __init__(self) -> None:
        self._queue = OutboundQueue(token_hex(16))
        self.is_up = trio.Event()
        self.has_ended = False
        self.said = ""
        """The state that the stub reported last, or why a line could not be opened."""

    @property
    def queue(self) -> OutboundQueue:
        """See `LinkPort`."""
        return self._queue

    def handle(self, event: CarrierEvent) -> None:
        """See `LinkPort`."""
        if isinstance(event, CarrierUp):
            self.is_up.set()

    def is_active(self, carrier: Carrier) -> bool:  # noqa: ARG002
        """See `LinkPort`."""
        return False

    @property
    def inbound(self) -> Inbox:
        """See `LinkPort`."""
        return self._ignore

    def _ignore(self, messages: Sequence[tuple[int, bytes]], stream: str, carrier: Carrier | None = None) -> None:
        """See `Inbox`."""

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


async def try_stub(settings: Settings, candidate: Candidate) -> float:
    """Run a stub until it is live, under an address of its own, and end it; returns the seconds it took.

    Raises:
        TransportError: It does not become live; the detail has what it said last.
        HostError: It cannot be run.
    """
    stub = candidate.stub
    node = candidate.identity.node
    sandbox = Sandbox(insecure_no_seccomp=settings.sandbox.insecure_no_seccomp)
    contact, began = _Contact(), time.monotonic()
    start = StubSettings(
        settings.node.domain,
        node,
        StubAddresses(node, token_bytes(32)).of(stub.domain),
        stub.domain,
        contact.queue.stream,
        "",
        0,
        configuration=candidate.configuration,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(sandbox.run)
        code = await sandbox.compile(stub.module)
        process = await sandbox.start_worker(stub.domain, code, Budget())
        rules = EgressRules(stub.domain, stub.endpoints, candidate.allows_plaintext)
        names = DnsClient(settings.discovery.nameservers, believes_ad=settings.discovery.trust_ad_bit)
        dialler = Dialler(names, allow_addresses=meaning.allowed_addresses(settings))
        opener = LineOpener(dialler, meaning.client_context(settings))
        instance = StubInstance(stub, process, start, rules, opener, candidate.identity, StubMeters())

        async def until_live(hosted: HostedStub) -> None:
            with trio.move_on_after(LIVE_SECONDS):
                await contact.is_up.wait()
            contact.has_ended = True
            hosted.drain()
            await trio.sleep(_GOODBYE_SECONDS)

        try:
            await host(instance, contact, contact, until_live)
        except StubFaultError as exc:
            raise TransportError(exc.code, exc.detail, phase="connect") from exc
        finally:
            process.close()
        nursery.cancel_scope.cancel()
    if not contact.is_up.is_set():
        detail = f"the stub did not become live within {LIVE_SECONDS:.0f} s: {contact.said}"
        raise TransportError(Code.CONNECT_FAILED, detail, phase="connect")
    return time.monotonic() - began - _GOODBYE_SECONDS
