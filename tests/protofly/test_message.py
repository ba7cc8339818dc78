"""What a decoded message is: an event, an action, something that is to be answered."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protofly import codec
from protofly.late_replies import marked_late
from protofly.message import Message


def message(type_: str = "create", to: str = "thing://a.example/t", *, id: int | None = 1, **body: Any) -> Message:
    members: dict[str, Any] = {"type": type_, "from": "hyperty://a.example/h", "to": to}
    members |= {"id": id} if id is not None else {}
    members |= {"body": body} if body else {}
    [decoded] = codec.decode(json.dumps(members).encode())
    return decoded


@pytest.mark.parametrize(
    ("type_", "to", "body", "is_event"),
    [
        ("update", "thing://a.example/t/events/hot", {}, True),
        ("create", "thing://a.example/t/events/hot", {}, True),
        ("event", "thing://a.example/t/events/hot", {}, True),
        ("read", "thing://a.example/t/events/hot", {}, False),
        ("event", "thing://a.example/t/eventss/hot", {}, False),
        ("event", "comm://a.example/t/events/hot", {}, False),
        ("create", "comm://a.example/t", {"class": "event"}, True),
        ("create", "thing://a.example/t/events/hot", {"class": "action"}, False),
    ],
)
def test_events_are_recognised_by_class_or_address(type_: str, to: str, body: dict[str, Any], is_event: bool) -> None:
    assert message(type_, to, **body).is_class_event is is_event


@pytest.mark.parametrize("type_", ["create", "update", "read", "execute"])
def test_only_types_of_events_expect_no_reply_for_their_class(type_: str) -> None:
    body: dict[str, Any] = {"class": "event"}
    assert message(type_, **body).expects_reply is (type_ in ("read", "execute"))
    assert message(type_, **body, receipt=True).expects_reply


@pytest.mark.parametrize(
    ("type_", "class_", "is_action"),
    [("execute", "action", True), ("execute", "event", False), ("execute", None, False), ("create", "action", False)],
)
def test_an_action_is_an_execute_of_that_class(type_: str, class_: str | None, is_action: bool) -> None:
    body: dict[str, Any] = {"class": class_} if class_ else {"x": 1}
    assert message(type_, **body).is_action is is_action


@pytest.mark.parametrize(
    ("type_", "id_", "receipt", "wants"),
    [
        ("event", 1, True, True),
        ("event", None, True, False),
        ("response", 1, True, False),
        ("event", 1, False, False),
        ("event", 1, "true", False),
    ],
)
def test_a_receipt_is_wanted_by_its_true_alone(type_: str, id_: int | None, receipt: object, wants: bool) -> None:
    assert message(type_, id=id_, receipt=receipt).wants_receipt is wants
    assert not message(type_, id=id_).wants_receipt


@pytest.mark.parametrize(
    ("type_", "to", "id_", "expects"),
    [
        ("create", "comm://a.example/r", 1, True),
        ("create", "comm://a.example/r", None, False),
        ("response", "comm://a.example/r", 1, False),
        ("event", "comm://a.example/r", 1, False),
        ("pong", "comm://a.example/r", 1, False),
        ("ping", "comm://a.example/r", 1, True),
        ("update", "comm://a.example/r/changes", 1, False),
        ("delete", "comm://a.example/r/status", 1, False),
        ("update", "comm://a.example/r/registration", 1, False),
        ("update", "comm://a.example/r/change", 1, True),
        ("create", "comm://a.example/r/changes", 1, True),
        ("update", "thing://a.example/t/events/hot", 1, False),
        ("read", "thing://a.example/t/events/hot", 1, True),
    ],
)
def test_what_is_only_sent_is_not_answered_unless_a_receipt_is_wanted(
    type_: str, to: str, id_: int | None, expects: bool
) -> None:
    assert message(type_, to, id=id_).expects_reply is expects
    is_notified = type_ not in ("response", "event", "pong") and id_ is not None
    assert message(type_, to, id=id_, receipt=True).expects_reply is is_notified


def test_a_late_reply_is_marked_once_whatever_its_body_said() -> None:
    bodies: list[dict[str, Any]] = [{"code": 200}, {}, {"late": False, "code": 200}]
    for body in bodies:
        reply = message("response", **body)
        late = marked_late(reply)
        assert json.loads(late.raw)["body"] == {**body, "late": True}
        assert (reply.is_late, late.is_late) == (False, True)
        assert marked_late(late) is late


@pytest.mark.parametrize(("type_", "is_response"), [("response", True), ("responses", False), ("create", False)])
def test_a_reply_is_known_by_its_type_alone(type_: str, is_response: bool) -> None:
    assert message(type_, code=200).is_response is is_response
