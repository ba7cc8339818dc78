"""The durable state of a node: the tables of all subjects, made to fit, restored together and kept consistent.

Services see only what their subject needs of it (the `tables` module of each package). Every step leaves its changes in
one journal; the caller takes them (`take_changes`) and lets replies leave only when they are committed. Source: message
specification, sections 5.4, 20.1 and 20.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from federation.core.interworking import Interworking
from msg_node.addresses.core.allocation import Owners
from msg_node.addresses.core.expulsions import Expulsions
from msg_node.addresses.core.holders import Holders
from msg_node.addresses.core.observer_rights import ObserverRights
from msg_node.addresses.core.sender_rights import SenderRights
from msg_node.addresses.core.subscriptions import Listeners
from msg_node.admin.core.proposals import Proposals
from msg_node.kernel.changes import Change, Journal, Rows, Table
from msg_node.kernel.credentials import OPERATOR
from msg_node.kernel.links import LinkNumbers
from msg_node.kernel.list_marks import ListMarks
from msg_node.kernel.own_names import OwnNames
from msg_node.kernel.registrations import StatusChange
from msg_node.kernel.resources import TAPS_KEY
from msg_node.kernel.restrictions import Restrictions
from msg_node.kernel.rules import Rules
from msg_node.qos.core.leases import Leases
from msg_node.registries.core.policy_names import PolicyNames
from msg_node.registries.core.registry import DomainRegistry
from msg_node.registries.core.twin import Twin
from msg_node.registries.core.user_places import LocalUsers
from msg_node.requests.core.delivery_state import DeliveryState
from msg_node.requests.core.push_targets import PushTargets
from msg_node.sessions.core.guests import Guests
from msg_node.sessions.core.lifecycle import Holdings, SessionLifecycle
from msg_node.sessions.core.sessions import Sessions
from msg_node.sessions.core.transitions import SessionTransitions
from protofly.address import canonical_key


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """The tables of one node. `take_changes` gives what changed since the last call."""

    own: OwnNames
    domains: frozenset[str]
    rules: Rules
    interworking: Interworking
    take_changes: Callable[[], list[Change]]
    transitions: SessionTransitions
    sessions: Sessions
    guests: Guests
    lifecycle: SessionLifecycle
    owners: Owners
    listeners: Listeners
    holders: Holders
    senders: SenderRights
    observer_rights: ObserverRights
    links: LinkNumbers
    registry: DomainRegistry
    users: LocalUsers
    twin: Twin
    leases: Leases
    push: PushTargets
    delivery: DeliveryState
    restrictions: Restrictions
    list_marks: ListMarks
    policy_names: PolicyNames
    proposals: Proposals


@dataclass(frozen=True, slots=True, kw_only=True)
class StateParts:
    """The parts of a state that settings make; None stands for the default. All tables share the journal."""

    journal: Journal = field(default_factory=Journal)
    rules: Rules = field(default_factory=Rules)
    interworking: Interworking = field(default_factory=Interworking)
    transitions: SessionTransitions | None = None
    owners: Owners | None = None
    listeners: Listeners | None = None
    delivery: DeliveryState | None = None
    twin: Twin | None = None


class HeldBySessions:
    """The holdings of sessions in other tables; they end with the session."""

    def __init__(
        self,
        owners: Owners,
        listeners: Listeners,
        expulsions: Expulsions,
        leases: Leases,
        registry: DomainRegistry,
        policy_names: PolicyNames,
    ) -> None:
        self._owners = owners
        self._listeners = listeners
        self._expulsions = expulsions
        self._leases = leases
        self._registry = registry
        self._policy_names = policy_names
        self.bind = owners.bind
        self.unbind = owners.unbind

    def count(self, sid: int) -> Holdings:
        """Count what a session holds now."""
        return Holdings(self._owners.count(sid), self._listeners.count(sid))

    def release(self, sid: int, *, now: float) -> list[StatusChange]:
        """Free everything that a session holds; returns which registry entries are disconnected by it."""
        for row in self._owners.owned(sid) if self._expulsions else ():
            self._expulsions.forget(canonical_key(row.url))
        self._owners.release_all(sid)
        self._listeners.remove_all(sid)
        self._leases.end_session(sid)
        self._policy_names.end_session(sid)
        return self._registry.disconnect_session(sid, now=now)


def make_state(own: OwnNames, parts: StateParts | None = None) -> NodeState:
    """Make an empty state of a node with these names."""
    parts = StateParts() if parts is None else parts
    journal, rules, interworking = parts.journal, parts.rules, parts.interworking
    transitions = SessionTransitions(journal) if parts.transitions is None else parts.transitions
    sessions = transitions.sessions
    owners = Owners(journal) if parts.owners is None else parts.owners
    listeners = Listeners(journal) if parts.listeners is None else parts.listeners
    delivery = DeliveryState(journal) if parts.delivery is None else parts.delivery
    registry, leases, expulsions, links = (
        DomainRegistry(journal, keeps_registered=rules.keeps_registered),
        Leases(journal),
        Expulsions(journal),
        LinkNumbers(journal),
    )
    guests = Guests(rules.guest_addresses, owners.count, own.domains)
    holders = Holders(owners, listeners, sessions, own)
    policy_names = PolicyNames(journal, owners.owner)
    held = HeldBySessions(owners, listeners, expulsions, leases, registry, policy_names)
    owners.arrivals.watched = (delivery.parking.queues.names(), delivery.inboxes.owners())
    return NodeState(
        own=own,
        domains=own.domains,
        rules=rules,
        interworking=interworking,
        take_changes=journal.take,
        transitions=transitions,
        sessions=sessions,
        guests=guests,
        lifecycle=SessionLifecycle(transitions, guests, held),
        owners=owners,
        listeners=listeners,
        holders=holders,
        senders=SenderRights(holders, own, rules, interworking, guests, links),
        observer_rights=ObserverRights(holders, rules, interworking, links, expulsions),
        links=links,
        registry=registry,
        users=LocalUsers(registry, owners, sessions),
        twin=Twin(journal) if parts.twin is None else parts.twin,
        leases=leases,
        push=PushTargets(journal),
        delivery=delivery,
        restrictions=Restrictions(journal),
        list_marks=ListMarks(journal),
        policy_names=policy_names,
        proposals=Proposals(journal, min(own.nodes, default="")),
    )


def restore(state: NodeState, rows: Mapping[Table, Rows], *, now: float) -> None:
    """Rebuild everything from what was stored. Rows that belong to nothing are deleted (see `take_changes`).

    Raises:
        HostError: STORAGE.
    """
    state.transitions.restore(rows.get(Table.SESSIONS, {}), now=now)
    state.push.restore(rows.get(Table.PUSH_TARGETS, {}))
    state.lifecycle.restored()
    state.links.restore(rows.get(Table.LINK_NUMBERS, {}))
    sids = frozenset(session.sid for session in state.sessions)
    state.owners.restore(rows.get(Table.ADDRESSES, {}), sids=sids)
    state.listeners.restore(rows.get(Table.SUBSCRIPTIONS, {}), sids=sids | set(state.links))
    drop_operators_subscriptions(state)
    state.observer_rights.expulsions.restore(rows.get(Table.EXPULSIONS, {}))
    state.policy_names.restore(rows.get(Table.OBJECT_POLICIES, {}), sids=sids)
    state.registry.restore(rows.get(Table.REGISTRY, {}), sids=sids, now=now)
    state.leases.restore(rows.get(Table.QOS_LEASES, {}), sids=sids)
    state.delivery.restore(rows, now=now)
    state.restrictions.restore(rows.get(Table.RESTRICTIONS, {}), now=now)
    state.proposals.restore(rows.get(Table.PROPOSALS, {}))
    state.list_marks.restore(rows.get(Table.BLOCK_LISTS, {}))
    state.twin.restore(rows.get(Table.TWIN_THINGS, {}), rows.get(Table.TWIN_VALUES, {}))


def drop_operators_subscriptions(state: NodeState) -> None:
    """Remove subscriptions to what only operators may hear from sessions that are no operator's any more."""
    operators = {session.sid for session in state.sessions if OPERATOR in session.proof.roles}
    for number in [one for one in state.listeners.listeners() if one not in operators]:
        heard = {one.key for one in state.listeners.subscriptions(number)}
        for key in heard:
            if key == TAPS_KEY or state.holders.is_of_node(key):
                state.listeners.remove(number, key)
