"""Which requests to the services of operators become an operation, and whose."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from msg_node.admin.core.admin_service import AdminQuestion, admin_service
from msg_node.admin.core.pep_service import pep_service
from msg_node.kernel.service import Answer, Caller, ServiceRequest
from protofly import codec
from protofly.errors import Code, PeerError

OPERATOR = Caller(1, is_operator=True)
STRANGERS = [
    Caller(1),
    Caller(1, is_guest=True),
    Caller(1, is_operator=True, is_guest=True),
    Caller(-1, "b.example"),
    Caller(-1, "b.example", is_operator=True),
]


def request(type_: str, body: dict[str, Any], caller: Caller = OPERATOR) -> ServiceRequest:
    raw = json.dumps({"id": 1, "type": type_, "from": "runtime://a.example/ops", "to": "pep", "body": body}).encode()
    return ServiceRequest(codec.decode(raw)[0], caller, "a.example", 0.0, bytes(32))


def asked(type_: str, body: dict[str, Any]) -> tuple[str, dict[str, object]]:
    question = pep_service(request(type_, body)).question
    assert isinstance(question, AdminQuestion)
    return question.request.operation, dict(question.request.arguments)


@pytest.mark.parametrize("caller", STRANGERS, ids=str)
@pytest.mark.parametrize("service", [pep_service, admin_service])
def test_nobody_but_an_operator_of_this_node_is_served(service: Any, caller: Caller) -> None:
    with pytest.raises(PeerError) as caught:
        service(request("read", {"resource": "/active", "operation": "status"}, caller))
    assert caught.value.code is Code.POLICY


@pytest.mark.parametrize(
    ("type_", "body", "operation", "arguments"),
    [
        ("read", {"resource": "/bundles"}, "policy bundles", {}),
        ("read", {"resource": "/decisions", "criteria": {"limit": 5}}, "denials", {"limit": 5}),
        (
            "read",
            {"resource": "/decisions", "criteria": {"hook": "domain-in", "since": 5, "rule": "s/r"}},
            "denials",
            {"gate": "in", "since": 5, "rule": "s/r"},
        ),
        ("read", {"resource": "/bundles/b1"}, "policy bundle", {"bundle": "b1"}),
        ("delete", {"resource": "/bundles/b1"}, "policy remove", {"bundle": "b1"}),
        ("create", {"resource": "/bundles", "value": {"files": {"a": "x"}}}, "policy add", {"files": {"a": "x"}}),
        ("create", {"resource": "/bundles", "value": {"id": 1}}, "policy add", {"files": {"policy.json": '{"id":1}'}}),
        ("update", {"resource": "/active", "value": {"bundle": "b1"}}, "policy activate", {"bundle": "b1"}),
        ("execute", {"method": "roll-back"}, "policy roll-back", {}),
        ("read", {"resource": "/gates", "criteria": {"where": "to=b"}}, "gates", {"where": "to=b"}),
        (
            "execute",
            {"method": "gates", "params": {"op": "set", "from": "a.example", "to": "*", "effect": "deny", "until": 9}},
            "gate set",
            {"from": "a.example", "to": "*", "effect": "deny", "until": 9},
        ),
        (
            "execute",
            {"method": "gates", "params": {"op": "unset", "from": "a.example", "to": "*"}},
            "gate unset",
            {"from": "a.example", "to": "*"},
        ),
    ],
)
def test_each_request_is_one_operation(
    type_: str, body: dict[str, Any], operation: str, arguments: dict[str, Any]
) -> None:
    assert asked(type_, body) == (operation, arguments)


@pytest.mark.parametrize(
    ("type_", "body", "named"),
    [
        ("create", {"resource": "/bundles", "value": {"id": 1}}, {"id": "b1", "digest": "b1"}),
        ("update", {"resource": "/active", "value": {"bundle": "b1"}}, {}),
    ],
)
def test_the_answer_names_a_bundle_that_was_added_by_id_and_digest_and_no_other(
    type_: str, body: dict[str, Any], named: dict[str, str]
) -> None:
    result = {"after": {"bundle": "b1"}}
    answer = pep_service(request(type_, body)).conclude(msgspec.Raw(msgspec.json.encode(result)), 0.0)
    assert isinstance(answer, Answer)
    assert msgspec.json.decode(msgspec.json.encode(answer.value)) == {**result, **named}


@pytest.mark.parametrize(
    ("type_", "body", "code"),
    [
        ("subscribe", {"resource": "/active"}, Code.BAD_TYPE),
        ("create", {"resource": "/active", "value": {"id": "s"}}, Code.NO_SUCH_SERVICE),
        ("create", {"resource": "/bundles/b1", "value": {"id": "s"}}, Code.NO_SUCH_SERVICE),
        ("update", {"resource": "/bundles", "value": {"bundle": "b1"}}, Code.NO_SUCH_SERVICE),
        ("delete", {"resource": "/bundles/"}, Code.NO_SUCH_SERVICE),
        ("delete", {"resource": "/active"}, Code.NO_SUCH_SERVICE),
        ("read", {"resource": "/other/b1"}, Code.NO_SUCH_SERVICE),
        ("execute", {"method": "forget"}, Code.NO_SUCH_SERVICE),
        ("execute", {"method": "evaluate", "params": {}}, Code.BAD_BODY),
        ("execute", {"method": "evaluate", "params": {"message": "text"}}, Code.BAD_BODY),
    ],
)
def test_what_is_no_operation_is_refused(type_: str, body: dict[str, Any], code: Code) -> None:
    with pytest.raises(PeerError) as caught:
        pep_service(request(type_, body))
    assert caught.value.code is code


def test_a_message_is_judged_as_it_would_be_sent() -> None:
    message = {"from": "hyperty://a.example/x", "to": "hyperty://b.example/y", "type": "create", "body": {"n": 1}}
    operation, arguments = asked(
        "execute", {"method": "evaluate", "params": {"message": message, "hook": "domain-out"}}
    )
    assert operation == "evaluate"
    assert (arguments["gate"], arguments["body"], arguments["to"]) == ("out", '{"n":1}', "hyperty://b.example/y")


@pytest.mark.parametrize("op", [None, "", "toggle", "SET", 1])
def test_a_gate_is_set_or_unset_and_nothing_else(op: object) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        asked("execute", {"method": "gates", "params": {"op": op, "from": "a.example"}})


@pytest.mark.parametrize(
    ("type_", "body", "code"),
    [
        ("read", {"operation": "status"}, None),
        ("execute", {"operation": "status"}, None),
        ("execute", {"operation": "kick", "dryRun": True}, None),
        ("create", {"operation": "status"}, Code.BAD_TYPE),
        ("read", {"operation": "kick"}, Code.BAD_TYPE),
        ("read", {"operation": "kick", "dryRun": True}, Code.BAD_TYPE),
        ("execute", {"operation": "kick", "dryRun": "yes"}, Code.BAD_BODY),
        ("execute", {"operation": "kick", "dry_run": 1}, Code.BAD_BODY),
        ("execute", {"operation": "fly"}, Code.NO_SUCH_SERVICE),
    ],
)
def test_what_changes_something_is_executed_and_only_a_flag_makes_it_a_dry_run(
    type_: str, body: dict[str, Any], code: Code | None
) -> None:
    found = None
    try:
        question = admin_service(request(type_, body)).question
        assert isinstance(question, AdminQuestion)
        assert question.request.dry_run is body.get("dryRun", False)
    except PeerError as exc:
        found = exc.code
    assert found is code
