"""Two or three nodes of one domain in one process: real listeners and state files, a directory and a bus in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from msg_node.bus.address_claims import AddressClaims
from msg_node.bus.cluster_links import ClusterLinks
from msg_node.bus.core.moved_session import Asked, MovedSession
from msg_node.bus.node_routing import NodeRouting
from msg_node.bus.node_traffic import Interest, NodeParts
from msg_node.bus.session_moves import SessionMoves
from msg_node.cluster.directory import MemoryDirectory
from msg_node.cluster.node_bus import MemoryNodeBus
from msg_node.node_state import NodeState
from msg_node.storage.state_store import StateStore
from protofly.errors import Code, HostError
from tests.support.runtime_rig import RuntimeRig, runtime_rig


class ClusterNode:
    """What one of the nodes has besides its rig."""

    def __init__(
        self,
        name: str,
        directories: list[MemoryDirectory],
        buses: dict[str, MemoryNodeBus],
        state: NodeState,
        store: StateStore,
    ) -> None:
        self.name = name
        self.buses = buses
        self.directory = MemoryDirectory(name, directories)
        self.claims = AddressClaims(store, self.directory, name)
        self.stored: dict[str, MovedSession] = {}
        """What nodes that died have stored, by runtime key; set by tests."""
        self.dead: set[str] = set()
        moves = SessionMoves(name, state, self.directory, self.claims, self.stored_at)
        self.parts = NodeParts(NodeRouting(name, self.directory, state), Interest(state), moves)
        self.bus: MemoryNodeBus

    async def stored_at(self, node: str, asked: Asked) -> MovedSession | None:
        if node not in self.dead:
            raise HostError(Code.NOT_CONNECTED, "that node may be alive")
        return self.stored.get(asked.runtime_key)

    async def run(self, rig: RuntimeRig, *, task_status: trio.TaskStatus[None]) -> None:
        assert rig.bus.from_nodes is not None
        self.claims.restored(list(rig.state.sessions))
        await self.claims.restart([])
        self.bus = MemoryNodeBus(self.name, self.buses, rig.bus.from_nodes, connects=self.parts.connect)
        rig.bus.send_queues.links = ClusterLinks(rig.domains, self.bus, rig.state.domains)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.claims.run)
            nursery.start_soon(self.parts.moves.run)
            await nursery.start(self.parts.routing.run)
            task_status.started()


@asynccontextmanager
async def cluster_rig(
    folder: Path, names: Sequence[str] = ("n1", "n2"), **options: object
) -> AsyncIterator[list[RuntimeRig]]:
    """Run nodes with these names."""
    directories: list[MemoryDirectory] = []
    buses: dict[str, MemoryNodeBus] = {}
    async with AsyncExitStack() as stack:
        rigs = []
        for name in names:
            (folder / name).mkdir()
            nodes = partial(ClusterNode, name, directories, buses)
            rigs.append(await stack.enter_async_context(runtime_rig(folder / name, nodes=nodes, **options)))  # type: ignore[arg-type]
        yield rigs


def node_of(rig: RuntimeRig) -> ClusterNode:
    """What a rig has as one of several nodes."""
    assert isinstance(rig.nodes, ClusterNode)
    return rig.nodes
