"""Which decisions are kept to be tried on other policies, and what those say about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from msg_node.admin.core.recent_decisions import OF_A_BATCH, RecentDecisions, Trial, try_policies
from policy.core.engine import Algorithm
from policy.core.gate import Gate
from protofly.record_runs import MessageRun, Recorded, records_in
from protofly.records import DecisionRecord, GateFacts, MessageRecord, SessionEvent
from tests.support.policies import deny, one_policy, permit, test

ANA, BO = "hyperty://a.example/ana", "hyperty://b.example/bo"


def message(decision: str = "permit", **changes: Any) -> MessageRecord:
    values: dict[str, Any] = {
        "ts_us": 1,
        "role": "out",
        "msg_id": "",
        "attempt": 1,
        "src_domain": "a.example",
        "dst_domain": "b.example",
        "src_key": ANA,
        "dst_key": BO,
        "msg_type": "create",
        "size_in": 10,
        "digest": "",
        "outcome": "delivered",
        "decision": decision,
    }
    return MessageRecord(**{**values, **changes})


def denial(**changes: Any) -> DecisionRecord:
    values: dict[str, Any] = {
        "ts_us": 1,
        "hook": "local",
        "effect": "deny",
        "permitted": False,
        "policy_rev": "r",
        "src_domain": "a.example",
        "dst_domain": "a.example",
        "reason": "policy",
    }
    return DecisionRecord(**{**values, **changes})


@pytest.mark.parametrize(
    ("record", "is_kept"),
    [
        (message(), True),
        (message("deny"), True),
        (message("deny", reason="policy"), True),
        *((message(decision, reason=reason), False) for decision in ("permit", "deny") for reason in ("rate", "node")),
        (denial(), True),
        (denial(hook="peer"), True),
        (denial(hook="out"), False),
        (denial(permitted=True), False),
        (denial(reason="quota"), False),
        (denial(rule_id="gate: deny a.example > b.example"), False),
        (denial(rule_id="s/no"), True),
    ],
)
def test_kept_is_what_policies_decided_and_what_has_no_other_record(
    record: MessageRecord | DecisionRecord, is_kept: bool
) -> None:
    decisions = RecentDecisions()
    decisions.observe([record])
    assert list(decisions) == ([record] if is_kept else [])


def test_of_a_batch_the_last_that_passed_are_kept_and_all_denials_the_newest_first() -> None:
    decisions = RecentDecisions()
    passed = [message(ts_us=number) for number in range(OF_A_BATCH + 5)]
    denied = [message("deny", ts_us=100 + number) for number in range(OF_A_BATCH + 5)]
    decisions.observe([*passed, *denied])
    kept = [one.ts_us for one in decisions]
    assert kept == [*range(100 + OF_A_BATCH + 4, 99, -1), *range(OF_A_BATCH + 4, 4, -1)]


BY_TYPE = test("msgType", "in", "delete")
BY_CLASS = test("class", "in", "action")
PARTIAL: Mapping[str, Any] = {"facts": GateFacts(partial=True)}


@pytest.mark.parametrize(
    ("rule", "records", "missing", "expected"),
    [
        (deny("no", BY_TYPE), [message(), message(msg_type="delete")], {"class"}, (2, 0, ["delete"])),
        (deny("no", BY_TYPE), [message(), message(msg_type="delete")], {"msgType"}, (0, 2, [])),
        (deny("no", BY_TYPE), [message("deny"), message("deny", msg_type="delete")], set(), (2, 0, ["create"])),
        (deny("no", BY_TYPE), [message(**PARTIAL), message(msg_type="delete", **PARTIAL)], set(), (2, 0, ["delete"])),
        (
            deny("no", BY_CLASS),
            [message(facts=GateFacts(class_="action")), message(**PARTIAL), message(), message(facts=GateFacts())],
            set(),
            (3, 1, ["create"]),
        ),
        (permit("yes"), [denial(msg_type="read"), denial(msg_type="read", permitted=True)], set(), (2, 0, ["read"])),
    ],
)
def test_decisions_are_tried_that_have_what_the_policies_read(
    rule: Any, records: list[Any], missing: set[str], expected: tuple[int, int, list[str]]
) -> None:
    trial: Trial = try_policies(Gate(one_policy(permit("other"), rule)), records, frozenset(missing))
    assert (trial.judged, trial.unknown, [one.record.msg_type for one in trial.changed]) == expected


@pytest.mark.parametrize(
    ("in_force", "missing", "changed"),
    [
        (permit("yes"), set(), []),  # a block denied it, and is none of the policies
        (deny("no"), set(), ["read"]),
        (deny("no", BY_TYPE), {"msgType"}, ["read"]),  # what is in force cannot be tried: the record counts
        (permit("yes", BY_CLASS), set(), ["read"]),
    ],
)
def test_a_denial_changes_if_the_policies_in_force_deny_it_and_the_others_do_not(
    in_force: Any, missing: set[str], changed: list[str]
) -> None:
    before, after = Gate(one_policy(in_force)), Gate(one_policy(permit("yes")))
    denied = message("deny", reason="domain-blocked", msg_type="read", **PARTIAL)
    trial = try_policies(after, [denied], frozenset(missing), in_force=before)
    assert [one.record.msg_type for one in trial.changed] == changed


@pytest.mark.parametrize(
    ("condition", "record", "is_met"),
    [
        (test("size", "moreThan", 0), denial(), False),
        (test("size", "moreThan", 6), denial(size_in=7), True),
        (test("size", "moreThan", 7), denial(size_in=7), False),
        (test("size", "moreThan", 10), message("deny", role="in", size_wire=11), True),
        (test("size", "moreThan", 10), message("deny", size_wire=11), False),
        (test("linkDomain", "in", "b.example"), denial(link_domain="b.example"), True),
        (test("linkDomain", "in", "a.example"), denial(), False),
        (test("linkDomain", "in", "b.example"), message("deny"), True),
        (test("hook", "in", "peer"), denial(hook="peer"), True),
        (test("hook", "in", "in"), message("deny", role="in"), True),
        (test("msgFrom", "in", ANA), denial(src_key=ANA), True),
        (test("msgTo", "in", BO), denial(dst_key=BO), True),
        (test("msgTo", "in", BO), denial(src_key=BO), False),
        (
            test("identity.user", "in", "ana"),
            denial(facts=GateFacts(identity_verified=True, identity_user="ana")),
            True,
        ),
        (
            test("identity.user", "in", "ana"),
            message("deny", facts=GateFacts(identity_verified=True, identity_user="ana")),
            True,
        ),
    ],
)
def test_a_decision_is_tried_on_what_its_record_says(condition: Any, record: Any, *, is_met: bool) -> None:
    trial = try_policies(
        Gate(one_policy(deny("other"), permit("met", condition), algorithm=Algorithm.PERMIT_OVERRIDES)),
        [record],
        frozenset(),
    )
    assert bool(trial.changed) is is_met


@pytest.mark.parametrize("reason", ["policy", "rate"])
@pytest.mark.parametrize("length", [3, OF_A_BATCH, OF_A_BATCH + 5])
def test_of_runs_the_same_is_kept_as_of_their_records(reason: str, length: int) -> None:
    run = MessageRun(message(reason=reason), {"msg_id": ["ab"] * length, "ts_us": list(range(length))})
    batch: list[Recorded] = [message(ts_us=-1), run, message(ts_us=length)]
    of_runs, of_records = RecentDecisions(), RecentDecisions()
    of_runs.observe(batch)
    of_records.observe(list(records_in(batch)))
    assert list(of_runs) == list(of_records) != []


def test_what_is_no_decision_is_not_kept() -> None:
    decisions = RecentDecisions()
    decisions.observe([SessionEvent(ts_us=1, event="opened", runtime_key="r"), denial()])
    assert len(list(decisions)) == 1


@pytest.mark.parametrize(("type_", "changed"), [("read", 1), ("create", 0), (None, 0)])
def test_a_decision_without_a_message_is_tried_with_the_type_that_it_was_about(type_: str | None, changed: int) -> None:
    gate = Gate(one_policy(permit("reads", test("actionType", "equals", "read"))), own_bus="deny")
    decision = denial(msg_type=type_, src_key=ANA, dst_key=ANA)
    assert len(try_policies(gate, [decision], frozenset()).changed) == changed
