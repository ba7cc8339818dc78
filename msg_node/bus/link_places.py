"""Which node of the domain has the link to which other domain: one node at a time, by a claim in the directory.

    nobody's ──claim──▶ ours ──another node asks, and no carrier is up──▶ that node's
                          ▲                                                   │
                          └──────────── that node has died, or gives it ──────┘

The first node that needs a link claims it, and keeps it. What other nodes have for that domain they send to it, so
that numbers, rates, gates and open requests of a link are in one place. A connection that the other domain opens comes
to any node: it is taken if the link is nobody's, or has no carrier where it is; then it moves there. See docs/adr/0039.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Final, Protocol

import msgspec
import trio

from msg_node.bus.node_questions import NodeQuestions
from msg_node.cluster.directory import Claim, Directory
from protofly.errors import Code, HostError, PeerError

logger = logging.getLogger("msg_node")

LOOK_SECONDS: Final = 0.5
"""A link that is elsewhere, or nobody's, is looked for so often."""
CLAIM_SECONDS: Final = 5.0
PLACES: Final = 2_000
"""So many domains are known at once; beyond them, claims of links that do not exist are given back."""
WANTED: Final = b"L"
"""Kind of the question of a node to which another domain has opened a connection."""

Streams = dict[str, int]
"""How far the other domain's streams were seen through."""


class LinksHere(Protocol):
    """The links of this node."""

    def is_live(self, domain: str) -> bool:
        """True if the link to a domain is up."""

    def exists(self, domain: str) -> bool:
        """True if there is a link to a domain, up or not."""

    def give_away(self, domain: str) -> Streams:
        """End the link to a domain, which another node has from now on."""


class _Wanted(msgspec.Struct, frozen=True):
    domain: str
    node: str


class _Given(msgspec.Struct, frozen=True):
    is_given: bool
    streams: Streams = {}


class LinkPlaces:
    """Knows where links are, and has them claimed.

    Args:
        node: The name of this node.
        directory: Who has which link, beside who owns which address.
        is_dead: Whether a node has died.
        questions: To other nodes.

    Attributes:
        links: Those of this node; set once, before anything runs.
        on_settled: Called with a domain when it is known again where its link is.
    """

    def __init__(
        self, node: str, directory: Directory, is_dead: Callable[[str], bool], questions: NodeQuestions
    ) -> None:
        self._node = node
        self._directory = directory
        self._is_dead = is_dead
        self._questions = questions
        self._known: dict[str, str] = {}
        self._looked_at: dict[str, float] = {}
        self._wanted: dict[str, None] = {}
        self._unused: list[str] = []
        self._is_wanted = trio.Event()
        self._also_ended = directory.on_ended
        directory.on_ended = self._ended
        questions.answerers[WANTED] = self._asked
        self.links: LinksHere
        self.on_settled: Callable[[str, HostError | None], None] = _ignore

    def node_of(self, domain: str) -> str:
        """The node that has the link to a domain, as far as is known; "" when that has to be found out (`want`)."""
        return self._known.get(domain, "")

    def has(self, domain: str) -> bool:
        """True if this node has the link, as far as is known."""
        return self._known.get(domain) == self._node

    def is_here(self, domain: str) -> bool:
        """The same; if not, it is looked for, and claimed if it is nobody's."""
        if self.has(domain):
            return True
        self.look_again(domain)
        return False

    def elsewhere(self, domain: str) -> str:
        """The other node that has the link to a domain, "" when this one has it or it is not known."""
        node = self._known.get(domain, "")
        return "" if node == self._node else node

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
        while True:
            await self._is_wanted.wait()
            self._is_wanted = trio.Event()
            wanted, self._wanted = list(self._wanted), {}
            for domain in wanted:
                await self._settle(domain)
            await self._give_back()

    async def take(self, domain: str) -> Streams:
        """Have the link to a domain here, which has opened a connection to us.

        Returns:
            How far its streams were seen through where the link was before.

        Raises:
            PeerError: LINK_ELSEWHERE: another node has it, and it is up there. TEMPORARILY_UNAVAILABLE: it is not to be
                found out.
        """
        if self.has(domain):
            return {}
        try:
            claim = await self._claim(domain)
            given = _Given(is_given=True)
            if claim.node != self._node:
                given = await self._ask(domain, claim.node)
                claim = await self._claim(domain, claim if given.is_given else None)
        except HostError as exc:
            text = f"it is not known which node has the link: {exc.detail}"
            raise PeerError(Code.TEMPORARILY_UNAVAILABLE, text, domain=domain) from exc
        self._note(domain, claim.node)
        if claim.node != self._node:
            raise PeerError(Code.LINK_ELSEWHERE, f"node {claim.node} has the link", domain=domain)
        return given.streams

    async def _ask(self, domain: str, node: str) -> _Given:
        answer = await self._questions.ask(node, WANTED, msgspec.json.encode(_Wanted(domain, self._node)))
        return msgspec.json.decode(answer, type=_Given)

    def _asked(self, text: bytes) -> bytes:
        """Another node wants a link: it may have it unless it is up here."""
        try:
            wanted = msgspec.json.decode(text, type=_Wanted)
        except msgspec.MsgspecError as exc:
            raise PeerError(Code.PROTOCOL_ERROR, "this is no question about a link") from exc
        if self.links.is_live(wanted.domain):
            return msgspec.json.encode(_Given(is_given=False))
        logger.info("cluster: the link to %s goes to node %s, to which that has connected", wanted.domain, wanted.node)
        streams = self.links.give_away(wanted.domain)
        self._known[wanted.domain] = wanted.node
        return msgspec.json.encode(_Given(is_given=True, streams=streams))

    async def _settle(self, domain: str) -> None:
        try:
            claim = await self._claim(domain)
        except HostError as exc:
            logger.warning("cluster: it is not known which node has the link to %s: %s", domain, exc)
            self.on_settled(domain, exc)
            return
        self._note(domain, claim.node)
        self.on_settled(domain, None)

    async def _claim(self, domain: str, replaced: Claim | None = None) -> Claim:
        """Claim a link that is nobody's, or that a dead node has, or that is given to us. Raises HostError."""
        key = link_key(domain)
        try:
            with trio.fail_after(CLAIM_SECONDS):
                claim = (await self._directory.claim([key], {} if replaced is None else {key: replaced}))[key]
                if claim.node != self._node and self._is_dead(claim.node):
                    claim = (await self._directory.claim([key], {key: claim}))[key]
        except trio.TooSlowError as exc:
            raise HostError(Code.TEMPORARILY_UNAVAILABLE, "the directory does not answer") from exc
        return claim

    async def _give_back(self) -> None:
        """End claims of links that do not exist any more."""
        unused, self._unused = self._unused, []
        try:
            if unused:
                await self._directory.release([link_key(domain) for domain in unused])
        except HostError as exc:
            logger.warning("cluster: links that are not used any more cannot be given back: %s", exc)

    def _forget_unused(self) -> None:
        for domain, node in list(self._known.items()):
            if node != self._node or not self.links.exists(domain):
                del self._known[domain]
                self._looked_at.pop(domain, None)
                if node == self._node:
                    self._unused.append(domain)

    def _note(self, domain: str, node: str) -> None:
        if len(self._known) >= PLACES and domain not in self._known:
            self._forget_unused()
        before, self._known[domain] = self._known.get(domain, ""), node
        if before == node:
            return
        if node == self._node:
            logger.info("cluster: this node has the link to %s", domain)
        elif before == self._node:
            logger.info("cluster: node %s has the link to %s from now on", node, domain)
            self.links.give_away(domain)

    def _ended(self, keys: Collection[str] | None) -> None:
        """Claims have ended: look at those that are known."""
        self._also_ended(keys)
        for domain in list(self._known):
            if keys is None or link_key(domain) in keys:
                self.want(domain)


def link_key(domain: str) -> str:
    """The key of a link in the directory; no address has a space."""
    return f"link {domain}"


def _ignore(_domain: str, _error: HostError | None) -> None:
    """Nobody waits."""
