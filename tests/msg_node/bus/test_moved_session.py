"""Who may have the session of a node that has died: by token or good proof; without one, anybody."""

from __future__ import annotations

import msgspec
import pytest

from msg_node.bus.core import moved_session
from msg_node.bus.core.moved_session import Asked, find_wanted, let_go, may_have, move_in, move_out
from msg_node.kernel.changes import Change, Journal, Table
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.session import OpenRefused, Session
from msg_node.registries.core import policy_names
from msg_node.registries.core.policy_names import PolicyNameRow, PolicyNames
from protofly.errors import Code
from tests.support.runtime_rig import runtime_address
from tests.support.state_rig import DOMAIN, SM, StateRig

ANA = runtime_address("ana")
NOW = 1000.0


@pytest.mark.parametrize(
    ("stored", "asked", "is_given"),
    [
        ("", Asked(runtime_key=ANA), True),
        ("ana", Asked(runtime_key=ANA), False),
        ("ana", Asked(runtime_key=ANA, credential=digest_of("eve")), False),
        ("ana", Asked(runtime_key=ANA, credential=digest_of("ana")), True),
        ("ana", Asked(runtime_key=ANA, credential=digest_of("eve"), is_in_full=True), True),
        ("ana", Asked(runtime_key=ANA, session_address=f"{ANA}/token"), True),
    ],
)
def test_session_of_a_dead_node_goes_to_its_token_or_a_good_proof(stored: str, asked: Asked, is_given: bool) -> None:
    rig = StateRig(credentials=[Credential(digest_of("ana"), ANA)])
    sid, _ = rig.open("ana", 1)
    session = rig.state.sessions.get(sid)
    assert session is not None
    row = msgspec.structs.replace(session.row(), credential=stored and digest_of(stored))
    refused = may_have(rig.state, asked, row, now=NOW)
    assert (refused is None) is is_given
    assert refused is None or refused.code is Code.ADDRESS_TAKEN


ASKED = Asked(runtime_key=ANA)


def a_session(*, has_proof: bool, is_live: bool) -> tuple[StateRig, Session]:
    rig = StateRig(credentials=[Credential(digest_of("ana"), ANA)])
    body = {"credentials": {"kind": "bearer", "token": "ana"}} if has_proof else None
    sid, _ = rig.open("ana", 1, body)
    if not is_live:
        rig.services.sessions.connection_lost(1, now=rig.now)
    session = rig.state.sessions.get(sid)
    assert session is not None
    return rig, session


@pytest.mark.parametrize("is_live", [True, False])
def test_session_that_a_runtime_has_proved_goes_to_its_proof_and_to_nobody_without_one(is_live: bool) -> None:
    rig, session = a_session(has_proof=True, is_live=is_live)
    proven = msgspec.structs.replace(ASKED, credential=session.proof.credential)
    assert find_wanted(rig.state, proven, now=rig.now) is session
    for asked in (ASKED, msgspec.structs.replace(ASKED, credential=digest_of("eve"))):
        refused = find_wanted(rig.state, asked, now=rig.now + 1000)
        assert isinstance(refused, OpenRefused)
        assert refused.code is Code.ADDRESS_TAKEN
        assert refused.retry_after_seconds == rig.state.transitions.rules.grace_seconds


def test_session_without_a_proof_goes_once_it_is_lost_or_silent() -> None:
    rig, session = a_session(has_proof=False, is_live=False)
    assert find_wanted(rig.state, ASKED, now=rig.now) is session
    rig, session = a_session(has_proof=False, is_live=True)
    assert isinstance(find_wanted(rig.state, ASKED, now=rig.now), OpenRefused)
    silent_seconds = rig.state.transitions.rules.take_over_grace_seconds
    assert find_wanted(rig.state, ASKED, now=rig.now + silent_seconds) is session


def test_there_is_no_session_of_a_runtime_that_is_not_here_and_none_of_an_unknown_token() -> None:
    rig, _ = a_session(has_proof=False, is_live=True)
    for asked in (
        Asked(runtime_key=runtime_address("eve")),
        msgspec.structs.replace(ASKED, session_address=f"{ANA}/x"),
    ):
        assert find_wanted(rig.state, asked, now=rig.now) is None


@pytest.mark.parametrize(("room", "number"), [(0, 3), (-1, 2)])
def test_as_many_things_go_along_as_fit_and_the_rest_stays(
    room: int, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, session = a_session(has_proof=False, is_live=True)
    agent = f"thing://{DOMAIN}/agent"
    rig.reply(session.sid, SM, "subscribe", {"resources": [agent, f"comm://{DOMAIN}/room"]})
    for name in "abc":
        rig.state.twin.describe(f"{agent}/{name}", f"{agent}/{name}", b'{"x":1}', now=rig.now)
    rig.state.twin.describe(f"{agent}2/d", f"{agent}2/d", b'{"x":1}', now=rig.now)
    monkeypatch.setattr(moved_session, "THINGS_BYTES", 3 * len(b'{"x":1}') + room)
    moved = move_out(rig.state, session)
    assert len([*rig.state.twin.things()]) == 4
    let_go(rig.state, session, moved)
    assert set(moved.keys) == {ANA, agent, f"comm://{DOMAIN}/room"}
    assert [thing.url for thing in moved.things] == [f"{agent}/{name}" for name in "abc"[:number]]
    assert [key for key, _ in rig.state.twin.things()] == [*(f"{agent}/{n}" for n in "abc"[number:]), f"{agent}2/d"]
    there = StateRig()
    move_in(there.state, moved, now=there.now)
    assert [key for key, _ in there.state.twin.things(agent)] == [f"{agent}/{name}" for name in "abc"[:number]]
    assert {row.key for row in there.state.listeners.subscriptions(1)} == {agent, f"comm://{DOMAIN}/room"}


def test_a_session_arrives_without_the_addresses_that_are_somebody_else_s_by_now() -> None:
    rig, session = a_session(has_proof=False, is_live=True)
    one, other, far = f"comm://{DOMAIN}/one", f"comm://{DOMAIN}/other", "comm://beta.example/x/changes"
    rig.reply(session.sid, SM, "subscribe", {"resources": [one, other, far, f"{one}/changes", f"{other}/changes"]})
    for key in (one, other):
        rig.state.policy_names.name(key, PolicyNameRow("policy", ANA, session.sid))
    moved = move_out(rig.state, session)
    assert moved.with_only({one, other, ANA}) == moved
    left = moved.with_only({other})
    assert {*left.policies} == {other}
    assert [row.url for row in left.addresses] == [other]
    assert {row.key for row in left.subscriptions} == {other, f"{other}/changes", far}
    assert left.session == moved.session
    there = StateRig()
    changes = move_in(there.state, left, now=there.now)
    row = there.state.policy_names.find(other)
    assert row is not None
    assert (row.document, row.sid, there.state.policy_names.find(one)) == ("policy", 1, None)
    assert Change(Table.OBJECT_POLICIES, other, row) in changes


def test_policies_that_move_in_are_taken_whatever_the_bounds_are_and_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(policy_names, "OBJECT_POLICIES", 1)
    names = PolicyNames(Journal(), lambda key: {"a": 1, "b": 7, "c": 7}.get(key))
    names.name("a", PolicyNameRow("policy", "by", 1))
    arrived: list[PolicyNameRow] = []
    names.on_arrival = arrived.extend
    moved = {key: PolicyNameRow(f"policy-{key}", "by", 3) for key in "bc"}
    assert names.move_in(moved, 7) == {key: PolicyNameRow(f"policy-{key}", "by", 7) for key in "bc"}
    assert [row.document for row in arrived] == ["policy-b", "policy-c"]
    assert (len(names), {*names.of_session(7)}, names.of_session(3)) == (3, {"b", "c"}, {})


@pytest.mark.parametrize("is_displaced", [False, True])
def test_only_a_session_that_nobody_displaced_speaks_for_its_runtime_where_it_arrives(*, is_displaced: bool) -> None:
    rig, session = a_session(has_proof=False, is_live=True)
    moved = move_out(rig.state, session)
    moved = msgspec.structs.replace(moved, session=msgspec.structs.replace(moved.session, is_displaced=is_displaced))
    there = StateRig()
    move_in(there.state, moved, now=there.now)
    assert there.state.owners.owner(ANA) == (None if is_displaced else 1)
