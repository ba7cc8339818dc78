"""`trapezoid peer add`: write a `[[peer]]` entry for a domain that publishes nothing, and connect to its node once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Final

import trio

from catalogue_client.core.state import DomainTrust
from federation.chosen_stubs import read_choice
from federation.core.carrier import Carrier, CarrierEvent, CarrierUp, LinkPort
from federation.core.outbound_queue import OutboundQueue
from federation.core.stub_meters import StubMeters
from federation.core.stub_settings import StubSettings
from federation.core.stub_status import StubAddresses
from federation.dialler import Dialler
from federation.egress import EgressRules, LineOpener
from federation.error_groups import first_error
from federation.hosted_stub import HostedStub, StubInstance, host
from federation.identity import Identity
from federation.name_client import DnsClient
from msg_node.settings.load import load_settings
from msg_node.settings.model import PeerSettings, Settings
from msg_node.wiring import meaning
from msg_node.wiring.peer_stubs import stub_choice
from protofly.address import valid_domain
from protofly.documents import SigningKey
from protofly.errors import Code, HostError, SettingsError, StubFaultError, TransportError
from sandbox.core.budget import Budget
from sandbox.host import Sandbox
from trapezoid.findings import Level
from trapezoid.peer_entry import EntryOptions, entry_text
from trapezoid.peer_stubs import approve_choice, check_choice

LIVE_SECONDS: Final = 10.0
_GOODBYE_SECONDS: Final = 0.5


def add_peer(config: Path, domain: str, options: EntryOptions, *, connects: bool) -> dict[str, object]:
    """Write the entry into `conf.d` beside the settings, check it, connect once, and pin the stub.

    Nothing is left behind when something of that fails.

    Raises:
        HostError: The settings refuse the entry, the stub is none, or the node cannot be reached through it.
    """
    valid_domain(domain)
    before = load_settings(config)
    if any(peer.domain == domain for peer in before.peer):
        raise SettingsError(f"the settings have an entry for {domain} already")
    text = entry_text(domain, options)
    folder = config.parent / "conf.d"
    path = folder / f"peer-{domain}.toml"
    try:
        folder.mkdir(exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    try:
        settings = load_settings(config)
        peer = next(peer for peer in settings.peer if peer.domain == domain)
        found = check_choice(settings, peer)
        seconds = _connected(settings, peer) if connects else None
        approved = approve_choice(settings, domain) or {}
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    checked = found if isinstance(found, str) else found.line
    is_loud = not isinstance(found, str) and found.level is not Level.OK
    return {
        "domain": domain,
        "file": str(path),
        "stub": approved.get("stub", ""),
        "sha256": approved.get("sha256", ""),
        "live": "not tried" if seconds is None else f"after {seconds:.1f} s",
        **({"warning": checked.lstrip(": ")} if is_loud else {}),
        "next": "restart the node",
    }


def _connected(settings: Settings, peer: PeerSettings) -> float:
    """Seconds until the stub was live. Raises HostError, the first of what went wrong."""
    try:
        return trio.run(connect_once, settings, peer)
    except* HostError as group:
        raise first_error(group) from None


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

    def inbound(self, messages: Sequence[tuple[int, bytes]], stream: str, carrier: Carrier | None = None) -> None:
        """See `LinkPort`."""

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


async def connect_once(settings: Settings, peer: PeerSettings) -> float:
    """Run the chosen stub until it is live, under an address of its own, and end it; returns the seconds it took.

    Raises:
        TransportError: It does not become live; the detail has what it said last.
        HostError: It cannot be run.
    """
    node = f"runtime://{settings.node.domain}/{settings.node.name}"
    names = DnsClient(settings.discovery.nameservers, believes_ad=settings.discovery.trust_ad_bit)
    opener = LineOpener(
        Dialler(names, allow_addresses=meaning.allowed_addresses(settings)), meaning.client_context(settings)
    )
    choice = stub_choice(settings, peer)
    stub = read_choice(choice)
    key = SigningKey.from_seed("unpublished", token_bytes(32))
    identity = Identity(node=node, domains=list(settings.own_domains), key=key, trust_of=_trust_nobody)
    sandbox = Sandbox(insecure_no_seccomp=settings.sandbox.insecure_no_seccomp)
    contact, began = _Contact(), time.monotonic()
    start = StubSettings(
        settings.node.domain,
        node,
        StubAddresses(node, token_bytes(32)).of(peer.domain),
        peer.domain,
        contact.queue.stream,
        "",
        0,
        configuration=choice.configuration,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(sandbox.run)
        code = await sandbox.compile(stub.module)
        process = await sandbox.start_worker(peer.domain, code, Budget())
        rules = EgressRules(peer.domain, stub.endpoints, peer.insecure_plaintext)
        instance = StubInstance(stub, process, start, rules, opener, identity, StubMeters())

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


async def _trust_nobody(domain: str, *, is_refresh: bool, asked_by: str = "") -> DomainTrust:  # noqa: ARG001
    """A chosen stub proves nothing, so nobody asks. Raises HostError."""
    raise HostError(Code.BROKEN_TRUST, f"nothing of {domain} is believed")
