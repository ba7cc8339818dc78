"""Makes what only one of several nodes of a domain has: the bus between them, the directory, and what uses both."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from federation.core.moved_link import MovedLink
from federation.links.link_moves import hand_over_link, keeps_link, take_over_link, undo_link
from federation.links.router import Federation
from federation.links.visitors import refused_contact
from federation.stubs.address_feed import SeenAddresses
from msg_node.addresses.core.allocation import OwnedRow
from msg_node.addresses.core.subscriptions import Subscription, SubscriptionRow
from msg_node.bus.address_claims import AddressClaims
from msg_node.bus.addresses_of_nodes import AddressesOfNodes
from msg_node.bus.bus import Bus
from msg_node.bus.cluster_links import ClusterLinks
from msg_node.bus.core.moved_session import Asked, MovedSession, may_have
from msg_node.bus.link_places import LinkPlaces
from msg_node.bus.node_questions import NodeQuestions
from msg_node.bus.node_routing import NodeRouting
from msg_node.bus.node_runs import RunsToNodes
from msg_node.bus.node_traffic import Interest, NodeParts
from msg_node.bus.quotas_of_nodes import QuotaSources
from msg_node.bus.session_moves import SessionMoves
from msg_node.bus.work_moves import WorkMoves
from msg_node.cluster.cluster_key import read_cluster_key
from msg_node.cluster.directory import Claim
from msg_node.cluster.node_line import Address
from msg_node.cluster.socket_node_bus import NodeIdentity, SocketNodeBus
from msg_node.kernel.credentials import digest_of
from msg_node.kernel.node_figures import NodeFigures
from msg_node.kernel.session import SessionRow
from msg_node.node_state import NodeState
from msg_node.qos.core.leases import Lease
from msg_node.registries.core.policy_names import PolicyNameRow
from msg_node.registries.core.twin import ThingRow
from msg_node.sessions.core.session_service import OpenRefusedError
from msg_node.wiring.allocated_addresses import AllocatedAddresses
from msg_node.wiring.cluster import HeldName
from msg_node.wiring.foundation import Foundation
from policy.core.gate import Gate
from protofly.address import canonical_key, domain_of
from protofly.errors import Code, HostError, PeerError
from protofly.limits import TWIN_THINGS_PER_AGENT

logger = logging.getLogger("msg_node")

FOUND_AT_ONCE: Final = 500
FORGET_SECONDS: Final = 30.0
"""Between two looks for sessions whose grace has ended on their way."""
FORGET_PAUSE_SECONDS: Final = 0.1
"""The same while there are more than go at once."""

if TYPE_CHECKING:
    from msg_node.cluster.engine_directory import EngineDirectory
    from msg_node.cluster.membership import Membership
    from msg_node.cluster.stored_sessions import StoredSessions
    from msg_node.cluster.work_takeover import WorkTakeover


class _Wanted:
    """A session that a runtime asks for: what was found of it, or why it does not get it, once `is_done`."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.digest = digest_of(asked.session_address.rpartition("/")[2]) if asked.session_address else ""
        self.is_done = False
        self.row: SessionRow | None = None
        self.found: MovedSession | None = None
        self.error: HostError | None = None

    def choose(self, rows: Sequence[SessionRow], state: NodeState, now: float) -> None:
        """Find the one that is asked for."""
        asked = self.asked
        for row in rows:
            if row.runtime_key != asked.runtime_key:
                continue
            if row.token_digest == self.digest if self.digest else not row.is_displaced:
                self.row = row  # the last one
        refused = None if self.row is None else may_have(state, asked, self.row, now=now)
        if refused is not None:
            self.row, self.error = None, OpenRefusedError(refused)


class SessionsOfTheDead:
    """Finds sessions that nodes stored which have died since.

    Args:
        state: Judges who may have them.
        membership: Knows which nodes have died.
        stored: Reads what they stored.
        takeover: Ends what may be left of their processes.
    """

    def __init__(
        self, state: NodeState, membership: Membership, stored: StoredSessions, takeover: WorkTakeover
    ) -> None:
        self._state = state
        self._membership = membership
        self._stored = stored
        self._takeover = takeover
        self._limiter = trio.CapacityLimiter(1)
        self._finding = trio.Lock()
        self._wanted: dict[str, list[_Wanted]] = {}

    async def find(self, node: str, asked: Asked) -> tuple[MovedSession | None, int]:
        """The session that a runtime asks for, None when there is none; and the epoch under which the node died.

        Raises:
            HostError: NOT_CONNECTED while the node may be alive; ADDRESS_TAKEN when it is not for this runtime.
        """
        if not self._membership.is_dead(node):
            raise HostError(Code.NOT_CONNECTED, "the node that has the session cannot be reached")
        died = self._membership.found_dead(node)
        wanted = _Wanted(asked)
        self._wanted.setdefault(node, []).append(wanted)
        async with self._finding:
            while not wanted.is_done:
                with trio.CancelScope(shield=True):  # others wait for it, too
                    await self._find_together(node)
        if wanted.error is not None:
            raise wanted.error
        return wanted.found, 0 if died is None else died.epoch

    async def _find_together(self, node: str) -> None:
        """Find all that is wanted by now of what a node stored: thousands ask at once."""
        every = self._wanted.pop(node)
        together, rest = every[:FOUND_AT_ONCE], every[FOUND_AT_ONCE:]
        if rest:
            self._wanted[node] = rest
        try:
            await trio.to_thread.run_sync(self._find, node, together, limiter=self._limiter)
        except HostError as exc:
            for wanted in together:
                wanted.error = exc
        for wanted in together:
            wanted.is_done = True

    async def given(self, digest: str) -> bytes | None:
        """A session on its way from one node to another, by the digest of its token. Raises HostError."""
        return await trio.to_thread.run_sync(self._stored.given, digest, limiter=self._limiter)

    async def forget_given(self) -> None:
        """Forget sessions whose grace has ended on their way, from now on, until cancelled. One portion at a time."""
        while True:
            before = time.time() - self._state.transitions.rules.grace_seconds
            are_left = False
            with suppress(HostError):  # others say that the engine is away; the next look does what this one did not
                are_left = await trio.to_thread.run_sync(self._stored.forget_given, before, limiter=self._limiter)
            await trio.sleep(FORGET_PAUSE_SECONDS if are_left else FORGET_SECONDS)

    async def leases(self) -> list[Lease]:
        """All reservations of the domain, also of nodes that live. Raises HostError."""
        rows = await trio.to_thread.run_sync(self._stored.all_leases, limiter=self._limiter)
        return [msgspec.json.decode(row, type=Lease) for row in rows]

    async def abandoned(self, claims: Mapping[str, Claim]) -> list[str]:
        """Those claims that dead nodes made, or had to end, when they died. Raises HostError."""
        of_node: dict[str, list[str]] = {}
        for address, claim in claims.items():
            of_node.setdefault(claim.node, []).append(address)
        found = []
        for node, addresses in of_node.items():
            row = self._membership.found_dead(node)
            if row is None or not await self._without_row(node, addresses):
                continue
            if await self._takeover.end(node, row):  # or it could still store what its claims are for
                found += await self._without_row(node, addresses)
        return found

    async def _without_row(self, node: str, addresses: list[str]) -> list[str]:
        return await trio.to_thread.run_sync(self._stored.without_row, node, addresses, limiter=self._limiter)

    def close(self) -> None:
        """Close the connection."""
        self._stored.close()

    # In a thread.

    def _find(self, node: str, together: Sequence[_Wanted]) -> None:
        digests = [one.digest for one in together if one.digest]
        runtimes = [one.asked.runtime_key for one in together if not one.digest]
        rows = [msgspec.json.decode(row, type=SessionRow) for row in self._stored.sessions(node, digests, runtimes)]
        now = time.time()
        for wanted in together:
            wanted.choose(rows, self._state, now)
        chosen = [one.row.sid for one in together if one.row is not None]
        addresses, subscriptions = self._stored.held(node, chosen) if chosen else ([], [])
        owned: defaultdict[int, list[OwnedRow]] = defaultdict(list)
        for raw in addresses:
            address = msgspec.json.decode(raw, type=OwnedRow)
            owned[address.sid].append(address)
        heard: defaultdict[int, list[SubscriptionRow]] = defaultdict(list)
        for raw in subscriptions:
            subscription = msgspec.json.decode(raw, type=SubscriptionRow)
            heard[subscription.sid].append(subscription)
        reserved: defaultdict[int, list[Lease]] = defaultdict(list)
        for raw in self._stored.leases(node) if chosen else ():
            lease = msgspec.json.decode(raw, type=Lease)
            reserved[lease.sid].append(lease)
        objects = [canonical_key(one.url) for of_session in owned.values() for one in of_session]
        claims = self._stored.claims(objects)
        named: defaultdict[int, dict[str, PolicyNameRow]] = defaultdict(dict)
        for key, raw in (self._stored.policies(node, objects) if objects else {}).items():
            policy = msgspec.json.decode(raw, type=PolicyNameRow)
            named[policy.sid][key] = policy
        for wanted in together:
            if (row := wanted.row) is not None:
                whole = self._whole(node, row, owned[row.sid], heard[row.sid])
                of_whole = {key: claims[key] for key in whole.keys if key in claims}
                leases, policies = tuple(reserved[row.sid]), named[row.sid]
                wanted.found = msgspec.structs.replace(whole, claims=of_whole, leases=leases, policies=policies)

    def _whole(
        self, node: str, row: SessionRow, owned: Sequence[OwnedRow], heard: Sequence[SubscriptionRow]
    ) -> MovedSession:
        agents = [key for one in owned if (key := canonical_key(one.url)).startswith("thing://")]
        things = [text for agent in agents for text in self._stored.things(node, agent, most=TWIN_THINGS_PER_AGENT)]
        return MovedSession(
            session=msgspec.structs.replace(row, is_displaced=False),
            addresses=tuple(owned),
            subscriptions=tuple(heard),
            things=tuple(msgspec.json.decode(text, type=ThingRow) for text in things),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """This node among the others of its domain.

    Attributes:
        parts: Those of the bus.
        claims: Stands in front of the state store.
        directory: Who owns which address.
        membership: Which nodes there are.
        dead: Sessions of nodes that have died.
        takeover: Their work.
        identity: Who we are.
        address: Where our node bus listens.
        state: What was restored.
        node_key: Our own address, to which answers for this node go.
    """

    parts: NodeParts
    claims: AddressClaims
    directory: EngineDirectory
    membership: Membership
    dead: SessionsOfTheDead
    takeover: WorkTakeover
    identity: NodeIdentity
    address: Address
    state: NodeState
    node_key: str

    def unreachable(self) -> list[str]:
        """The other nodes that may have parked work of the domain and cannot be asked now."""
        return self.membership.unreachable(self.parts.questions.bus.connected)

    def quota_sources(self) -> QuotaSources:
        """Make the sources from which this node learns the reservations of others."""

        def keep(kept: Callable[[], None], broken: Callable[[HostError], None]) -> None:
            try:
                self.claims.submit(self.state.take_changes(), kept, broken)
            except HostError as exc:
                broken(exc)

        return QuotaSources(
            node=self.identity.node,
            directory=self.directory,
            is_dead=self.membership.is_dead,
            stored=self.dead.leases,
            unreachable=self.unreachable,
            keep=keep,
        )

    async def claim_restored(self) -> None:
        """Claim what this name stored. What its runtimes have taken to another node meanwhile is ended here."""
        sessions = [one for one in self.state.sessions if not one.is_guest]
        self.claims.restored(sessions)
        for number in self.state.links:  # other domains subscribe anew when they have a link
            self.state.listeners.remove_all(number)
        addresses = [canonical_key(row.url) for one in sessions for row in self.state.owners.owned(one.sid)]
        lost = await self.claims.restart([*addresses, self.node_key])
        if self.node_key in lost:
            lost.remove(self.node_key)
            logger.error("cluster: somebody has taken %s: answers to this node do not arrive", self.node_key)
        if lost:
            self.parts.moves.lost(lost)


@dataclass(frozen=True, slots=True)
class JoinedNode:
    """This node among the others, with the bus between them."""

    node: ClusterNode
    bus: SocketNodeBus
    links: ClusterLinks

    def statistics(self) -> dict[str, object]:
        """State of the links to the other nodes, and the node that has the link to each other domain; for operators."""
        return {**self.bus.statistics(), "domains": self.node.parts.places.known()}

    def figures(self) -> dict[str, NodeFigures]:
        """The figures that the live nodes of the domain report, by their names."""
        return self.node.membership.figures()

    def connections(self) -> dict[str, bool]:
        """For each of the other nodes, True if this node is connected with it."""
        connected = self.bus.connected
        return {name: name in connected for name in self.node.membership.addresses()}

    @property
    def awaited(self) -> int:
        """Requests of sessions here that other nodes have, and that have no reply yet."""
        return len(self.links.requests)

    def alternatives(self) -> tuple[str, ...]:
        """This node stops: where runtimes reach the others, by the listeners that links of other domains use, too."""
        urls = [url.rpartition("/") for url in self.node.membership.endpoints()]
        return tuple(f"{place}/ws" for place, _, last in urls if last in ("link", "ws"))

    async def hand_over(self) -> None:
        """This node stops: other nodes have its links from now on, and what they had."""
        await self.node.parts.places.give_all()

    async def finish(self) -> None:
        """This node stops: answer what waits for other nodes, and wait until they have what they were sent."""
        self.links.stop_waiting(Code.DRAINING)
        await self.node.parts.places.moves.wait_taken()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Join the others: claim what was restored, then listen for them; until cancelled.

        Raises:
            SettingsError: The address of the bus cannot be used.
            EngineError: The engine cannot be asked at the start.
        """
        node = self.node
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(node.membership.run)
                await node.claim_restored()
                nursery.start_soon(node.claims.run)
                nursery.start_soon(node.parts.moves.run)
                nursery.start_soon(node.parts.work.run)
                nursery.start_soon(node.parts.places.run)
                nursery.start_soon(node.parts.addresses.run)
                nursery.start_soon(self.links.run)
                nursery.start_soon(node.takeover.run)
                nursery.start_soon(node.dead.forget_given)
                await nursery.start(node.parts.routing.run)
                await nursery.start(self.bus.run)
                task_status.started()
        finally:
            node.dead.close()
            await node.directory.close()


def build_nodes(foundation: Foundation, name: HeldName | None, gate: Gate) -> ClusterNode | None:
    """Make what one of several nodes has; None for a node alone. The gate says what other domains may see of us.

    Raises:
        SettingsError: The key of the cluster cannot be used.
    """
    settings, state = foundation.settings, foundation.state
    chosen = settings.cluster
    if name is None or not chosen.listen or chosen.key_file is None:
        return None
    from msg_node.cluster.engine_directory import EngineDirectory
    from msg_node.cluster.membership import Membership
    from msg_node.cluster.names import Names
    from msg_node.cluster.stored_sessions import StoredSessions
    from msg_node.cluster.work_takeover import WorkTakeover
    from msg_node.storage.engine import Engine

    engine = partial(Engine, name.options)
    node, epoch = settings.node.name, name.keeper.epoch
    directory = EngineDirectory(engine(), name.notices, node, epoch)
    membership = Membership(Names(engine()), node)
    claims = AddressClaims(foundation.store, directory, node)
    takeover = WorkTakeover(engine(), membership, node, epoch)
    dead = SessionsOfTheDead(state, membership, StoredSessions(engine()), takeover)
    claims.others.abandoned = dead.abandoned
    questions = NodeQuestions()
    moves = SessionMoves(node, state, claims, stored_at=dead.find, given_away=dead.given, questions=questions)
    routing = NodeRouting(node, directory, state)
    places = LinkPlaces(node, directory, membership.is_dead, questions)
    work = WorkMoves(node, state, directory, lambda table: name.shared.read(table.value), places)
    name.notices.follow(name.shared.channel, work.heard)
    addresses = AddressesOfNodes(
        AllocatedAddresses(state), lambda domain: SeenAddresses(domain, gate), membership.is_dead
    )
    return ClusterNode(
        parts=NodeParts(routing, Interest(state), moves, questions, work, places, RunsToNodes(state), addresses),
        claims=claims,
        directory=directory,
        membership=membership,
        dead=dead,
        takeover=takeover,
        identity=NodeIdentity(settings.node.domain, node, epoch, read_cluster_key(chosen.key_file)),
        address=Address.parse(chosen.listen),
        state=state,
        node_key=canonical_key(foundation.node_url),
    )


class GivenLinks:
    """The links of this node, as those of other nodes may have them; see `LinksHere`.

    Args:
        node: Address of this node.
        links: For those who send.
    """

    def __init__(self, federation: Federation, state: NodeState, bus: Bus, node: str, links: ClusterLinks) -> None:
        self._federation = federation
        self._state = state
        self._effects = bus.effects
        self._answer = bus.refusals.answer
        self._node = node
        self._links = links

    def keeps(self, domain: str, stream: str) -> bool:
        """See `LinksHere`."""
        link = self._federation.find(domain)
        if link is None or self._federation.visitors.is_draining:
            return False
        return keeps_link(link, domain_of(self._node), stream, now=time.time())

    def exists(self, domain: str) -> bool:
        """See `LinksHere`."""
        return self._federation.find(domain) is not None

    def give_away(self, domain: str) -> MovedLink | None:
        """See `LinksHere`. The domain listens to nothing here any more, but where its link is."""
        number = self._state.links.known_number(domain)
        heard = [(one.url, one.key, one.source) for one in self._state.listeners.subscriptions(number or 0)]
        if number:
            self._state.listeners.remove_all(number)
            self._effects.store_rest()
        moved = hand_over_link(self._federation, domain)
        if moved is not None:
            self._links.requests.handed_over(moved)
            moved = msgspec.structs.replace(moved, heard=heard)
        return moved

    def take_over(self, domain: str, moved: MovedLink) -> None:
        """See `LinksHere`."""
        take_over_link(self._federation, self._node, domain, moved)
        self._links.requests.taken_over(moved)
        wanted = [Subscription(*one) for one in moved.heard]
        try:
            self._state.listeners.add(self._state.links.number(domain), wanted)
        except PeerError as exc:  # it subscribes anew, and is refused what is too much
            logger.warning("cluster: %s listens to too much: %s", domain, exc, extra={"domain": domain})
        self._effects.store_rest()

    def need(self, domain: str) -> None:
        """See `LinksHere`."""
        link = self._federation.find(domain)
        if link is not None and not link.is_live and not link.is_idle:
            link.need.arise()

    def undo(self, moved: MovedLink, code: Code) -> None:
        """See `LinksHere`."""
        self._links.requests.taken_over(moved)
        for reply in undo_link(self._node, moved, code):
            self._answer(reply)


def connect_links(bus: Bus, federation: Federation, cluster: ClusterNode | None) -> JoinedNode | None:
    """Have links carry what the bus sends to other domains, and the bus between nodes what it sends to those.

    Returns:
        The node among the others, None for a node alone.
    """
    bus.send_queues.links = federation
    if cluster is None or bus.from_nodes is None:
        return None
    node_bus = SocketNodeBus(cluster.identity, cluster.address, cluster.membership.addresses, bus.from_nodes)
    cluster.parts.connect(node_bus)
    places = cluster.parts.places
    permits = partial(refused_contact, federation.decisions)
    links = ClusterLinks(federation, node_bus, cluster.state, places, bus.refusals, permits)
    bus.send_queues.links = bus.from_nodes.links = links
    bus.from_links.on_live = links.announce
    places.moves.links = GivenLinks(federation, cluster.state, bus, bus.refusals.node, links)
    federation.is_ours = places.is_here
    return JoinedNode(cluster, node_bus, links)
