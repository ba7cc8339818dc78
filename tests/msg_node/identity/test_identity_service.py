"""What the identity manager answers by itself, and what when the keys of a provider cannot be fetched."""

from __future__ import annotations

import pytest

from msg_node.identity.core.assertions import AssertionRefusedError
from msg_node.identity.core.identity_service import IdentityService, KeysQuestion
from msg_node.identity.core.login_service import LoginService, token_of
from msg_node.identity.core.verdicts import Verdicts
from msg_node.kernel.credentials import Credential, Credentials, digest_of
from msg_node.kernel.service import Answer, Caller, Inquiry, ServiceRequest
from protofly.errors import Code, HostError, PeerError
from protofly.limits import BEARER_TOKEN_CHARS
from tests.msg_node.identity.test_assertions import DOMAIN, ISSUER, NOW, RULES, SIGNER, token
from tests.support.runtime_rig import Json, a_message, parsed
from tests.support.state_rig import StateRig

ADDRESS = f"domain://idm.{DOMAIN}"


ANA = f"user://{DOMAIN}/ana"
OURS = Caller(1)
SECRET = Credential(digest_of("secret"), f"runtime://{DOMAIN}/*", frozenset({"lab"}))


def ask(verdicts: Verdicts, body: Json, caller: Caller = OURS, *, type_: str = "execute") -> Answer | Inquiry:
    rig = StateRig()
    rig.open("ana", 1)
    service = IdentityService(
        Credentials([SECRET]),
        verdicts,
        LoginService(rig.state.transitions, None),
        [{"kid": "k1"}],
        lambda user: {"userURL": user} if user == ANA else {},
    )
    message = parsed(a_message(type_, f"runtime://{DOMAIN}/rt", ADDRESS, body, id_=1))
    return service(ServiceRequest(message, caller, DOMAIN, NOW, b"seed"))


def refused(body: Json, caller: Caller = OURS, *, type_: str = "execute") -> Code:
    with pytest.raises(PeerError) as error:
        ask(Verdicts([RULES]), body, caller, type_=type_)
    return error.value.code


def asked(verdicts: Verdicts) -> Answer | Inquiry:
    return ask(verdicts, {"method": "validateAssertion", "params": {"assertion": token()}})


@pytest.mark.parametrize(
    ("type_", "body", "code"),
    [
        ("update", {}, Code.BAD_TYPE),
        ("execute", {}, Code.BAD_BODY),
        ("execute", {"method": "logout"}, Code.BAD_BODY),
        ("execute", {"method": "validateAssertion"}, Code.BAD_BODY),
        ("execute", {"method": "validateAssertion", "params": {"assertion": "nonsense"}}, Code.BAD_ASSERTION),
        ("execute", {"method": "login", "params": {"assertion": "a"}}, Code.CONNECTOR_OFF),
        ("execute", {"method": "refresh", "params": {"token": "t"}}, Code.CONNECTOR_OFF),
        ("execute", {"method": "revoke", "params": {"token": "t"}}, Code.CONNECTOR_OFF),
        ("read", {}, Code.NO_SUCH_SERVICE),
        ("read", {"resource": "/key"}, Code.NO_SUCH_SERVICE),
        ("read", {"resource": f"/users/{ANA}2"}, Code.NOT_REGISTERED),
    ],
)
def test_what_cannot_be_served_says_why(type_: str, body: Json, code: Code) -> None:
    assert refused(body, type_=type_) is code


def test_keys_and_profiles_are_read() -> None:
    for resource, value in (("/keys", {"keys": [{"kid": "k1"}]}), (f"/users/{ANA}", {"userURL": ANA})):
        answer = ask(Verdicts([RULES]), {"resource": resource}, type_="read")
        assert isinstance(answer, Answer)
        assert answer.value == value


@pytest.mark.parametrize("caller", [Caller(-1, "beta.example"), Caller(1, is_guest=True)])
def test_tokens_are_looked_at_by_our_own_runtimes_alone(caller: Caller) -> None:
    assert refused({"method": "introspect", "params": {"token": "secret"}}, caller) is Code.TRANSIT


@pytest.mark.parametrize(
    ("params", "value"),
    [
        ({"token": "secret"}, {"active": True, "subject": "", "roles": ["lab"]}),
        ([{"token": "secret"}], {"active": True, "subject": "", "roles": ["lab"]}),
        ({"token": "guess"}, {"active": False}),
    ],
)
def test_a_token_is_worth_what_it_opens(params: object, value: Json) -> None:
    answer = ask(Verdicts([RULES]), {"method": "introspect", "params": params})
    assert isinstance(answer, Answer)
    assert answer.value == value


@pytest.mark.parametrize("params", [[], [{"token": "secret"}, {}], ["secret"], "secret", 7])
def test_parameters_are_one_object(params: object) -> None:
    assert refused({"method": "introspect", "params": params}) is Code.BAD_BODY


@pytest.mark.parametrize("code", [Code.TIMEOUT, Code.BAD_REPLY])
def test_an_assertion_stays_refused_when_the_keys_of_its_provider_cannot_be_fetched(code: Code) -> None:
    inquiry = asked(Verdicts([RULES]))
    assert isinstance(inquiry, Inquiry)
    assert inquiry.question == KeysQuestion(ISSUER)
    assert inquiry.failed is not None
    with pytest.raises(AssertionRefusedError) as refused:
        inquiry.failed(HostError(code), NOW)
    assert refused.value.code is Code.BAD_ASSERTION


def test_an_assertion_is_judged_again_only_when_there_are_newer_keys() -> None:
    verdicts = Verdicts([RULES])
    inquiry = asked(verdicts)
    assert isinstance(inquiry, Inquiry)
    verdicts.set_keys(ISSUER, SIGNER.keys)
    with pytest.raises(AssertionRefusedError):
        inquiry.conclude(False, NOW)
    answer = inquiry.conclude(True, NOW)
    assert isinstance(answer, Answer)
    assert isinstance(answer.value, dict)
    assert answer.value["valid"] is True


@pytest.mark.parametrize("text", ["x", "x" * BEARER_TOKEN_CHARS])
def test_a_token_may_be_as_long_as_a_bearer_token(text: str) -> None:
    assert token_of({"token": text}, "token", "params") == text


@pytest.mark.parametrize("value", ["", None, 7, ["x"], {"x": "y"}, "x" * (BEARER_TOKEN_CHARS + 1)])
def test_what_is_no_token_or_longer_is_refused_with_its_place(value: object) -> None:
    with pytest.raises(PeerError, match=r"params\.token") as refused:
        token_of({"token": value}, "token", "params")
    assert refused.value.code is Code.BAD_BODY
