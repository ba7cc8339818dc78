"""Requests of the node itself to other domains, and whose the answers are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from secrets import token_hex
from typing import Final

import trio

from federation.core.round_trip import WAIT_SECONDS, RoundTrip, answer_to, question
from msg_node.addresses.foreign_objects import ForeignObjects
from msg_node.kernel.links import HasLinks
from protofly.errors import Code, PeerError
from protofly.message import Message

ROUND_TRIPS: Final = 16
"""So many may be under way at once."""


class _UnderWay:
    """One round trip; `answer` is set when `is_over` is."""

    __slots__ = ("answer", "asked", "domain", "is_over")

    def __init__(self, domain: str, asked: Message) -> None:
        self.domain = domain
        self.asked = asked
        self.is_over = trio.Event()
        self.answer: RoundTrip | None = None


class RoundTrips:
    """Asks the nodes of other domains for a sign of life, over the links that messages take.

    Args:
        node: Our node's address, in whose name it asks.
        outbound: Whose links take the requests.
    """

    def __init__(self, node: str, outbound: HasLinks) -> None:
        self._node = node
        self._outbound = outbound
        self._names = map(f"{token_hex(4)}-{{}}".format, count(1))
        self._under_way: dict[bytes, _UnderWay] = {}

    async def make(self, domain: str) -> tuple[RoundTrip, float]:
        """Send a message to the node of a domain, and wait for its answer.

        Returns:
            The answer, and the seconds that it took.

        Raises:
            PeerError: OVERLOAD when too many are under way; the code by which our side does not send it, or answers it
                in place of the other domain; GATEWAY_TIMEOUT when nothing came back in time.
        """
        if len(self._under_way) >= ROUND_TRIPS:
            raise PeerError(Code.OVERLOAD, "too many round trips at once", domain=domain)
        asked, began = question(self._node, domain, next(self._names)), time.monotonic()
        with self._waiting(domain, asked) as trip:
            refusal = self._outbound.links.send(domain, asked)
            if refusal is not None:
                raise PeerError(refusal.code, str((refusal.value or {}).get("rule", refusal.detail)), domain=domain)
            with trio.move_on_after(WAIT_SECONDS):
                await trip.is_over.wait()
        if trip.answer is None:
            raise PeerError(Code.GATEWAY_TIMEOUT, f"no answer within {WAIT_SECONDS:.0f} s", domain=domain)
        return trip.answer, time.monotonic() - began

    @contextmanager
    def _waiting(self, domain: str, asked: Message) -> Iterator[_UnderWay]:
        assert asked.id is not None
        self._under_way[asked.id] = trip = _UnderWay(domain, asked)
        try:
            yield trip
        finally:
            del self._under_way[asked.id]

    def takes(self, message: Message, domain: str) -> bool:
        """Take an answer that came from a domain, or with "" from our own link; False if none of ours waits for it."""
        trip = self._under_way.get(message.id or b"")
        if trip is None or domain not in ("", trip.domain):
            return False
        answer = answer_to(trip.asked, message)
        if answer is None:
            return False
        trip.answer = answer
        trip.is_over.set()
        return True


class OwnRequests:
    """Gives answers to those parts of the node that asked.

    Args:
        foreign: Our subscriptions at other domains.
        trips: Signs of life of other domains.

    Attributes:
        trips: The same.
    """

    def __init__(self, foreign: ForeignObjects, trips: RoundTrips) -> None:
        self._foreign = foreign
        self.trips = trips

    def take_answer(self, message: Message, domain: str) -> bool:
        """Take an answer of another domain, or of our own link in its place ("").

        Returns:
            Whether it was for the node itself. Else it is for somebody else, and goes on.
        """
        if self._foreign.is_answer(message):
            self._foreign.answered(message, domain)
            return True
        return self.trips.takes(message, domain)
