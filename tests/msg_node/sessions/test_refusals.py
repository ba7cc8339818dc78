"""Who may open a session at all, and what is recorded and done when somebody may not."""

from __future__ import annotations

import pytest

from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.proof import Offered
from msg_node.kernel.service import Bind, CloseCode, CloseConnection, Probe
from msg_node.kernel.session import Dialect, Line, OpenRefused
from msg_node.sessions.core.session_service import OpenRefusedError, SessionService
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.limits import UNPROVED_OPENS
from protofly.message import Message
from tests.support.state_rig import DOMAIN, NODE, StateRig, body_of

ANA = f"runtime://{DOMAIN}/rt-ana"
TOKEN = {"credentials": {"kind": "bearer", "token": "secret"}}
WRONG = {"credentials": {"kind": "bearer", "token": "guess"}}


@pytest.mark.parametrize(
    ("type_", "from_", "codes"),
    [
        ("open", f"runtime://{DOMAIN}/rt/below", ["bad-header"]),
        ("open", f"hyperty://{DOMAIN}/h", ["bad-header"]),
        ("frobnicate", f"runtime://{DOMAIN}/rt", []),
    ],
)
def test_a_refused_open_is_recorded_and_an_unknown_verb_is_not(type_: str, from_: str, codes: list[str]) -> None:
    result = StateRig().session_verb(type_, from_, 1)
    assert [one.code for one in result.news] == codes


@pytest.mark.parametrize(
    ("from_", "code", "reason"),
    [
        (ANA, 200, None),
        ("runtime://alias.example/rt", 200, None),
        ("runtime:/rt", 200, None),
        ("", 400, "bad-header"),
        (f"runtime://{DOMAIN}", 400, "bad-header"),
        (f"{ANA}/sm", 400, "bad-header"),
        (f"hyperty://{DOMAIN}/rt-ana", 400, "bad-header"),
        (NODE, 403, "not-owner"),
        ("runtime://beta.example/rt", 403, "spoofed-source"),
        (f"runtime://{DOMAIN}.evil/rt", 403, "spoofed-source"),
    ],
)
def test_an_opener_is_one_runtime_of_ours_that_is_not_the_node(from_: str, code: int, reason: str | None) -> None:
    rig = StateRig()
    reply = body_of(rig.session_verb("open", from_, 1).replies[0])
    assert (reply["code"], reply.get("reason")) == (code, reason)
    assert len(rig.state.sessions) == (code == 200)


@pytest.mark.parametrize(("body", "code", "reason"), [(TOKEN, 200, None), (None, 401, "no-credentials")])
def test_a_runtime_of_another_domain_needs_a_credential(
    body: dict[str, object] | None, code: int, reason: str | None
) -> None:
    rig = StateRig(credentials=[Credential(digest_of("secret"), "runtime://beta.example/*")], allows_guests=True)
    reply = body_of(rig.session_verb("open", "runtime://beta.example/rt", 1, body).replies[0])
    assert (reply["code"], reply.get("reason")) == (code, reason)
    assert [session.is_guest for session in rig.state.sessions] == [True] * (code == 200)


def test_a_refusal_is_recorded_under_the_runtime_that_asked() -> None:
    rig = StateRig()
    assert [one.runtime_key for one in rig.session_verb("open", f"{ANA}/sm", 1).news] == [ANA]
    assert [one.runtime_key for one in rig.session_verb("open", f"hyperty://{DOMAIN}/h", 1).news] == [""]
    assert [one.runtime_key for one in rig.session_verb("open", "no address at all", 1).news] == [""]


def test_a_connection_that_fails_to_prove_itself_too_often_is_closed() -> None:
    rig = StateRig()
    closing = [CloseConnection(1, CloseCode.UNPROVED)]
    effects = [rig.session_verb("open", ANA, 1, WRONG).effects for _ in range(UNPROVED_OPENS + 1)]
    assert effects == [[]] * (UNPROVED_OPENS - 1) + [closing, closing]
    assert rig.session_verb("open", ANA, 2, WRONG).effects == []


def test_failures_before_a_session_and_of_an_earlier_connection_do_not_count() -> None:
    rig = StateRig(credentials=[Credential(digest_of("secret"), ANA)])
    for _ in range(2):
        for _ in range(UNPROVED_OPENS - 1):
            assert rig.session_verb("open", ANA, 1, WRONG).effects == []
        rig.services.sessions.connection_lost(1, now=rig.now)
    for _ in range(UNPROVED_OPENS - 1):
        assert rig.session_verb("open", ANA, 1, WRONG).effects == []
    assert body_of(rig.session_verb("open", ANA, 1, TOKEN).replies[0])["code"] == 200
    for _ in range(UNPROVED_OPENS + 1):
        assert rig.session_verb("open", ANA, 1, WRONG).effects == []


def test_failures_before_a_session_do_not_count_once_it_is_over() -> None:
    rig = StateRig(credentials=[Credential(digest_of("secret"), ANA)])
    for _ in range(UNPROVED_OPENS - 1):
        rig.session_verb("open", ANA, 1, WRONG)
    assert body_of(rig.session_verb("open", ANA, 1, TOKEN).replies[0])["code"] == 200
    rig.state.transitions.end_credential(digest_of("secret"), now=rig.now)
    assert rig.swept().effects
    assert rig.session_verb("open", ANA, 1, WRONG).effects == []


def test_refusals_for_another_reason_close_nothing() -> None:
    rig = StateRig()
    for _ in range(UNPROVED_OPENS + 1):
        assert rig.session_verb("open", f"{ANA}/sm", 1).effects == []


def test_only_an_open_that_waits_for_a_silent_connection_pings_it() -> None:
    rig = StateRig(credentials=[Credential(digest_of("secret"), ANA)])
    rig.open("rt-bo", 1)
    assert rig.session_verb("open", f"runtime://{DOMAIN}/rt-bo", 2).effects == [Probe(1)]
    assert rig.session_verb("open", f"runtime://{DOMAIN}/rt-new", 1).effects == []
    rig.session_verb("open", ANA, 3, TOKEN)
    rig.services.sessions.connection_lost(3, now=rig.now)
    assert rig.session_verb("open", ANA, 4).effects == []


@pytest.mark.parametrize("dialect", [one for one in Dialect if not one.has_token])
def test_where_there_are_no_tokens_a_second_open_is_answered_like_the_first(dialect: Dialect) -> None:
    rig = StateRig()
    first = rig.session_verb("open", ANA, 1, dialect=dialect)
    again = rig.session_verb("open", ANA, 1, dialect=dialect)
    assert body_of(again.replies[0]) == body_of(first.replies[0])
    assert (again.effects, again.changes, again.news) == ([], [], [])
    other = rig.session_verb("open", ANA, 2, dialect=dialect)
    assert (body_of(other.replies[0])["code"], other.effects) == (409, [Probe(1)])


@pytest.mark.parametrize("dialect", [one for one in Dialect if one.has_token])
def test_where_there_are_tokens_a_second_open_is_a_duplicate(dialect: Dialect) -> None:
    rig = StateRig()
    rig.session_verb("open", ANA, 1, dialect=dialect)
    again = body_of(rig.session_verb("open", ANA, 1, dialect=dialect).replies[0])
    assert (again["code"], again["reason"]) == (409, "duplicate")


def test_a_second_open_with_a_credential_renews_in_every_dialect() -> None:
    for dialect in Dialect:
        rig = StateRig(credentials=[Credential(digest_of("secret"), ANA)])
        rig.session_verb("open", ANA, 1, TOKEN, dialect=dialect)
        sid = rig.state.sessions.by_connection(1)
        assert sid is not None
        again = rig.session_verb("open", ANA, 1, TOKEN, dialect=dialect)
        assert (again.effects, [news.event for news in again.news]) == ([Bind(1, sid)], ["re-opened"])


@pytest.mark.parametrize("late", [1, "yes", [], {}])
def test_a_wish_for_late_replies_that_is_no_boolean_is_refused(late: object) -> None:
    rig = StateRig()
    reply = body_of(rig.session_verb("open", ANA, 1, {"late": late}).replies[0])
    assert (reply["code"], reply["reason"], len(rig.state.sessions)) == (400, "bad-body", 0)


def test_a_re_open_changes_the_wish_for_late_replies_only_when_it_names_it() -> None:
    rig = StateRig()
    sid, token = rig.open("rt-ana", 1, {"late": True})
    session = rig.state.sessions.get(sid)
    assert session is not None
    wishes = []
    for body in ({}, {"late": False}, {}, {"late": True}):
        reply = body_of(rig.session_verb("re-open", f"{ANA}/{token}", 1, body).replies[0])
        wishes.append((session.wants_late, reply["session"].get("late")))  # type: ignore[attr-defined]
    assert wishes == [(True, True), (False, None), (False, None), (True, True)]


def test_a_close_without_a_session_closes_the_connection_and_records_nothing() -> None:
    rig = StateRig()
    result = rig.session_verb("close", ANA, 1)
    assert (result.replies, result.effects, result.news) == ([], [CloseConnection(1, CloseCode.NORMAL)], [])


def test_an_unknown_session_is_of_no_runtime() -> None:
    rig = StateRig()
    sid, _ = rig.open("rt-ana", 1)
    assert rig.state.sessions.of_runtime(sid) == {sid}
    assert rig.state.sessions.of_runtime(sid + 1) == frozenset()


@pytest.mark.parametrize(("code", "detail"), [(Code.ADDRESS_TAKEN, "the runtime has a session"), (Code.OVERLOAD, "")])
def test_only_the_refusal_of_a_taken_runtime_says_that_it_has_a_session(code: Code, detail: str) -> None:
    error = OpenRefusedError(OpenRefused(code))
    assert (error.code, error.detail) == (code, detail)


def test_a_guest_opens_no_session_where_the_gate_of_peers_says_no() -> None:
    def refuse(domain: str, _message: Message) -> None:
        raise PeerError(Code.DOMAIN_BLOCKED, domain)

    rig = StateRig(credentials=[Credential(digest_of("g"), "runtime://beta.example/*")])
    service = SessionService(rig.state.lifecycle, rig.state.own, permit_guest=refuse)
    message = codec.build(id=1, type="open", from_="runtime://beta.example/g", to="mn:/session")
    with pytest.raises(PeerError, check=lambda error: error.code is Code.DOMAIN_BLOCKED):
        service.open(message, {}, Line(1, Offered("g")), now=rig.now, seed=rig.seed())
    assert len(rig.state.sessions) == 0
