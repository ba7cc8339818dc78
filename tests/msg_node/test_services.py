"""Messages to the node itself: sessions over the wire form, dispatch, and what comes back after `kill -9`."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.kernel.changes import Table
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.directories import Source
from msg_node.kernel.service import Bind, CloseCode, CloseConnection, Ended, Probe
from msg_node.kernel.session import Line
from protofly import codec
from protofly.errors import Code
from protofly.limits import RELEASED_AT_ONCE
from tests.support.state_rig import ALLOCATION, DOMAIN, NODE, REGISTRY, SM, StateRig, body_of

ANA = f"runtime://{DOMAIN}/rt-ana"
ROOM = f"comm://{DOMAIN}/room-51"


@pytest.fixture
def rig() -> StateRig:
    return StateRig()


# Sessions.


def test_open_gives_a_token_and_binds_the_connection(rig: StateRig) -> None:
    result = rig.session_verb("OPEN".lower(), ANA, 5)
    (reply,) = result.replies
    body = body_of(reply)
    assert (reply.type, reply.from_, reply.to, reply.id) == ("response", "mn:/session", ANA, b"1")
    assert (body["code"], body["description"], body["desc"]) == (200, "OK", "OK")
    assert isinstance(body["runtimeToken"], str)
    assert isinstance(body["session"], dict)
    assert body["session"]["listening"] == [ANA, f"{ANA}/sm"]
    (sid,) = [session.sid for session in rig.state.sessions]
    assert result.effects == [Bind(5, sid)]
    assert [change.table for change in result.changes] == [Table.SESSIONS]


@pytest.mark.parametrize(
    ("from_", "code", "reason"),
    [
        ("hyperty://alpha.example/x", 400, "bad-header"),
        ("runtime://alpha.example", 400, "bad-header"),
        ("runtime://alpha.example/", 400, "bad-header"),
        (f"{ANA}/sm", 400, "bad-header"),
        ("runtime://alpha.example//x", 400, "bad-header"),
        ("rt-ana", 400, "bad-header"),
        ("runtime://alpha.example/<x>", 400, "bad-header"),
        (NODE, 403, "not-owner"),
        (NODE.replace("runtime", "hyperty-runtime"), 403, "not-owner"),
        ("runtime://beta.example/rt-bo", 403, "spoofed-source"),
        ("runtime://alpha.example.evil/rt-ana", 403, "spoofed-source"),
    ],
)
def test_open_needs_a_runtime_address_of_this_domain(rig: StateRig, from_: str, code: int, reason: str) -> None:
    result = rig.session_verb("open", from_, 1)
    body = body_of(result.replies[0])
    assert (body["code"], body["reason"], result.effects, result.changes) == (code, reason, [], [])
    assert len(rig.state.sessions) == 0


@pytest.mark.parametrize("from_", ["runtime:/alice", f"hyperty-runtime://{DOMAIN}/x", "runtime://alias.example/x"])
def test_open_accepts_all_spellings_of_our_runtimes(rig: StateRig, from_: str) -> None:
    assert body_of(rig.session_verb("open", from_, 1).replies[0])["code"] == 200


def test_guest_is_let_in_only_by_setting_and_leaves_nothing() -> None:
    rig = StateRig(allows_guests=True, credentials=[Credential(digest_of("of bo"), "runtime://beta.example/rt-bo")])
    refused = rig.session_verb("open", "runtime://beta.example/rt-bo", 1)
    assert body_of(refused.replies[0])["reason"] == "no-credentials"
    rig.session_verb("open", "runtime://beta.example/rt-bo", 1, bearer="of bo")
    sid = rig.state.sessions.by_connection(1)
    assert sid is not None
    rig.reply(sid, ALLOCATION, "create")
    result = rig.services.sessions.connection_lost(1, now=rig.now)
    rig.keep(result.changes)
    assert result.effects == [Ended(sid)]
    assert all(not rows for rows in rig.rows.values())
    assert rig.state.owners.owner("runtime://beta.example/rt-bo") is None


def test_second_opener_is_refused_and_the_first_is_probed(rig: StateRig) -> None:
    sid, token = rig.open("rt-ana", 1)
    result = rig.session_verb("open", ANA, 2)
    body = body_of(result.replies[0])
    assert (body["code"], body["reason"], body["value"]) == (409, "address-taken", {"retryAfter": 30.0})
    assert result.effects == [Probe(1)]
    assert token.encode() not in result.replies[0].raw
    rig.now += 31
    result = rig.session_verb("open", ANA, 2)
    assert result.effects[0] == CloseConnection(1, CloseCode.TAKEN_OVER)
    assert rig.services.sessions.connection_lost(1, now=rig.now).effects == []
    assert rig.state.owners.owner(ANA) != sid


def test_re_open_brings_back_everything(rig: StateRig) -> None:
    sid, token = rig.open("rt-ana", 1)
    rig.reply(sid, SM, "subscribe", {"resources": [ROOM, f"{ROOM}/children/m"]})
    rig.services.sessions.connection_lost(1, now=rig.now)
    result = rig.session_verb("re-open", f"{ANA}/{token}", 2)
    assert body_of(result.replies[0])["code"] == 200
    assert result.effects == [Bind(2, sid)]
    assert rig.state.owners.owner(ROOM) == sid
    assert rig.state.listeners.targets(f"{ROOM}/children/m") == (sid,)


@pytest.mark.parametrize("type_", ["re-open", "reopen", "re_open", "RE-OPEN"])
def test_failed_re_open_says_500_as_stubs_of_this_dialect_know_it(rig: StateRig, type_: str) -> None:
    raw = codec.encode_message(id=1, type=type_, from_=f"{ANA}/wrong", to="mn:/session")
    result = rig.services.sessions.handle_session(codec.decode(raw)[0], Line(1), now=rig.now, seed=rig.seed())
    body = body_of(result.replies[0])
    assert (body["code"], body["reason"]) == (500, "bad-token")
    assert str(body["desc"]).startswith("Reconnection fail.")


def test_close_releases_everything_without_a_reply(rig: StateRig) -> None:
    sid, token = rig.open("rt-ana", 1)
    rig.reply(sid, SM, "subscribe", {"resources": [ROOM, f"{ROOM}/changes"]})
    rig.reply(sid, ALLOCATION, "create")
    result = rig.session_verb("close", f"{ANA}/{token}", 1)
    assert (result.replies, result.effects) == ([], [Ended(sid), CloseConnection(1, CloseCode.NORMAL)])
    assert all(not rows for rows in rig.rows.values())
    assert rig.state.owners.owner(ROOM) is None
    assert rig.state.owners.owner(ANA) is None
    assert rig.state.listeners.targets(f"{ROOM}/changes") == ()
    assert body_of(rig.session_verb("re-open", f"{ANA}/{token}", 2).replies[0])["code"] == 500


def test_close_of_a_connection_without_session_closes_it(rig: StateRig) -> None:
    assert rig.session_verb("close", ANA, 1).effects == [CloseConnection(1, CloseCode.NORMAL)]


def test_ping_is_answered_with_pong(rig: StateRig) -> None:
    (pong,) = rig.session_verb("ping", ANA, 1).replies
    assert (pong.type, pong.id, pong.from_, pong.to) == ("pong", b"1", "mn:/session", ANA)


def test_other_verbs_and_responses_to_sessions(rig: StateRig) -> None:
    assert body_of(rig.session_verb("read", ANA, 1).replies[0])["reason"] == "bad-type"
    assert rig.session_verb("response", ANA, 1, {"code": 200}).replies == []


@pytest.mark.parametrize(
    ("body", "bearer", "code"),
    [
        ({"credentials": {"kind": "bearer", "token": "secret"}}, "", 200),
        ({"credentials": {"token": "secret"}}, "", 200),
        (None, "secret", 200),
        ({"credentials": {"kind": "bearer", "token": "wrong"}}, "secret", 401),
        ({"credentials": {"kind": "magic", "token": "secret"}}, "", 401),
        ({"credentials": {"kind": "anonymous"}}, "", 401),
        ({"credentials": "secret"}, "", 401),
        (None, "", 401),
    ],
)
def test_credentials_come_in_the_body_or_in_the_header(body: dict[str, object] | None, bearer: str, code: int) -> None:
    rig = StateRig(credentials=[Credential(digest_of("secret"), ANA)], allows_anonymous=False)
    result = rig.session_verb("open", ANA, 1, body, bearer)
    assert body_of(result.replies[0])["code"] == code


def test_session_ends_after_grace_and_its_holdings_with_it(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    rig.reply(sid, SM, "subscribe", {"resources": [ROOM]})
    assert rig.services.sessions.connection_lost(1, now=rig.now).changes == []  # parking writes nothing
    rig.now += 120
    result = rig.swept()
    rig.keep(result.changes)
    assert result.effects == [Ended(sid)]
    assert all(not rows for rows in rig.rows.values())


def test_sessions_that_end_together_let_go_what_they_held_in_pieces(rig: StateRig) -> None:
    each = RELEASED_AT_ONCE // 2
    for number in range(5):
        sid, _ = rig.open(f"rt-{number}", number)
        rig.reply(sid, ALLOCATION, "create", {"value": {"number": each}})
        rig.services.sessions.connection_lost(number, now=rig.now)
    rig.now += 120
    pieces = []
    while changes := rig.services.sessions.sweep(now=rig.now).changes:
        pieces.append(len(changes))
    assert pieces == [2 * (1 + each), 2 * (1 + each), 1 + each]


def test_sessions_are_notified_before_the_node_stops(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    notices = rig.services.sessions.draining(f"runtime://{DOMAIN}/mn-2", [sid, 99])
    assert notices.keys() == {sid}
    message = notices[sid]
    assert (message.type, message.from_, message.to) == ("update", "mn:/session", f"{ANA}/status")
    assert json.loads(message.body) == {"value": "draining", "resource": f"runtime://{DOMAIN}/mn-2"}


# Dispatch.


@pytest.mark.parametrize(
    ("to", "code", "reason"),
    [
        (f"domain://msg-node.{DOMAIN}/nothing", 404, "no-such-service"),
        (f"domain://msg-node.{DOMAIN}/sm/deeper", 404, "no-such-service"),
        (f"domain://msg-node.{DOMAIN}/peers", 501, "connector-off"),
        (f"domain://idm.{DOMAIN}", 501, "connector-off"),
        ("global://registry/", 501, "connector-off"),
        ("global://registry.", 501, "connector-off"),
    ],
)
def test_what_is_not_served_is_refused_with_its_reason(rig: StateRig, to: str, code: int, reason: str) -> None:
    sid, _ = rig.open("rt-ana", 1)
    assert rig.services.serves(codec.build(id=1, type="read", from_=ANA, to=to).to_key)
    reply = rig.reply(sid, to, "read")
    assert (reply["code"], reply["reason"], "desc" in reply) == (code, reason, True)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (SM, True),
        (ALLOCATION, True),
        (REGISTRY, True),
        ("domain://registry.alias.example", True),
        ("domain://msg-node.beta.example/sm", False),
        ("domain://msg-node.alpha.example.evil/sm", False),
        ("domain://registry.beta.example", False),
        (ANA, False),
    ],
)
def test_services_are_known_by_key(rig: StateRig, key: str, expected: bool) -> None:
    assert rig.services.serves(key) is expected


def test_registry_spellings_are_one_service(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    for to in (f"{REGISTRY}.", f"{REGISTRY}/", f"domain://REGISTRY.{DOMAIN}"):
        (reply,) = rig.ask(sid, to, "read", {"resource": "nothing"}).replies
        assert (reply.from_, body_of(reply)["reason"]) == (to, "not-registered")


def test_node_says_what_it_is(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    value = rig.reply(sid, f"domain://msg-node.{DOMAIN}", "read")["value"]
    assert isinstance(value, dict)
    assert value["name"] == NODE
    assert value["guestStubs"] is True
    assert SM in value["functions"]
    assert rig.reply(sid, f"domain://msg-node.{DOMAIN}", "delete")["code"] == 405


def test_response_to_a_service_is_never_answered(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    result = rig.ask(sid, SM, "response", {"code": 200, "resources": [ROOM]})
    assert not result.replies
    assert not result.changes


def test_refused_request_changes_nothing(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    before = {table: dict(rows) for table, rows in rig.rows.items()}
    result = rig.ask(sid, ALLOCATION, "create", {"value": {"number": 101}})
    assert result.changes == []
    assert rig.rows == before


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
_names = st.sampled_from(
    ["resource", "resources", "subscribe", "unsubscribe", "childrenResources", "children", "source", "scheme", "value",
     "number", "allocationKey", "criteria", "attribute", "method", "page", "shape", "credentials"]
)  # fmt: skip
_addresses = st.sampled_from(
    [ROOM, f"{ROOM}/changes", ANA, f"hyperty://{DOMAIN}/h", "/hyperty/user/user://x/y", "x", ""]
)
_values = _json | _addresses | st.lists(_addresses) | st.dictionaries(_names | st.just("url"), _json | _addresses)


@given(
    to=st.sampled_from([SM, ALLOCATION, REGISTRY, "mn:/session"]),
    type_=st.sampled_from(["create", "read", "update", "delete", "subscribe", "unsubscribe", "open", "re-open"]),
    body=st.dictionaries(_names, _values, max_size=5),
)
def test_any_body_gives_an_answer_and_consistent_rows(to: str, type_: str, body: dict[str, object]) -> None:
    rig = StateRig()
    sid, _ = rig.open("rt-ana", 1)
    raw = codec.encode_message(id=1, type=type_, from_=ANA, to=to, body=json.dumps(body).encode())
    message = codec.decode(raw)[0]
    if to == "mn:/session":
        result = rig.services.sessions.handle_session(message, Line(2), now=rig.now, seed=rig.seed())
    else:
        result = rig.services.handle(message, sid, now=rig.now, seed=rig.seed())
    rig.keep(result.changes)
    assert len(result.replies) == 1
    assert rig.restarted().state.owners.owned(sid) == rig.state.owners.owned(sid)


# The source check.


@pytest.mark.parametrize(
    ("from_key", "is_response", "expected"),
    [
        (ANA, False, Source.OWN),
        (f"{ANA}/sm", False, Source.OWN),
        (f"hyperty://{DOMAIN}/h-ana", False, Source.OWN),
        (f"hyperty://{DOMAIN}/h-ana/x", False, Source.OWN),
        (f"runtime://{DOMAIN}/rt-bo", False, Source.NOT_OWNER),
        (f"runtime://{DOMAIN}/rt-bo/sm", False, Source.NOT_OWNER),
        (f"{NODE}/registry", False, Source.NOT_OWNER),
        (NODE, False, Source.NOT_OWNER),
        (ROOM, False, Source.NOT_OWNER),
        (f"{ROOM}/subscription", False, Source.NOT_OWNER),
        (f"{ROOM}/changes", False, Source.NOT_OWNER),
        (f"{ROOM}/changes", True, Source.SUBSCRIBED),
        (f"{ROOM}/children/m", True, Source.NOT_OWNER),
        ("comm://beta.example/r/changes", True, Source.SUBSCRIBED),
        ("comm://beta.example/r", False, Source.SPOOFED),
        ("hyperty://alpha.example.evil/h", False, Source.SPOOFED),
        (f"domain://registry.{DOMAIN}", False, Source.SPOOFED),
        ("mn:/session", False, Source.SPOOFED),
        ("global://registry", False, Source.SPOOFED),
        ("publisher", False, Source.LOCAL_NAME),
        (f"hyperty://{DOMAIN}/unowned", False, Source.LEARNABLE),
        (f"runtime://{DOMAIN}/not-connected", False, Source.LEARNABLE),
    ],
)
def test_from_is_judged(rig: StateRig, from_key: str, is_response: bool, expected: Source) -> None:
    ana, _ = rig.open("rt-ana", 1)
    bo, _ = rig.open("rt-bo", 2)
    rig.reply(bo, SM, "subscribe", {"resources": [ROOM]})
    wanted = [f"hyperty://{DOMAIN}/h-ana", f"{ROOM}/changes", "comm://beta.example/r/changes"]
    rig.reply(ana, SM, "subscribe", {"resources": wanted})
    assert rig.state.senders.source_of(ana, from_key, is_response=is_response) is expected


def test_responder_may_answer_for_what_it_was_asked_as(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    bo, _ = rig.open("rt-bo", 2)
    rig.reply(bo, SM, "subscribe", {"resources": [ROOM]})
    assert rig.state.senders.source_of(ana, ROOM, is_response=True, was_addressed=True) is Source.SUBSCRIBED
    assert rig.state.senders.source_of(ana, ROOM, was_addressed=True) is Source.NOT_OWNER


def test_refusing_sources_have_their_codes() -> None:
    assert {source: source.code for source in Source if source.code} == {
        Source.NOT_OWNER: Code.NOT_OWNER,
        Source.SPOOFED: Code.SPOOFED_SOURCE,
    }


# Restart.


def test_after_kill_everything_is_parked_and_re_open_works(rig: StateRig) -> None:
    sid, token = rig.open("rt-ana", 1)
    allocated = rig.reply(sid, ALLOCATION, "create", {"value": {"number": 3, "allocationKey": "block"}})["value"]
    rig.reply(sid, SM, "subscribe", {"resources": [ROOM, f"{ROOM}/children/"]})
    assert isinstance(allocated, dict)
    again = rig.restarted()
    session = again.state.sessions.get(sid)
    assert session is not None
    assert not session.is_live
    assert again.state.owners.owner(ANA) == sid
    assert [again.state.owners.owner(url) for url in allocated["allocated"]] == [sid] * 3
    assert again.state.listeners.targets(f"{ROOM}/children/x") == (sid,)
    assert body_of(again.session_verb("re-open", f"{ANA}/{token}", 1).replies[0])["code"] == 200
    assert again.reply(sid, ALLOCATION, "delete", {"resource": "block"})["code"] == 200
    assert again.state.owners.count(sid) == 1


def test_nobody_gets_at_parked_holdings_without_the_token(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    rig.reply(sid, SM, "subscribe", {"resources": [ROOM]})
    again = rig.restarted()
    eve, _ = again.open("rt-ana", 7)  # the same runtime address, no proof
    assert eve != sid
    assert again.reply(eve, SM, "subscribe", {"resources": [ROOM]})["code"] == 403
    assert again.state.owners.owner(ROOM) == sid


def test_rows_that_belong_to_nothing_are_deleted_at_restart(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    rig.reply(sid, SM, "subscribe", {"resources": [ROOM]})
    rig.rows[Table.SESSIONS].clear()
    again = rig.restarted()
    assert all(not rows for rows in again.rows.values())
    assert again.state.owners.owner(ROOM) is None


def test_no_token_is_ever_stored(rig: StateRig) -> None:
    rig = StateRig(credentials=[Credential(digest_of("bearer-secret"), ANA)])
    _, token = rig.open("rt-ana", 1, {"credentials": {"token": "bearer-secret"}})
    everything = b"".join(row for rows in rig.rows.values() for row in rows.values())
    assert token.encode() not in everything
    assert b"bearer-secret" not in everything
