"""Erases one person from the tables of a node: what names them, and what they hold.

A person is named by an address (of a user, runtime, hyperty, object or GUID), by an account such as `ana@a.example`, or
as tokens do: `<issuer> <user>`. Only what is proved widens the search: a session that this user's token opened, or that
is of the runtime, is the person's with all that it owns, also one on its way between two nodes. What a registration
claims does not, since anybody could claim it; the registration itself goes.

What others have asked of the person ends as failed, and the answer that they are owed stays until they have read it, a
day at most. All else that names the person is gone afterwards. Requests of the person end without an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from msg_node.addresses.core.allocation import is_below_any
from msg_node.addresses.core.expulsions import ExpulsionRow
from msg_node.bus.core.moved_session import GivenSession, MovedSession
from msg_node.bus.core.tables import BusTables
from msg_node.kernel.changes import Change, Table, decode_row
from msg_node.kernel.credentials import JWT
from msg_node.kernel.registrations import Index, StatusChange
from msg_node.kernel.restrictions import Restricted, Restriction
from msg_node.registries.core.registry import identifiers_of
from msg_node.registries.core.registry_entry import RegistryEntry
from msg_node.requests.core.delivery_messages import notice_body
from msg_node.requests.core.delivery_status import CANCELLED, Status, StatusReport
from msg_node.requests.core.inbox import InboxEntry, Notice
from msg_node.requests.core.parked import FinishedRequest, ParkedRequest
from msg_node.requests.core.push_targets import PushTarget
from protofly.address import canonical_key, parse
from protofly.errors import Code, PeerError

_GUID: Final = "user-guid://"
_AROUND_WORDS: Final = ",;:.()[]<>\"'"
GONE: Final = StatusReport.of_code(Status.FAILED, Code.NOT_REGISTERED)
"""The answer to pending requests for an erased person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """One person, by the names that were found.

    Attributes:
        name: As the operator wrote it; canonical, if it is an address.
        keys: Their addresses, as canonical keys; what is below one is theirs too.
        runtimes: Canonical keys of runtimes that only they use.
        sids: Their sessions.
        credentials: What has proved them in these sessions.
        on_their_way: Keys of rows of their sessions that are on their way between two nodes.
    """

    name: str
    keys: frozenset[str]
    runtimes: frozenset[str]
    sids: frozenset[int]
    credentials: frozenset[str] = frozenset()
    on_their_way: frozenset[str] = frozenset()

    @property
    def guid(self) -> str:
        """The GUID by which they are named, "" when it is by something else."""
        return self.name.removeprefix(_GUID) if self.name.startswith(_GUID) else ""

    def is_named_by(self, key: str) -> bool:
        """True for a canonical key that is one of theirs, or below one."""
        return is_below_any(key, self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """The data that a node has about one person, by table."""

    person: Person
    addresses: list[str]
    registrations: list[RegistryEntry]
    subscriptions: list[tuple[int, str, str]]
    requests_of: list[ParkedRequest]
    requests_for: list[ParkedRequest]
    finished: list[FinishedRequest]
    reports: list[InboxEntry]
    queues: list[str]
    things: list[str]
    values: list[tuple[str, str]]
    push: list[PushTarget]
    expulsions: list[ExpulsionRow]
    bans: list[Restriction]

    def counts(self) -> dict[str, int]:
        """Number of rows by table, for a report; it names nobody."""
        return {
            "sessions": len(self.person.sids) + len(self.person.on_their_way),
            "addresses": len(self.addresses),
            "registrations": len(self.registrations),
            "subscriptions": len(self.subscriptions),
            "requests": len(self.requests_of) + len(self.requests_for),
            "finished_requests": len(self.finished),
            "reports": len(self.reports),
            "queues": len(self.queues),
            "things": len(self.things),
            "values": len(self.values),
            "push_subscriptions": len(self.push),
            "expulsions": len(self.expulsions),
            "bans": len(self.bans),
        }


def find_person(tables: BusTables, text: str, given: Mapping[str, bytes] | None = None) -> Person:
    """Find whom a text names, and what is proved to be theirs.

    Args:
        tables: Of the node.
        text: As the operator wrote it.
        given: Rows of all sessions on their way between nodes of the domain, by key.

    Raises:
        PeerError: BAD_BODY when it names nobody: it is no address, account, or issuer and user.
        HostError: STORAGE, a row cannot be read.
    """
    name = _name_of(text)
    accounts = identifiers_of(name) if "://" in name else {name}
    is_theirs = _credential_of({name, *(one for one in accounts if "@" in one)})
    sessions = [one for one in tables.sessions if one.runtime_key == name or is_theirs(one.proof.credential)]
    moved = {key: _given_session(key, row) for key, row in (given or {}).items()}
    moved = {key: one for key, one in moved.items() if _is_of(one, name, is_theirs)}
    runtimes = frozenset(one.runtime_key for one in sessions) | ({name} if name.startswith("runtime://") else set())
    runtimes |= {one.session.runtime_key for one in moved.values()}
    owned = {canonical_key(row.url) for one in sessions for row in tables.owners.owned(one.sid)}
    owned |= {key for one in moved.values() for key in one.keys}
    keys = frozenset({name, *runtimes, *owned} if "://" in name else {*runtimes, *owned})
    proved = [one.proof.credential for one in sessions] + [one.session.credential for one in moved.values()]
    return Person(
        name=name,
        keys=keys,
        runtimes=runtimes,
        sids=frozenset(one.sid for one in sessions),
        credentials=frozenset(filter(is_theirs, proved)),
        on_their_way=frozenset(moved),
    )


def _given_session(key: str, row: bytes) -> MovedSession:
    given = decode_row(row, GivenSession, table=Table.GIVEN_SESSIONS, key=key)
    return decode_row(bytes(given.moved), MovedSession, table=Table.GIVEN_SESSIONS, key=key)


def _is_of(moved: MovedSession, name: str, is_theirs: Callable[[str], bool]) -> bool:
    return moved.session.runtime_key == name or is_theirs(moved.session.credential)


def erased_on_their_way(person: Person) -> list[Change]:
    """Takes their sessions that are on their way between two nodes out of the tables of the domain."""
    return [Change(Table.GIVEN_SESSIONS, key, None) for key in person.on_their_way]


def names_of(person: Person) -> frozenset[str]:
    """By what a text names a person: their addresses, and the name by which the operator knows them."""
    issuer, blank, user = person.name.partition(" ")
    return person.keys | ({user} if blank and issuer and "@" in user else {person.name} - {""})


def is_named_in(person: Person, text: str) -> bool:
    """True if a text is a name of the person, or has one of their names among its words."""
    names = names_of(person)
    words = (word.strip(_AROUND_WORDS) for word in text.split())
    return text in names or any(one in names or person.is_named_by(_key_or_text(one)) for one in words if one)


def _name_of(text: str) -> str:
    issuer, _, user = text.partition(" ")
    if "://" in text and not user:
        try:
            if parse(text)[1]:
                return canonical_key(text)
        except PeerError as exc:
            raise PeerError(Code.BAD_BODY, f"`person` is no address: {exc.detail}") from exc
    if (issuer and user) or ("@" in text.strip("@") and text.isprintable()):
        return text
    raise PeerError(Code.BAD_BODY, "name the person by an address, as user@domain, or as tokens do: <issuer> <user>")


def _credential_of(names: set[str]) -> Callable[[str], bool]:
    """Return a function that says whether a credential is that of a user with one of these names."""

    def is_theirs(credential: str) -> bool:
        kind, _, holder = credential.partition(" ")
        if kind != JWT:
            return False
        subject = holder.partition(" ")[2]
        user = subject.rpartition(" ")[2]
        theirs = {holder, subject, user, *identifiers_of(user)}
        return not names.isdisjoint(theirs)

    return is_theirs


def find_traces(tables: BusTables, person: Person, *, keeps_bans: bool) -> Traces:
    """Find all that names a person, or is theirs. One look at each row."""
    is_named, runtimes, delivery = person.is_named_by, person.runtimes, tables.delivery
    open_requests = list(delivery.parking.transactions.values())
    requests_of = [one for one in open_requests if one.sender.runtime_key in runtimes or is_named(one.request.from_key)]
    sent = set(map(id, requests_of))
    return Traces(
        person=person,
        addresses=[
            key
            for session in tables.sessions
            for row in tables.owners.owned(session.sid)
            if is_named(key := canonical_key(row.url))
        ],
        registrations=_registrations(tables, person),
        subscriptions=[
            (sid, one.key, one.source)
            for sid in list(tables.listeners.listeners())
            for one in tables.listeners.subscriptions(sid)
            if sid in person.sids or is_named(one.key) or is_named(canonical_key(one.source))
        ],
        requests_of=requests_of,
        requests_for=[one for one in open_requests if id(one) not in sent and _is_for(person, one)],
        finished=[
            one
            for one in delivery.parking.finished
            if one.sender.runtime_key in runtimes or is_named(one.from_key) or is_named(one.queue)
        ],
        reports=[
            one
            for one in delivery.inboxes
            if one.sender.runtime_key in runtimes or is_named(one.owner) or is_named(one.queue)
        ],
        queues=[key for key in delivery.queues.agents() if is_named(key)],
        things=[key for key, _ in tables.twin.things() if is_named(key)],
        values=[
            (key, name)
            for key, name, source in tables.twin.sources()
            if is_named(key) or is_named(_key_or_text(source))
        ],
        push=[one for one in tables.push if one.runtime_key in runtimes or is_named(one.key)],
        expulsions=[] if keeps_bans else [one for one in tables.observer_rights.expulsions if _names(person, one)],
        bans=[] if keeps_bans else [one for one in tables.restrictions.of(Restricted.RUNTIME) if is_named(one.subject)],
    )


def _registrations(tables: BusTables, person: Person) -> list[RegistryEntry]:
    """Entries of the person's sessions and addresses, and those that name the person."""
    registry, name = tables.registry, person.name
    found = {
        one.key: one
        for one in registry
        if one.sid in person.sids
        or person.is_named_by(one.key)
        or any(person.is_named_by(text) for text in map(_key_or_text, (one.runtime, one.user, one.reporter)))
    }
    found |= {one.key: one for one in registry.find(Index.GUID if person.guid else Index.IDENTIFIER, name)}
    return list(found.values())


def _key_or_text(text: str) -> str:
    try:
        return canonical_key(text)
    except PeerError:
        return text


def _is_for(person: Person, entry: ParkedRequest) -> bool:
    return person.is_named_by(entry.queue) or person.is_named_by(entry.request.to_key)


def _names(person: Person, row: ExpulsionRow) -> bool:
    return any(person.is_named_by(key) for key in (row.object_key, row.observer, row.runtime, row.by))


def end_requests_for(tables: BusTables, traces: Traces, *, now: float) -> None:
    """End requests for the person as failed; the answers wait for their senders. For a node that does not run."""
    parking, inboxes = tables.delivery.parking, tables.delivery.inboxes
    for entry in traces.requests_for:
        parking.finish(entry, GONE, now)
        if not entry.sender.domain:  # another domain asks again, and finds the answer that `finish` keeps
            body, owner = notice_body(entry, GONE), entry.request.from_key
            inboxes.deposit(Notice(owner, entry.sender, entry.request_id, entry.queue, body, is_final=True), now)


def erase_registrations(tables: BusTables, traces: Traces) -> list[StatusChange]:
    """Take registrations out; returns those that were connected, for those who follow them."""
    changes: list[StatusChange] = []
    for entry in traces.registrations:
        if tables.registry.get(entry.key) is not None:
            changes += tables.registry.delete(entry.key)
    return changes


def erase(tables: BusTables, traces: Traces, *, now: float) -> None:
    """Take all other traces out of the tables.

    The sessions, requests for the person and registrations have been ended before, and their followers notified: the
    subscriptions by which these hear of it are removed here.
    """
    for key in traces.addresses:
        owner = tables.owners.claimant(key)
        if owner is not None:
            tables.owners.release({owner}, key)
    for sid, key, source in traces.subscriptions:
        tables.listeners.remove(sid, key, {canonical_key(source)})
    _erase_requests(tables, traces, now)
    for key in traces.things:
        tables.twin.remove(key)
    for key, name in traces.values:
        tables.twin.forget_value(key, name)
    for target in traces.push:
        tables.push.remove(target.key, target.endpoint)
    for row in traces.expulsions:
        tables.observer_rights.expulsions.readmit(row.object_key, row.observer)
    for ban in traces.bans:
        tables.restrictions.lift(ban.what, ban.subject)


def _erase_requests(tables: BusTables, traces: Traces, now: float) -> None:
    delivery = tables.delivery
    parking = delivery.parking
    for entry in traces.requests_of:
        if parking.is_open(entry):
            parking.finish(entry, CANCELLED, now)
        parking.finished.forget(entry.sender.domain, entry.request_id)
    for one in traces.finished:
        parking.finished.forget(one.sender.domain, one.request_id)
    for report in traces.reports:
        delivery.inboxes.acknowledge(report.owner, [report.number])
    for agent in traces.queues:
        delivery.queues.forget(agent)
