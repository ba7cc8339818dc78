"""Which decisions of the gates `local` and `peer` are recorded, and how many at most."""

from __future__ import annotations

from msgspec.structs import replace

from federation.core.border import derived_id
from federation.core.decision_budget import DecisionBudget
from federation.links.decision_records import DecisionRecords
from policy.core.gate import Gate
from policy.core.model import Facts, Mode
from protofly import codec
from protofly.limits import DECISIONS_PER_MINUTE, DECISIONS_PER_SOURCE
from protofly.message import Message
from protofly.records import DecisionRecord, Record
from tests.support.policies import deny, one_policy
from tests.support.policies import test as condition

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def facts(type_: str = "read", *, text: str = "") -> Facts:
    address = "hyperty://a.example/h"
    message = Message(b"1", type_, f"{address}-1", f"{address}-2{text}", b"", b"x" * 40)
    return Facts("local", message, "a.example", "a.example", "", 40, 0, 1_000.0)


def recorder(mode: Mode = Mode.ENFORCE) -> tuple[DecisionRecords, list[DecisionRecord]]:
    kept: list[DecisionRecord] = []

    def record(one: Record) -> None:
        assert isinstance(one, DecisionRecord)
        kept.append(one)

    policies = one_policy(deny("no-reads", condition("actionType", "equals", "read"), mode=mode))
    return DecisionRecords(Gate(policies), record), kept


def test_a_denial_on_the_own_bus_is_recorded_with_its_rule_and_a_permission_is_not() -> None:
    decisions, kept = recorder()
    assert decisions.judge(facts("create"), group="sessions", source="1").verdict.permitted
    assert not decisions.judge(facts(), group="sessions", source="1").verdict.permitted
    (one,) = kept
    assert (one.hook, one.effect, one.permitted, one.reason) == ("local", "deny", False, "policy")
    assert (one.rule_id or "").endswith("no-reads")
    assert (one.link_domain, one.size_in, one.ts_us, one.left_out) == (None, 40, 1_000_000_000, None)
    assert (one.src_key, one.dst_key) == ("hyperty://a.example/h-1", "hyperty://a.example/h-2")


def test_a_rule_in_report_mode_speaks_on_the_own_bus() -> None:
    decisions, kept = recorder(Mode.REPORT)
    assert decisions.judge(facts(), group="sessions", source="1").verdict.permitted
    (one,) = kept
    assert (one.permitted, [word.split()[1] for word in one.shadow or ()]) == (True, ["deny"])


def test_the_id_of_a_denial_leads_to_its_record_and_what_has_no_record_has_no_id() -> None:
    decisions, kept = recorder()
    assert decisions.judge(facts("create"), group="sessions", source="1").msg_id == ""
    ids = [decisions.judge(facts(), group="sessions", source="1").msg_id for _ in range(DECISIONS_PER_SOURCE + 1)]
    assert ids == [*(one.msg_id for one in kept), ""]
    assert len({*ids}) == DECISIONS_PER_SOURCE + 1


def test_a_denial_whose_sender_traces_itself_has_that_trace_and_the_id_that_it_would_cross_with() -> None:
    decisions, kept = recorder()
    read = facts().message
    message = codec.build(id=1, type="read", from_=read.from_, to=read.to, body={"trace": TRACE})
    msg_id = decisions.judge(replace(facts(), message=message), group="sessions", source="1").msg_id
    assert (kept[0].trace_id, kept[0].msg_id) == (TRACE, msg_id)
    assert msg_id == derived_id(message, message.trace).hex()


def test_each_source_has_a_budget_and_all_of_a_group_together_and_what_is_left_out_is_counted() -> None:
    budget = DecisionBudget()
    taken = [budget.take("a", "loud", 0.0) for _ in range(DECISIONS_PER_SOURCE + 5)]
    assert taken == [0] * DECISIONS_PER_SOURCE + [None] * 5
    assert budget.take("a", "quiet", 1.0) == 5
    assert budget.take("a", "quiet", 1.0) == 0
    for number in range(DECISIONS_PER_MINUTE):
        budget.take("a", f"name-{number}", 2.0)
    assert budget.take("a", "late", 3.0) is None
    left_out = DECISIONS_PER_SOURCE + 2 + 1
    assert budget.take("b", "other", 3.0) == left_out
    assert budget.take("a", "loud", 60.0) == 0
    assert budget.left_out == 5 + left_out
