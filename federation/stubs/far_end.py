"""The far end of one hosted stub: it proves itself through the stub, and the link learns when it is reached.

`core/stub_contact` decides; here is what takes time: tokens are checked, and what was proved is checked again.
Source: trust and hosts, section 2.7, rule 7.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from federation.core.auth import Claims
from federation.core.carrier import Carrier, CarrierDown, CarrierProved, CarrierUp, LinkPort
from federation.core.stub_contact import ContactChange, StubContact
from federation.core.stub_lifecycle import REPORTABLE, StubState
from federation.discovery.identity import Identity, Proof
from federation.links.peer_session import RECHECK_SECONDS
from federation.stubs.egress import Channel, Egress
from federation.stubs.peer_proof import PeerProof
from federation.stubs.running_stub import RunningStub
from protofly.errors import Code, HostError
from sandbox.core.exchange import FLAG_GRANTED, Event, GuestAction, GuestEvent

logger = logging.getLogger("federation")


class FarEnd:
    """The states that one running stub reports, and the proofs of its far end.

    Args:
        carrier: The instance, in whose name the link is notified.
        stub: The same, as it is served.
        identity: Signs and checks tokens.
        port: The link.
        on_state: Called with each state that the stub reports, before the link learns what follows: the word, and text
            after a space.

    Attributes:
        contact: Whether it is reached, and what it has proved.
    """

    def __init__(
        self,
        carrier: Carrier,
        running: RunningStub,
        identity: Identity,
        port: LinkPort,
        on_state: Callable[[str], None],
    ) -> None:
        self.contact = StubContact(running.stub.domain, needs_proof=running.stub.manifest.permissions.auth)
        self._carrier = carrier
        self._running = running
        self._identity = identity
        self._proof = PeerProof(running.stub, identity)
        self._port = port
        self._on_state = on_state

    def status(self, action: GuestAction) -> None:
        """The stub says in which state it is.

        Raises:
            StubFaultError: STUB_OUTPUT for a word that is none; STUB_FAILED when it has failed, or is live too early.
        """
        text = action.payload.decode("utf-8", "replace")[:512]
        word, _, detail = text.partition(" ")
        state = REPORTABLE.get(word)
        if state is None:
            raise self._running.fault(Code.STUB_OUTPUT, "unknown status")
        change = self.contact.reported(state)
        self._on_state(text)
        if state is StubState.FAILED:
            raise self._running.fault(Code.STUB_FAILED, detail or "the stub gave up")
        self._notify(change)

    def channel_closed(self, number: int) -> None:
        """A channel of the stub is gone, and what was proved on it."""
        self._proof.channel_closed(number)
        change = self.contact.channel_closed(number)
        if change is not None:
            self._on_state(StubState.DISCONNECTED.value)
            self._notify(change)

    def request_token(self, action: GuestAction, channel: Channel) -> None:
        """The stub asks for a token of ours over the far end's challenge; the event `auth_token` answers."""
        try:
            token = self._proof.token(action.arg, action.payload, channel)
        except HostError as exc:
            self._running.emit(GuestEvent(Event.AUTH_TOKEN, action.arg, exc.code.word.encode()))
        else:
            self._running.emit(GuestEvent(Event.AUTH_TOKEN, action.arg, token.encode(), FLAG_GRANTED))

    async def verify(self, action: GuestAction, egress: Egress) -> None:
        """Check the far end's token for a channel; the event `peer_verified` follows.

        Returns when what it proves counts no more.

        Raises:
            StubFaultError: STUB_FAILED: what it has proved is revoked or published no more.
        """
        try:
            claims, rests_on = await self._proof.verify(action.arg, action.payload, egress.channel(action.arg))
        except HostError as exc:
            about = self._running.about()
            logger.warning("the peer %s did not prove itself: %s", self._running.stub.domain, exc, extra=about)
            self._running.emit(GuestEvent(Event.PEER_VERIFIED, action.arg, exc.code.word.encode()))
            return
        self._notify(self.contact.proved(action.arg, claims))
        self._running.emit(GuestEvent(Event.PEER_VERIFIED, action.arg, b"", FLAG_GRANTED))
        await self._watch(claims, rests_on)

    async def _watch(self, proved: Claims, rests_on: Proof) -> None:
        """End a proof when its key is no longer published, and keep its aliases to those that documents prove now."""
        claims: Claims | None = proved
        renewals = rests_on.renewals
        while claims is not None:
            renewals = await self._identity.wait_renewed(rests_on, renewals, seconds=RECHECK_SECONDS)
            domains = frozenset[str]()
            try:
                domains = await self._identity.check_again(rests_on)
            except HostError as exc:
                domain, about = self._running.stub.domain, self._running.about()
                logger.info("the proof of %s cannot be checked again now: %s", domain, exc, extra=about)
                if exc.code in (Code.AUTH_KEY_REVOKED, Code.AUTH_KEY_UNKNOWN):
                    raise self._running.fault(Code.STUB_FAILED, exc.detail) from exc
            claims = self.contact.renewed(claims, domains)
            if claims is not None and self.contact.is_live:
                self._notify(ContactChange.PROVED)

    def _notify(self, change: ContactChange | None) -> None:
        """The link learns of a change."""
        if change is ContactChange.UP:
            self._port.handle(CarrierUp(self._carrier, self.contact.node, self.contact.domains))
        elif change is ContactChange.PROVED:
            self._port.handle(CarrierProved(self._carrier, self.contact.domains))
        elif change is ContactChange.DOWN:
            self._port.handle(CarrierDown(self._carrier))
