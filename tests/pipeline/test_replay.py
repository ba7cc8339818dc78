from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as settings_of_tests
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.columns.replaying import COLUMNS, SAMPLES, Cell, GateSettings, Replayer, Tally, unreplayable_rules
from pipeline.jobs import replay
from pipeline.jobs.result import ExitCode
from pipeline.lake.tables import Lake
from pipeline.schemas import REPLAY_FLIP, REPLAY_RUN, SILVER_MDR
from policy.core.engine import compile_canonical
from policy.core.gate import PeerRule
from policy.core.rates import RateLimit
from policy.core.recorded_facts import record_facts
from policy.core.text import PolicyText, load_policies
from protofly.message import Message
from protofly.records import GateFacts
from tests.pipeline.rows import MONDAY_US, silver, silver_row

PERMIT_B = {"b.example": PeerRule(default="permit")}
BIG = """
id = "border"
[[rules]]
id = "too-big"
effect = "deny"
condition = { size = { moreThan = 1000 } }
"""
SECRETS = """
id = "border"
[[rules]]
id = "no-secrets"
effect = "deny"
condition = { resource = { present = true, like = "/private/*" }, actionType = { equals = "read" } }
[[rules]]
id = "too-big"
effect = "deny"
condition = { size = { moreThan = 500 } }
"""
NO_PLAIN = """
id = "border"
[[rules]]
id = "no-plain"
effect = "deny"
condition = { linkClass = { equals = "plain" } }
"""
BY_ADDRESS = """
id = "border"
[[rules]]
id = "not-them"
effect = "deny"
condition = { msgFrom = { equals = "hyperty://b.example/h-9" } }
"""


RECORD = pa.schema([to_arrow_schema(SILVER_MDR.schema).field(name) for name in COLUMNS])


def settings(text: str = BIG, peers: dict[str, PeerRule] | None = None) -> GateSettings:
    policies = load_policies([PolicyText("border.toml", text, "toml")])
    return GateSettings(canonical=policies.canonical, peers=PERMIT_B if peers is None else peers)


def revision(of: GateSettings) -> str:
    return compile_canonical(of.canonical).revision


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist([{name: row.get(name) for name in COLUMNS} for row in rows], schema=RECORD)


def recorded(of: GateSettings, **members: Any) -> dict[str, Any]:
    """A row with the decision that the gate makes now, as a node would have written it."""
    row = silver_row(policy_rev=revision(of), **members)
    replayer = Replayer(of, of)
    replayer.replay(table([row]))
    [(cell, _)] = replayer.cells.items()
    denied = cell.new_decision == "deny"
    row.update(decision=cell.new_decision, rule_id=cell.new_rule or None)
    return {**row, "outcome": "denied" if denied else "delivered", "outcome_code": "policy" if denied else None}


def replayed(old: GateSettings, new: GateSettings, rows: list[dict[str, Any]]) -> Replayer:
    replayer = Replayer(old, new)
    replayer.replay(table(rows))
    return replayer


def test_deployed_policy_reproduces_what_the_records_say() -> None:
    old = settings()
    rows = [recorded(old, size_in=size, size_wire=size) for size in (200, 999, 1001, 5000)]
    checked = replayed(old, old, rows).checked
    assert (checked.agreed, checked.differed, checked.not_replayable) == (4, 0, 0)


@pytest.mark.parametrize(
    "forged", [{"decision": "deny"}, {"rule_id": "border/another"}, {"size_in": 2000, "size_wire": 2000}]
)
def test_records_that_the_deployed_policy_does_not_reproduce_are_reported(forged: dict[str, Any]) -> None:
    old = settings()
    row = {**recorded(old), **forged}
    checked = replayed(old, old, [row]).checked
    assert (checked.agreed, checked.differed) == (0, 1)
    assert checked.differing == [row["msg_id"].hex()]


def test_flips_are_counted_by_pair_and_rule_with_samples_and_bytes() -> None:
    old, new = settings(), settings(SECRETS.replace("resource = { present", "msgTo = { present"))
    rows = [recorded(old, size_in=size, size_wire=size) for size in (400, 600, 700, 1200)]
    cells = replayed(old, new, rows).cells
    flipped = cells[Cell("b.example", "a.example", "in", "permit", "deny", "", "border/too-big")]
    assert (flipped.messages, flipped.size_bytes) == (2, 1300)
    assert flipped.samples == [row["msg_id"] for row in rows[1:3]]
    assert sum(tally.messages for tally in cells.values()) == 4


def test_message_that_a_rule_about_unrecorded_facts_could_touch_is_not_guessed() -> None:
    old, new = settings(), settings(SECRETS)
    rows = [recorded(old, msg_type=type_) for type_ in ("read", "create", "create")]
    replayer = replayed(old, new, rows)
    assert replayer.checked.not_replayable == 1
    assert sum(tally.messages for tally in replayer.cells.values()) == 2
    policies = [compile_canonical(one.canonical) for one in (new, old)]
    assert unreplayable_rules(*policies, is_hashed=False) == ("border/no-secrets",)


def test_fact_that_the_deployed_policy_read_is_recorded_and_so_replayable() -> None:
    old = settings(SECRETS)
    policies = compile_canonical(old.canonical)
    message = Message(b"1", "read", "hyperty://b.example/h-1", "hyperty://a.example/h-1", b"", b"")
    from policy.core.engine import Facts

    facts = Facts("in", message, "b.example", "a.example", "b.example", 200, 0, MONDAY_US / 1e6)
    packed = record_facts(facts, "b.example", "a.example", policies.facts_read)
    row = recorded(old, msg_type="read", facts=None if packed is None else msgspec.json.encode(packed).decode())
    checked = replayed(old, old, [row]).checked
    assert (checked.agreed, checked.not_replayable) == (1, 0)


def test_rule_about_addresses_is_not_replayed_over_hashed_addresses() -> None:
    old, new = settings(), settings(BY_ADDRESS)
    hashed = {"src_key": "hyperty:" + "0" * 24, "dst_key": "hyperty:" + "1" * 24}
    replayer = replayed(old, new, [recorded(old, **hashed), recorded(old)])
    assert replayer.checked.not_replayable == 1
    assert replayer.checked.agreed == 2


def test_hashed_addresses_prove_nothing_about_a_deployed_rule_that_reads_them() -> None:
    old, new = settings(BY_ADDRESS), settings()
    hashed = {"src_key": "hyperty:" + "0" * 24, "dst_key": "hyperty:" + "1" * 24}
    checked = replayed(old, new, [recorded(old), {**silver_row(policy_rev=revision(old), **hashed)}]).checked
    assert (checked.agreed, checked.unchecked, checked.differed, checked.not_replayable) == (1, 1, 0, 0)


def test_a_record_without_some_of_its_facts_is_replayed_by_what_is_there_and_proves_nothing() -> None:
    old, new = settings(SECRETS), settings()
    row = {**silver_row(policy_rev=revision(old)), "facts": '{"partial":true}'}
    checked = replayed(old, new, [row]).checked
    assert (checked.agreed, checked.unchecked, checked.differed, checked.not_replayable) == (0, 1, 0, 0)
    assert replayed(old, old, [row]).checked.not_replayable == 1


def test_record_under_another_revision_is_replayed_but_proves_nothing() -> None:
    old = settings()
    checked = replayed(old, old, [{**recorded(old), "policy_rev": "another"}]).checked
    assert (checked.agreed, checked.differed, checked.other_revision) == (0, 0, 1)


def test_unreadable_facts_make_a_message_not_replayable() -> None:
    old = settings()
    checked = replayed(old, old, [{**silver_row(), "facts": "{"}]).checked
    assert checked.not_replayable == 1


def test_forwarded_message_is_not_replayed_because_what_it_carried_is_not_recorded() -> None:
    old = settings()
    assert replayed(old, old, [silver_row(msg_type="forward")]).checked.not_replayable == 1


def test_rates_are_replayed_in_the_order_of_time_and_begin_full_after_a_restart() -> None:
    slow = {"b.example": PeerRule(default="permit", rate=RateLimit(messages_per_second=2.0))}
    old, new = settings(), settings(peers=slow)
    rows = [recorded(old, ts_us=MONDAY_US + number * 1000) for number in range(6)]
    rows += [recorded(old, ts_us=MONDAY_US + 10_000 + number, boot=2) for number in range(3)]
    cells = replayed(old, new, rows).cells
    assert {cell.new_decision: tally.messages for cell, tally in cells.items()} == {"permit": 4, "deny": 5}
    assert new.has_rates
    assert not old.has_rates


LIMITED = """
id = "border"
[limits]
slow = {{ by = "{by}", {most} }}
[[rules]]
id = "some"
effect = "permit"
obligations = {{ limit = "slow" }}
"""


@pytest.mark.parametrize(
    ("most", "passed"), [("messages_per_second = 1.0", [2, 1, 2, 1]), ('per = "day", messages = 3', [2, 1, 0, 1])]
)
def test_limits_of_rules_are_replayed_for_each_sender_and_volumes_go_on_after_a_restart(
    most: str, passed: list[int]
) -> None:
    old, new = settings(), settings(LIMITED.format(by="sender", most=most))
    senders = ["hyperty://b.example/h-1"] * 2 + ["hyperty://b.example/h-2"]
    rows = [recorded(old, src_key=one, ts_us=MONDAY_US + at * 1000) for at, one in enumerate(senders)]
    more = ["hyperty://b.example/h-1"] * 3 + ["hyperty://b.example/h-3"]
    rows += [recorded(old, src_key=one, boot=2, ts_us=MONDAY_US + 10_000 + at) for at, one in enumerate(more)]
    assert new.has_rates
    cells = replayed(old, new, rows).cells
    permitted = sum(tally.messages for cell, tally in cells.items() if cell.new_decision == "permit")
    assert permitted == sum(passed) + (1 if "day" in most else 0)


def test_records_that_were_written_under_a_limit_agree_with_it() -> None:
    deployed = settings(LIMITED.format(by="all", most="messages_per_second = 1.0"))
    rows = [recorded(deployed, ts_us=MONDAY_US + number) for number in range(2)]
    refused = {"decision": "deny", "outcome": "denied", "outcome_code": "rate", "rule_id": "border/some"}
    rows.append({**recorded(deployed, ts_us=MONDAY_US + 3), **refused})
    checked = replayed(deployed, deployed, rows).checked
    assert (checked.agreed, checked.differed) == (3, 0)


@pytest.mark.parametrize("rule", ["gate: deny * > *", "document: room-policy/no-deletes"])
def test_what_a_gate_for_a_time_or_an_object_decided_proves_nothing_about_policies(rule: str) -> None:
    old = settings()
    gated = {"decision": "deny", "outcome": "denied", "outcome_code": "policy", "rule_id": rule}
    checked = replayed(old, old, [{**recorded(old), **gated}, recorded(old)]).checked
    assert (checked.agreed, checked.differed, checked.not_replayable) == (1, 0, 1)


@given(st.lists(st.integers(0, 10**6), max_size=60))
def test_samples_of_a_cell_are_the_least_ids_in_whatever_order_they_come(numbers: list[int]) -> None:
    tally = Tally()
    for number in numbers:
        tally.count(1, 1)
        tally.sample(number.to_bytes(16))
    assert (tally.messages, tally.size_bytes) == (len(numbers), len(numbers))
    assert sorted(tally.samples) == sorted({number.to_bytes(16) for number in numbers})[:SAMPLES]


RULES = (
    'size = { between = ["500 1000"] }',
    "size = { in = [200, 999] }",
    "size = { equals = 1000, moreThan = 1000 }",
    'msgFrom = { like = "hyperty://b.example/h-1*" }',
    'msgTo = { equals = "hyperty://a.example/h-2" }, srcScheme = { equals = "comm" }',
    "dstScheme = { present = false }",
    'msgType = { contains = "dataSync" }',
    'time = { lessThan = "00:00:01" }',
    "resource = { present = true }",
    'msgFrom = { like = "odd://*" }',
    'linkClass = { equals = "plain" }, size = { lessThan = 500 }',
)
ADDRESSES = (
    *(f"hyperty://{domain}.example/h-{number}" for domain in "ab" for number in (1, 2, 13)),
    *("comm://b.example/c-1", "hyperty://b.example/sm", "runtime://b.example/p2phandler/1", "nothing", ""),
    *("hyperty:0123456789abcdef01234567", "0123456789abcdef01234567", "Odd:0123456789abcdef01234567"),
)
PLAIN = msgspec.json.encode(GateFacts(link_class="plain")).decode()


def policy_of(numbers: list[int]) -> str:
    rules = (f'[[rules]]\nid = "r{one}"\neffect = "deny"\ncondition = {{ {RULES[one]} }}\n' for one in numbers)
    return "\n".join(['id = "border"', *rules])


some_rules = st.lists(st.integers(0, len(RULES) - 1), unique=True, min_size=1, max_size=3)


@cache
def all_sorts() -> pa.Table:
    """Records that differ by everything that rules could look at; few groups of them, so that classes are large."""
    sizes = (200, 499, 500, 501, 999, 1000, 1001)
    rows = [
        silver_row(
            role=role,
            src_key=source,
            dst_key=target,
            size_in=size,
            size_wire=None if number % 5 == 0 else 1200 - size,
            ts_us=MONDAY_US + (number % 3) * 999_999,
            msg_id=(number * 7919 % 4001).to_bytes(16),
            facts=("no json", PLAIN)[number % 2] if number % 50 < 2 else None,
            msg_type="forward" if number % 60 == 7 else "create",
        )
        for number, (role, source, target, size) in enumerate(product(("in", "out"), ADDRESSES, ADDRESSES, sizes))
    ]
    return table(rows)


@pytest.mark.parametrize("p2p", [True, False])
@settings_of_tests(max_examples=25, deadline=None)
@given(before=some_rules, after=some_rules)
def test_records_that_are_decided_by_class_come_out_as_one_by_one(
    p2p: bool, before: list[int], after: list[int]
) -> None:
    found = []
    for rate in (RateLimit(), RateLimit(messages_per_second=1e12)):
        rule = PeerRule(default="permit", p2p=p2p, rate=rate)
        peers = {"b.example": rule, "a.example": rule}
        old, new = settings(policy_of(before), peers), settings(policy_of(after), peers)
        assert (old.has_rates, new.has_rates) == (not rate.is_unlimited,) * 2
        written_under = pa.array([revision(old)] * all_sorts().num_rows)
        records = all_sorts().set_column(COLUMNS.index("policy_rev"), "policy_rev", written_under)
        replayer = Replayer(old, new)
        replayer.replay(records)
        checked = replayer.checked
        counts = checked.agreed, checked.differed, checked.other_revision, checked.unchecked, checked.not_replayable
        cells = {cell: (one.messages, one.size_bytes, one.samples) for cell, one in replayer.cells.items()}
        found.append((counts, len(checked.differing), cells))
    assert found[0] == found[1]


@pytest.mark.spark
def test_job_writes_flips_that_add_up_and_a_run_that_is_valid(spark: SparkSession, lake: Lake) -> None:
    old, new = settings(), settings(SECRETS)
    rows = [recorded(old, size_in=size, size_wire=size) for size in (200, 600, 2000)]
    rows.append(recorded(old, msg_type="read"))
    rows.append({**silver_row(), "decision": "deny", "outcome": "denied", "outcome_code": "spoofed-source"})
    lake.commit(silver(spark, rows), SILVER_MDR)
    result = replay.run(lake, old, new)
    again = replay.run(lake, old, new)
    assert result.exit_code is again.exit_code is ExitCode.FINDINGS
    assert (result.findings, again.rows[REPLAY_FLIP.name]) == (1, 0)
    run = lake.read_small(REPLAY_RUN).to_pylist()
    assert [(one["is_valid"], one["messages"], one["not_replayable"]) for one in run] == [(True, 3, 1)]
    assert run[0]["unreplayable_rules"] == ["border/no-secrets"]
    flips = lake.read_small(REPLAY_FLIP).to_pylist()
    assert sum(cell["messages"] for cell in flips) == 3
    assert [cell["new_rule"] for cell in flips if cell["old_decision"] != cell["new_decision"]] == ["border/too-big"]


@pytest.mark.spark
def test_job_says_why_messages_could_not_be_replayed_though_every_rule_could(spark: SparkSession, lake: Lake) -> None:
    deployed = settings()
    lake.commit(silver(spark, [recorded(deployed), recorded(deployed) | {"msg_type": "forward"}]), SILVER_MDR)
    result = replay.run(lake, deployed, deployed)
    [shown] = result.warnings
    assert shown.startswith("1 messages could not be replayed: ")
    assert "hashes in place of addresses" in shown


@pytest.mark.spark
def test_job_replays_rules_about_plain_domains_by_the_class_that_was_recorded(spark: SparkSession, lake: Lake) -> None:
    deployed = settings(NO_PLAIN)
    plain = msgspec.json.encode(GateFacts(link_class="plain")).decode()
    rows = [recorded(deployed, facts=facts) for facts in (plain, plain, None)]
    assert [row["decision"] for row in rows] == ["deny", "deny", "permit"]
    lake.commit(silver(spark, rows), SILVER_MDR)
    replay.run(lake, deployed, settings())
    [run] = lake.read_small(REPLAY_RUN).to_pylist()
    assert (run["is_valid"], run["messages"], run["not_replayable"]) == (True, 3, 0)
    flips = lake.read_small(REPLAY_FLIP).to_pylist()
    found = {(cell["old_decision"], cell["new_decision"], cell["old_rule"]): cell["messages"] for cell in flips}
    assert found == {("deny", "permit", "border/no-plain"): 2, ("permit", "permit", ""): 1}


@pytest.mark.spark
def test_job_voids_a_replay_whose_self_check_fails(spark: SparkSession, lake: Lake) -> None:
    old = settings()
    lake.commit(silver(spark, [{**recorded(old), "decision": "deny", "outcome_code": "policy"}]), SILVER_MDR)
    result = replay.run(lake, old, old)
    assert result.exit_code is ExitCode.FAILURE
    assert "do not rely" in " ".join(result.warnings)


def test_shipped_examples_can_be_replayed_as_they_are() -> None:
    example = Path(__file__).parents[2] / "examples" / "policies" / "border.toml"
    of = settings(example.read_text())
    assert replayed(of, of, [recorded(of)]).checked.agreed == 1
