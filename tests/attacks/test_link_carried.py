"""Messages inside messages: one level down, too, a domain speaks for itself only, and sets no flag of a node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from federation.core.carried import cleaned_forward
from federation.core.carrier import CarrierUp
from federation.links.link_context import Refusal
from protofly.errors import Code, PeerError
from protofly.limits import FORWARD_LEVELS
from tests.support.sides import Pair, body_of, decoded, inbound, node_of

US, THEM = "hyperty://b.example/bo", "hyperty://a.example/ana"
STREAM = "5" * 32
FLAGS = {"auth": True, "sessionToken": "s", "assertedIdentity": {"guid": "g"}, "via": ["x"]}
FORGED = [
    US,
    "hyperty://B.example./bo",
    "domain://registry.b.example",
    "hyperty://c.example/eve",
    "ana",
    "user-guid://x",
]
FORMS = ["message", "body", "deep", "shouted"]


def inner(from_: object = THEM, **body: object) -> dict[str, Any]:
    return {"type": "create", "from": from_, "to": US, "body": {"value": 1, **body}}


def form_of(kind: str, message: dict[str, Any]) -> dict[str, Any]:
    """One message inside another, in each of the ways that readers know."""
    if kind == "deep":
        return {"message": {"type": "forward", "from": THEM, "to": US, "body": {"message": message}}}
    if kind == "shouted":
        return {"message": {"type": " FORWARD", "from": THEM, "to": US, "body": message}}
    return {"message": message} if kind == "message" else message


def forwarded(body: object, *, from_: str = THEM, to: str = US) -> bytes:
    raw = body if isinstance(body, str) else json.dumps(body, separators=(",", ":"))
    return f'{{"id":7,"type":"forward","from":"{from_}","to":"{to}","body":{raw}}}'.encode()


@pytest.mark.parametrize("kind", FORMS)
def test_flags_inside_do_not_cross_in_either_direction(kind: str) -> None:
    pair = Pair()
    pair.to_a.inbound(inbound(forwarded(form_of(kind, inner(**FLAGS)))), STREAM)
    [message] = pair.b.delivered
    assert body_of(message) == form_of(kind, inner())
    carrier = pair.carrier()
    carrier.open()
    assert pair.to_b.send(decoded(forwarded(form_of(kind, inner(**FLAGS))))) is None
    pair.to_b.flush()
    wire = body_of(decoded(carrier.on_the_way[0].wire))
    del wire["via"], wire["trace"]
    assert wire == form_of(kind, inner())


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("forged", FORGED)
def test_a_message_inside_in_the_name_of_another_reaches_nobody_and_its_sender_is_notified(
    kind: str, forged: str
) -> None:
    for message in (inner(forged), inner(source=forged)):
        pair = Pair()
        back = pair.back()
        pair.to_a.handle(CarrierUp(back, node_of("a.example")))
        for number in range(1, 6):  # who forwards it may be one runtime of an honest domain: its link stays
            pair.to_a.inbound([(number, forwarded(form_of(kind, message)))], STREAM, back)
        pair.to_a.flush()
        assert (pair.b.delivered, pair.to_a.counters["spoofed"]) == ([], 0)
        answers = [body_of(decoded(pending.wire))["reason"] for pending in back.on_the_way]
        assert answers == ["spoofed-source"] * 5


@pytest.mark.parametrize("kind", FORMS)
def test_what_the_far_end_would_refuse_inside_does_not_leave(kind: str) -> None:
    pair = Pair()
    pair.carrier().open()
    refusal = pair.to_b.send(decoded(forwarded(form_of(kind, inner("hyperty://c.example/eve")))))
    assert refusal == Refusal(Code.SPOOFED_SOURCE)
    assert pair.to_b.queue.waiting == 0


def test_of_both_readings_of_a_body_neither_is_a_way_around() -> None:
    pair = Pair()
    bodies = ({**inner(US), "message": inner()}, {**inner(), "message": inner(US)})
    pair.to_a.inbound(inbound(*map(forwarded, bodies)), STREAM)
    assert pair.b.delivered == []


def test_members_given_twice_inside_are_judged_and_passed_on_as_one() -> None:
    flags = '"body":{"auth":true,"auth":false}'
    twice = f'{{"message":{{"type":"create","from":"{US}","from":"{THEM}","to":"{US}",{flags}}}}}'
    hidden = f'{{"message":{json.dumps(inner(US))},"message":{json.dumps(inner())}}}'
    pair = Pair()
    pair.to_a.inbound(inbound(forwarded(twice), forwarded(hidden)), STREAM)
    assert len(pair.b.delivered) == 2
    for message in pair.b.delivered:
        assert f'"from":"{US}"'.encode() not in message.raw
        assert b"auth" not in message.raw


@pytest.mark.parametrize("from_", [None, 7, [THEM], {"a": THEM}, ""])
def test_a_sender_inside_that_is_no_address_is_refused(from_: object) -> None:
    pair = Pair()
    pair.to_a.inbound(inbound(forwarded({"message": inner(from_)})), STREAM)
    assert pair.b.delivered == []


def test_a_body_that_carries_no_message_is_nobodys_business() -> None:
    for body in ({"value": 1}, {"message": "hello"}, {"message": ["x"]}, {"from": "monday", "to": "friday"}):
        assert json.loads(cleaned_forward(json.dumps(body).encode(), lambda _: False)) == body


def test_compact_bodies_without_flags_keep_their_bytes() -> None:
    for kind in FORMS:
        raw = json.dumps(form_of(kind, inner(number=12345678901234567890)), separators=(",", ":")).encode()
        assert cleaned_forward(raw, lambda _: True) == raw


@pytest.mark.parametrize(("levels", "is_refused"), [(FORWARD_LEVELS, False), (FORWARD_LEVELS + 1, True)])
def test_too_many_messages_inside_each_other_are_refused(levels: int, is_refused: bool) -> None:
    body = inner()
    for _ in range(levels):
        body = {"type": "forward", "from": THEM, "to": US, "body": {"message": body}}
    raw = json.dumps({"message": body}, separators=(",", ":")).encode()
    if is_refused:
        with pytest.raises(PeerError, check=lambda error: error.code is Code.TOO_DEEP):
            cleaned_forward(raw, lambda _: True)
    else:
        assert cleaned_forward(raw, lambda _: True) == raw


@pytest.mark.parametrize("value", ["", 7, None, [], {}])
@pytest.mark.parametrize("member", ["from", "source"])
def test_a_carried_sender_that_is_no_text_is_refused_by_every_rule(member: str, value: object) -> None:
    message = inner(value) if member == "from" else inner(source=value)
    body = json.dumps({"message": message}).encode()
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        cleaned_forward(body, lambda _address: True)
