"""What counts as the answer of a connector in the sandbox, as plain calls: it may write anything at all."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from msg_node.backends.core.connector_requests import (
    ConnectorQuestion,
    connector_service,
    read_answer,
    request_bytes,
)
from msg_node.kernel.service import Answer, Caller, Inquiry, ServiceRequest
from protofly import codec
from protofly.errors import Code, PeerError

DOMAIN = "alpha.example"
ADDRESS = f"domain://registry.{DOMAIN}"
ANSWER = {"id": 7, "type": "response", "from": ADDRESS, "to": "runtime://alpha.example/mn"}


def concluded(body: dict[str, Any]) -> Answer:
    message = codec.build(id=1, type="read", from_=f"runtime://{DOMAIN}/ana", to=ADDRESS, body={"resource": "x"})
    request = ServiceRequest(message, Caller(1), DOMAIN, 0.0, bytes(32))
    step = connector_service("registry", serves_domains=False)(request)
    assert isinstance(step, Inquiry)
    answer = step.conclude(body, 0.0)
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize("body", [None, {}, {"code": 200, "value": [1]}])
def test_an_answer_in_the_name_of_the_service_is_read_with_its_number(body: dict[str, Any] | None) -> None:
    raw = msgspec.json.encode(ANSWER if body is None else {**ANSWER, "body": body})
    assert read_answer(raw, ADDRESS) == (7, body or {})


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", Code.BAD_REPLY),
        (b"no JSON", Code.BAD_REPLY),
        (b'{"id":7,"type":"response","from":"\xff"}', Code.BAD_REPLY),
        (b"[" * 100_000, Code.BAD_REPLY),
        (b'{"body":{"a":' + b"[" * 100_000, Code.BAD_REPLY),
        (msgspec.json.encode({**ANSWER, "id": "7"}), Code.BAD_REPLY),
        (msgspec.json.encode({**ANSWER, "body": []}), Code.BAD_REPLY),
        (msgspec.json.encode({**ANSWER, "type": "read"}), Code.BAD_REPLY),
        (msgspec.json.encode({**ANSWER, "from": f"domain://catalogue.{DOMAIN}"}), Code.SPOOFED_SOURCE),
    ],
)
def test_anything_else_is_no_answer(raw: bytes, code: Code) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        read_answer(raw, ADDRESS)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, Answer(code=200)),
        ({"code": 299, "value": None, "reason": "x"}, Answer(code=299, value=None)),
        ({"code": 300, "reason": "moved", "desc": "there"}, Answer(code=300, reason="moved", description="there")),
        ({"code": 599, "reason": 7, "description": "d"}, Answer(code=599, description="d")),
        ({"description": "x" * 513}, Answer(code=200, description="x" * 512)),
        ({"more": 1, "auth": True, "via": [], "trace": [], "late": True}, Answer(code=200, members={"more": 1})),
    ],
)
def test_the_node_hands_on_what_the_connector_may_say(body: dict[str, Any], expected: Answer) -> None:
    assert concluded(body) == expected


@pytest.mark.parametrize("code", [True, "200", 200.0, None, 199, 600, 0])
def test_an_answer_without_a_final_code_is_refused(code: object) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_REPLY):
        concluded({"code": code})


@pytest.mark.parametrize("caller", [Caller(-1), Caller(1, is_guest=True)])
@pytest.mark.parametrize("serves_domains", [True, False])
def test_other_domains_ask_only_where_they_may(caller: Caller, *, serves_domains: bool) -> None:
    message = codec.build(id=1, type="read", from_="runtime://beta.example/x", to=ADDRESS, body={})
    request = ServiceRequest(message, caller, DOMAIN, 0.0, bytes(32))
    serve = connector_service("registry", serves_domains=serves_domains)
    if serves_domains:
        assert isinstance(serve(request), Inquiry)
        return
    with pytest.raises(PeerError, check=lambda error: error.code is Code.POLICY):
        serve(request)


def test_a_connector_is_given_the_request_under_a_number_of_ours() -> None:
    for body, shown in ((b'{"a":1}', {"a": 1}), (b"", {})):
        raw = request_bytes(9, ConnectorQuestion("read", "runtime://a.example/x", body), ADDRESS)
        expected = {"id": 9, "type": "read", "from": "runtime://a.example/x", "to": ADDRESS, "body": shown}
        assert msgspec.json.decode(raw) == expected
