"""What other nodes have claimed, as far as it counts for the claims of this one.

Nobody owns an address below one that another node owns, as nobody does where both are at one node: who did would get
what is meant for the owner above, and speak in its name. So each claim with something above it is looked at again once
it is made. A child of an object, in the form `O/n`, is listened to all the same, without being owned. Source: message
specification, sections 7.4 and 8.3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from msg_node.addresses.core.allocation import ancestors
from msg_node.cluster.directory import Claim, Directory


class OtherClaims:
    """Looks at claims of other nodes.

    Args:
        directory: Has the claims.
        node: Our name.

    Attributes:
        abandoned: Says which claims of others stand for nothing; may raise HostError like the directory.
        shares: Says whether an address may be listened to that is below one of another node.
        on_shared: Called with such addresses that memory still has here as owned.
    """

    def __init__(self, directory: Directory, node: str) -> None:
        self._directory = directory
        self._node = node
        self.abandoned: Callable[[Mapping[str, Claim]], Awaitable[Collection[str]]] = _none
        self.shares: Callable[[str], bool] = _never
        self.on_shared: Callable[[Sequence[str]], None] = _ignore

    async def above(self, claimed: Collection[str]) -> tuple[set[str], set[str]]:
        """End those of our claims that are below what another node owns.

        They are made before it is asked what is above them, so of two claims at once the later one sees the other.

        Returns:
            Those that may be listened to all the same, and the rest of those that were ended.

        Raises:
            HostError: As `Directory.claim`.
        """
        above = {key: names for key in claimed if (names := tuple(ancestors(key)))}
        if not above:
            return set(), set()
        found = await self._directory.find({name for names in above.values() for name in names})
        others = {name: claim for name, claim in found.items() if claim.node != self._node}
        if not others:
            return set(), set()
        taken = others.keys() - set(await self.abandoned(others))
        ended = {key for key, names in above.items() if not taken.isdisjoint(names)}
        if ended:
            await self._directory.release(ended)
        shared = {key for key in ended if self.shares(key)}
        return shared, ended - shared


def _never(_: str) -> bool:
    """Nothing is shared."""
    return False


def _ignore(_: Sequence[str]) -> None:
    """Nobody holds anything."""


async def _none(_: Mapping[str, Claim]) -> Collection[str]:
    """All claims stand for something."""
    return ()
