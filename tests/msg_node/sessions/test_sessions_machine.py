"""Sessions, addresses, subscriptions and registry under any sequence of events: the invariants that must never break.

Two owners never share an address; who is gone holds nothing; a rig restarted from the rows is the rig that wrote
them.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, precondition, rule

from msg_node.node_state import NodeState
from tests.support.state_rig import ALLOCATION, DOMAIN, GRACE_SECONDS, REGISTRY, SM, StateRig, body_of

RUNTIMES = st.sampled_from(["rt-a", "rt-b", "rt-c"])
OBJECTS = st.sampled_from(
    [f"comm://{DOMAIN}/room-{n}" for n in range(4)] + [f"hyperty://{DOMAIN}/h-{n}" for n in range(2)]
)
SUFFIXES = st.sampled_from(["", "/changes", "/subscription", "/children/", "/children/m", "/*", "/m"])
KEYS = st.sampled_from(["", "block-1", f"runtime://{DOMAIN}/rt-a"])
CHOICE = st.integers(min_value=0, max_value=7)


def every_holding_belongs_to_a_session(state: NodeState) -> None:
    sids = {session.sid for session in state.sessions}
    assert set(state.listeners.listeners()) <= sids
    assert set(state.owners._owned) <= sids
    assert set(state.owners._sid_of.values()) <= sids
    assert {entry.sid for entry in state.registry._entries.values()} <= sids | {0}


def no_two_sessions_own_one_address(state: NodeState) -> None:
    owned = [row.url for session in state.sessions for row in state.owners.owned(session.sid)]
    assert len(owned) == len(set(owned))
    assert all(
        state.owners.owner(row.url) == session.sid
        for session in state.sessions
        for row in state.owners.owned(session.sid)
    )


def each_runtime_has_one_speaker(state: NodeState) -> None:
    for session in state.sessions:
        assert (state.sessions.by_runtime(session.runtime_key) == session.sid) is not session.is_displaced
        assert session.is_live is (session.grace_ends is None)
        assert not (session.is_live and session.is_displaced)
        if not session.is_displaced:
            assert state.owners.owner(session.runtime_key) == session.sid


def listening_look_up_agrees_with_the_subscriptions(state: NodeState) -> None:
    for sid in state.listeners.listeners():
        for one in state.listeners.subscriptions(sid):
            asked = one.key[:-1] + "anything" if one.key.endswith("/*") else one.key
            assert sid in state.listeners.targets(asked)


def only_owners_listen_to_the_control_address(state: NodeState) -> None:
    """Who listens to `O/subscription` owns `O`, or was there before anybody owned it."""
    for session in state.sessions:
        for one in state.listeners.subscriptions(session.sid):
            if one.key.endswith("/*"):
                above = state.owners.owner_above(one.key)
                assert above is None or above[0] == session.sid


INVARIANTS = (
    every_holding_belongs_to_a_session,
    no_two_sessions_own_one_address,
    each_runtime_has_one_speaker,
    listening_look_up_agrees_with_the_subscriptions,
    only_owners_listen_to_the_control_address,
)


class SessionsOfRuntimes(RuleBasedStateMachine):
    """Drives a `StateRig` the way connectors, the bus, the clock and the operating system do."""

    addresses = Bundle("addresses")
    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.rig = StateRig()
        self.connections = 0

    # Whom to take.

    def live(self) -> list[int]:
        return sorted(session.sid for session in self.rig.state.sessions if session.is_live)

    def pick(self, choice: int) -> int:
        live = self.live()
        return live[choice % len(live)]

    def connect(self) -> int:
        self.connections += 1
        return self.connections

    # Sessions.

    @rule(target=tokens, name=RUNTIMES)
    def open(self, name: str) -> Any:
        connection = self.connect()
        result = self.rig.session_verb("open", f"runtime://{DOMAIN}/{name}", connection)
        body = body_of(result.replies[0])
        assert (body["code"] == 200) is (self.rig.state.sessions.by_connection(connection) is not None)
        return f"runtime://{DOMAIN}/{name}/{body['runtimeToken']}" if body["code"] == 200 else multiple()

    @rule(token=tokens)
    def re_open(self, token: str) -> None:
        connection = self.connect()
        result = self.rig.session_verb("re-open", token, connection)
        assert body_of(result.replies[0])["code"] in (200, 500)

    @rule(token=consumes(tokens), choice=CHOICE)
    @precondition(lambda self: self.live())
    def close(self, token: str, choice: int) -> None:
        session = self.rig.state.sessions.get(self.pick(choice))
        assert session is not None
        assert session.connection is not None
        self.rig.session_verb("close", token, session.connection)
        assert self.rig.state.sessions.get(session.sid) is None

    @rule(choice=CHOICE)
    @precondition(lambda self: self.live())
    def lose(self, choice: int) -> None:
        session = self.rig.state.sessions.get(self.pick(choice))
        assert session is not None
        assert session.connection is not None
        result = self.rig.services.sessions.connection_lost(session.connection, now=self.rig.now)
        assert result.changes == []

    @rule(seconds=st.sampled_from([1.0, 29.0, 31.0, GRACE_SECONDS / 2, GRACE_SECONDS, 7200.0]))
    def wait(self, seconds: float) -> None:
        self.rig.now += seconds
        self.rig.keep(self.rig.swept().changes)

    @rule()
    def kill_and_restart(self) -> None:
        self.rig = self.rig.restarted()
        assert self.live() == []

    # Addresses and subscriptions.

    @rule(target=addresses, choice=CHOICE, number=st.integers(min_value=1, max_value=3), key=KEYS)
    @precondition(lambda self: self.live())
    def allocate(self, choice: int, number: int, key: str) -> Any:
        sid = self.pick(choice)
        value = {"number": number, "allocationKey": key}
        found = self.rig.reply(sid, ALLOCATION, "create", {"scheme": "comm", "value": value})["value"]
        assert isinstance(found, dict)
        assert {self.rig.state.owners.owner(url) for url in found["allocated"]} == {sid}
        return multiple(*found["allocated"])

    @rule(choice=CHOICE, address=addresses | OBJECTS | KEYS.filter(bool))
    @precondition(lambda self: self.live())
    def release(self, choice: int, address: str) -> None:
        sid = self.pick(choice)
        owner = self.rig.state.owners.owner(address)
        family = self.rig.state.sessions.of_runtime(sid)
        assert self.rig.reply(sid, ALLOCATION, "delete", {"resource": address})["code"] == 200
        if owner is not None and owner not in family:
            assert self.rig.state.owners.owner(address) == owner

    @rule(choice=CHOICE, names=st.lists(st.tuples(addresses | OBJECTS, SUFFIXES), min_size=1, max_size=3))
    @precondition(lambda self: self.live())
    def subscribe(self, choice: int, names: list[tuple[str, str]]) -> None:
        sid = self.pick(choice)
        owners = {base: self.rig.state.owners.owner(base) for base, _ in names}
        resources = [base + suffix for base, suffix in names]
        reply = self.rig.reply(sid, SM, "subscribe", {"resources": resources})
        assert reply["code"] in (200, 403)
        for base, owner in owners.items():
            assert self.rig.state.owners.owner(base) in ((owner,) if owner is not None else (None, sid))

    @rule(choice=CHOICE, base=addresses | OBJECTS, suffix=SUFFIXES)
    @precondition(lambda self: self.live())
    def unsubscribe(self, choice: int, base: str, suffix: str) -> None:
        sid = self.pick(choice)
        self.rig.reply(sid, SM, "unsubscribe", {"resources": [base + suffix]})
        keys = {one.key for one in self.rig.state.listeners.subscriptions(sid)}
        assert base + suffix not in keys

    @rule(choice=CHOICE, url=OBJECTS)
    @precondition(lambda self: self.live())
    def register(self, choice: int, url: str) -> None:
        sid = self.pick(choice)
        owner = self.rig.state.owners.owner(url)
        session = self.rig.state.sessions.get(sid)
        assert session is not None
        value = {"url": url, "user": "user://x/y", "descriptor": "d", "runtime": session.runtime}
        value |= {"name": "n", "schema": "s", "reporter": "r"}
        reply = self.rig.reply(sid, REGISTRY, "create", {"value": value})
        if owner not in (None, sid):
            assert reply["code"] == 403

    # Invariants.

    @invariant()
    def tables_agree(self) -> None:
        for invariant_holds in INVARIANTS:
            invariant_holds(self.rig.state)

    @invariant()
    def rows_restore_to_the_same_state(self) -> None:
        state, again = self.rig.state, self.rig.restarted().state
        assert [one.row() for one in state.sessions] == [one.row() for one in again.sessions]
        assert state.owners._sid_of == again.owners._sid_of
        assert state.owners._owned == again.owners._owned
        assert state.owners._blocks == again.owners._blocks
        assert state.listeners.index._exact.keys() == again.listeners.index._exact.keys()
        for session in state.sessions:
            assert sorted(map(str, state.listeners.subscriptions(session.sid))) == sorted(
                map(str, again.listeners.subscriptions(session.sid))
            )
        assert state.registry._entries == again.registry._entries
        assert state.registry._index == again.registry._index

    def teardown(self) -> None:
        """When everybody is gone for long enough nothing remains."""
        for sid in self.live():
            session = self.rig.state.sessions.get(sid)
            assert session is not None
            assert session.connection is not None
            self.rig.services.sessions.connection_lost(session.connection, now=self.rig.now)
        self.rig.now += 3 * 86_400
        self.rig.keep(self.rig.swept().changes)
        self.rig.now += 3 * 86_400
        self.rig.keep(self.rig.swept().changes)
        assert all(not rows for rows in self.rig.rows.values())
        state = self.rig.state
        assert not state.owners._sid_of
        assert not state.owners._blocks
        assert not state.listeners.index._exact
        assert not state.listeners.index._below
        assert not state.listeners._counts
        assert not any(state.registry._index.values())
        assert not state.sessions._by_token
        assert not state.sessions._displaced


TestSessionsOfRuntimes = SessionsOfRuntimes.TestCase
TestSessionsOfRuntimes.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
