"""The durable state of a node as one thing.

Sessions, owners, listeners and registry, moved together and restored together.

The rooms' tables stay consistent here: whoever ends a session ends all it held. Each step leaves its changes in the
journal; the caller takes them (`take_changes`) and lets replies leave only when they are committed. Source: message
specification, sections 5.4, 20.1 and 20.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from federation.core.interworking import Interworking
from msg_node.addresses.core.allocation import Owners, ancestors
from msg_node.addresses.core.consents import Consents
from msg_node.addresses.core.expulsions import Expulsions
from msg_node.addresses.core.subscriptions import Listeners
from msg_node.kernel.changes import Journal, Rows, Table, decode_row
from msg_node.kernel.credentials import OPERATOR
from msg_node.kernel.proof import Proven
from msg_node.kernel.registrations import StatusChange
from msg_node.kernel.resources import P2P_NAMES, TAPS_KEY, is_child_form, object_of_events
from msg_node.kernel.rules import Rules
from msg_node.kernel.runtime_address import runtime_part
from msg_node.kernel.session import Opened, Opener, OpenRefused, Session
from msg_node.qos.core.leases import Leases
from msg_node.registries.core.registry import DomainRegistry
from msg_node.registries.core.twin import Twin
from msg_node.requests.core.delivery_state import DeliveryState
from msg_node.requests.core.parked import Sender
from msg_node.requests.core.push_targets import PushTargets
from msg_node.sessions.core.guests import Guests
from msg_node.sessions.core.transitions import SessionTransitions
from protofly.address import canonical_key, domain_of, is_below, scheme_of
from protofly.errors import Code
from protofly.limits import RELEASED_AT_ONCE


class Source(Enum):
    """What the `from` of a message is to the session that sent it. `code` is None where it may be used.

    Source: message specification, section 20.3.
    """

    OWN = "own"
    SUBSCRIBED = "subscribed"
    LOCAL_NAME = "local-name"
    LEARNABLE = "learnable"
    NOT_OWNER = "not-owner"
    SPOOFED = "spoofed"

    @property
    def code(self) -> Code | None:
        """The refusal, if it is one."""
        return _SOURCE_CODES.get(self)


OWN = Source.OWN  # members of an Enum are slow to look up
_SOURCE_CODES = {Source.NOT_OWNER: Code.NOT_OWNER, Source.SPOOFED: Code.SPOOFED_SOURCE}


class LinkRow(msgspec.Struct, frozen=True):
    """The listener number of a foreign domain as it is stored."""

    domain: str
    number: int


class Holdings(NamedTuple):
    """How many addresses and subscriptions a session holds."""

    addresses: int
    subscriptions: int


class NodeState:
    """Sessions, owners, listeners and registry of one node."""

    def __init__(
        self,
        domains: frozenset[str],
        *,
        reserved: frozenset[str] = frozenset(),
        transitions: SessionTransitions | None = None,
        owners: Owners | None = None,
        listeners: Listeners | None = None,
        registry: DomainRegistry | None = None,
        journal: Journal | None = None,
        rules: Rules | None = None,
        delivery: DeliveryState | None = None,
        twin: Twin | None = None,
        interworking: Interworking | None = None,
    ) -> None:
        """Make an empty state.

        Args:
            domains: Our domain and its aliases.
            reserved: Runtime keys that no session may open: the node itself.
            transitions: The sessions; this and the cores below replace the default, and must share `journal`.
            owners: See `transitions`.
            listeners: See `transitions`.
            registry: See `transitions`.
            journal: Where changes are collected.
            rules: What this node insists on.
            delivery: What waits for those who are away; see `transitions`.
            twin: Descriptions and values of things; see `transitions`.
            interworking: Legacy addresses, and the stubs behind them.
        """
        self.domains = domains
        self._nodes = reserved
        self.reserved = reserved | {f"runtime://{domain}/{name}" for domain in domains for name in P2P_NAMES}
        self.rules = Rules() if rules is None else rules
        self.consents = Consents()
        self._journal = Journal() if journal is None else journal
        self.expulsions = Expulsions(self._journal)
        self.take_changes = self._journal.take
        """Gives what changed since the last call: to be committed before any reply leaves."""
        self.transitions = SessionTransitions(self._journal) if transitions is None else transitions
        self.sessions = self.transitions.sessions
        self.owners = Owners(self._journal) if owners is None else owners
        self.listeners = Listeners(self._journal) if listeners is None else listeners
        self.registry = DomainRegistry(self._journal) if registry is None else registry
        self.leases = Leases(self._journal)
        self.push = PushTargets(self._journal)
        self.guests = Guests(self.rules.guest_addresses, self.owners.count, domains)
        self.delivery = DeliveryState(self._journal) if delivery is None else delivery
        self.twin = Twin(self._journal) if twin is None else twin
        self.owners.watched = (self.delivery.parking.queues.names(), self.delivery.inboxes.owners())
        self.interworking = Interworking() if interworking is None else interworking
        self._links: dict[str, int] = {}
        self._link_domains: dict[int, str] = {}

    # Sessions and what hangs on them.

    def open(self, opener: Opener, token: str, *, now: float) -> tuple[Opened | OpenRefused, list[StatusChange]]:
        """Open or resume a session; see `SessionTransitions.open`.

        Registry entries of sessions that ended with it come back as changes.
        """
        result = self.transitions.open(opener, token, now=now)
        if isinstance(result, OpenRefused):
            return result, []
        return result, self._settle_opened(result, now=now)

    def re_open(
        self, session_address: str, connection: int, *, now: float, proven: Proven | None = None
    ) -> tuple[Opened | None, list[StatusChange]]:
        """Bring a session back; see `SessionTransitions.re_open`."""
        result = self.transitions.re_open(session_address, connection, now=now, proven=proven)
        return result, [] if result is None else self._settle_opened(result, now=now)

    def close(self, sid: int, *, now: float) -> list[StatusChange]:
        """End a session: addresses are freed, subscriptions removed, registry entries disconnected."""
        session = self.transitions.close(sid)
        return [] if session is None else self._end(session, now=now)

    def lost(self, connection: int, *, now: float) -> tuple[int | None, list[StatusChange]]:
        """A connection is gone: its session is parked, or has ended when it is a guest's.

        Return the session that it had.
        """
        session = self.transitions.lost(connection, now=now)
        if session is None:
            return None, []
        return session.sid, self._end(session, now=now) if session.is_guest else []

    def overdue(self, *, now: float) -> tuple[list[tuple[Session, int]], list[StatusChange]]:
        """Park the sessions that should have been renewed; see `SessionTransitions.overdue`. Guests have ended."""
        lost, changes = self.transitions.overdue(now=now), []
        for session, _ in lost:
            if session.is_guest:
                changes += self._end(session, now=now)
        return lost, changes

    def sweep(self, *, now: float) -> tuple[list[tuple[Session, Holdings]], list[StatusChange]]:
        """End some of the sessions whose grace is over, and note the latest values of things.

        Return the sessions with what they held. Whoever gets some asks again: what they hold is let go in pieces.
        """
        self.twin.store_values()
        ended: list[tuple[Session, Holdings]] = []
        changes: list[StatusChange] = []
        released = 0
        while released < RELEASED_AT_ONCE and (session := self.transitions.expire(now=now)) is not None:
            holdings = self.holdings(session.sid)
            ended.append((session, holdings))
            changes += self._end(session, now=now)
            released += 1 + sum(holdings)
        return ended, changes

    def holdings(self, sid: int) -> Holdings:
        """How much a session holds now."""
        return Holdings(self.owners.count(sid), self.listeners.count(sid))

    def _end(self, session: Session, *, now: float) -> list[StatusChange]:
        self.owners.unbind(session.runtime_key, session.sid)
        return self._release(session.sid, now=now)

    def _settle_opened(self, opened: Opened, *, now: float) -> list[StatusChange]:
        session = self.sessions.get(opened.sid)
        assert session is not None
        changes: list[StatusChange] = []
        for sid in opened.ended:
            changes += self._release(sid, now=now)
        self.owners.bind(session.runtime_key, opened.sid)
        self.guests.came(session)
        return changes

    def _release(self, sid: int, *, now: float) -> list[StatusChange]:
        self.guests.went(sid)
        for row in self.owners.owned(sid) if self.expulsions else ():
            self.expulsions.forget(canonical_key(row.url))
        self.owners.release_all(sid)
        self.listeners.remove_all(sid)
        self.leases.end_session(sid)
        return self.registry.disconnect_session(sid, now=now)

    def _keep_from_strangers(self) -> None:
        """Remove the subscriptions to what is for operators of those who are none any more, or never were."""
        operators = {session.sid for session in self.sessions if OPERATOR in session.proof.roles}
        for number in [one for one in self.listeners.listeners() if one not in operators]:
            self.listeners.remove_where(number, lambda key: key == TAPS_KEY or self.is_of_node(key))

    # Foreign domains as listeners.

    def link_number(self, domain: str) -> int:
        """The (negative) listener number of a foreign domain; it stays the same for ever."""
        number = self._links.get(domain)
        if number is None:
            number = -1 - len(self._links)
            self._remember_link(LinkRow(domain, number))
            self._journal.put(Table.LINK_NUMBERS, domain, LinkRow(domain, number))
        return number

    def number_of_link(self, domain: str) -> int:
        """The listener number of a foreign domain, 0 for one that has none."""
        return self._links.get(domain, 0)

    def domain_of_link(self, number: int) -> str:
        """The foreign domain behind a listener number, "" for an unknown one."""
        return self._link_domains.get(number, "")

    def other_domain_of(self, number: int) -> str:
        """The foreign domain that a link or a guest's session speaks for, "" for a session of our own domain."""
        return self.domain_of_link(number) if number < 0 else self.guests.domain(number)

    def _remember_link(self, row: LinkRow) -> None:
        self._links[row.domain] = row.number
        self._link_domains[row.number] = row.domain

    def object_deleted(self, object_key: str, told: Iterable[int]) -> None:
        """An object was deleted and `told` were told: the foreign domains among them listen to it no more.

        Source: message specification, section 9.6.
        """
        self.consents.forget(object_key)
        self.expulsions.forget(object_key)
        for number in [one for one in told if one < 0]:
            self.listeners.remove_where(number, lambda key: is_below(key, object_key))

    # Who may use which `from`.

    def source_of(self, sid: int, from_key: str, *, is_response: bool = False, was_addressed: bool = False) -> Source:
        """Judge the `from` of a message of a session; one dictionary hit when the session owns it.

        Args:
            sid: The session that sent the message.
            from_key: Canonical key of its `from`.
            is_response: Whether it is a response.
            was_addressed: Whether `from_key` was the `to` of a message that was delivered to this session.

        Source: message specification, section 20.3.
        """
        owner = self.owners.owner(from_key)
        if owner == sid:
            return OWN
        if is_response and (was_addressed or self.listeners.listens(sid, from_key)):
            return Source.SUBSCRIBED
        if owner is not None:
            return Source.NOT_OWNER
        above = self._holder_above(from_key)
        if above is not None:
            return Source.OWN if above == sid else Source.NOT_OWNER
        return self._unowned_source(sid, from_key)

    def is_sender(self, sid: int, sender: Sender, key: str) -> bool:
        """Whether a session may hear what became of a request that `sender` handed in under the name `key`.

        It is of the same runtime, or owns that address now; and it holds the same credential, if there was one.
        """
        session = self.sessions.get(sid)
        if session is None or sender.domain or (sender.credential and sender.credential != session.proof.credential):
            return False
        owner = self.owners.owner(key)
        return owner == sid if owner is not None else session.runtime_key == sender.runtime_key

    def credential_of(self, key: str) -> str:
        """The credential of the session that owns an address or what is above it, "" when there is none."""
        owner = self.owners.owner(key)
        session = self.sessions.get((self._holder_above(key) if owner is None else owner) or 0)
        return "" if session is None else session.proof.credential

    def _holder_above(self, key: str) -> int | None:
        runtime_key = runtime_part(key)
        if runtime_key and runtime_key not in self.reserved:
            return self.sessions.by_runtime(runtime_key)
        above = self.owners.owner_above(key)
        if above is not None:
            return above[0]
        return -1 if runtime_key in self._nodes else None  # P2P stubs are of nobody until somebody announces them

    def _unowned_source(self, sid: int, from_key: str) -> Source:
        scheme = scheme_of(from_key)
        if not scheme:
            return Source.LOCAL_NAME
        domain = domain_of(from_key)
        if scheme in ("domain", "global", "mn"):
            return Source.SPOOFED  # elements of a domain: a guest is a runtime, and no node
        if domain and domain == self.guests.domain(sid):
            return Source.LEARNABLE
        if (domain and domain not in self.domains) or self.interworking.granted_to(from_key):
            return Source.SPOOFED
        reporter = self._reporter_of(from_key)
        if reporter not in (None, sid):
            return Source.NOT_OWNER
        if self.rules.learns:
            return Source.LEARNABLE
        return Source.NOT_OWNER if reporter is None else Source.OWN

    def _reporter_of(self, key: str) -> int | None:
        """Who speaks for an object that nobody owns: the first who listens to its `subscription`."""
        base = key.partition("/children/")[0].removesuffix("/subscription").removesuffix("/changes")
        return next(iter(self.listeners.targets(base + "/subscription")), None)

    def may_change(self, origin: int, object_key: str, from_key: str) -> bool:
        """Whether what a session or link sends to `O/changes` comes from the reporter of `O`.

        Args:
            origin: Number of the session or link, 0 for the node itself.
            object_key: `O`.
            from_key: Sender of the message; the session, or the border of the link, has been asked about it.

        Source: message specification, section 9.4.
        """
        owner = self.owners.owner(object_key)
        if owner == origin or origin == 0 or not self.rules.reporter_only:
            return True
        if origin < 0:
            home_of = self.interworking.home_of
            return owner is None and home_of(object_key) == home_of(from_key)
        holder = self.reporter_of(object_key)
        if holder is not None:
            return holder == origin
        domain = domain_of(object_key)
        if not domain or domain in self.domains:
            return False  # nobody reports it: then nobody changes it
        session = self.sessions.get(origin)
        return session is not None and session.is_guest and domain == domain_of(session.runtime_key)

    def reporter_of(self, object_key: str) -> int | None:
        """The number of who speaks for an object or entity: its owner, the owner of what is above, or its reporter.

        -1 for this node's own address.
        """
        owner = self.owners.owner(object_key)
        if owner is not None:
            return owner
        holder = self._holder_above(object_key)
        return self._reporter_of(object_key) if holder is None else holder

    # Who may observe which object.

    def has_consent(self, number: int, key: str) -> bool:
        """Whether the reporter has let a session or link observe an object, where that is asked for at all.

        `key` is an address of changes or children, in any spelling; all others need no consent. Source: message
        specification, section 8.5.
        """
        if not self.watches_observers:
            return True
        base = object_of_events(key) or self._object_of_child(key)
        if not base or scheme_of(base) in ("", "runtime"):
            return True
        holder = self.owners.owner(base)
        if (self._holder_above(base) if holder is None else holder) == number or self.listeners.listens(number, key):
            return True
        if self.is_expelled(number, base):
            return False
        if not self.rules.require_consent:
            return True
        observers = self.consents.observers(base)
        if number < 0:
            return any(self.interworking.home_of(observer) == self.domain_of_link(number) for observer in observers)
        return any(self.owners.owner(observer) == number for observer in observers)

    def object_at(self, key: str) -> str:
        """The object whose changes or children an address stands for; the address itself where it stands for none."""
        base = object_of_events(key)
        if base or self.owners.owner(key) is not None:
            return base or key
        above = self.owners.owner_above(key) if is_child_form(key) else None
        return key if above is None else above[1]

    @property
    def watches_observers(self) -> bool:
        """Whether it matters whom reporters accept: consent is asked for, or somebody was taken off."""
        return self.rules.require_consent or len(self.expulsions) > 0

    def is_expelled(self, number: int, object_key: str) -> bool:
        """Whether the reporter of an object has taken a session off it."""
        session = self.sessions.get(number)
        if session is None or not self.expulsions:
            return False
        keys = self.expulsions.keys(object_key)
        return session.runtime_key in keys or any(self.owners.owner(key) == number for key in keys)

    def speaker_of(self, key: str) -> int | None:
        """The session that owns an address, or one above it; None when nobody of ours does."""
        owner = self.owners.owner(key)
        holder = self._holder_above(key) if owner is None else owner
        return holder if holder is not None and holder > 0 else None

    def is_of_node(self, key: str) -> bool:
        """Whether an address is that of this node, or below it: its status, its stubs."""
        return runtime_part(key) in self._nodes

    def _object_of_child(self, key: str) -> str:
        """The object of a child in the oldest spelling, `O/n` -> `O`; "" for all else.

        It is the nearest address above that somebody owns, else the nearest one that has observers, else the next.
        """
        if not is_child_form(key) or self.owners.owner(key) is not None:
            return ""
        owned = self.owners.owner_above(key)
        if owned is not None:
            return owned[1]
        above = list(ancestors(key))
        return next((one for one in above if self.consents.observers(one)), above[0] if above else "")

    # Restart.

    def restore(self, rows: Mapping[Table, Rows], *, now: float) -> None:
        """Rebuild everything from what was stored. Rows that belong to nothing are deleted (see `take_changes`).

        Raises:
            HostError: STORAGE.
        """
        self.transitions.restore(rows.get(Table.SESSIONS, {}), now=now)
        self.push.restore(rows.get(Table.PUSH_TARGETS, {}))
        for session in self.sessions:
            self.guests.came(session)
            if not session.is_displaced:
                self.owners.bind(session.runtime_key, session.sid)
        for key, raw in rows.get(Table.LINK_NUMBERS, {}).items():
            self._remember_link(decode_row(raw, LinkRow, table=Table.LINK_NUMBERS, key=key))
        sids = frozenset(session.sid for session in self.sessions)
        self.owners.restore(rows.get(Table.ADDRESSES, {}), sids=sids)
        self.listeners.restore(rows.get(Table.SUBSCRIPTIONS, {}), sids=sids | self._link_domains.keys())
        self._keep_from_strangers()
        self.expulsions.restore(rows.get(Table.EXPULSIONS, {}))
        self.registry.restore(rows.get(Table.REGISTRY, {}), sids=sids, now=now)
        self.leases.restore(rows.get(Table.QOS_LEASES, {}), sids=sids)
        self.delivery.restore(rows, now=now)
        self.twin.restore(rows.get(Table.TWIN_THINGS, {}), rows.get(Table.TWIN_VALUES, {}))
