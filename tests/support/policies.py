"""Short ways to write policies and facts in tests."""

from __future__ import annotations

from federation.links.decision_records import DecisionRecords
from policy.core.engine import (
    Algorithm,
    AllOf,
    CompiledPolicies,
    Condition,
    Effect,
    Facts,
    Hook,
    Mode,
    Operator,
    Policy,
    PolicySet,
    Rule,
    Test,
    compile_policies,
)
from policy.core.gate import Gate
from policy.core.model import ALWAYS, Scalar
from protofly.address import domain_of
from protofly.codec import build
from protofly.errors import PeerError
from protofly.message import Message

MONDAY_NOON = 1_767_614_400.0
"""5 January 2026, 12:00 UTC."""


def test(attribute: str, operator: str, *parameters: Scalar) -> Test:
    return Test(attribute=attribute, operator=Operator(operator), parameters=parameters)


test.__test__ = False  # type: ignore[attr-defined]  # a word of the policy language, not a test of pytest's


def both(*parts: Condition) -> AllOf:
    return AllOf(parts=parts)


def permit(rule_id: str, condition: Condition = ALWAYS, *, priority: int = 0, mode: Mode = Mode.ENFORCE) -> Rule:
    return Rule(id=rule_id, effect=Effect.PERMIT, condition=condition, priority=priority, mode=mode)


def deny(rule_id: str, condition: Condition = ALWAYS, *, priority: int = 0, mode: Mode = Mode.ENFORCE) -> Rule:
    return Rule(id=rule_id, effect=Effect.DENY, condition=condition, priority=priority, mode=mode)


def one_policy(*rules: Rule, algorithm: Algorithm = Algorithm.DENY_OVERRIDES) -> CompiledPolicies:
    policy = Policy(id="", rules=rules, algorithm=algorithm)
    return compile_policies([PolicySet(id="s", policies=(policy,))])


def unrecorded(gate: Gate) -> DecisionRecords:
    """A gate whose decisions nobody writes down."""
    return DecisionRecords(gate, lambda _record: None)


def a_message(
    *,
    type_: str = "create",
    from_: str = "hyperty://a.example/h-ana",
    to: str = "hyperty://b.example/h-bo",
    **body: object,
) -> Message:
    return build(id=1, type=type_, from_=from_, to=to, body=body)


def some_facts(message: Message | None = None, *, hook: Hook = "out", **others: object) -> Facts:
    """Facts about a message from a.example to b.example, or as given."""
    message = message if message is not None else a_message()
    from_domain, to_domain = _domain(message.from_), _domain(message.to)
    values: dict[str, object] = {
        "from_domain": from_domain,
        "to_domain": to_domain,
        "link_domain": {"local": "", "in": from_domain}.get(hook, to_domain),
        "size_bytes": len(message.raw),
        "via_length": 0,
        "now": MONDAY_NOON,
    }
    return Facts(hook=hook, message=message, **(values | others))  # type: ignore[arg-type]


def _domain(text: str) -> str:
    try:
        return domain_of(text)
    except PeerError:
        return ""
