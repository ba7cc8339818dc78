"""`login`, `refresh` and `revoke` as values: who may ask, with which parameters, and what is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from msg_node.identity.core.assertions import Asserted
from msg_node.identity.core.issued_tokens import REVOKED, IssuedTokens, TokenMark
from msg_node.identity.core.login_service import LoginService
from msg_node.identity.core.session_tokens import SessionTokens, TokenLife, own_rules
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.service import Answer, Caller, Inquiry, ServiceRequest
from protofly import codec
from protofly.documents import SigningKey
from protofly.errors import Code, PeerError
from protofly.limits import BEARER_TOKEN_CHARS
from tests.support.state_rig import DOMAIN, StateRig

IDM = f"domain://idm.{DOMAIN}"
ISSUER = f"https://login.{DOMAIN}"
ANA = Asserted("ana-7", "ana-7", ISSUER, 2e9, {})


class Logins:
    """The service over the sessions of a rig: ana's, and that of a guest."""

    def __init__(self, *, is_on: bool = True) -> None:
        self.rig = StateRig(credentials=[Credential(digest_of("g"), "runtime://beta.example/*")], allows_guests=True)
        self.ana, _ = self.rig.open("ana", 1)
        self.rig.session_verb("open", "runtime://beta.example/g", 2, bearer="g")
        guest = self.rig.state.sessions.by_connection(2)
        assert guest is not None
        self.guest = guest
        key = SigningKey.from_seed("token-1", bytes(32))
        rules = own_rules(DOMAIN, [DOMAIN])
        tokens = SessionTokens(rules, (key,), TokenLife(600, 3_000), IssuedTokens(), believes=lambda _: True)
        self.service = LoginService(self.rig.state.transitions, tokens if is_on else None)

    def request(self, caller: Caller) -> ServiceRequest:
        message = codec.build(id=1, type="execute", from_=f"runtime://{DOMAIN}/ana", to=IDM)
        return ServiceRequest(message, caller, DOMAIN, self.rig.now, bytes(32))

    def run(self, method: str, params: Mapping[str, object], *, is_operator: bool = False) -> Answer:
        """The answer once everything is durable."""
        step = self.service.execute(method, self.request(Caller(self.ana, is_operator=is_operator)), dict(params))
        answer = step.conclude(None, self.rig.now) if isinstance(step, Inquiry) else step
        assert isinstance(answer, Answer)
        return answer

    def logged_in(self) -> str:
        value: Any = self.service.logged_in(self.request(Caller(self.ana)), ANA, self.rig.now).value
        return str(value["token"])


@pytest.fixture
def logins() -> Logins:
    return Logins()


def code_of(call: Callable[..., object], *arguments: Any, **named: Any) -> Code:
    with pytest.raises(PeerError) as refused:
        call(*arguments, **named)
    return refused.value.code


def test_neither_guests_nor_links_nor_sessions_that_have_ended_log_in(logins: Logins) -> None:
    for caller in (Caller(logins.guest, is_guest=True), Caller(-1, "beta.example"), Caller(logins.guest + 1)):
        request = logins.request(caller)
        assert code_of(logins.service.offered, request, {"assertion": "a"}) is Code.TRANSIT
        assert code_of(logins.service.logged_in, request, ANA, logins.rig.now) is Code.TRANSIT
        for method in ("refresh", "revoke"):
            call = {"token": "t"}
            assert code_of(logins.service.execute, method, request, call) is Code.TRANSIT
    assert not logins.service.counters


def test_where_logins_are_off_every_request_says_so(logins: Logins) -> None:
    off = Logins(is_on=False)
    assert code_of(off.run, "refresh", {"token": "t"}) is Code.CONNECTOR_OFF
    assert code_of(off.logged_in) is Code.CONNECTOR_OFF
    request = off.request(Caller(off.ana))
    assert code_of(off.service.offered, request, {"assertion": "a"}) is Code.CONNECTOR_OFF


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"assertion": "a"}, None),
        ({"credentials": {"assertion": "a"}}, None),
        ({"credentials": {"kind": "assertion", "assertion": "a"}}, None),
        ({"credentials": {"kind": "assertion", "assertion": "x" * BEARER_TOKEN_CHARS}}, None),
        ({"credentials": {"kind": "assertion", "assertion": "x" * (BEARER_TOKEN_CHARS + 1)}}, Code.BAD_BODY),
        ({"credentials": {"kind": "password", "assertion": "a"}}, Code.BAD_TOKEN),
        ({"credentials": {"kind": "assertion"}}, Code.BAD_BODY),
        ({"credentials": {"assertion": ""}}, Code.BAD_BODY),
        ({"credentials": {"assertion": 7}}, Code.BAD_BODY),
        ({"credentials": "a"}, Code.BAD_BODY),
        ({}, Code.BAD_BODY),
    ],
)
def test_a_login_is_an_assertion_and_no_password(logins: Logins, params: dict[str, object], code: Code | None) -> None:
    request = logins.request(Caller(logins.ana))
    if code is None:
        assert str(logins.service.offered(request, params)).strip("ax") == ""
    else:
        assert code_of(logins.service.offered, request, params) is code


def test_a_token_is_refreshed_whatever_else_is_named(logins: Logins) -> None:
    token = logins.logged_in()
    value: Any = logins.run("refresh", {"token": token, "subject": "somebody"}).value
    assert value["subject"] == f"{ISSUER} ana-7"
    assert logins.run("revoke", {"token": value["token"]}).value == {"revoked": True}
    assert logins.service.counters == {"logins": 1, "refreshed": 1, "revoked": 1}


def test_a_token_that_is_refreshed_twice_ends_its_login_and_counts_as_that(logins: Logins) -> None:
    token = logins.logged_in()
    value: Any = logins.run("refresh", {"token": token}).value
    assert code_of(logins.run, "refresh", {"token": token}) is Code.BAD_TOKEN
    assert code_of(logins.run, "refresh", {"token": value["token"]}) is Code.BAD_TOKEN
    assert logins.service.counters == {"logins": 1, "refreshed": 1, "renewed twice": 1}


def test_a_token_that_another_node_renewed_too_ends_its_login_and_counts_as_that(logins: Logins) -> None:
    token = logins.logged_in()
    step = logins.service.execute("refresh", logins.request(Caller(logins.ana)), {"token": token})
    assert isinstance(step, Inquiry)
    renewed: Any = step.conclude(None, logins.rig.now)
    assert isinstance(step.question, TokenMark)
    error = logins.service.renewed_elsewhere(step.question, logins.rig.now)
    assert (error.code, error.mark.login, error.mark.is_revoked) == (Code.BAD_TOKEN, step.question.login, True)
    assert code_of(logins.run, "refresh", {"token": renewed.value["token"]}) is Code.BAD_TOKEN
    assert logins.service.counters == {"logins": 1, "refreshed": 1, "renewed twice": 1}


@pytest.mark.parametrize(
    ("subject", "is_good"),
    [("x", True), ("x" * 1100, True), ("x" * 1101, False), ("", False), (7, False), (None, False)],
)
def test_an_operator_ends_the_logins_of_a_user_that_is_named_so(logins: Logins, subject: object, is_good: bool) -> None:
    params = {"subject": subject}
    assert code_of(logins.run, "revoke", params) is Code.NOT_OWNER
    if is_good:
        assert logins.run("revoke", params, is_operator=True).value == {"revoked": True}
    else:
        assert code_of(logins.run, "revoke", params, is_operator=True) is Code.BAD_BODY
    assert logins.service.counters["users revoked"] == is_good


def test_the_end_of_a_user_s_logins_ends_its_tokens(logins: Logins) -> None:
    token = logins.logged_in()
    logins.run("revoke", {"subject": f"{ISSUER} bo"}, is_operator=True)
    value: Any = logins.run("refresh", {"token": token}).value
    logins.run("revoke", {"subject": f"{ISSUER} ana-7"}, is_operator=True)
    assert code_of(logins.run, "refresh", {"token": value["token"]}) is Code.BAD_TOKEN


@pytest.mark.parametrize(
    ("least", "is_known", "ends"), [(REVOKED, False, True), (REVOKED, True, False), (2, False, False)]
)
def test_sessions_of_a_login_end_when_it_ended_elsewhere_and_not_when_it_was_renewed_there(
    logins: Logins, monkeypatch: pytest.MonkeyPatch, least: int, is_known: bool, ends: bool
) -> None:
    ended: list[str] = []
    monkeypatch.setattr(logins.rig.state.transitions, "end_login", lambda login, now: ended.append(login))  # noqa: ARG005
    mark = TokenMark("login", "user", least, logins.rig.now + 600)
    if is_known:
        assert logins.service._tokens is not None
        logins.service._tokens.issued.restore([mark], now=logins.rig.now)
    logins.service.raised_elsewhere([mark], logins.rig.now)
    assert ended == (["login"] if ends else [])
