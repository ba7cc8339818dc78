"""How a link to another domain goes from one node of ours to another, with all that it has and in order.

    giver ── parts of the link ──▶ taker        everything that the giver is sent for that domain follows behind them
    other ── mark ──▶ giver ── mark ──▶ taker ── passed ──▶ other        only then the other one sends to the taker

Contents between two nodes keep their order, so what has gone by way of the giver is with the taker when the mark is.
Until then messages of the other nodes, and of the taker's own sessions, wait. A giver that dies, or a mark that comes
back, ends the waiting. Source: docs/adr/0041-a-link-moves-with-all-it-has.md.
"""

from __future__ import annotations

import logging
from itertools import count
from typing import Final, Protocol

import msgspec
import trio

from federation.core.moved_link import LinkParts, MovedLink, parts_of
from msg_node.bus.core.held_links import HeldLinks
from msg_node.cluster.core.node_contents import (
    LINK_GIVEN,
    LINK_PART,
    MARK,
    MARK_PASSED,
    MOVES,
    Mark,
    decode_mark,
    key_content,
    key_of,
    number_and_text,
    numbered,
)
from msg_node.cluster.node_bus import NodeBus
from protofly.errors import Code, PeerError

logger = logging.getLogger("msg_node")

MARK_SECONDS: Final = 2.0
"""A mark is waited for so long: by then a connection between nodes counts as lost, and what it had has come back."""


class LinksHere(Protocol):
    """The links of this node."""

    def keeps(self, domain: str, stream: str) -> bool:
        """True if the link to a domain is not given to a node to which that has connected with a stream of its own."""

    def exists(self, domain: str) -> bool:
        """True if there is a link to a domain, up or not."""

    def give_away(self, domain: str) -> MovedLink | None:
        """End the link to a domain, which another node has from now on; what it has, None if there is none."""

    def take_over(self, domain: str, moved: MovedLink) -> None:
        """Make a link go on here that another node had. Raises PeerError: our policy does not talk to that domain."""

    def need(self, domain: str) -> None:
        """Have a link that came here made, if anything waits for it."""

    def undo(self, moved: MovedLink, code: Code) -> None:
        """Answer what a link has that cannot go on anywhere."""


class Arrivals(Protocol):
    """The known places of links, by node.

    Attributes:
        held: Those for which messages wait here.
    """

    held: HeldLinks

    def arrived(self, domain: str, giver: str) -> None:
        """The link to a domain is here now, as far as the giver is concerned; "" when it came back."""

    def place_of_mark(self, domain: str) -> str:
        """The node to which marks go on, messages held here or not; "" if none is known."""

    def released(self, domain: str, number: int) -> None:
        """Let go what waits for a mark."""


class LinkMoves:
    """Gives links, takes them, and waits until the way by the giver is empty.

    Args:
        node: The name of this node.

    Attributes:
        bus: To other nodes; set once, before anything runs.
        links: Those of this node; set once, before anything runs.
        places: Where it is known which node has which link; set once, before anything runs.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._parts = LinkParts()
        self._own_parts = LinkParts()
        self._marks: dict[int, str] = {}
        self._arrivals: dict[int, trio.Event] = {}
        self._numbers = count(1)
        self.bus: NodeBus
        self.links: LinksHere
        self.places: Arrivals

    def give(self, domain: str, to: str) -> bool:
        """Give a link to a node; False if there was none, and only messages for it go there from now on.

        In either case it has arrived there before what this node sends on: else that came back to this node for as long
        as the other one believes the link here, and would be overtaken.
        """
        moved = self.links.give_away(domain)
        if moved is None:
            self.bus.keep(to, key_content(LINK_GIVEN, domain))
            return False
        about = f"{len(moved.messages)} messages, {len(moved.requests)} open requests"
        logger.info("cluster: the link to %s goes to node %s, with %s", domain, to, about)
        if not all(self.bus.keep(to, LINK_PART + part) for part in parts_of(domain, moved)):
            self.links.undo(moved, Code.NOT_CONNECTED)
        return True

    def take_part(self, node: str, content: bytes) -> None:
        """A node gives a link, part by part. Raises PeerError: PROTOCOL_ERROR."""
        domain, moved = self._parts.take(content[1:])
        if moved is not None:
            self._arrive(domain, moved, node)

    def part_returned(self, content: bytes) -> None:
        """A part of ours came back: who should have the link is gone, so that it goes on here if it can."""
        domain, moved = self._own_parts.take(content[1:])
        if moved is not None:
            self._arrive(domain, moved, "")

    def _arrive(self, domain: str, moved: MovedLink, giver: str) -> None:
        try:
            self.links.take_over(domain, moved)
        except PeerError as exc:
            logger.warning("cluster: the link to %s cannot go on here: %s", domain, exc, extra={"domain": domain})
            self.links.undo(moved, exc.code)
            return
        self.places.arrived(domain, giver)

    # Marks.

    def send_mark(self, domain: str, by: str) -> int:
        """Send a mark behind our messages for a domain that went by a node; its number, 0 if that is away."""
        number = next(self._numbers)
        if not self.bus.keep(by, Mark(number, self._node, domain, MOVES).encode()):
            return 0
        self._marks[number] = domain
        return number

    def await_mark(self, domain: str, by: str) -> trio.Event:
        """Send a mark; what is returned is set once it has arrived where the link is."""
        arrival = trio.Event()
        number = self.send_mark(domain, by)
        if number:
            self._arrivals[number] = arrival
            self.bus.flush()
        else:
            arrival.set()
        return arrival

    async def wait_taken(self) -> None:
        """Wait until the other nodes have taken what they were sent, those of them that are there."""
        arrivals = [self.await_mark("", node) for node in self.bus.connected]
        with trio.move_on_after(MARK_SECONDS):
            for arrival in arrivals:
                await arrival.wait()

    def mark_came(self, content: bytes) -> None:
        """A mark has come: it goes on to where the link is. Raises PeerError: PROTOCOL_ERROR."""
        mark = decode_mark(content)
        place = self.places.place_of_mark(mark.domain)
        if mark.hops == MOVES and place == self._node and mark.domain in self.places.held:
            self.places.held.keep_mark(mark.domain, content)  # behind the messages that wait here
            return
        further = msgspec.structs.replace(mark, hops=mark.hops - 1)
        if place not in ("", self._node) and mark.hops > 0 and self.bus.keep(place, further.encode()):
            return
        if mark.node == self._node:
            self.ended(mark.number)
        else:
            self.bus.keep(mark.node, numbered(MARK_PASSED, mark.number, b""))

    def mark_passed(self, content: bytes) -> None:
        """A mark of ours has arrived. Raises PeerError: PROTOCOL_ERROR."""
        self.ended(number_and_text(content)[0])

    def mark_returned(self, content: bytes) -> None:
        """A mark could not go on: the node that sent it waits no more."""
        mark = decode_mark(content)
        if mark.node == self._node:
            self.ended(mark.number)
        else:
            self.bus.keep(mark.node, numbered(MARK_PASSED, mark.number, b""))

    def ended(self, number: int) -> None:
        """A mark is waited for no more."""
        domain = self._marks.pop(number, None)
        if domain is not None:
            self.places.released(domain, number)
        arrival = self._arrivals.pop(number, None)
        if arrival is not None:
            arrival.set()

    # What other nodes say.

    def take(self, node: str, content: bytes) -> bool:
        """Take in a content about links that move; False if it is none. Raises PeerError: PROTOCOL_ERROR."""
        kind = content[:1]
        if kind == LINK_PART:
            self.take_part(node, content)
        elif kind == LINK_GIVEN:
            self.places.arrived(key_of(content), node)
        elif kind == MARK:
            self.mark_came(content)
        elif kind == MARK_PASSED:
            self.mark_passed(content)
        else:
            return False
        return True

    def returned(self, content: bytes) -> bool:
        """Take back a content about links that move; False if it is none. Raises PeerError: PROTOCOL_ERROR."""
        kind = content[:1]
        if kind == LINK_PART:
            self.part_returned(content)
        elif kind == MARK:
            self.mark_returned(content)
        return kind in (LINK_PART, LINK_GIVEN, MARK, MARK_PASSED)
