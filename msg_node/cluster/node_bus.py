"""The bus between the nodes of one domain: contents in order, each taken over once, or returned.

`NodeBus` is what the rest of a node sees. `MemoryNodeBus` connects nodes inside one process, for tests and simulations;
`SocketNodeBus` of `msg_node.cluster.socket_node_bus` connects processes. Both pass the same tests. Nothing that is sent
waits: contents are queued, and `flush` hands on what one scheduler round has gathered, with one write per node.
Source: design, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from msg_node.cluster.core.handshake import ABILITIES
from msg_node.kernel.congestion import Congestible
from protofly.errors import Code


class NodeBusUser(Protocol):
    """Callbacks of a bus into the node that it serves."""

    def met(self, node: str, *, is_new: bool) -> None:
        """Another node is connected. `is_new`: a process that knows nothing of what was sent to its name before."""

    def taken(self, node: str, contents: Sequence[bytes]) -> None:
        """Take over contents of another node, in its order."""

    def returned(self, node: str, contents: Sequence[bytes]) -> None:
        """Contents of ours that another node did not take over, as far as is known, in our order."""

    async def wait_for_room(self) -> None:
        """Wait while those are congested for whom contents came; bounded by their patience."""


class NodeBus(Protocol):
    """Sends to the other nodes of the domain."""

    @property
    def connected(self) -> Collection[str]:
        """The nodes that are connected now."""

    def send(self, node: str, content: bytes) -> Code | None:
        """Queue something for another node. A code says that it was refused: NOT_CONNECTED, OVERLOAD."""

    def keep(self, node: str, content: bytes) -> bool:
        """Queue something that is bounded elsewhere; False when the node is away, and nothing was queued."""

    def congested(self, node: str) -> Congestible | None:
        """Those who wait for a node, if its senders should pause."""

    def is_able(self, node: str, ability: str) -> bool:
        """True if the process that is connected there understands something (`msg_node.cluster.core.handshake`)."""

    def flush(self) -> None:
        """Hand on what was queued."""


class MemoryNodeBus:
    """Connects nodes inside one process.

    Args:
        node: The name of this node.
        others: All buses of the domain by name; this one enters itself.
        connects: Called with this bus before anybody is met.

    Attributes:
        user: The node that is served.
        abilities: What this node understands.
        cut_off: Nodes from which this one is parted.
    """

    def __init__(
        self,
        node: str,
        others: dict[str, MemoryNodeBus],
        user: NodeBusUser,
        *,
        connects: Callable[[NodeBus], None] | None = None,
    ) -> None:
        self._node = node
        self._others = others
        self.user = user
        self._waiting: dict[str, list[bytes]] = {}
        self.abilities: tuple[str, ...] = ABILITIES
        self.cut_off: set[str] = set()
        others[node] = self
        if connects is not None:
            connects(self)
        for name, other in others.items():
            if name != node:
                user.met(name, is_new=True)
                other.user.met(node, is_new=True)

    @property
    def connected(self) -> Collection[str]:
        """See `NodeBus`."""
        return self._others.keys() - self.cut_off - {self._node}

    def send(self, node: str, content: bytes) -> Code | None:
        """See `NodeBus`."""
        return None if self.keep(node, content) else Code.NOT_CONNECTED

    def keep(self, node: str, content: bytes) -> bool:
        """See `NodeBus`."""
        if node not in self.connected:
            return False
        self._waiting.setdefault(node, []).append(content)
        return True

    def congested(self, _node: str) -> Congestible | None:
        """Nobody: a process takes at once what it sends itself."""
        return None

    def is_able(self, node: str, ability: str) -> bool:
        """See `NodeBus`."""
        return node in self.connected and ability in self._others[node].abilities

    def flush(self) -> None:
        """See `NodeBus`."""
        waiting, self._waiting = self._waiting, {}
        for node, contents in waiting.items():
            if node in self.connected:
                self._others[node].user.taken(self._node, contents)
            else:
                self.user.returned(node, contents)

    def leave(self) -> None:
        """This node ends; what waits for it comes back to those who sent it."""
        del self._others[self._node]

    def cut(self, node: str) -> None:
        """Part two nodes, in both directions."""
        self.cut_off.add(node)
        self._others[node].cut_off.add(self._node)

    def mend(self, node: str) -> None:
        """Connect two nodes again that were parted."""
        self.cut_off.discard(node)
        self._others[node].cut_off.discard(self._node)
        self.user.met(node, is_new=False)
        self._others[node].user.met(self._node, is_new=False)
