"""Gates for a time: which messages they are about, what stands above and below them, and what ends with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.core import temporary
from policy.core.engine import Facts, Hook
from policy.core.gate import Gate, GateStep, PeerRule
from policy.core.rates import RateLimit
from policy.core.temporary import TemporaryGate, TemporaryGates, make_gate, temporary_gate
from policy.core.text import PolicyText, load_policies
from protofly.codec import build
from protofly.errors import Code, SettingsError
from tests.support.policies import a_message, deny, one_policy, permit, some_facts

A_TO_B = ("a.example", "b.example")
CLOSED = make_gate(*A_TO_B, "deny")
ANA = "hyperty://a.example/ana"
BO = "hyperty://b.example/bo"
OPEN = make_gate(*A_TO_B, "permit")


def asked(from_: str = ANA, to: str = BO, type_: str = "create", hook: Hook = "out") -> Facts:
    return some_facts(a_message(type_=type_, from_=from_, to=to), hook=hook)


def gate_of(*gates: TemporaryGate, **others: object) -> Gate:
    found = Gate(one_policy(permit("yes")), {"*": PeerRule()}, **others)  # type: ignore[arg-type]
    found.set_temporary(gates)
    return found


def test_a_gate_decides_before_rules_and_entries_and_ends_with_its_flows() -> None:
    gate = gate_of()
    settled = gate.settle(asked())
    assert settled is not None
    gate.set_temporary([CLOSED])
    assert gate.era is not settled.era
    verdict = gate.judge(asked())
    assert (verdict.permitted, verdict.code, verdict.step) == (False, Code.POLICY, GateStep.GATE)
    assert verdict.details_for_sender == {"rule": "gate: deny a.example > b.example"}
    assert gate.settle(asked()) is None
    assert gate.explain(asked()).verdict == gate.foresee(asked()) == verdict
    gate.set_temporary([])
    assert gate.judge(asked()).rule_id == "s/yes"


def test_a_gate_that_permits_opens_what_nothing_names_and_what_a_rule_denies() -> None:
    gate = Gate(one_policy(deny("no")))
    assert not gate.judge(asked()).permitted
    gate.set_temporary([OPEN])
    assert gate.judge(asked()).permitted
    assert gate.judge(asked(hook="peer")).permitted
    assert gate.settle(asked()) is not None
    assert not gate.judge(asked("hyperty://b.example/bo", "hyperty://a.example/ana", hook="in")).permitted


def test_lists_blocks_and_rates_stand_above_gates() -> None:
    assert gate_of(OPEN, deny=["b.example"]).judge(asked()).step is GateStep.LIST
    gate = gate_of(OPEN)
    gate.cut_off(["b.example"])
    assert gate.judge(asked()).step is GateStep.LIST
    slow = Gate(peers={"*": PeerRule(rate=RateLimit(messages_per_second=1.0))})
    slow.set_temporary([OPEN])
    assert [slow.judge(asked()).step for _ in range(2)] == [GateStep.GATE, GateStep.RATE]


@pytest.mark.parametrize(
    ("gate", "fits"),
    [
        (make_gate("*", "*", "deny"), True),
        (make_gate("*.example", "b.example", "deny"), True),
        (make_gate("A.Example.", "*.example", "deny"), True),
        (make_gate("*.a.example", "b.example", "deny"), False),
        (make_gate("b.example", "a.example", "deny"), False),
        (make_gate("a.example", "c.example", "deny"), False),
        (make_gate("c.example", "b.example", "deny"), False),
        (make_gate(*A_TO_B, "deny", type_="create"), True),
        (make_gate(*A_TO_B, "deny", type_="delete"), False),
        (make_gate(*A_TO_B, "deny", scheme="hyperty"), True),
        (make_gate(*A_TO_B, "deny", type_="create", scheme="comm"), False),
    ],
)
def test_a_gate_is_about_domains_a_type_and_a_scheme(gate: TemporaryGate, fits: bool) -> None:
    assert gate_of(gate).judge(asked()).permitted is not fits


def test_another_spelling_of_a_type_is_the_same_type() -> None:
    gate = gate_of(make_gate("*", "*", "deny", type_="reopen"))
    assert not gate.judge(asked(type_="re-open")).permitted
    assert not gate.judge(asked(type_="re_open")).permitted


def test_of_two_gates_the_first_one_decides() -> None:
    narrow = make_gate(*A_TO_B, "permit", type_="read")
    for gates, passed in (((narrow, CLOSED), [True, False]), ((CLOSED, narrow), [False, False])):
        gate = gate_of(*gates)
        assert [gate.judge(asked(type_=type_)).permitted for type_ in ("read", "create")] == passed


def test_what_a_forwarded_message_carries_meets_the_gates_as_well() -> None:
    body = {"id": 1, "type": "delete", "from": "hyperty://a.example/ana", "to": "hyperty://b.example/bo"}
    forward = build(id=1, type="forward", from_="hyperty://a.example/h", to="hyperty://b.example/h", body=body)
    gate = gate_of(make_gate(*A_TO_B, "deny", type_="delete"))
    assert not gate.judge(some_facts(forward)).permitted


_NAMES = st.sampled_from(["*", "a.example", "*.b.example"])
_WORDS = st.sampled_from(["", "create", "read"])


@given(_NAMES, _NAMES, st.sampled_from(["permit", "deny"]), _WORDS, st.sampled_from(["", "comm", "hyperty"]))
def test_a_gate_comes_back_from_its_name(source: str, target: str, effect: str, type_: str, scheme: str) -> None:
    made = make_gate(source, target, "permit" if effect == "permit" else "deny", type_=type_, scheme=scheme)
    assert temporary_gate(made.name, effect) == made


@given(st.text(max_size=60), st.sampled_from(["permit", "deny", "", "maybe"]))
def test_any_other_name_is_refused_and_nothing_else_happens(name: str, effect: str) -> None:
    try:
        found = temporary_gate(name, effect)
    except SettingsError:
        return
    assert found.effect == effect


@pytest.mark.parametrize(
    ("names", "words"),
    [(("a..example", "*"), {}), (("*", "x.*"), {}), (A_TO_B, {"type_": "CREATE"}), (A_TO_B, {"scheme": "x y"})],
)
def test_what_is_no_gate_is_refused(names: tuple[str, str], words: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        make_gate(*names, "deny", **words)


@pytest.mark.parametrize(
    ("name", "effect"),
    [("a.example", "permit"), ("a.example > b.example", "maybe"), ("a.example > b.example kind=read", "deny")],
)
def test_what_names_no_gate_is_called_so(name: str, effect: str) -> None:
    with pytest.raises(SettingsError, match="is no gate"):
        temporary_gate(name, effect)


def test_a_set_cannot_be_named_as_a_gate() -> None:
    text = 'id = "gate: x"\n[[rules]]\neffect = "deny"\n'
    with pytest.raises(SettingsError, match="gates for a time are named so"):
        load_policies([PolicyText("p.toml", text, "toml")])


def test_many_domains_do_not_make_the_gates_for_a_time_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary, "GATE_KNOWN_DOMAINS", 2)
    gates = TemporaryGates([CLOSED])
    sizes = []
    for name in ("b", "c", "c", "d", "b"):
        assert (gates.find(asked(to=f"hyperty://{name}.example/h")) is CLOSED) is (name == "b")
        sizes.append(len(gates._found))
    assert sizes == [1, 2, 2, 1, 2]
