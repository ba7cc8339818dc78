"""`login`, `refresh` and `revoke` as values: who may ask, with which parameters, and what is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from msg_node.identity.core.assertions import Asserted
from msg_node.identity.core.issued_tokens import REVOKED, IssuedTokens, TokenMark
from msg_node.identity.core.local_clients import Enrolled, EnrolQuestion, LocalClient
from msg_node.identity.core.login_service import LoginService
from msg_node.identity.core.password_attempts import Bound, Pause
from msg_node.identity.core.password_login import PASSWORD_BYTES, LocalAccounts, PasswordQuestion, PasswordVerdict
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


@pytest.fixture
def ended(logins: Logins, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ends sessions: logins, and credentials of all logins of a user."""
    found: list[str] = []
    for name in ("end_login", "end_credential"):
        monkeypatch.setattr(logins.rig.state.transitions, name, lambda what, now: found.append(what))  # noqa: ARG005
    return found


def test_whatever_ends_a_login_ends_its_sessions(logins: Logins, ended: list[str]) -> None:
    tokens = logins.service._tokens
    assert tokens is not None
    first, second, third = (
        tokens.begin(ANA, f"runtime://{DOMAIN}/ana", login=f"l{number}", now=logins.rig.now)[0] for number in (1, 2, 3)
    )
    logins.run("revoke", {"token": first})
    logins.run("refresh", {"token": second})
    assert ended == ["l1"]
    assert code_of(logins.run, "refresh", {"token": second}) is Code.BAD_TOKEN
    assert ended == ["l1", "l2"]
    step = logins.service.execute("refresh", logins.request(Caller(logins.ana)), {"token": third})
    assert isinstance(step, Inquiry)
    assert isinstance(step.question, TokenMark)
    logins.service.renewed_elsewhere(step.question, logins.rig.now)
    logins.run("revoke", {"subject": f"{ISSUER} ana-7"}, is_operator=True)
    assert ended == ["l1", "l2", "l3", tokens.credential_of(f"{ISSUER} ana-7")]


def test_all_logins_of_a_user_end_where_another_node_has_ended_them(logins: Logins, ended: list[str]) -> None:
    elsewhere = Logins()
    assert elsewhere.service._tokens is not None
    mark = elsewhere.service._tokens.revoke_all(f"{ISSUER} ana-7", now=elsewhere.rig.now)
    for _ in range(2):
        logins.service.raised_elsewhere([mark], logins.rig.now)
    assert ended == [elsewhere.service._tokens.credential_of(f"{ISSUER} ana-7")]
    Logins(is_on=False).service.raised_elsewhere([mark], logins.rig.now)  # nobody has logged in there


ACCOUNTS = LocalAccounts(DOMAIN, frozenset({DOMAIN}))
LONGEST = "x" * PASSWORD_BYTES


@pytest.mark.parametrize(
    ("user", "password", "is_one"),
    [
        ("ana", "x", True),
        (f"Ana@{DOMAIN}", LONGEST, True),
        ("ana", LONGEST + "x", False),
        ("ana", "", False),
        ("ana", None, False),
        ("ana", 7, False),
        (None, "x", False),
        (7, "x", False),
    ],
)
@pytest.mark.parametrize("way", ["log in", "change"])
def test_a_user_and_a_password_are_texts_of_a_bounded_length(
    logins: Logins, way: str, user: object, password: object, *, is_one: bool
) -> None:
    logins.service.accounts = ACCOUNTS
    request, members = logins.request(Caller(logins.ana)), {"user": user, "password": password}

    def asked() -> object:
        if way == "log in":
            return logins.service.offered(request, {"credentials": {"kind": "password", **members}})
        step = logins.service.execute("changePassword", request, {**members, "newPassword": "12345678"})
        assert isinstance(step, Inquiry)
        return step.question

    if is_one:
        new = "" if way == "log in" else "12345678"
        assert asked() == PasswordQuestion("ana", str(password), logins.ana, new)
    else:
        assert code_of(asked) is Code.BAD_BODY


@pytest.mark.parametrize(
    ("new", "is_good"),
    [
        ("x" * 8, True),
        (LONGEST, True),
        ("x" * 7, False),
        (LONGEST + "x", False),
        ("", False),
        (None, False),
        (8, False),
    ],
)
def test_a_new_password_has_a_least_and_a_greatest_length(logins: Logins, new: object, *, is_good: bool) -> None:
    logins.service.accounts = ACCOUNTS
    params = {"user": "ana", "password": "old", "newPassword": new}
    execute, request = logins.service.execute, logins.request(Caller(logins.ana))
    if is_good:
        step = execute("changePassword", request, params)
        assert isinstance(step, Inquiry)
        answer: Any = step.conclude(PasswordVerdict(is_right=True), logins.rig.now)
        assert answer.value == {"changed": True}
        assert code_of(step.conclude, PasswordVerdict(is_right=False), logins.rig.now) is Code.BAD_TOKEN
        paused: Any = step.conclude(PasswordVerdict(False, pause=Pause(1.5, Bound.HERE)), logins.rig.now)
        assert (paused.reason, paused.members) == (Code.TOO_MANY_ATTEMPTS.word, {"retryAfter": 2})
    else:
        assert (
            code_of(logins.service.execute, "changePassword", logins.request(Caller(logins.ana)), params)
            is Code.BAD_BODY
        )


def test_passwords_count_only_where_users_are_kept_and_no_other_kind_of_credential_does(logins: Logins) -> None:
    request, members = logins.request(Caller(logins.ana)), {"user": "ana", "password": "secret"}
    with_password = {"credentials": {"kind": "password", **members}}
    assert code_of(logins.service.offered, request, with_password) is Code.BAD_TOKEN
    assert code_of(logins.service.execute, "changePassword", request, members) is Code.CONNECTOR_OFF
    logins.service.accounts = ACCOUNTS
    assert code_of(logins.service.offered, request, {"credentials": {"kind": "face", **members}}) is Code.BAD_TOKEN
    question = logins.service.offered(request, with_password)
    assert isinstance(question, PasswordQuestion)
    step = logins.service.by_password(request, question)
    answer: Any = step.conclude(PasswordVerdict(is_right=True, roles=("staff",)), logins.rig.now)
    assert (answer.value["subject"], answer.value["roles"]) == (f"{IDM} user://{DOMAIN}/ana", ["staff"])
    logins.service.accounts = None
    assert code_of(step.conclude, PasswordVerdict(is_right=True), logins.rig.now) is Code.CONNECTOR_OFF


def test_runtimes_of_ours_are_enrolled_and_get_a_token_with_roles_and_its_end(logins: Logins) -> None:
    for caller in (Caller(-1, "beta.example"), Caller(logins.guest, is_guest=True)):
        assert code_of(logins.service.execute, "enrol", logins.request(caller), {}) is Code.TRANSIT
    step = logins.service.execute("enrol", logins.request(Caller(logins.ana)), {})
    assert isinstance(step, Inquiry)
    assert step.question == EnrolQuestion(logins.ana)
    shown = {"token": "t", "runtime": "runtime://x/y", "roles": ["device", "staff"]}
    for ends_at, more in ((None, {}), (99.9, {"expires": 99})):
        client = LocalClient(name="lamp", kind="device", runtime="runtime://x/y", roles=("staff",), ends_at=ends_at)
        answer: Any = step.conclude(Enrolled("t", client), logins.rig.now)
        assert answer.value == {**shown, **more}


def test_a_user_who_was_disabled_while_the_password_was_checked_has_a_token_that_opens_nothing_and_is_not_renewed(
    logins: Logins,
) -> None:
    service, now = logins.service, logins.rig.now
    service.accounts = LocalAccounts(DOMAIN, frozenset({DOMAIN}))
    asked = service.by_password(logins.request(Caller(logins.ana)), PasswordQuestion("ana", "secret", logins.ana))
    service.end_user(f"user://{DOMAIN}/ana", now + 5, now=now + 5)
    for began, is_over in ((now, True), (now + 6, False)):
        answer = asked.conclude(PasswordVerdict(is_right=True, began=began), now + 9)
        assert isinstance(answer, Answer)
        params = {"token": answer.value["token"]}  # type: ignore[index]
        logins.rig.now = now + 10
        if is_over:
            assert code_of(logins.run, "refresh", params) is Code.BAD_TOKEN
        else:
            assert logins.run("refresh", params).value
