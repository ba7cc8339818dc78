"""Two or three nodes of one domain in one process: real listeners and state files, a directory and a bus in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import trio

from federation.stubs.address_feed import SeenAddresses
from msg_node.bus.address_claims import AddressClaims
from msg_node.bus.addresses_of_nodes import AddressesOfNodes
from msg_node.bus.cluster_links import ClusterLinks
from msg_node.bus.core.moved_session import Asked, MovedSession
from msg_node.bus.delivery_of_nodes import DELIVERY_OF_NODES, DeliveryOfNodes
from msg_node.bus.link_places import LinkPlaces
from msg_node.bus.node_questions import NodeQuestions
from msg_node.bus.node_routing import NodeRouting
from msg_node.bus.node_runs import RunsToNodes
from msg_node.bus.node_traffic import Interest, NodeParts
from msg_node.bus.registry_of_nodes import REGISTRIES_OF_NODES, RegistriesOfNodes
from msg_node.bus.releases_of_nodes import RELEASES_OF_NODES, ReleasesOfNodes
from msg_node.bus.session_moves import SessionMoves
from msg_node.bus.twin_of_nodes import TWINS_OF_NODES, TwinsOfNodes
from msg_node.bus.work_moves import WorkMoves
from msg_node.cluster.directory import Claim, MemoryDirectory
from msg_node.cluster.node_bus import MemoryNodeBus
from msg_node.kernel.changes import SHARED, Table
from msg_node.kernel.rules import Rules
from msg_node.kernel.service import Service
from msg_node.node_state import NodeState
from msg_node.registries.core.registry_service import RegistryService
from msg_node.registries.core.twin_service import TwinService
from msg_node.requests.core.delivery_service import DeliveryService
from msg_node.storage.state_file import Rows
from msg_node.storage.state_store import DurableRows, StateStore
from msg_node.wiring.allocated_addresses import AllocatedAddresses
from policy.core.gate import Gate, PeerRule
from protofly.errors import Code, HostError
from tests.support.runtime_rig import DOMAIN, RuntimeRig, runtime_rig

Further = Callable[[NodeState], Mapping[str, Service]]
SharedTables = dict[Table, dict[str, bytes]]
SHOWN_BY = Gate(peers={"*": PeerRule()})
"""What the nodes show to other domains."""


class DomainRows:
    """The rows of one node in its file, and those of the domain in one table for all nodes."""

    def __init__(self, own: DurableRows, shared: SharedTables, heard: list[Callable[[list[str]], None]]) -> None:
        self._own = own
        self._shared = shared
        self._heard = heard

    def load(self) -> dict[Table, dict[str, bytes]]:
        return self._own.load()

    def commit(self, rows: Rows) -> None:
        self._own.commit({table: {} if table in SHARED else of_table for table, of_table in rows.items()})
        changed = [table for table in SHARED if rows.get(table)]
        for table in changed:
            for key, row in rows[table].items():
                if row is None:
                    self._shared[table].pop(key, None)
                else:
                    self._shared[table][key] = msgspec.json.encode(row)
        for heard in self._heard if changed else ():
            trio.from_thread.run_sync(heard, [table.value for table in changed])

    def scrub(self) -> None:
        self._own.scrub()

    def close(self) -> None:
        self._own.close()


class ClusterNode:
    """What one of the nodes has besides its rig."""

    def __init__(
        self,
        name: str,
        directories: list[MemoryDirectory],
        buses: dict[str, MemoryNodeBus],
        questions: NodeQuestions,
        shared: SharedTables,
        state: NodeState,
        store: StateStore,
    ) -> None:
        self.name = name
        self.registries = RegistriesOfNodes(questions, RegistryService(state))
        self.twins = TwinsOfNodes(questions, TwinService(state, state.delivery.queues))
        self.delivery = delivery_of(questions, state)
        self.buses = buses
        self.directory = MemoryDirectory(name, directories)
        self.claims = AddressClaims(store, self.directory, name)
        self.claims.others.abandoned = self.abandoned
        self.stored: dict[str, MovedSession] = {}
        """What nodes that died have stored, by runtime key; set by tests."""
        self.dead: set[str] = set()
        self.shared = shared
        moves = SessionMoves(
            name, state, self.claims, stored_at=self.stored_at, given_away=self.given_away, questions=questions
        )
        routing = NodeRouting(name, self.directory, state)
        self.places = LinkPlaces(name, self.directory, self.dead.__contains__, questions)
        self.work = WorkMoves(name, state, self.directory, lambda table: dict(shared[table]), self.places)
        runs = RunsToNodes(state)
        shown = AddressesOfNodes(
            AllocatedAddresses(state), lambda domain: SeenAddresses(domain, SHOWN_BY), self.dead.__contains__
        )
        self.parts = NodeParts(routing, Interest(state), moves, questions, self.work, self.places, runs, shown)
        self.bus: MemoryNodeBus
        self.links: ClusterLinks

    async def stored_at(self, node: str, asked: Asked) -> tuple[MovedSession | None, int]:
        if node not in self.dead:
            raise HostError(Code.NOT_CONNECTED, "that node may be alive")
        return self.stored.get(asked.runtime_key), 0

    async def abandoned(self, claims: Mapping[str, Claim]) -> list[str]:
        return [key for key, claim in claims.items() if claim.node in self.dead]

    async def given_away(self, digest: str) -> bytes | None:
        return self.shared[Table.GIVEN_SESSIONS].get(digest)

    def join(self, rig: RuntimeRig) -> ClusterLinks:
        """Meet the other nodes."""
        assert rig.bus.from_nodes is not None
        self.bus = MemoryNodeBus(self.name, self.buses, rig.bus.from_nodes, connects=self.parts.connect)
        self.places.moves.links = rig.domains
        self.links = links = ClusterLinks(
            rig.domains, self.bus, rig.state, self.places, rig.bus.refusals, rig.domains.permits
        )
        rig.bus.send_queues.links = rig.bus.from_nodes.links = links
        rig.bus.from_links.on_live = links.announce
        return links

    async def run(self, rig: RuntimeRig, *, task_status: trio.TaskStatus[None]) -> None:
        rig.bus.inquiries.connect(REGISTRIES_OF_NODES, self.registries.ask)
        rig.bus.inquiries.connect(TWINS_OF_NODES, self.twins.ask)
        rig.bus.inquiries.connect(DELIVERY_OF_NODES, self.delivery.ask)
        self.delivery.effects = rig.bus.effects
        releases = ReleasesOfNodes(self.name, rig.state, self.directory)
        rig.bus.inquiries.connect(RELEASES_OF_NODES, releases.ask)
        rig.services.guard(f"domain://msg-node.{DOMAIN}/address-allocation", releases.over)
        self.claims.restored(list(rig.state.sessions))
        await self.claims.restart([])
        links = self.join(rig)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.claims.run)
            nursery.start_soon(self.parts.moves.run)
            nursery.start_soon(self.work.run)
            nursery.start_soon(self.places.run)
            nursery.start_soon(self.parts.addresses.run)
            nursery.start_soon(links.run)
            await nursery.start(self.parts.routing.run)
            task_status.started()


def delivery_of(questions: NodeQuestions, state: NodeState) -> DeliveryOfNodes:
    """The service of the domain; a node that the bus between nodes has and that is cut off cannot be asked."""

    def unreachable() -> list[str]:
        bus = questions.bus
        assert isinstance(bus, MemoryNodeBus)
        return sorted(bus.cut_off)

    return DeliveryOfNodes(questions, DeliveryService(state), state.take_changes, unreachable)


def registry_at(questions: NodeQuestions, further: Further, state: NodeState) -> dict[str, Service]:
    """The registry of the domain, its twin, and where its requests stand; and further services."""
    twin = TwinService(state, state.delivery.queues)
    return {
        f"domain://registry.{DOMAIN}": RegistriesOfNodes(questions, RegistryService(state)).service,
        f"domain://msg-node.{DOMAIN}/twin": TwinsOfNodes(questions, twin).service,
        f"domain://msg-node.{DOMAIN}/delivery": delivery_of(questions, state).service,
        **further(state),
    }


def nothing_further(_state: NodeState) -> Mapping[str, Service]:
    """No more services."""
    return {}


@asynccontextmanager
async def cluster_rig(
    folder: Path, names: Sequence[str] = ("n1", "n2"), further: Further = nothing_further, **options: object
) -> AsyncIterator[list[RuntimeRig]]:
    """Run nodes with these names, and with further services by their keys."""
    directories: list[MemoryDirectory] = []
    buses: dict[str, MemoryNodeBus] = {}
    shared: SharedTables = {table: {} for table in SHARED}
    heard: list[Callable[[list[str]], None]] = []
    async with AsyncExitStack() as stack:
        rigs = []
        for name in names:
            (folder / name).mkdir()
            questions = NodeQuestions()
            nodes = partial(ClusterNode, name, directories, buses, questions, shared)
            rig = runtime_rig(
                folder / name,
                nodes=nodes,
                services_at=partial(registry_at, questions, further),
                rules=Rules(shares_domain=True),
                rows_over=lambda own: DomainRows(own, shared, heard),
                **options,  # type: ignore[arg-type]
            )
            rigs.append(await stack.enter_async_context(rig))
            heard.append(node_of(rigs[-1]).work.heard)
        yield rigs


def node_of(rig: RuntimeRig) -> ClusterNode:
    """What a rig has as one of several nodes."""
    assert isinstance(rig.nodes, ClusterNode)
    return rig.nodes
