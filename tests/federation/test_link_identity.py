"""Who sends a message, as a link reports it to its gate: what this node verified, and no claim of the message."""

from __future__ import annotations

import json

import pytest

from federation.core.border import refusal_abroad
from federation.links.link_context import Identified, Refusal
from policy.core.gate import Gate
from protofly.codec import build
from protofly.errors import Code, PeerError
from protofly.message import Message
from tests.support.policies import both, one_policy, permit
from tests.support.policies import test as condition
from tests.support.sides import Bus, Pair, chat, inbound, text

STREAM = "5" * 32
ISSUER = "https://login.b.example"
BOSS = both(
    condition("identity.user", "equals", "boss@b.example"),
    condition("identity.issuer", "equals", ISSUER),
    condition("identity.verified", "equals", True),
    condition("srcIDPDomain", "equals", "b.example"),
)
CLAIMS = '"auth":true,"assertedIdentity":"boss@b.example","identity":{"userProfile":{"username":"boss@b.example"}}'


def identify(message: Message, domain: str, _now: float) -> Identified:
    """Knows one good assertion; of b.example it wants one."""
    if b'"idToken":"good"' in message.body:
        return Identified(True, f"boss@{domain}", f"https://login.{domain}")
    if domain == "b.example" and message.type != "response":
        raise PeerError(Code.BAD_ASSERTION, "none that holds", domain=domain)
    return Identified()


@pytest.mark.parametrize(
    ("body", "passes"),
    [
        ('{"idToken":"good"}', True),
        ('{"idToken":"forged"}', False),
        (f"{{{CLAIMS}}}", False),
        (f'{{{CLAIMS},"idToken":"forged"}}', False),
        ("", False),
    ],
)
def test_only_what_was_verified_makes_a_rule_about_people_true(body: str, passes: bool) -> None:
    gate = Gate(one_policy(permit("boss", BOSS)))
    pair = Pair(a=Bus("a.example", gate=gate, identify=_quietly))
    pair.to_b.inbound(inbound(text(body=body)), STREAM)
    assert len(pair.a.delivered) == int(passes)


def _quietly(message: Message, domain: str, now: float) -> Identified:
    try:
        return identify(message, domain, now)
    except PeerError:
        return Identified()


def test_where_an_assertion_is_demanded_a_message_without_is_turned_away_before_the_gate() -> None:
    pair = Pair(a=Bus("a.example", identify=identify))
    pair.to_b.inbound(inbound(text(), text(body='{"idToken":"good"}')), STREAM)
    assert len(pair.a.delivered) == 1
    outcomes = [(record.outcome, record.outcome_code) for record in pair.a.message_records]
    assert outcomes == [("rejected", "bad-assertion"), ("delivered", None)]
    assert pair.a.decisions == []


def test_messages_that_leave_are_judged_by_the_assertions_of_our_own_people() -> None:
    rule = permit("boss", condition("identity.user", "equals", "boss@a.example"))
    pair = Pair(a=Bus("a.example", gate=Gate(one_policy(rule)), identify=identify))
    assert pair.to_b.send(chat(1, idToken="good")) is None
    refusal = pair.to_b.send(chat(2, assertedIdentity="boss@a.example"))
    assert refusal is not None
    assert refusal.code is Code.POLICY


def test_a_message_of_our_own_that_may_not_pass_for_its_sender_is_refused() -> None:
    def strict(message: Message, domain: str, now: float) -> Identified:
        raise PeerError(Code.BAD_ASSERTION, domain=domain)

    pair = Pair(a=Bus("a.example", identify=strict))
    assert pair.to_b.send(chat(1)) == Refusal(Code.BAD_ASSERTION)
    assert pair.to_b.queue.waiting == 0


def test_what_a_message_carries_is_not_its_sender_s_word() -> None:
    gate = Gate(one_policy(permit("boss", BOSS)))
    pair = Pair(a=Bus("a.example", gate=gate, identify=_quietly))
    inner = '{"id":2,"type":"create","from":"hyperty://b.example/other","to":"hyperty://a.example/ana","body":{}}'
    forwarded = build(
        id=1,
        type="forward",
        from_="hyperty://b.example/bo",
        to="hyperty://a.example/ana",
        body={"idToken": "good", "message": json.loads(inner)},
    )
    pair.to_b.inbound(inbound(text(body='{"idToken":"good"}'), forwarded.raw), STREAM)
    assert len(pair.a.delivered) == 1
    assert [(one.msg_type, one.permitted) for one in pair.a.decisions] == [("forward", False)]


def test_a_refusal_for_a_user_by_guid_is_given_in_their_name() -> None:
    request = build(id=1, type="read", from_="hyperty://b.example/bo", to=f"user-guid://{'A' * 43}", body={})
    reply = refusal_abroad(
        request, Code.NOT_REGISTERED, "", node="runtime://a.example/mn-1", our_domains=frozenset({"a.example"})
    )
    assert (reply.from_, reply.to) == (request.to, request.from_)
