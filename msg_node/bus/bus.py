"""The message bus: every message of every session, link and service of this node passes here.

It is assembled here, and nowhere taken apart: `make_bus` is its order of construction. Messages come in by
`session_traffic` and `link_traffic`, which decide with the router and perform what it decided; they leave by
`send_queues`. Source: design, section 3.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from federation.core.border import HopBound
from federation.links.flow_table import FlowMode
from federation.links.guest_border import GuestBorder
from msg_node.addresses.core.remote_subscriptions import RemoteSubscriptions
from msg_node.addresses.foreign_objects import ForeignObjects
from msg_node.bus.absences import Absences
from msg_node.bus.connection_effects import ConnectionEffects
from msg_node.bus.core.admission import Admission
from msg_node.bus.core.cluster_router import ClusterRouter
from msg_node.bus.core.router import Decisions, Router
from msg_node.bus.core.tables import BusTables
from msg_node.bus.effects import Effects, Store
from msg_node.bus.inquiries import Inquiries
from msg_node.bus.link_traffic import LinkTraffic
from msg_node.bus.middleware import Stack
from msg_node.bus.node_traffic import NodeParts, NodeTraffic
from msg_node.bus.own_messages import OwnMessages
from msg_node.bus.own_requests import OwnRequests, RoundTrips
from msg_node.bus.refusals import Refusals
from msg_node.bus.runtimes import Runtimes
from msg_node.bus.send_queues import SendQueues
from msg_node.bus.services import Services
from msg_node.bus.session_flows import FLOWS
from msg_node.bus.session_traffic import Checks, Destinations, SessionDelivery, SessionTraffic
from msg_node.bus.sweeper import Sweeper
from msg_node.bus.user_routing import UserRouting
from msg_node.requests.local_requests import LocalRequests
from msg_node.requests.parked_actions import ParkedActions, Parks, park_nothing
from msg_node.requests.recorder import RequestRecorder
from protofly.counters import Counters
from protofly.errors import Code


@dataclass(frozen=True, slots=True, kw_only=True)
class BusOptions:
    """Settings of the bus.

    Attributes:
        node: Address of this node.
        first_request: Random start of the ids of our own requests, below 2^31.
        ping_seconds: Silence after which a runtime is pinged.
        max_hops: Bounds the nodes that a message may pass.
        nodes: What only one of several nodes of a domain has.
        flows: Whether what messages have in common is decided once.
        now: The clock of sessions and stored requests: seconds since the Unix epoch.
        steady: The clock of open requests: monotonic seconds.
    """

    node: str
    first_request: int
    ping_seconds: float
    max_hops: HopBound = field(default_factory=HopBound)
    nodes: NodeParts | None = None
    flows: FlowMode = "on"
    now: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True, kw_only=True)
class Judges:
    """The judges of messages on the bus.

    Attributes:
        guests: What runtimes of other domains send and are sent.
        stack: What each message of a session passes before it is delivered.
        parks: Says if a policy wants a request parked whose recipient is away.
    """

    guests: GuestBorder
    stack: Stack
    parks: Parks = park_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Bus:
    """The parts of the bus, for those beside it: connectors, links, services, backends.

    Attributes:
        options: What it was made with.
        runtimes: Connections begin and end here.
        from_sessions: Takes what runtimes send.
        from_links: Takes what other domains send.
        from_nodes: Takes what other nodes of our domain say; None: there are none.
        send_queues: Where messages leave.
        refusals: Answers in place of recipients.
        effects: Makes durable what steps change.
        inquiries: Questions of services to the outside.
        parked_actions: Requests that wait.
        foreign: Our subscriptions at other domains.
        users: Messages to users that are to be found.
        absences: Sessions that are away.
        sweeper: Ends what has expired.
    """

    options: BusOptions
    runtimes: Runtimes
    from_sessions: SessionTraffic
    from_links: LinkTraffic
    from_nodes: NodeTraffic | None
    send_queues: SendQueues
    refusals: Refusals
    effects: Effects
    inquiries: Inquiries
    parked_actions: ParkedActions
    foreign: ForeignObjects
    users: UserRouting
    absences: Absences
    sweeper: Sweeper

    @property
    def counters(self) -> Counters:
        """Counters since the start."""
        return self.send_queues.counters

    def restore(self) -> None:
        """Go on with what was stored, after a restart."""
        self.foreign.restore()
        self.parked_actions.restore()

    def refuse_new(self, retry_seconds: float, alternatives: tuple[str, ...] = ()) -> None:
        """The node stops: refuse new sessions and requests from now on, and notify every runtime.

        `alternatives` are URLs where other nodes of the domain open sessions.
        """
        self.runtimes.refuse_opens(retry_seconds, alternatives)
        self.from_sessions.refuse_requests(retry_seconds)
        self.from_links.refuse_requests(retry_seconds)

    def fence(self, retry_seconds: float) -> None:
        """Another process may take our name: refuse sessions and requests, 503 `state-unavailable`, until `unfence`."""
        self.runtimes.fence_opens(retry_seconds)
        self.from_sessions.fence(retry_seconds)
        self.from_links.fence(retry_seconds)

    def unfence(self) -> None:
        """Nobody has taken our name: go on where the node was fenced."""
        self.runtimes.fence_opens(None)
        self.from_sessions.fence(None)
        self.from_links.fence(None)

    @property
    def unfinished(self) -> int:
        """Requests that wait for a reply as far as the node knows, and messages that wait for their runtimes."""
        queued = sum(port.queue.queued for port in self.send_queues.connections.values())
        return queued + self.refusals.requests.under_way + self.inquiries.under_way + self.users.waiting

    def answer_rest(self) -> None:
        """Answer every request that waits in place of its recipient: 503 `draining`, or 202 when it is stored."""
        self.inquiries.drain()
        self.users.drain()
        self.refusals.refuse_open(Code.DRAINING)
        self.parked_actions.recorder.park_owed()
        self.send_queues.wake()


def make_bus(
    options: BusOptions,
    state: BusTables,
    services: Services,
    store: Store,
    send_queues: SendQueues,
    judges: Judges,
) -> Bus:
    """Make the bus around its send queues; nothing runs yet. `services` answer requests to the node itself."""
    node, counters = options.node, send_queues.counters
    # What changes nothing: where a message goes, and what the node itself has to say.
    here = Router(state, serves=services.serves, services=services.keys)
    nodes = None if options.nodes is None else options.nodes.routing
    router: Decisions = (
        here if nodes is None or options.nodes is None else ClusterRouter(here, nodes, options.nodes.places, state)
    )
    own = OwnMessages(router, send_queues, nodes)
    # Steps: what they do to connections, what they store, what follows from them.
    requests, absences = LocalRequests(options.steady), Absences(state, send_queues)
    ended = (absences.ended, here.learned.forget, requests.session_ended)
    connections = ConnectionEffects(state, send_queues, absences, word=services.notice, ended=ended, now=options.now)
    effects = Effects(state, services, store, connections, own)
    inquiries = Inquiries(effects.concluded)
    recorder = RequestRecorder(state, send_queues, counters, node=node, apply=effects.apply, now=options.now)
    parked_actions = ParkedActions(state, send_queues, recorder, serves=services.serves, parks=judges.parks)
    remote = RemoteSubscriptions(node, options.first_request, home_of=state.interworking.home_of)
    foreign = ForeignObjects(node, state, remote, outbound=send_queues, apply=effects.apply_for)
    effects.connect(inquiries, parked_actions, foreign)
    own_requests = OwnRequests(foreign, RoundTrips(node, send_queues))
    # Messages: admitted, decided, performed or refused.
    refusals = Refusals(node, send_queues, own, parked_actions, own_requests, requests)
    users = UserRouting(state, refusals, judge_local=judges.stack.judge_local, take_action=parked_actions.take_found)
    destinations = Destinations(send_queues, effects, parked_actions, foreign, own_requests, users, requests, nodes)
    admission = Admission(state, here.learned, counters, node=node, max_hops=options.max_hops)
    delivery = SessionDelivery(state, destinations, judges.stack, node=node)
    moves, runs = (None, None) if options.nodes is None else (options.nodes.moves, options.nodes.runs)
    runtimes = Runtimes(state, services.sessions, effects, own, refusals, moves)
    flows = FLOWS[options.flows](state, router, judges.stack, refusals, runs)
    checks, from_nodes = Checks(admission, judges.guests, services.observers), None
    if options.nodes is not None:
        options.nodes.routing.connect(refusals, parked_actions.take_found, here)
        options.nodes.moves.connect(services.sessions, effects, own, parked_actions)
        options.nodes.work.connect(parked_actions)
        from_nodes = NodeTraffic(state, options.nodes, services.observers, here, destinations, refusals)
    return Bus(
        options=options,
        runtimes=runtimes,
        from_sessions=SessionTraffic(checks, flows, delivery, refusals, runtimes, effects),
        from_links=LinkTraffic(state, services.observers, router, destinations, own, runs),
        from_nodes=from_nodes,
        send_queues=send_queues,
        refusals=refusals,
        effects=effects,
        inquiries=inquiries,
        parked_actions=parked_actions,
        foreign=foreign,
        users=users,
        absences=absences,
        sweeper=Sweeper(effects, state, parked_actions, foreign, refusals, ping_seconds=options.ping_seconds),
    )
