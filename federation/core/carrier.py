"""What a domain link and its carriers say to each other.

A carrier is either the foreign domain's stub, hosted here, or that domain's own stub, hosted there and connected to
us. The link neither knows nor asks which.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, Literal, Protocol

import msgspec

from federation.core.outbound_queue import OutboundMessage, OutboundQueue
from protofly.errors import Code


class Carrier(ABC):
    """Takes messages from a queue to the far end."""

    channel: str
    """The channel to the far end, for records: "stub" or "peer"."""
    origin: str = ""
    """The far end that opened it, "" if we did. A second carrier with the same origin replaces the older one."""

    @property
    def direction(self) -> Literal["out", "in"]:
        """The side that opened it, for records: ours or the far end's."""
        return "out" if self.channel == "stub" else "in"

    @property
    def heard_seconds(self) -> float:
        """Monotonic seconds of the last data from the far end; 0 before the first."""
        return 0.0

    def probe(self) -> bool:
        """Ask the far end for a sign of life; False when its lines know none. Never blocks, never raises."""
        return False

    @abstractmethod
    def end(self) -> None:
        """End in good order: the next carrier starts with another stream of numbers. Never blocks, never raises."""

    def drain(self) -> None:
        """The node stops: acknowledge what came, and end in good order. Never blocks, never raises."""
        self.end()

    @abstractmethod
    def cut_off(self, code: Code) -> None:
        """End at once, for a reason that the far end may know. Never blocks, never raises."""

    @abstractmethod
    def pump(self) -> None:
        """Messages are waiting: take as many as may go now. Never blocks, never raises."""


class CarrierUp(msgspec.Struct, frozen=True, gc=False):
    """A carrier can take messages from now on.

    `domains` are those for which the far end has proved itself on this connection, and `peer_node` is the node, "" when
    it has proved nothing. Nothing of it outlives the connection.
    """

    carrier: Carrier
    peer_node: str
    domains: frozenset[str] = frozenset()


class CarrierProved(msgspec.Struct, frozen=True, gc=False):
    """From now on the carrier speaks for these domains, and for no others."""

    carrier: Carrier
    domains: frozenset[str]


class CarrierDown(msgspec.Struct, frozen=True, gc=False):
    """A carrier can take no more; what it had and was not accepted will go again."""

    carrier: Carrier


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The far end answers for every message up to `number`."""

    number: int


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The far end, or the stub, refused one message."""

    number: int
    code: Code
    detail: str


_CODES: Final = {code.word: code for code in reversed(Code)}
_REFUSAL_CHARS: Final = 512


def read_refusal(number: int, text: bytes) -> Refused:
    """The refusal of message `number` as stubs and nodes write it: a status, a code word, and what it says besides.

    A word that is none of ours becomes part of what it says.
    """
    status, _, rest = text.decode("utf-8", "replace")[:_REFUSAL_CHARS].partition(" ")
    word, _, detail = rest.partition(" ")
    code = _CODES.get(word)
    if code is None:
        return Refused(number, Code.STUB_REFUSED, f"{status} {rest}".strip())
    return Refused(number, code, detail)


class Convicted(msgspec.Struct, frozen=True, gc=False):
    """A message killed the stub twice and is taken out of traffic."""

    message: OutboundMessage


CarrierEvent = CarrierUp | CarrierProved | CarrierDown | Accepted | Refused | Convicted
"""The reports of a carrier to its link."""


class Inbox(Protocol):
    """Takes in what the far end of a link sends."""

    def __call__(
        self,
        messages: Sequence[tuple[int, bytes]],
        stream: str,
        carrier: Carrier | None = None,
        /,
        *,
        ends_seconds: float = math.inf,
    ) -> int:
        """Take in messages, in order: number in the peer's `stream` (0 when it has none) and text.

        They may come in the names for which `carrier` speaks. Without one that is up, only the main domain counts.

        What may have cost more than others is followed by a look at the clock: the turn ends at `ends_seconds`
        (monotonic).

        Returns:
            How many were taken; the rest is to be handed over in a further turn.

        Raises:
            PeerError: SPOOFED_SOURCE after too many messages in the name of others: the carrier is to be closed.
        """


class LinkPort(ABC):
    """The link, as its carriers see it."""

    @property
    @abstractmethod
    def queue(self) -> OutboundQueue:
        """Our messages that wait or are under way; the carrier that is active takes them."""

    @abstractmethod
    def handle(self, event: CarrierEvent) -> None:
        """Take in what happened to a carrier or its messages."""

    @abstractmethod
    def is_active(self, carrier: Carrier) -> bool:
        """True when messages go by this carrier; of several that are up one carries, so that the order holds."""

    @property
    @abstractmethod
    def inbound(self) -> Inbox:
        """Takes in messages of the far end."""

    @abstractmethod
    async def wait_for_room(self) -> None:
        """Wait while our side has too much to digest."""

    @abstractmethod
    def processed(self, stream: str) -> int:
        """Highest number of the peer's `stream` that we have seen through to the end."""
