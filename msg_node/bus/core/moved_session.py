"""A session that goes from one node of the domain to another, with what it holds: token, addresses, subscriptions.

The node that has it decides whether a runtime that asks for it at another node has a right to it, by the rules that it
has for itself. Then it gives the session away and ends its own. The other node takes it in as parked, so that all that
follows is as after a lost connection. The things of its agents go along, and their values come anew; so do its
reservations at a QoS broker, the policies that it has named for its objects, and the guaranteed events that it has not
acknowledged. Registry entries do not move: a runtime registers anew.

    giver                                 row of the domain                taker
    rows deleted, given row put    ──▶    by the digest of its token  ──▶  given row deleted, rows of its own put

Each step is one transaction, so a session is at one node or on its way, whatever dies. If the taker does not take it
in, any node does to which its runtime comes with its token. One that a dead node stored is put on its way by the taker,
before it claims what the session holds: from then on the dead one has it no more, even if it comes back.

Source: message specification, section 5.1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from msg_node.addresses.core.allocation import OwnedRow, is_below_any
from msg_node.addresses.core.subscriptions import SubscriptionRow
from msg_node.bus.core.tables import BusTables
from msg_node.kernel.changes import Change, Table
from msg_node.kernel.proof import Proven
from msg_node.kernel.runtime_address import agent_of
from msg_node.kernel.session import OpenRefused, Session, SessionRow
from msg_node.qos.core.leases import Lease
from msg_node.registries.core.policy_names import PolicyNameRow
from msg_node.registries.core.twin import ThingRow
from msg_node.sessions.core.transitions import contest
from protofly.address import canonical_key
from protofly.errors import Code
from protofly.message import Message

EVENTS_BYTES: Final = 1 << 20
"""Guaranteed events that go along with a session, the oldest first: beyond, they are not sent again."""
THINGS_BYTES: Final = 4 << 20
"""Descriptions that go along with a session; they have to fit into one answer between nodes."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime asks at another node for the session that its address has here.

    Attributes:
        runtime_key: Its address.
        session_address: With its token, when it brings the session back; "" when it opens one.
        credential: What it proved, as it is stored; "" for nothing.
        is_in_full: The proof names this runtime.
        takes_given: Who asks knows `GivenSession`; those of an older version do not.
    """

    runtime_key: str
    session_address: str = ""
    credential: str = ""
    is_in_full: bool = False
    takes_given: bool = False


class MovedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A guaranteed event that its subscriber has not acknowledged. `seconds`: for how long it is sent again."""

    message: msgspec.Raw
    seconds: float


class MovedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session with what it holds. The numbers in its rows are those of the node that it comes from.

    `policies`: of its objects, by canonical key. `claims`: those of its addresses by key, as node and epoch, if they
    were looked up with it. `events`: what it is to acknowledge, unless its node has died.
    """

    session: SessionRow
    addresses: tuple[OwnedRow, ...] = ()
    subscriptions: tuple[SubscriptionRow, ...] = ()
    things: tuple[ThingRow, ...] = ()
    leases: tuple[Lease, ...] = ()
    policies: dict[str, PolicyNameRow] = {}
    claims: dict[str, tuple[str, int]] = {}
    events: tuple[MovedEvent, ...] = ()

    @property
    def keys(self) -> list[str]:
        """The keys that are claimed for it."""
        return [self.session.runtime_key, *(canonical_key(row.url) for row in self.addresses)]

    def with_only(self, ours: Collection[str]) -> MovedSession:
        """The session without its other addresses, which are somebody else's by now, and what it listened to there."""
        lost = {key for row in self.addresses if (key := canonical_key(row.url)) not in ours}
        if not lost:
            return self
        return msgspec.structs.replace(
            self,
            addresses=tuple([row for row in self.addresses if canonical_key(row.url) not in lost]),
            subscriptions=tuple([row for row in self.subscriptions if not is_below_any(row.key, lost)]),
            policies={key: row for key, row in self.policies.items() if key not in lost},
        )


class GivenSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session on its way, as it is stored.

    Attributes:
        given_at: Seconds since the Unix epoch; it is over when its grace has passed since.
        moved: Text of the `MovedSession`: what that holds may change.
    """

    given_at: float
    moved: msgspec.Raw


def find_wanted(state: BusTables, asked: Asked, *, now: float) -> Session | OpenRefused | None:
    """The session that is to go with a runtime; why it stays; None when there is none.

    Who brings its token back, or a proof that is good enough, gets it at once. Anybody else gets it only when its
    connection is lost or silent, and then like here: its token still brings it back.
    """
    if asked.session_address:
        return state.sessions.by_session_address(asked.session_address)
    session = state.sessions.get(state.sessions.by_runtime(asked.runtime_key) or 0)
    if session is None:
        return None
    transitions = state.transitions
    if transitions.may_take(session, Proven(asked.credential, is_in_full=asked.is_in_full), now):
        return session
    if session.proof.credential:
        return OpenRefused(Code.ADDRESS_TAKEN, transitions.rules.grace_seconds, session.connection)
    refused = contest(session, now, transitions.rules.take_over_grace_seconds) if session.is_live else None
    return session if refused is None else refused


def may_have(state: BusTables, asked: Asked, row: SessionRow, *, now: float) -> OpenRefused | None:
    """Judge a runtime that asks for a session of which only the row is left, since its node has died."""
    if asked.session_address:
        return None  # its token is the one of the row
    session = row.parked_session(frozenset(row.roles), now=now)
    proven = Proven(asked.credential, is_in_full=asked.is_in_full)
    if state.transitions.may_take(session, proven, now) or not row.credential:
        return None
    return OpenRefused(Code.ADDRESS_TAKEN, state.transitions.rules.grace_seconds)


def move_out(state: BusTables, session: Session) -> MovedSession:
    """A session as it is taken along. Changes nothing: `let_go` takes away here what goes along, once it does."""
    sid = session.sid
    subscriptions = [
        SubscriptionRow(sid=sid, key=one.key, url=one.url, source=one.source)
        for one in state.listeners.subscriptions(sid)
    ]
    addresses = tuple(state.owners.owned(sid))
    things = [pair for one in addresses for pair in state.twin.things(canonical_key(one.url))]
    taken, room = [], THINGS_BYTES
    for _, row in things:
        room -= len(bytes(row.description))
        if room < 0:
            break  # the rest is read from here, and moves when its agent describes it anew
        taken.append(row)
    return MovedSession(
        session=session.row(),
        addresses=addresses,
        subscriptions=tuple(subscriptions),
        things=tuple(taken),
        leases=tuple(state.leases.of_session(sid)),
        policies=state.policy_names.of_session(sid),
    )


def moved_events(guaranteed: Iterable[tuple[Message, float]]) -> tuple[MovedEvent, ...]:
    """Guaranteed events as they go along with their subscriber."""
    taken, room = [], EVENTS_BYTES
    for event, seconds in guaranteed:
        room -= len(event.raw)
        if room < 0:
            break
        taken.append(MovedEvent(message=msgspec.Raw(event.raw), seconds=seconds))
    return tuple(taken)


def let_go(state: BusTables, session: Session, moved: MovedSession) -> None:
    """Take away here what goes along with a session; it is the caller's to end the session itself."""
    for thing in moved.things:
        state.twin.remove(canonical_key(thing.url))
    state.leases.let_go(session.sid)


def move_in(state: BusTables, moved: MovedSession, *, now: float) -> list[Change]:
    """Take a session in, parked; returns what is to be stored."""
    sid = state.transitions.next_sid
    replace = msgspec.structs.replace
    session = replace(moved.session, sid=sid)
    addresses = {canonical_key(row.url): replace(row, sid=sid) for row in moved.addresses}
    subscriptions = {f"{sid} {row.key} {row.source}": replace(row, sid=sid) for row in moved.subscriptions}
    changes = [Change(Table.SESSIONS, str(sid), session)]
    changes += [Change(Table.ADDRESSES, key, row) for key, row in addresses.items()]
    changes += [Change(Table.SUBSCRIPTIONS, key, row) for key, row in subscriptions.items()]
    encode = msgspec.json.encode
    state.transitions.restore({str(sid): encode(session)}, now=now)
    if not session.is_displaced:
        state.owners.bind(session.runtime_key, sid)
    state.owners.restore({key: encode(row) for key, row in addresses.items()}, sids={sid})
    state.listeners.restore({key: encode(row) for key, row in subscriptions.items()}, sids={sid})
    held = {*addresses}
    for thing in moved.things:
        key = canonical_key(thing.url)
        if agent_of(key) in held and state.twin.adopt(key, thing):
            changes.append(Change(Table.TWIN_THINGS, key, thing))
    named = {key: row for key, row in moved.policies.items() if key in held}
    for key, row in state.policy_names.move_in(named, sid).items():
        changes.append(Change(Table.OBJECT_POLICIES, key, row))
    leases = state.leases.move_in(moved.leases, sid)
    return changes + [Change(Table.QOS_LEASES, lease.name, lease) for lease in leases]
