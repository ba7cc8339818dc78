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
from msg_node.bus.node_questions import NodeQuestions
from msg_node.bus.node_routing import NodeRouting
from msg_node.bus.node_traffic import Interest, NodeParts
from msg_node.bus.registry_of_nodes import REGISTRIES_OF_NODES, RegistriesOfNodes
from msg_node.bus.session_moves import SessionMoves
from msg_node.cluster.directory import MemoryDirectory
from msg_node.cluster.node_bus import MemoryNodeBus
from msg_node.kernel.service import Service
from msg_node.node_state import NodeState
from msg_node.registries.core.registry_service import RegistryService
from msg_node.storage.state_store import StateStore
from protofly.errors import Code, HostError
from tests.support.runtime_rig import DOMAIN, RuntimeRig, runtime_rig


class ClusterNode:
    """What one of the nodes has besides its rig."""

    def __init__(
        self,
        name: str,
        directories: list[MemoryDirectory],
        buses: dict[str, MemoryNodeBus],
        questions: NodeQuestions,
        state: NodeState,
        store: StateStore,
    ) -> None:
        self.name = name
        self.registries = RegistriesOfNodes(questions, RegistryService(state))
        self.buses = buses
        self.directory = MemoryDirectory(name, directories)
        self.claims = AddressClaims(store, self.directory, name)
        self.stored: dict[str, MovedSession] = {}
        """What nodes that died have stored, by runtime key; set by tests."""
        self.dead: set[str] = set()
        moves = SessionMoves(name, state, self.claims, stored_at=self.stored_at, questions=questions)
        self.parts = NodeParts(NodeRouting(name, self.directory, state), Interest(state), moves, questions)
        self.bus: MemoryNodeBus

    async def stored_at(self, node: str, asked: Asked) -> MovedSession | None:
        if node not in self.dead:
            raise HostError(Code.NOT_CONNECTED, "that node may be alive")
        return self.stored.get(asked.runtime_key)

    async def run(self, rig: RuntimeRig, *, task_status: trio.TaskStatus[None]) -> None:
        assert rig.bus.from_nodes is not None
        rig.bus.inquiries.connect(REGISTRIES_OF_NODES, self.registries.ask)
        self.claims.restored(list(rig.state.sessions))
        await self.claims.restart([])
        self.bus = MemoryNodeBus(self.name, self.buses, rig.bus.from_nodes, connects=self.parts.connect)
        rig.bus.send_queues.links = ClusterLinks(rig.domains, self.bus, rig.state.domains)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.claims.run)
            nursery.start_soon(self.parts.moves.run)
            await nursery.start(self.parts.routing.run)
            task_status.started()


def registry_at(questions: NodeQuestions, state: NodeState) -> dict[str, Service]:
    """The registry of the domain."""
    return {f"domain://registry.{DOMAIN}": RegistriesOfNodes(questions, RegistryService(state)).service}


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
            questions = NodeQuestions()
            nodes = partial(ClusterNode, name, directories, buses, questions)
            services_at = partial(registry_at, questions)
            rig = runtime_rig(folder / name, nodes=nodes, services_at=services_at, **options)  # type: ignore[arg-type]
            rigs.append(await stack.enter_async_context(rig))
        yield rigs


def node_of(rig: RuntimeRig) -> ClusterNode:
    """What a rig has as one of several nodes."""
    assert isinstance(rig.nodes, ClusterNode)
    return rig.nodes
