"""Who owns which address of the domain: a node, under an epoch that grows with each change of owner.

An address is claimed by compare-and-set: by its owner again, by anybody while nobody owns it, and otherwise only by a
node that names the claim that it replaces. So of two nodes that claim one address at once one gets it, and both know
which. A claim lasts until it is released or replaced; it is worth nothing while its node has lost its name, and then
others may replace it. A node that has begun again has its claims again: who believes it dead replaces none of them.
Nodes remember what they have looked up, and are notified of claims that end.

`MemoryDirectory` is for one process, for tests and simulations; `EngineDirectory` of
`msg_node.cluster.engine_directory` is for several. Both pass the same tests. Source: design, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count
from typing import Final, NamedTuple, Protocol

import trio

from protofly.errors import Code, HostError

FIND_SECONDS: Final = 3.0
"""Longest wait of who wants to be answered soon: an engine that is only slow answers before, and a node without one is
fenced after 4.5 s, so nobody waits for both."""


class Claim(NamedTuple):
    """The owner of an address. No two claims of one address ever have the same epoch."""

    node: str
    epoch: int


NO_CLAIMS: Mapping[str, Claim] = {}
NONE_DEAD: Mapping[str, int] = {}


class Directory(Protocol):
    """The claims of one domain, as one node sees and makes them.

    Attributes:
        on_ended: Called with keys whose claims have ended or were replaced, by whatever node; with None when some may
            have been missed, so that nothing that was looked up counts any more.
    """

    on_ended: Callable[[Collection[str] | None], None]

    async def claim(
        self,
        keys: Collection[str],
        replaced: Mapping[str, Claim] = NO_CLAIMS,
        *,
        led_by: str = "",
        dead: Mapping[str, int] = NONE_DEAD,
    ) -> dict[str, Claim]:
        """Claim addresses for this node, each that is free, or this node's, or held by the claim in `replaced`.

        Args:
            keys: What is to be claimed.
            replaced: Claims of others that ours may take the place of, by key.
            led_by: One of the keys, if not empty: where that does not become ours, no other one is claimed. So of nodes
                that want the same session at once, one gets all that it holds.
            dead: Nodes that are believed dead, with the epochs under which they died: no claim of one that has begun
                again since is replaced.

        Returns:
            Who owns each of them now; where the first one is not ours, only who owns that.

        Raises:
            HostError: STATE_UNAVAILABLE; nothing is claimed, as far as is known. FencedError: this node lost its name.
        """

    async def find(self, keys: Collection[str]) -> dict[str, Claim]:
        """Look up the owners of addresses; unowned ones are missing in the result. Raises HostError as `claim`."""

    async def release(self, keys: Collection[str]) -> None:
        """End those of our claims; those of others stay. Raises HostError as `claim`."""

    async def restart(self, keys: Collection[str]) -> dict[str, Claim]:
        """Claim addresses for a process that begins, and end all other claims of this node. See `claim`."""


async def found_soon(directory: Directory, keys: Collection[str]) -> dict[str, Claim]:
    """As `Directory.find`, for who must answer soon.

    Raises:
        HostError: As `Directory.find`; STATE_UNAVAILABLE also after `FIND_SECONDS`.
    """
    try:
        with trio.fail_after(FIND_SECONDS):
            return await directory.find(keys)
    except trio.TooSlowError as exc:
        text = f"the engine has not said within {FIND_SECONDS:g} s at which node this is: try again"
        raise HostError(Code.STATE_UNAVAILABLE, text) from exc


class MemoryDirectory:
    """A directory inside one process.

    Args:
        node: Whose claims are made here.
        others: All directories of the domain; this one enters itself.
    """

    def __init__(self, node: str, others: list[MemoryDirectory] | None = None) -> None:
        self._node = node
        self._others = [] if others is None else others
        self.claims: dict[str, Claim] = self._others[0].claims if self._others else {}
        self.epochs: Iterator[int] = self._others[0].epochs if self._others else count(1)
        self.node_epochs: dict[str, int] = self._others[0].node_epochs if self._others else {}
        """The epochs of nodes that have begun again."""
        self.on_ended: Callable[[Collection[str] | None], None] = _ignore
        self._others.append(self)

    async def claim(
        self,
        keys: Collection[str],
        replaced: Mapping[str, Claim] = NO_CLAIMS,
        *,
        led_by: str = "",
        dead: Mapping[str, int] = NONE_DEAD,
    ) -> dict[str, Claim]:
        """See `Directory`."""
        alive = {node for node, epoch in dead.items() if self.node_epochs.get(node, epoch) != epoch}
        taken = {key: claim for key, claim in replaced.items() if claim.node not in alive}
        if led_by and self._take([led_by], taken)[led_by].node != self._node:
            return {led_by: self.claims[led_by]}
        return self._take(keys, taken)

    def _take(self, keys: Collection[str], replaced: Mapping[str, Claim]) -> dict[str, Claim]:
        ended = []
        for key in keys:
            holder = self.claims.get(key)
            if holder is None or (holder.node != self._node and holder == replaced.get(key)):
                self.claims[key] = Claim(self._node, next(self.epochs))
                if holder is not None:
                    ended.append(key)
        self._notify(ended)
        return {key: self.claims[key] for key in keys}

    async def find(self, keys: Collection[str]) -> dict[str, Claim]:
        """See `Directory`."""
        return {key: self.claims[key] for key in keys if key in self.claims}

    async def release(self, keys: Collection[str]) -> None:
        """See `Directory`."""
        ended = [key for key in keys if key in self.claims and self.claims[key].node == self._node]
        for key in ended:
            del self.claims[key]
        self._notify(ended)

    async def restart(self, keys: Collection[str]) -> dict[str, Claim]:
        """See `Directory`."""
        wanted = set(keys)
        await self.release([key for key, one in self.claims.items() if one.node == self._node and key not in wanted])
        return await self.claim(keys)

    def _notify(self, ended: Collection[str]) -> None:
        for directory in self._others if ended else ():
            directory.on_ended(ended)


def _ignore(_: Collection[str] | None) -> None:
    """Nobody remembers anything yet."""
