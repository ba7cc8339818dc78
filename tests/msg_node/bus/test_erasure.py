"""Erasing one person: nothing in any table names them afterwards, and nothing of others is gone."""

from __future__ import annotations

import msgspec
import pytest

from msg_node.addresses.core.expulsions import ExpulsionRow
from msg_node.addresses.core.subscriptions import Subscription
from msg_node.bus.core.erasure import (
    Person,
    Traces,
    end_requests_for,
    erase,
    erase_registrations,
    find_person,
    find_traces,
    is_named_in,
    names_of,
)
from msg_node.kernel.changes import Table
from msg_node.kernel.own_names import OwnNames
from msg_node.kernel.proof import Proven
from msg_node.kernel.restrictions import Restricted, Restriction
from msg_node.kernel.session import Dialect, Session
from msg_node.node_state import NodeState, make_state
from msg_node.registries.core.registry_entry import Changed
from msg_node.registries.core.twin import Slot
from msg_node.requests.core.delivery_status import CANCELLED
from msg_node.requests.core.inbox import Notice
from msg_node.requests.core.parked import Sender, Submission
from msg_node.requests.core.push_targets import PushTarget
from protofly import codec
from protofly.errors import Code, PeerError

DOMAIN = "a.example"
NOW = 1000.0


class Rows:
    """The rows of a state as a store would have them."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._rows: dict[tuple[Table, str], bytes] = {}

    def take(self) -> dict[tuple[Table, str], bytes]:
        for change in self._state.take_changes():
            if change.row is None:
                self._rows.pop((change.table, change.key), None)
            else:
                self._rows[change.table, change.key] = msgspec.json.encode(change.row)
        return dict(self._rows)

    def naming(self, name: str) -> list[tuple[Table, str]]:
        return [place for place, row in self.take().items() if name in place[1] or name.encode() in row]


def with_traces_of(state: NodeState, name: str, sid: int) -> None:
    """Let somebody leave a row in every table, with the name in it."""
    runtime, other = f"runtime://{DOMAIN}/{name}", f"hyperty://{DOMAIN}/someone"
    hyperty, room = f"hyperty://{DOMAIN}/{name}-h", f"comm://{DOMAIN}/{name}-room"
    proof = Proven(f"jwt https://login.{DOMAIN} {name}@{DOMAIN}", frozenset())
    session = Session(sid, runtime, runtime, f"digest-{sid}", proof, Dialect.SESSION_MESSAGES, False, None, NOW)
    state.sessions.add(session)
    state.sessions.save(session)
    state.owners.bind(runtime, sid)
    for url in (hyperty, room, f"thing://{DOMAIN}/{name}"):
        assert state.owners.claim(sid, url)
    state.listeners.add(sid, [Subscription(f"comm://{DOMAIN}/news", f"comm://{DOMAIN}/news", runtime)])
    state.listeners.add(99, [Subscription(f"{room}/changes", f"{room}/changes", other)])
    members = Changed(user=f"user://{DOMAIN}/{name}", descriptor="d", runtime=runtime)
    state.registry.register(hyperty, members, sid=sid, now=NOW)
    state.registry.register(f"hyperty://{DOMAIN}/of-{sid}", members, sid=99, now=NOW)
    for request_id, from_, to, queue in (
        (f"r-{sid}", hyperty, other, other),
        (f"s-{sid}", other, hyperty, hyperty),
        (f"e-{sid}", hyperty, other, other),
    ):
        message = codec.build(id=request_id, type="execute", from_=from_, to=to, body={"class": "action"})
        sender = Sender(runtime if from_ == hyperty else f"runtime://{DOMAIN}/someone", "", "")
        parked = state.delivery.parking.submit(Submission(message, queue, sender, request_id, 100.0), NOW)
        state.delivery.parking.store(parked)
        if request_id.startswith("e"):
            state.delivery.parking.finish(parked, CANCELLED, NOW)
    notice = Notice(hyperty, Sender(runtime), f"i-{sid}", other, b'{"x":1}', True)
    state.delivery.inboxes.deposit(notice, NOW)
    notice = Notice(other, Sender(f"runtime://{DOMAIN}/someone"), f"j-{sid}", hyperty, b'{"x":1}', True)
    state.delivery.inboxes.deposit(notice, NOW)
    state.delivery.queues.announce(hyperty, {"expires": 10, "max": 1})
    thing = f"thing://{DOMAIN}/{name}/lamp"
    state.twin.describe(thing, thing, b"{}", now=NOW)
    for source in (hyperty, other):
        state.twin.keep(Slot(thing, "properties/on"), b"1", source, now=NOW)
    shared = f"thing://{DOMAIN}/someone/lamp"
    state.twin.describe(shared, shared, b"{}", now=NOW)
    state.twin.keep(Slot(shared, f"properties/by-{sid}"), b"1", hyperty, now=NOW)
    state.twin.store_values()
    state.push.add(PushTarget(hyperty, f"https://push.example/{sid}", runtime, NOW + 100))
    expulsions = state.observer_rights.expulsions
    expulsions.expel(ExpulsionRow(f"comm://{DOMAIN}/news", hyperty, runtime, f"runtime://{DOMAIN}/someone"))
    expulsions.expel(ExpulsionRow(room, other, "", runtime))
    state.restrictions.set(Restriction(what=Restricted.RUNTIME, subject=runtime, reason="", by="ops", since=NOW + sid))


@pytest.fixture
def state() -> NodeState:
    state = make_state(OwnNames.of([DOMAIN], [f"runtime://{DOMAIN}/mn-1"]))
    for sid, name in ((1, "vera"), (2, "otto")):
        with_traces_of(state, name, sid)
    return state


def erased(state: NodeState, name: str, *, keeps_bans: bool = False) -> dict[str, int]:
    traces = find_traces(state, find_person(state, name), keeps_bans=keeps_bans)
    end_requests_for(state, traces, now=NOW)
    for sid in traces.person.sids:
        state.lifecycle.close(sid, now=NOW)
    erase_registrations(state, traces)
    erase(state, traces, now=NOW)
    return traces.counts()


@pytest.mark.parametrize(
    "name",
    [
        "runtime://a.example/vera",
        "user://a.example/vera",
        "vera@a.example",
        "https://login.a.example vera@a.example",
        "RUNTIME://A.example/vera",
    ],
)
def test_nothing_names_the_person_but_the_answers_that_others_are_owed(state: NodeState, name: str) -> None:
    rows = Rows(state)
    others, before = rows.naming("otto"), rows.take()
    counts = erased(state, name)
    assert all(counts.values()), counts
    [(table, key)] = rows.naming("vera")
    assert (table, b'"code":404' in rows.take()[table, key]) == (Table.INBOX, True)
    assert rows.naming("otto") == others
    assert all(rows.take()[place] == before[place] for place in others)
    state.delivery.inboxes.expire(NOW + 10 * 86_400)
    assert not rows.naming("vera")


def test_an_address_alone_takes_what_names_it_and_no_session(state: NodeState) -> None:
    rows = Rows(state)
    counts = erased(state, "hyperty://a.example/vera-h")
    assert (counts["sessions"], counts["addresses"], counts["registrations"]) == (0, 1, 1)
    assert state.sessions.by_runtime("runtime://a.example/vera") == 1
    assert all("vera-h" not in key for table, key in rows.take() if table is not Table.INBOX)
    assert state.owners.owner("comm://a.example/vera-room") == 1


def test_what_keeps_somebody_out_stays_if_it_is_to_stay(state: NodeState) -> None:
    rows = Rows(state)
    counts = erased(state, "runtime://a.example/vera", keeps_bans=True)
    assert (counts["bans"], counts["expulsions"]) == (0, 0)
    left = {table for table, _ in rows.naming("vera")}
    assert left == {Table.INBOX, Table.RESTRICTIONS, Table.EXPULSIONS}


def test_a_claimed_user_or_guid_widens_nothing(state: NodeState) -> None:
    """Otto registers a hyperty in the name of Vera: the entry goes, the session and the address of Otto stay."""
    claimed = Changed(user="user://a.example/vera", descriptor="d", runtime="runtime://a.example/otto")
    state.registry.register("hyperty://a.example/otto-h", claimed, sid=2, now=NOW)
    erased(state, "user://a.example/vera")
    assert state.registry.get("hyperty://a.example/otto-h") is None
    assert state.sessions.by_runtime("runtime://a.example/otto") == 2
    assert state.owners.owner("hyperty://a.example/otto-h") == 2


def test_a_guid_takes_its_registrations(state: NodeState) -> None:
    entry = Changed(user="user://a.example/x", guid="user-guid://G1", descriptor="d", runtime="runtime://a.example/r")
    state.registry.register("hyperty://a.example/g", entry, sid=2, now=NOW)
    assert find_person(state, "user-guid://G1").guid == "G1"
    assert erased(state, "user-guid://G1")["registrations"] == 1


@pytest.mark.parametrize("name", ["", "vera", "@", " ", "@a", "vera ", " vera", "://", "hyperty://", "a\n@b"])
def test_what_names_nobody_is_refused_without_the_name(state: NodeState, name: str) -> None:
    with pytest.raises(PeerError) as caught:
        find_person(state, name)
    assert caught.value.code is Code.BAD_BODY
    assert "vera" not in caught.value.detail


def test_a_name_that_is_not_known_here_erases_nothing(state: NodeState) -> None:
    rows = Rows(state)
    before = rows.take()
    for name in ("nobody@a.example", "vera@b.example", "runtime://a.example/ver", "runtime://a.example/vera2"):
        assert not any(erased(state, name).values())
    assert rows.take() == before


# One trace at a time.

VERA = f"runtime://{DOMAIN}/vera"
HERS, OTHER = f"hyperty://{DOMAIN}/vera-h", f"hyperty://{DOMAIN}/other"
STRANGER = f"runtime://{DOMAIN}/someone"


def with_session(state: NodeState, runtime: str, sid: int, credential: str = "") -> None:
    session = Session(
        sid, runtime, runtime, f"digest-{sid}", Proven(credential), Dialect.SESSION_MESSAGES, False, None, NOW
    )
    state.sessions.add(session)
    state.owners.bind(runtime, sid)


@pytest.fixture
def plain() -> NodeState:
    """Vera's session owns an address and an agent of things; what else is there names her in one place, or nowhere."""
    state = make_state(OwnNames.of([DOMAIN], [f"runtime://{DOMAIN}/mn-1"]))
    with_session(state, VERA, 1)
    for url in (HERS, f"thing://{DOMAIN}/vera"):
        assert state.owners.claim(1, url)
    return state


def test_a_session_that_proved_nothing_is_found_by_its_runtime(plain: NodeState) -> None:
    person = find_person(plain, VERA)
    assert (set(person.sids), set(person.runtimes)) == ({1}, {VERA})
    assert person.keys == {VERA, HERS, f"thing://{DOMAIN}/vera"}


@pytest.mark.parametrize(
    ("name", "runtimes", "keys"),
    [
        (STRANGER, {STRANGER}, {STRANGER}),
        (OTHER, set(), {OTHER}),
        (f"user://{DOMAIN}/someone", set(), {f"user://{DOMAIN}/someone"}),
        (f"someone@{DOMAIN}", set(), set()),
        ("login someone", set(), set()),
    ],
)
def test_who_has_no_session_is_named_by_one_address_at_most(
    plain: NodeState, name: str, runtimes: set[str], keys: set[str]
) -> None:
    person = find_person(plain, name)
    assert (set(person.runtimes), set(person.keys), set(person.sids)) == (runtimes, keys, set())


@pytest.mark.parametrize(
    ("credential", "name", "is_hers"),
    [
        ("jwt https://login vera@a.example", "vera@a.example", True),
        ("jwt https://login vera@a.example", "https://login vera@a.example", True),
        ("jwt https://login vera@a.example", "https://other vera@a.example", False),
        ("jwt https://login vera", "https://login vera", True),
        ("jwt https://login vera", "user://a.example/vera", False),
        ("jwt https://login vera", "runtime://a.example/vera", False),
        ("jwt https://login user://a.example/vera", "vera@a.example", True),
        ("jwt https://login user://a.example/vera", "user://a.example/vera", True),
        ("jwt https://node https://idp vera@a.example", "https://idp vera@a.example", True),
        ("jwt https://node https://idp vera@a.example", "vera@a.example", True),
        ("jwt https://login user://a.example/https:+idp vera", "https:+idp vera", False),
        ("x509 https://login vera@a.example", "vera@a.example", False),
        ("x509 vera@a.example", "vera@a.example", False),
        ("", "vera@a.example", False),
    ],
)
def test_a_session_is_a_person_s_if_a_token_of_that_user_opened_it(credential: str, name: str, is_hers: bool) -> None:
    state = make_state(OwnNames.of([DOMAIN], [f"runtime://{DOMAIN}/mn-1"]))
    with_session(state, f"runtime://{DOMAIN}/rt", 1, credential)
    assert bool(find_person(state, name).sids) is is_hers


def traces_of(state: NodeState, name: str = VERA) -> Traces:
    return find_traces(state, find_person(state, name), keeps_bans=False)


@pytest.mark.parametrize(
    ("from_", "to", "queue", "runtime", "is_of", "is_for"),
    [
        ("plain", OTHER, OTHER, VERA, True, False),
        (f"{HERS}/x", OTHER, OTHER, STRANGER, True, False),
        (OTHER, HERS, OTHER, STRANGER, False, True),
        (OTHER, OTHER, HERS, STRANGER, False, True),
        (HERS, HERS, HERS, VERA, True, False),
        (OTHER, OTHER, OTHER, STRANGER, False, False),
        (OTHER, f"{HERS}2", OTHER, f"{VERA}2", False, False),
    ],
)
def test_an_open_request_is_of_its_sender_and_else_for_its_recipient(
    plain: NodeState, from_: str, to: str, queue: str, runtime: str, is_of: bool, is_for: bool
) -> None:
    message = codec.build(id="r", type="execute", from_=from_, to=to, body={"class": "action"})
    parking = plain.delivery.parking
    parking.store(parking.submit(Submission(message, queue, Sender(runtime, "", ""), "r", 100.0), NOW))
    traces = traces_of(plain)
    assert (len(traces.requests_of), len(traces.requests_for)) == (is_of, is_for)


@pytest.mark.parametrize(
    ("from_", "queue", "runtime", "is_hers"),
    [
        ("plain", OTHER, VERA, True),
        (HERS, OTHER, STRANGER, True),
        (OTHER, HERS, STRANGER, True),
        (OTHER, OTHER, STRANGER, False),
    ],
)
def test_a_finished_request_and_a_report_name_a_person_by_runtime_sender_or_recipient(
    plain: NodeState, from_: str, queue: str, runtime: str, is_hers: bool
) -> None:
    message = codec.build(id="r", type="execute", from_=from_, to=OTHER, body={"class": "action"})
    parking = plain.delivery.parking
    parked = parking.submit(Submission(message, queue, Sender(runtime, "", ""), "r", 100.0), NOW)
    parking.store(parked)
    parking.finish(parked, CANCELLED, NOW)
    plain.delivery.inboxes.deposit(Notice(from_, Sender(runtime), "i", queue, b"{}", True), NOW)
    traces = traces_of(plain)
    assert (len(traces.finished), len(traces.reports)) == (is_hers, is_hers)
    assert not traces.requests_of
    assert not traces.requests_for


def test_subscriptions_of_a_session_to_an_address_and_for_a_source_are_traces_each(plain: NodeState) -> None:
    news = f"comm://{DOMAIN}/news"
    for sid, key, source in (
        (1, news, OTHER),
        (98, f"{HERS}/changes", OTHER),
        (99, news, HERS),
        (99, f"{news}/changes", OTHER),
    ):
        plain.listeners.add(sid, [Subscription(key, key, source)])
    assert traces_of(plain).subscriptions == [(1, news, OTHER), (98, f"{HERS}/changes", OTHER), (99, news, HERS)]


def test_registrations_of_a_session_or_in_somebody_s_name_are_traces_each(plain: NodeState) -> None:
    other = Changed(user=f"user://{DOMAIN}/x", descriptor="d", runtime=STRANGER)
    hers = Changed(user=f"user://{DOMAIN}/x", descriptor="d", runtime=VERA)
    for number, (sid, members) in enumerate([(1, other), (99, hers), (99, other)]):
        plain.registry.register(f"hyperty://{DOMAIN}/{number}", members, sid=sid, now=NOW)
    plain.registry.register(HERS, other, sid=99, now=NOW)
    found = {entry.key for entry in traces_of(plain).registrations}
    assert found == {f"hyperty://{DOMAIN}/0", f"hyperty://{DOMAIN}/1", HERS}


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("ina@a.example", {0, 1}),
        ("user-guid://G2", {2, 3}),
        (f"user://{DOMAIN}/ina", {0}),
        (f"user://{DOMAIN}/ina@a.example", {1}),
        ("https://login ina@a.example", set()),
        ("idp ina", set()),
    ],
)
def test_registrations_are_found_by_an_account_or_a_guid_of_whom_no_session_is_here(
    plain: NodeState, name: str, places: set[int]
) -> None:
    for number, (user, guid) in enumerate([
        ("ina", ""), ("ina@a.example", ""), ("else", "G2"), ("ino", "user-guid://G2"), ("inaa", "G22"),
    ]):  # fmt: skip
        members = Changed(user=f"user://{DOMAIN}/{user}", guid=guid, descriptor="d", runtime=STRANGER)
        plain.registry.register(f"hyperty://{DOMAIN}/{number}", members, sid=99, now=NOW)
    found = [entry.key for entry in traces_of(plain, name).registrations]
    assert sorted(found) == [f"hyperty://{DOMAIN}/{number}" for number in sorted(places)]


def test_data_objects_that_a_person_reports_are_traces_each(plain: NodeState) -> None:
    for number, reporter in enumerate([HERS, OTHER]):
        members = Changed(name="n", reporter=reporter, schema="s", runtime=STRANGER)
        plain.registry.register(f"comm://{DOMAIN}/{number}", members, sid=99, now=NOW)
    assert [entry.key for entry in traces_of(plain).registrations] == [f"comm://{DOMAIN}/0"]


def test_things_of_an_agent_and_values_on_or_by_it_are_traces_each(plain: NodeState) -> None:
    lamp, shared = f"thing://{DOMAIN}/vera/lamp", f"thing://{DOMAIN}/someone/lamp"
    for thing in (lamp, shared):
        plain.twin.describe(thing, thing, b"{}", now=NOW)
    for key, name, source in (
        (lamp, "properties/a", OTHER),
        (shared, "properties/b", HERS),
        (shared, "properties/c", OTHER),
        (shared, "properties/d", "plain"),
    ):
        plain.twin.keep(Slot(key, name), b"1", source, now=NOW)
    traces = traces_of(plain)
    assert (traces.things, traces.values) == ([lamp], [(lamp, "properties/a"), (shared, "properties/b")])
    alone = traces_of(plain, shared)
    assert (alone.things, len(alone.values)) == ([shared], 3)


def test_push_subscriptions_and_expulsions_name_a_person_in_any_place(plain: NodeState) -> None:
    for key, endpoint, runtime in ((OTHER, "1", VERA), (HERS, "2", STRANGER), (f"{OTHER}-2", "3", STRANGER)):
        plain.push.add(PushTarget(key, endpoint, runtime, NOW + 100))
    rows = [
        ExpulsionRow(HERS, OTHER, "", ""),
        ExpulsionRow(OTHER, HERS, "", ""),
        ExpulsionRow(OTHER, f"{OTHER}-2", VERA, ""),
        ExpulsionRow(OTHER, f"{OTHER}-3", "", VERA),
    ]
    for row in [*rows, ExpulsionRow(OTHER, f"{OTHER}-4", "", "beta.example")]:
        plain.observer_rights.expulsions.expel(row)
    traces = traces_of(plain)
    assert [target.endpoint for target in traces.push] == ["1", "2"]
    assert sorted(traces.expulsions, key=str) == sorted(rows, key=str)


@pytest.mark.parametrize(
    ("name", "by_name"),
    [
        ("https://op.example ana@op.example", {"ana@op.example"}),
        ("https://op.example ana", {"https://op.example ana"}),
        (" ana@op.example", {" ana@op.example"}),
        ("ana@op.example", {"ana@op.example"}),
        ("", set()),
    ],
)
def test_a_person_is_named_by_their_addresses_and_by_the_user_name_or_all_that_the_operator_wrote(
    name: str, by_name: set[str]
) -> None:
    keys = frozenset({"hyperty://a.example/h", "runtime://a.example/ana"})
    assert names_of(Person(name=name, keys=keys, runtimes=frozenset(), sids=frozenset())) == keys | by_name


@pytest.mark.parametrize(
    ("text", "is_named"),
    [
        ("ana@op.example", True),
        ("ban of ana@op.example, who asked", True),
        ("about hyperty://a.example/h/part", True),
        ("(HYPERTY://A.example/h)", True),
        ("hyperty://a.example/h2 and bo@op.example", False),
        ("", False),
    ],
)
def test_a_text_names_a_person_by_any_of_its_words(text: str, *, is_named: bool) -> None:
    keys = frozenset({"hyperty://a.example/h"})
    person = Person(name="https://op.example ana@op.example", keys=keys, runtimes=frozenset(), sids=frozenset())
    assert is_named_in(person, text) is is_named
