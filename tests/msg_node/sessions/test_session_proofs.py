"""What a proof does to a session: who may take it over, how it ends with the proof, how it is renewed.

Pure: the services over rows in memory.
"""

from __future__ import annotations

from typing import Any

import pytest

from msg_node.kernel.certificates import CertificateEntry, PeerCertificate
from msg_node.kernel.credentials import CertificateRules, Credential, Credentials, digest_of
from msg_node.kernel.proof import Offered
from msg_node.kernel.registrations import Status, StatusChange
from msg_node.kernel.service import Bind, CloseCode, CloseConnection, Ended, Notice, Parked, ServiceResult
from msg_node.kernel.session import Dialect, Line
from msg_node.sessions.core.session_service import PROOF_OVER, RECONNECTION_FAIL, SessionService
from msg_node.sessions.core.transitions import SessionRules, take_rules_over
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.limits import OVERDUE_AT_ONCE, TAKE_OVER_GRACE_SECONDS
from protofly.message import Message
from tests.support.state_rig import ALLOCATION, DOMAIN, GRACE_SECONDS, SM, StateRig, body_of
from tests.support.token_issuer import TokenIssuer

ANA = f"runtime://{DOMAIN}/rt-ana"
LOGIN = TokenIssuer()
NOW = 1_000_000.0
SKEW = 60.0
LIFE = 300.0


def gate(*, needs_certificate: bool = False, allows_anonymous: bool = True) -> Credentials:
    entry = CertificateEntry(f"runtime://{DOMAIN}/rt-*", subject="CN=lab", roles=frozenset({"lab"}))
    made = Credentials(
        [
            Credential(digest_of("ana's"), ANA, frozenset({"operator"})),
            Credential(digest_of("pool's"), f"runtime://{DOMAIN}/*"),
        ],
        issuers=[LOGIN.rules(roles_claim="roles")],
        allows_anonymous=allows_anonymous,
        certificates=CertificateRules((entry,), frozenset({DOMAIN}), is_needed=needs_certificate),
    )
    made.set_issuer_keys(LOGIN.issuer, LOGIN.keys)
    return made


@pytest.fixture
def rig() -> StateRig:
    return StateRig(gate=gate())


def token(runtime: object = ANA, *, now: float = NOW, **claims: Any) -> dict[str, object]:
    return {"credentials": {"kind": "bearer", "token": LOGIN.token(runtime, now=now, **claims)}}


def with_(secret: str) -> dict[str, object]:
    return {"credentials": {"kind": "bearer", "token": secret}}


def reply_of(result: ServiceResult) -> dict[str, object]:
    (reply,) = result.replies
    return body_of(reply)


def opened(rig: StateRig, connection: int, body: dict[str, object] | None, type_: str = "open") -> tuple[int, str]:
    reply = reply_of(rig.session_verb(type_, ANA, connection, body))
    assert reply["code"] == 200, reply
    sid = rig.state.sessions.by_connection(connection)
    assert sid is not None
    return sid, str(reply["runtimeToken"])


def expires_in(result: ServiceResult) -> object:
    session = reply_of(result)["session"]
    assert isinstance(session, dict)
    return session.get("expires")


# Who may take what over.

PROOFS: dict[str, dict[str, object] | None] = {
    "nothing": None,
    "ana's token": with_("ana's"),
    "pool's token": with_("pool's"),
    "ana's JWT": token(),
    "JWT of a pool": token(f"runtime://{DOMAIN}/*", sub="pool"),
    "JWT of another pool": token(f"runtime://{DOMAIN}/rt-*", sub="other"),
}
IN_FULL = ("ana's token", "ana's JWT")


def may_take(first: str, second: str) -> bool:
    """The rule: a proof that names the runtime always may; a pattern only where the same holder or nobody was."""
    if second == "nothing":
        return False
    return second in IN_FULL or first in ("nothing", second)


@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize("second", PROOFS)
@pytest.mark.parametrize("first", PROOFS)
def test_who_takes_over_from_whom(rig: StateRig, first: str, second: str, is_live: bool) -> None:
    sid, old = opened(rig, 1, PROOFS[first])
    if not is_live:
        rig.services.sessions.connection_lost(1, now=rig.now)
    result = rig.session_verb("open", ANA, 2, PROOFS[second])
    reply = reply_of(result)
    if may_take(first, second):
        assert (reply["code"], rig.state.sessions.by_connection(2)) == (200, sid)
        closes = [CloseConnection(1, CloseCode.TAKEN_OVER)] if is_live else []
        assert [one for one in result.effects if isinstance(one, CloseConnection)] == closes
        assert result.notices == ([Notice(1, ANA, "taken-over")] if is_live else [])
        assert [news.event for news in result.news] == (["taken-over"] if is_live else []) + ["re-opened"]
        assert reply_of(rig.session_verb("re-open", f"{ANA}/{old}", 3))["code"] == 500  # its token is a new one
    elif first == second == "nothing" and not is_live:
        assert reply["code"] == 200  # a session of its own; the older one keeps what it has until its grace ends
        assert rig.state.sessions.by_connection(2) != sid
    else:
        assert (reply["code"], reply["reason"]) == (409, "address-taken")
        assert old not in result.replies[0].raw.decode()
        assert [news.event for news in result.news] == ["refused"]
        assert rig.state.sessions.by_runtime(ANA) == sid


def test_a_pool_may_take_over_when_the_holders_proof_is_no_longer_one() -> None:
    rig = StateRig(gate=gate())
    sid, _ = opened(rig, 1, with_("pool's"))
    rig._gate = Credentials([Credential(digest_of("new pool's"), f"runtime://{DOMAIN}/*")])
    rig = rig.restarted()
    assert opened(rig, 2, with_("new pool's"))[0] == sid


# The end of a proof.


def test_the_open_reply_says_when_the_proof_ends(rig: StateRig) -> None:
    assert expires_in(rig.session_verb("open", ANA, 1, token())) == LIFE + SKEW
    assert expires_in(rig.session_verb("open", f"{ANA}2", 2, with_("pool's"))) is None
    assert expires_in(rig.session_verb("open", f"{ANA}3", 3)) is None


def test_a_session_whose_proof_ends_is_notified_and_parked(rig: StateRig) -> None:
    sid, session_token = opened(rig, 1, token())
    rig.now += LIFE + SKEW - 1
    assert rig.swept().effects == []
    rig.now += 1
    result = rig.swept()
    assert result.effects == [Parked(sid), CloseConnection(1, CloseCode.PROOF_EXPIRED)]
    assert result.notices == [Notice(1, ANA, "expired", "bad-token")]
    assert [(news.event, news.code) for news in result.news] == [("lost", "bad-token")]
    assert rig.services.sessions.connection_lost(1, now=rig.now).news == []
    notice = rig.services.notice(result.notices[0])
    assert (notice.type, notice.from_, notice.to) == ("update", "mn:/session", f"{ANA}/status")
    assert body_of(notice) == {"value": "expired", "reason": "bad-token"}
    again = reply_of(rig.session_verb("re-open", f"{ANA}/{session_token}", 2))
    assert (again["code"], again["reason"], again["desc"]) == (500, "bad-token", PROOF_OVER)


def test_an_expired_session_comes_back_whole_with_a_fresh_token(rig: StateRig) -> None:
    sid, session_token = opened(rig, 1, token())
    address = rig.reply(sid, ALLOCATION, "create", {"scheme": "comm", "value": {"number": 1}})["value"]
    rig.reply(sid, SM, "subscribe", {"resources": ["comm://beta.example/room-1/changes"], "source": ANA})
    held = rig.state.lifecycle.holdings(sid)
    rig.now += LIFE + SKEW
    rig.keep(rig.swept().changes)
    result = rig.session_verb("re-open", f"{ANA}/{session_token}", 2, token(now=rig.now))
    assert reply_of(result)["code"] == 200
    assert expires_in(result) == LIFE + SKEW
    assert rig.state.lifecycle.holdings(sid) == held
    assert address


def test_an_expired_session_ends_with_its_grace(rig: StateRig) -> None:
    sid, _ = opened(rig, 1, token())
    rig.reply(sid, ALLOCATION, "create", {"scheme": "comm", "value": {"number": 2}})
    rig.now += LIFE + SKEW
    rig.swept()
    rig.now += GRACE_SECONDS
    result = rig.swept()
    assert result.effects == [Ended(sid)]
    assert [(news.event, news.addresses) for news in result.news] == [("expired", 2)]
    assert len(rig.state.sessions) == 0


UNREADABLE: tuple[object, ...] = (
    {},
    {"kind": "bearer"},
    {"kind": "bearer", "token": ""},
    {"kind": 1},
    {"kind": "password", "token": "ana's"},
    {"token": None},
    "secret",
    ["x"],
    7,
)


@pytest.mark.parametrize("credentials", UNREADABLE)
@pytest.mark.parametrize("bearer", ["", "ana's"])
def test_credentials_that_cannot_be_read_open_no_session_in_the_name_of_nobody(
    rig: StateRig, credentials: object, bearer: str
) -> None:
    result = rig.session_verb("open", ANA, 1, {"credentials": credentials}, bearer=bearer)
    assert (reply_of(result)["code"], reply_of(result)["reason"]) == (401, "bad-token")
    assert len(rig.state.sessions) == 0


@pytest.mark.parametrize("body", [{}, {"credentials": None}, {"credentials": {"kind": "anonymous"}}])
def test_who_sends_no_credentials_is_anonymous(rig: StateRig, body: dict[str, object]) -> None:
    sid, _ = opened(rig, 1, body)
    session = rig.state.sessions.get(sid)
    assert session is not None
    assert session.proof.credential == ""


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (with_("nonsense"), 401, "bad-token"),
        (token(now=NOW - 1000), 401, "bad-token"),
        (token("runtime://alpha.example/rt-bo"), 401, "bad-token"),
        ({"credentials": {"kind": "magic"}}, 401, "bad-token"),
        ({"credentials": {"kind": "bearer", "token": 7}}, 401, "bad-token"),
    ],
)
def test_bad_credentials_in_a_re_open_are_refused_and_change_nothing(
    rig: StateRig, body: dict[str, object], code: int, reason: str
) -> None:
    sid, session_token = opened(rig, 1, token())
    reply = reply_of(rig.session_verb("re-open", f"{ANA}/{session_token}", 1, body))
    assert (reply["code"], reply["reason"]) == (code, reason)
    session = rig.state.sessions.get(sid)
    assert session is not None
    assert session.proof.expires_at == NOW + LIFE + SKEW


def test_an_old_token_in_the_header_does_not_keep_a_session_from_coming_back(rig: StateRig) -> None:
    sid, session_token = opened(rig, 1, with_("ana's"))
    old = LOGIN.token(ANA, now=NOW - 5000)
    assert reply_of(rig.session_verb("re-open", f"{ANA}/{session_token}", 2, bearer=old))["code"] == 200
    assert rig.state.sessions.by_connection(2) == sid


# Renewal.


@pytest.mark.parametrize("verb", ["open", "re-open"])
def test_a_fresh_token_on_the_same_connection_renews(rig: StateRig, verb: str) -> None:
    sid, session_token = opened(rig, 1, token())
    rig.now += 200
    from_ = ANA if verb == "open" else f"{ANA}/{session_token}"
    result = rig.session_verb(verb, from_, 1, token(now=rig.now))
    assert reply_of(result)["code"] == 200
    assert expires_in(result) == LIFE + SKEW
    assert result.effects == [Bind(1, sid)]
    assert [(news.event, news.detail) for news in result.news] == [("re-opened", "renewed")]
    assert rig.restarted().state.sessions.get(sid) is not None
    rig.now += LIFE
    assert rig.swept().effects == []


def test_open_again_without_a_proof_renews_nothing(rig: StateRig) -> None:
    opened(rig, 1, token())
    for body in (None, with_("pool's")):
        reply = reply_of(rig.session_verb("open", ANA, 1, body))
        assert (reply["code"], reply["reason"]) == (409, "duplicate")


def test_one_connection_has_one_session(rig: StateRig) -> None:
    opened(rig, 1, with_("pool's"))
    reply = reply_of(rig.session_verb("open", f"{ANA}2", 1, with_("pool's")))
    assert (reply["code"], reply["reason"]) == (409, "duplicate")


def test_roles_and_end_of_a_proof_survive_a_restart() -> None:
    rig = StateRig(gate=gate())
    sid, session_token = opened(rig, 1, token(roles=["operator"]))
    rig = rig.restarted()
    session = rig.state.sessions.get(sid)
    assert session is not None
    assert session.proof.roles == {"operator"}
    assert session.proof.expires_at == NOW + LIFE + SKEW
    rig.now += LIFE + SKEW
    reply = reply_of(rig.session_verb("re-open", f"{ANA}/{session_token}", 2))
    assert (reply["code"], reply["desc"]) == (500, PROOF_OVER)


def test_a_session_of_an_issuer_that_the_settings_dropped_does_not_come_back() -> None:
    rig = StateRig(gate=gate())
    _, session_token = opened(rig, 1, token())
    rig._gate = Credentials()
    rig = rig.restarted()
    reply = reply_of(rig.session_verb("re-open", f"{ANA}/{session_token}", 2))
    assert (reply["code"], reply["desc"]) == (500, RECONNECTION_FAIL)


# Leases.


def test_a_lease_is_reported_and_renewed_by_re_open() -> None:
    rig = StateRig(lease_seconds=100)
    result = rig.session_verb("open", ANA, 1)
    assert expires_in(result) == 100
    session_token = str(reply_of(result)["runtimeToken"])
    rig.now += 90
    assert expires_in(rig.session_verb("re-open", f"{ANA}/{session_token}", 1)) == 100
    rig.now += 99
    assert rig.swept().effects == []
    rig.now += 1
    result = rig.swept()
    assert CloseConnection(1, CloseCode.LEASE_OVER) in result.effects
    assert [(news.event, news.code) for news in result.news] == [("lost", "expired")]
    assert reply_of(rig.session_verb("re-open", f"{ANA}/{session_token}", 2))["code"] == 200


def test_leases_that_end_together_end_in_portions() -> None:
    rig = StateRig(lease_seconds=100)
    count = 2 * OVERDUE_AT_ONCE + 1
    for number in range(count):
        rig.session_verb("open", f"{ANA}-{number}", number)
    rig.now += 100
    portions = []
    while news := rig.services.sessions.sweep(now=rig.now).news:
        portions.append(len(news))
    assert portions == [OVERDUE_AT_ONCE, OVERDUE_AT_ONCE, 1]


def test_a_clock_that_is_set_back_prolongs_no_lease() -> None:
    rig = StateRig(lease_seconds=100)
    rig.session_verb("open", ANA, 1)
    rig.now -= 10_000
    assert rig.swept().effects == []
    rig.now += 100
    assert CloseConnection(1, CloseCode.LEASE_OVER) in rig.swept().effects


def test_a_clock_that_is_set_ahead_shortens_no_lease_and_no_grace() -> None:
    rig = StateRig(lease_seconds=100)
    rig.session_verb("open", ANA, 1)
    sid, _ = rig.open("bo", 2)
    rig.services.sessions.connection_lost(2, now=rig.now)
    rig.now += 10_000
    rig.state.transitions.terms.clock_set_ahead(10_000)
    rig.now += min(GRACE_SECONDS, 100) - 1
    assert rig.swept().effects == []
    rig.now += max(GRACE_SECONDS, 100)
    effects = rig.swept().effects
    assert CloseConnection(1, CloseCode.LEASE_OVER) in effects
    assert Ended(sid) in effects


def test_a_clock_that_is_set_ahead_later_prolongs_no_lease() -> None:
    rig = StateRig(lease_seconds=100)
    rig.session_verb("open", ANA, 1)
    rig.now += 50
    assert rig.swept().effects == []
    rig.now += 10_000
    rig.state.transitions.terms.clock_set_ahead(10_000)
    rig.now += 49
    assert rig.swept().effects == []
    rig.now += 1
    assert CloseConnection(1, CloseCode.LEASE_OVER) in rig.swept().effects


def test_a_clock_that_is_set_ahead_prolongs_no_proof() -> None:
    rig = StateRig(gate=gate())
    rig.session_verb("open", ANA, 1, token())
    rig.now += LIFE + SKEW
    rig.state.transitions.terms.clock_set_ahead(LIFE + SKEW)
    assert CloseConnection(1, CloseCode.PROOF_EXPIRED) in rig.swept().effects


def test_a_lease_that_begins_to_count_leaves_sessions_with_a_proof_and_no_lease_as_they_are() -> None:
    rig = StateRig(gate=gate())
    rig.session_verb("open", ANA, 1, token())
    take_rules_over(rig.state.transitions, SessionRules(GRACE_SECONDS, lease_seconds=100))
    rig.now += LIFE + SKEW - 1
    assert rig.swept().effects == []
    rig.now += 1
    assert CloseConnection(1, CloseCode.PROOF_EXPIRED) in rig.swept().effects


def test_a_clock_that_is_set_back_lets_a_lease_end_no_later_than_the_proof() -> None:
    rig = StateRig(gate=gate(), lease_seconds=1000)
    rig.session_verb("open", ANA, 1, token())
    rig.now = NOW - 500
    assert rig.swept().effects == []
    rig.now = NOW + LIFE + SKEW - 1
    assert rig.swept().effects == []
    rig.now += 1
    assert CloseConnection(1, CloseCode.PROOF_EXPIRED) in rig.swept().effects


def test_the_shorter_of_lease_and_proof_counts() -> None:
    rig = StateRig(gate=gate(), lease_seconds=100)
    assert expires_in(rig.session_verb("open", ANA, 1, token())) == 100
    assert expires_in(rig.session_verb("open", f"{ANA}2", 2, token(f"{ANA}2", now=NOW - 310))) == 50


# Certificates.

CERTIFICATE = PeerCertificate("ab" * 32, "CN=ana", frozenset({ANA}), NOW + 1000)
LAB = PeerCertificate("cd" * 32, "CN=lab", frozenset(), NOW + 1000)


def test_a_certificate_that_names_its_runtime_opens_it_until_it_expires(rig: StateRig) -> None:
    result = rig.session_verb("open", ANA, 1, certificate=CERTIFICATE)
    assert expires_in(result) == 1000
    sid = rig.state.sessions.by_connection(1)
    assert sid is not None
    session = rig.state.sessions.get(sid)
    assert session is not None
    assert session.proof.credential == f"certificate {ANA}"
    rig.now += 1000
    assert CloseConnection(1, CloseCode.PROOF_EXPIRED) in rig.swept().effects


@pytest.mark.parametrize("certificate", [CERTIFICATE, None])
def test_who_comes_back_has_what_its_connection_proves_and_else_what_it_had_proved(
    rig: StateRig, certificate: PeerCertificate | None
) -> None:
    sid, session_token = opened(rig, 1, with_("ana's"))
    rig.session_verb("re-open", f"{ANA}/{session_token}", 2, certificate=certificate)
    session = rig.state.sessions.get(sid)
    assert session is not None
    had_roles = frozenset({"operator"})
    assert session.proof.roles == (frozenset() if certificate else had_roles)
    assert session.proof.expires_at == (CERTIFICATE.expires_at if certificate else None)


@pytest.mark.parametrize(
    ("certificate", "runtime", "credential", "roles"),
    [
        (CERTIFICATE, ANA, f"certificate {ANA}", set()),
        (CERTIFICATE, f"runtime://{DOMAIN}/rt-bo", "", set()),
        (LAB, ANA, "certificate subject CN=lab", {"lab"}),
        (LAB, f"runtime://{DOMAIN}/other", "", set()),
        (PeerCertificate("", "CN=x", frozenset({"runtime://beta.example/x"}), NOW + 1), ANA, "", set()),
        (PeerCertificate("", "", frozenset(), NOW + 1), ANA, "", set()),
        (PeerCertificate("", "CN=ana", frozenset({ANA}), NOW), ANA, "", set()),
    ],
)
def test_what_a_certificate_proves(
    rig: StateRig, certificate: PeerCertificate, runtime: str, credential: str, roles: set[str]
) -> None:
    assert reply_of(rig.session_verb("open", runtime, 1, certificate=certificate))["code"] == 200
    (session,) = rig.state.sessions
    assert session.proof.credential == credential
    assert session.proof.roles == roles


def test_where_nobody_is_anonymous_a_certificate_for_another_runtime_is_refused() -> None:
    rig = StateRig(gate=gate(allows_anonymous=False))
    reply = reply_of(rig.session_verb("open", f"runtime://{DOMAIN}/rx", 1, certificate=CERTIFICATE))
    assert (reply["code"], reply["reason"]) == (401, "bad-token")


def test_where_certificates_are_needed_no_token_and_no_return_is_enough_without_one() -> None:
    rig = StateRig(gate=gate(needs_certificate=True))
    assert reply_of(rig.session_verb("open", ANA, 1, with_("ana's")))["reason"] == "no-credentials"
    assert reply_of(rig.session_verb("open", ANA, 1))["reason"] == "no-credentials"
    reply = reply_of(rig.session_verb("open", ANA, 1, with_("ana's"), certificate=LAB))
    back = rig.session_verb("re-open", f"{ANA}/{reply['runtimeToken']}", 2)
    assert reply_of(back)["reason"] == "no-credentials"
    back = rig.session_verb("re-open", f"{ANA}/{reply['runtimeToken']}", 2, certificate=LAB)
    assert reply_of(back)["code"] == 200


def test_a_certificate_means_nothing_where_none_is_asked_for() -> None:
    rig = StateRig(gate=Credentials(allows_anonymous=False))
    assert reply_of(rig.session_verb("open", ANA, 1, certificate=CERTIFICATE))["reason"] == "bad-token"


# Who may come with nothing.


@pytest.mark.parametrize(
    ("runtime", "code"),
    [
        (f"runtime://{DOMAIN}/guest-1", 200),
        (f"hyperty-runtime://{DOMAIN.upper()}/guest-2", 200),
        (f"runtime://{DOMAIN}/kiosk", 200),
        (f"runtime://{DOMAIN}/kiosk2", 401),
        (f"runtime://{DOMAIN}/Guest-1", 401),
        (ANA, 401),
    ],
)
def test_only_named_runtimes_come_without_credentials(runtime: str, code: int) -> None:
    anonymous = (f"runtime://{DOMAIN}/guest-*", f"runtime://{DOMAIN}/kiosk")
    rig = StateRig(gate=Credentials(anonymous_runtimes=anonymous))
    assert reply_of(rig.session_verb("open", runtime, 1))["code"] == code


def test_policies_judge_an_open_by_what_was_proved() -> None:
    def operators_only(message: Message, roles: frozenset[str]) -> None:
        if "operator" not in roles:
            raise PeerError(Code.POLICY, f"rule operators-only for {message.type}")

    rig = StateRig(gate=gate(), permit=operators_only)
    reply = reply_of(rig.session_verb("open", ANA, 1, with_("pool's")))
    assert (reply["code"], reply["reason"]) == (403, "policy")
    assert "rule operators-only for open" in str(reply["desc"])
    assert len(rig.state.sessions) == 0
    assert reply_of(rig.session_verb("open", ANA, 1, with_("ana's")))["code"] == 200


# What others learn.


def test_listeners_learn_that_a_runtime_comes_and_goes() -> None:
    rig = StateRig(notifies_presence=True)
    watcher, _ = rig.open("rt-bo", 9)
    rig.reply(watcher, SM, "subscribe", {"resources": [f"{ANA}/status"], "source": f"runtime://{DOMAIN}/rt-bo"})

    def heard(result: ServiceResult) -> list[object]:
        return [body_of(one)["value"] for one in result.notifications if one.to == f"{ANA}/status"]

    result = rig.session_verb("open", ANA, 1)
    session_token = reply_of(result)["runtimeToken"]
    assert heard(result) == ["live"]
    assert heard(rig.services.sessions.connection_lost(1, now=rig.now)) == ["disconnected"]
    assert heard(rig.session_verb("re-open", f"{ANA}/{session_token}", 2)) == ["live"]
    assert heard(rig.session_verb("re-open", f"{ANA}/{session_token}", 2)) == []
    assert heard(rig.session_verb("close", f"{ANA}/{session_token}", 2)) == ["disconnected"]


def test_presence_is_reported_only_where_the_settings_say_so_and_somebody_listens() -> None:
    assert StateRig(notifies_presence=True).session_verb("open", ANA, 1).notifications == []
    rig = StateRig()
    watcher, _ = rig.open("rt-bo", 9)
    rig.reply(watcher, SM, "subscribe", {"resources": [f"{ANA}/status"], "source": f"runtime://{DOMAIN}/rt-bo"})
    assert rig.session_verb("open", ANA, 1).notifications == []


@pytest.mark.parametrize(
    ("has_gate", "takes_guests", "code"),
    [(True, True, Code.NO_CREDENTIALS), (True, False, Code.SPOOFED_SOURCE), (False, True, Code.SPOOFED_SOURCE)],
)
def test_a_runtime_of_another_domain_is_a_guest_only_where_there_are_guests(
    rig: StateRig, code: Code, *, has_gate: bool, takes_guests: bool
) -> None:
    service = SessionService(
        rig.state.lifecycle,
        rig.state.own,
        permit_guest=(lambda _domain, _message: None) if has_gate else None,
        takes_guests=lambda: takes_guests,
    )
    message = codec.build(id=1, type="open", from_="runtime://beta.example/rt", to="mn:/session")
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        service.open(message, {}, Line(1, Offered(), Dialect.SESSION_MESSAGES), now=NOW, seed=bytes(32))


@pytest.mark.parametrize("dialect", list(Dialect))
def test_who_asks_for_its_messages_learns_how_often_and_nobody_else_does(rig: StateRig, dialect: Dialect) -> None:
    facts = reply_of(rig.session_verb("open", ANA, 1, dialect=dialect))["session"]
    assert isinstance(facts, dict)
    assert ("poll" in facts) is (dialect is Dialect.HTTPS)


def test_sessions_are_removed_by_number_and_those_that_are_gone_are_left_out(rig: StateRig) -> None:
    sid, _ = opened(rig, 1, with_("ana's"))
    result = rig.services.sessions.remove((sid + 1, sid, sid), now=rig.now)
    assert result.effects == [Ended(sid), CloseConnection(1, CloseCode.REMOVED)]
    assert len(rig.state.sessions) == 0
    assert rig.services.sessions.remove((sid,), now=rig.now).effects == []


def test_a_token_that_brings_a_displaced_session_back_ends_the_newcomer_in_effect_and_in_the_records() -> None:
    rig = StateRig()
    _, first = rig.open("rt-ana", 1)
    rig.session_verb("open", ANA, 2)
    rig.now += TAKE_OVER_GRACE_SECONDS
    newcomer, _ = rig.open("rt-ana", 2)
    result = rig.session_verb("re-open", f"{ANA}/{first}", 3)
    assert Ended(newcomer) in result.effects
    assert ("closed", newcomer) in [(news.event, news.sid) for news in result.news]


@pytest.mark.parametrize("way", ["overdue", "expire"])
def test_registry_entries_that_end_with_a_session_come_with_its_end(
    rig: StateRig, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    change = StatusChange("hyperty://alpha.example/h", "hyperty://alpha.example/h", Status.DISCONNECTED)
    monkeypatch.setattr(rig.state.lifecycle, way, lambda *, now: ([], [change]))  # noqa: ARG005
    service = SessionService(rig.state.lifecycle, rig.state.own)
    assert service.sweep(now=rig.now).status_changes == [change]
