"""What the identity manager answers by itself, and what when the keys of a provider cannot be fetched."""

from __future__ import annotations

import pytest

from msg_node.identity.core.assertions import AssertionRefusedError
from msg_node.identity.core.identity_service import IdentityService, KeysQuestion
from msg_node.identity.core.login_service import LoginService, token_of
from msg_node.identity.core.verdicts import Verdicts
from msg_node.kernel.credentials import Credentials
from msg_node.kernel.service import Answer, Caller, Inquiry, ServiceRequest
from protofly.errors import Code, HostError, PeerError
from protofly.limits import BEARER_TOKEN_CHARS
from tests.msg_node.identity.test_assertions import DOMAIN, ISSUER, NOW, RULES, SIGNER, token
from tests.support.runtime_rig import a_message, parsed
from tests.support.state_rig import StateRig

ADDRESS = f"domain://idm.{DOMAIN}"


def asked(verdicts: Verdicts) -> Answer | Inquiry:
    service = IdentityService(
        Credentials([]), verdicts, LoginService(StateRig().state.transitions, None), [], lambda _: {}
    )
    body = {"method": "validateAssertion", "params": {"assertion": token()}}
    message = parsed(a_message("execute", f"runtime://{DOMAIN}/rt", ADDRESS, body, id_=1))
    return service(ServiceRequest(message, Caller(1), DOMAIN, NOW, b"seed"))


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
