"""Messages between one stub and its link: what comes from the far end, and what becomes of ours."""

from __future__ import annotations

from federation.core.carrier import Accepted, Carrier, LinkPort, read_refusal
from federation.core.stub_contact import StubContact
from federation.links.inbound import InboundTurns
from federation.stubs.running_stub import RunningStub
from protofly.errors import Code, PeerError
from sandbox.core.exchange import GuestAction


class StubMessages:
    """Hands to the link what a stub says about messages.

    Args:
        carrier: The instance, which brings the messages of the far end.
        stub: The same, as it is served.
        contact: Messages come only while it is live.
        port: The link.
        peer_stream: Name of the far end's sequence of numbers, until the stub gives another one.

    Attributes:
        turns: Those of the messages that come.
    """

    def __init__(
        self, carrier: Carrier, running: RunningStub, contact: StubContact, port: LinkPort, peer_stream: str
    ) -> None:
        self._running = running
        self._contact = contact
        self._port = port
        self._peer_stream = peer_stream
        self.turns = InboundTurns(carrier)

    async def deliver(self, actions: list[GuestAction]) -> None:
        """Take in messages of the far end, in order.

        Raises:
            StubFaultError: STUB_DENIED before the stub is live; the code of `Inbox`.
        """
        if not self._contact.is_live:
            raise self._running.fault(Code.STUB_DENIED, "messages come only after the peer was verified")
        try:
            messages = [(action.arg, action.payload) for action in actions]
            await self.turns.take(messages, self._peer_stream, self._port)
        except PeerError as exc:
            raise self._running.fault(exc.code, exc.detail) from exc

    def name_peer_stream(self, action: GuestAction) -> None:
        """From now on the numbers of messages count in this stream."""
        self._peer_stream = action.payload.decode("ascii", "replace")[:64]

    def accepted(self, action: GuestAction) -> None:
        """The far end answers for our messages up to a number."""
        self._port.handle(Accepted(action.arg))

    def refused(self, action: GuestAction) -> None:
        """The far end, or the stub, refused one of our messages: status, code word, and text."""
        self._port.handle(read_refusal(action.arg, action.payload))
