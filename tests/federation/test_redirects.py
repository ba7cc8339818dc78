"""What the far side sends and a policy of ours redirects, answers or logs; what our side sends and ours redirects."""

from __future__ import annotations

from policy.core.gate import Gate, PeerRule
from policy.core.obligations import Instead
from policy.core.text import PolicyText, load_policies
from protofly.errors import Code
from tests.support.sides import Bus, Pair, body_of, request

BOB = "hyperty://b.example/bo"
DESK = "hyperty://b.example/desk"
RULE = """
[[rules]]
id = "{name}"
effect = "permit"
condition = {{ hook = {{ equals = "{hook}" }}, msgTo = {{ equals = "{to}" }} }}
obligations = {{ {obligation} }}
"""


def gate_of(*rules: tuple[str, str], hook: str = "in") -> Gate:
    """An obligation for messages to each of some addresses."""
    text = 'id = "s"\n' + "".join(
        RULE.format(name=f"r{number}", hook=hook, to=to, obligation=obligation)
        for number, (to, obligation) in enumerate(rules)
    )
    return Gate(load_policies([PolicyText("p.toml", text, "toml")]), {"*": PeerRule()})


def sent_to_b(gate: Gate) -> Pair:
    """A request of a.example has come to the gate of b.example, and what b.example answers has come back."""
    pair = Pair(b=Bus("b.example", gate=gate))
    there, back = pair.carrier(), pair.back()
    there.open()
    back.open()
    assert request(1).to == BOB
    pair.to_b.send(request(1))
    pair.to_b.flush()
    there.arrive()
    pair.to_a.flush()
    back.arrive()
    return pair


def test_a_redirected_message_is_judged_again_and_recorded_as_the_one_that_was_delivered() -> None:
    pair = sent_to_b(gate_of((BOB, f'redirect = "{DESK}"')))
    [message] = pair.b.delivered
    assert (message.to, message.from_, message.id) == (DESK, "hyperty://a.example/ana", b"1")
    assert body_of(message) == body_of(request(1))
    assert pair.a.delivered == []
    [decision] = pair.b.decisions
    assert (decision.rule_id, decision.permitted, decision.obligations) == ("s/r0", False, (f"redirect={DESK}",))
    [record] = pair.b.message_records
    assert (record.outcome, record.decision, record.dst_key, record.rule_id) == ("delivered", "permit", DESK, None)
    assert record.msg_id == decision.msg_id


def test_rules_that_point_at_each_other_refuse_the_message_in_the_name_that_was_asked() -> None:
    pair = sent_to_b(gate_of((BOB, f'redirect = "{DESK}"'), (DESK, f'redirect = "{BOB}"')))
    assert pair.b.delivered == []
    [answer] = pair.a.delivered
    assert (answer.from_, body_of(answer)["code"], body_of(answer)["reason"]) == (BOB, 508, "loop")
    assert pair.b.message_records[0].outcome_code == "loop"


def test_an_automatic_answer_goes_back_in_the_name_that_was_asked() -> None:
    pair = sent_to_b(gate_of((BOB, 'answer = "486 Busy"')))
    assert pair.b.delivered == []
    [answer] = pair.a.delivered
    assert (answer.from_, answer.id) == (BOB, b"1")
    assert (body_of(answer)["code"], body_of(answer)["description"]) == (486, "Busy")
    assert pair.b.message_records[0].outcome == "denied"


def test_a_logged_message_arrives_and_has_a_decision_record_with_its_word() -> None:
    pair = sent_to_b(gate_of((BOB, 'log = "to Bob"')))
    assert len(pair.b.delivered) == 1
    [decision] = pair.b.decisions
    assert (decision.permitted, decision.obligations, decision.shadow) == (True, ("log=to Bob",), None)


def test_our_own_message_is_given_back_with_what_is_to_happen_instead() -> None:
    pair = Pair(a=Bus("a.example", gate=gate_of((BOB, f'redirect = "{DESK}"'), hook="out")))
    refusal = pair.to_b.send(request(2))
    assert refusal is not None
    assert (refusal.code, refusal.instead) == (Code.POLICY, Instead(address=DESK))
    assert pair.to_b.queue.waiting == 0
