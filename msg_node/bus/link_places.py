"""Which node of the domain has the link to which other domain: one node at a time, by a claim in the directory.

    nobody's ──claim──▶ ours ──another node asks, and no carrier is up──▶ that node's
                          ▲                                                   │
                          └──────────── that node has died, or gives it ──────┘

The first node that needs a link claims it, and keeps it. What other nodes have for that domain they send to it, so
that numbers, rates, gates and open requests of a link are in one place. A connection that the other domain opens comes
to any node: it is taken if the link is nobody's, or has no carrier where it is; then it moves there, with all that it
has (`msg_node.bus.link_moves`). A node that stops gives its links to others. See docs/adr/0039 and 0041.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import msgspec
import trio

from msg_node.bus.core.held_links import HeldLinks
from msg_node.bus.link_claims import LinkClaims, link_key
from msg_node.bus.link_moves import MARK_SECONDS, LinkMoves
from msg_node.bus.node_questions import NodeQuestions
from msg_node.cluster.directory import Directory
from protofly.errors import Code, HostError, PeerError

logger = logging.getLogger("msg_node")

LOOK_SECONDS: Final = 0.5
"""A link that is elsewhere, or nobody's, is looked for so often."""
MOVING_SECONDS: Final = 0.02
"""A node whose link has just come, and that waits for a mark, is asked for it again so soon."""
PLACES: Final = 2_000
"""So many domains are known at once; beyond them, claims of links that do not exist are given back."""
WANTED: Final = b"L"
"""Kind of the question of a node to which another domain has opened a connection."""


class _Wanted(msgspec.Struct, frozen=True):
    domain: str
    node: str
    stream: str = ""


class _Given(msgspec.Struct, frozen=True):
    """Says if the link is given; `is_moving` says that it is to be asked again in a moment."""

    is_given: bool
    is_moving: bool = False


class LinkPlaces:
    """Knows where links are, and has them claimed.

    Args:
        node: Our name.
        directory: Who has which link, beside who owns which address.
        is_dead: Whether a node has died.
        questions: To other nodes.

    Attributes:
        node: The name of this node.
        moves: Gives links to other nodes, and takes theirs.
        held: Those for which messages wait here.
        on_settled: Called with a domain when it is known again where its link is.
    """

    def __init__(
        self, node: str, directory: Directory, is_dead: Callable[[str], bool], questions: NodeQuestions
    ) -> None:
        self.node = node
        self._claims = LinkClaims(node, directory, is_dead)
        self._questions = questions
        self._known: dict[str, str] = {}
        self._given: dict[str, str] = {}  # links that were here: what still comes for them follows them
        self.held = HeldLinks()
        self._arrivals: dict[str, str] = {}  # links that came from a node, and are still claimed by that
        self._looked_at: dict[str, float] = {}
        self._wanted: dict[str, None] = {}
        self._unused: list[str] = []
        self._is_wanted = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._also_ended = directory.on_ended
        directory.on_ended = self._ended
        questions.answerers[WANTED] = self._asked
        self.moves = LinkMoves(node)
        self.moves.places = self
        self.on_settled: Callable[[str, HostError | None], None] = _ignore

    def node_of(self, domain: str) -> str:
        """The node to which messages for a domain go; "" when it is to be found out (`want`), or they have to wait."""
        return "" if domain in self.held else self._known.get(domain, "")

    def has(self, domain: str) -> bool:
        """True if messages of this node for a domain go over a link of its own."""
        return self._known.get(domain) == self.node and domain not in self.held

    def place_of_mark(self, domain: str) -> str:
        """The node to which marks, and messages of others who believe the link here, go on; "" if none is known.

        They follow the link to whom this node gave it, even when it is known to have moved on from there: what went
        that way before may still be under way, and would be overtaken.
        """
        known, given = self._known.get(domain, ""), self._given.get(domain, "")
        return given if known != self.node and given in self.moves.bus.connected else known

    def is_here(self, domain: str) -> bool:
        """True if this node has the link; if not, it is looked for, and claimed if it is nobody's."""
        if self._known.get(domain) == self.node:
            return True
        self.look_again(domain)
        return False

    def elsewhere(self, domain: str) -> str:
        """The other node that has the link to a domain, "" when this one has it or it is not known."""
        node = self._known.get(domain, "")
        return "" if node == self.node else node

    def known(self) -> dict[str, str]:
        """The nodes of all links that are known, by domain."""
        return dict(self._known)

    def want(self, domain: str) -> None:
        """Find out where a link is, and claim it if nobody has it; `on_settled` follows."""
        self._wanted[domain] = None
        self._is_wanted.set()

    def look_again(self, domain: str) -> None:
        """The same for one whose node cannot be reached: not more often than it makes sense."""
        now = time.monotonic()
        if now - self._looked_at.get(domain, 0.0) > LOOK_SECONDS:
            self._looked_at[domain] = now
            self.want(domain)

    async def run(self) -> None:
        """Find out what is wanted, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            while True:
                await self._is_wanted.wait()
                self._is_wanted = trio.Event()
                wanted, self._wanted = list(self._wanted), {}
                for domain in wanted:
                    await self._settle(domain)
                unused, self._unused = self._unused, []
                await self._claims.give_back(unused)

    async def take(self, domain: str, stream: str = "") -> None:
        """Have the link to a domain here, which has opened a connection to us with a stream of its own.

        Raises:
            PeerError: LINK_ELSEWHERE: another node has it, and it is up there. TEMPORARILY_UNAVAILABLE: it is not to be
                found out.
        """
        if self._known.get(domain) == self.node:
            return
        asking = self.held.hold_for_answer(domain)
        try:
            answer = _Given(is_given=False, is_moving=True)
            while answer.is_moving and (node := await self._claims.claim(domain)) != self.node:
                question = msgspec.json.encode(_Wanted(domain, self.node, stream))
                answer = msgspec.json.decode(await self._questions.ask(node, WANTED, question), type=_Given)
                await trio.sleep(MOVING_SECONDS if answer.is_moving else 0)
            if answer.is_given:
                node = await self._claims.claim(domain, node)
            self._note(domain, node)
        except HostError as exc:
            text = f"it is not known which node has the link: {exc.detail}"
            raise PeerError(Code.TEMPORARILY_UNAVAILABLE, text, domain=domain) from exc
        finally:
            self.released(domain, asking)
        if node != self.node:
            raise PeerError(Code.LINK_ELSEWHERE, f"node {node} has the link", domain=domain)

    def _asked(self, text: bytes) -> bytes:
        """Another node wants a link: it may have it unless it is up here."""
        try:
            wanted = msgspec.json.decode(text, type=_Wanted)
        except msgspec.MsgspecError as exc:
            raise PeerError(Code.PROTOCOL_ERROR, "this is no question about a link") from exc
        if self.moves.links.keeps(wanted.domain, wanted.stream):
            return msgspec.json.encode(_Given(is_given=False))
        if self._known.get(wanted.domain) == self.node and wanted.domain in self.held:
            return msgspec.json.encode(_Given(is_given=False, is_moving=True))
        self._give(wanted.domain, wanted.node)
        return msgspec.json.encode(_Given(is_given=True))

    def _give(self, domain: str, to: str) -> None:
        self._arrivals.pop(domain, None)
        self.moves.give(domain, to)
        self._known[domain] = self._given[domain] = to
        self._claims.gave(domain, to)

    async def give_all(self) -> None:
        """Give the links of this node to others, since it stops; returns when they have them, or nobody is there."""
        for domain in [domain for domain, node in self._known.items() if node == self.node]:
            others = sorted(self.moves.bus.connected)
            if not others:
                return
            to = others[zlib.crc32(domain.encode()) % len(others)]
            self._give(domain, to)
            arrival = self.moves.await_mark(domain, to)
            with trio.move_on_after(MARK_SECONDS):
                await arrival.wait()

    def arrived(self, domain: str, giver: str) -> None:
        """The link to a domain is here now; the claim follows. `giver` is "" for one of ours that came back."""
        self._arrivals[domain] = giver
        self._note(domain, self.node)
        self.want(domain)

    def released(self, domain: str, number: int) -> None:
        """Let go what waited for a mark or an answer, unless it waits for another one as well.

        Marks of other nodes that have waited go on behind it.
        """
        marks = self.held.release(domain, number)
        if marks is not None:
            self.on_settled(domain, None)
            for mark in marks:
                self.moves.mark_came(mark)

    async def _settle(self, domain: str) -> None:
        try:
            node = await self._claims.claim(domain, self._arrivals.get(domain))
        except HostError as exc:
            logger.warning("cluster: it is not known which node has the link to %s: %s", domain, exc)
            if domain in self._arrivals and self._nursery is not None:
                self._nursery.start_soon(_later, LOOK_SECONDS, partial(self.want, domain))
            elif domain not in self.held:
                self.on_settled(domain, exc)
            return
        self._note(domain, node)
        if self._arrivals.pop(domain, None) is not None and node == self.node:
            self.moves.links.need(domain)
        if domain not in self.held:
            self.on_settled(domain, None)

    def _forget_unused(self) -> None:
        for domain, node in list(self._known.items()):
            if node != self.node or not self.moves.links.exists(domain):
                del self._known[domain]
                self._given.pop(domain, None)
                self._claims.came(domain)
                self._looked_at.pop(domain, None)
                if node == self.node:
                    self._unused.append(domain)

    def _note(self, domain: str, node: str) -> None:
        """It is known which node has a link: what went to another one until now has to arrive there first."""
        if len(self._known) >= PLACES and domain not in self._known:
            self._forget_unused()
        before, self._known[domain] = self._known.get(domain, ""), node
        if node == self.node:
            self._given.pop(domain, None)
            self._claims.came(domain)
        if before == node:
            return
        if before == self.node:
            logger.info("cluster: node %s has the link to %s from now on", node, domain)
            self._give(domain, node)
            return
        if node == self.node:
            logger.info("cluster: this node has the link to %s", domain)
        number = self.moves.send_mark(domain, before) if before else 0
        if number and self._nursery is not None:
            self.held.hold(domain, number)
            self._nursery.start_soon(_later, MARK_SECONDS, partial(self.moves.ended, number))

    def _ended(self, keys: Collection[str] | None) -> None:
        """Claims have ended: look at those that are known."""
        self._also_ended(keys)
        for domain in list(self._known):
            if keys is None or link_key(domain) in keys:
                self.want(domain)


async def _later(seconds: float, act: Callable[[], None]) -> None:
    await trio.sleep(seconds)
    act()


def _ignore(_domain: str, _error: HostError | None) -> None:
    """Nobody waits."""
