"""Claims of links in the directory of the domain, beside those of addresses.

Source: docs/adr/0039-a-link-is-at-one-node.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Final

import trio

from msg_node.cluster.directory import Directory
from protofly.errors import Code, HostError

logger = logging.getLogger("msg_node")

CLAIM_SECONDS: Final = 5.0


class LinkClaims:
    """Claims links for this node.

    Args:
        node: The name of this node.
        directory: Who has which link, beside who owns which address.
        is_dead: Whether a node has died.
    """

    def __init__(self, node: str, directory: Directory, is_dead: Callable[[str], bool]) -> None:
        self._node = node
        self._directory = directory
        self._is_dead = is_dead
        self._given: dict[str, tuple[str, float]] = {}

    def gave(self, domain: str, to: str) -> None:
        """This node gave a link to another one, which claims it next: a claim in our name is stale until then."""
        self._given[domain] = to, time.monotonic() + CLAIM_SECONDS

    def came(self, domain: str) -> None:
        """A link is here (again), or not known any more."""
        self._given.pop(domain, None)

    async def claim(self, domain: str, giver: str | None = None) -> str:
        """Claim a link that is nobody's, that a dead node has, or that `giver` has and gives; the node that has it.

        Raises:
            HostError: STATE_UNAVAILABLE or what `Directory.claim` raises: it is not known.
        """
        node = await self.claim_key(link_key(domain), giver)
        to, until = self._given.get(domain, ("", 0.0))
        return to if node == self._node and time.monotonic() < until and not self._is_dead(to) else node

    async def claim_key(self, key: str, giver: str | None = None) -> str:
        """The same for anything that one node has at a time."""
        try:
            with trio.fail_after(CLAIM_SECONDS):
                claim = (await self._directory.claim([key]))[key]
                if claim.node != self._node and (claim.node == giver or self._is_dead(claim.node)):
                    claim = (await self._directory.claim([key], {key: claim}))[key]
        except trio.TooSlowError as exc:
            raise HostError(Code.STATE_UNAVAILABLE, "the directory does not answer") from exc
        return claim.node

    async def give_back(self, domains: Collection[str]) -> None:
        """End claims of links that do not exist any more."""
        try:
            if domains:
                await self._directory.release([link_key(domain) for domain in domains])
        except HostError as exc:
            logger.warning("cluster: links that are not used any more cannot be given back: %s", exc)


def link_key(domain: str) -> str:
    """The key of a link in the directory; no address has a space."""
    return f"link {domain}"
