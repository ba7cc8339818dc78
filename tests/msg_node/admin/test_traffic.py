"""Figures of the last hour out of records: windows, quantiles, denials, and what strangers cannot fill."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from msg_node.admin.core.traffic import DENIALS, LOCAL, MINUTES, OTHER, Denial, Stage, Traffic
from msg_node.kernel.histograms import BOUNDS_SECONDS, Histogram
from protofly.record_runs import MessageRun
from protofly.records import DecisionRecord, MessageRecord, Record, SessionEvent

NOW = 1_800_000_000.0
US = "a.example"


def sent(domain: str, outcome: str = "delivered", **times: int) -> MessageRecord:
    return MessageRecord(
        ts_us=int(NOW * 1e6),
        role="out",
        msg_id="",
        attempt=1,
        src_domain=US,
        dst_domain=domain,
        src_key="hyperty://a.example/x",
        dst_key=f"hyperty://{domain}/y",
        msg_type="create",
        size_in=1,
        digest="",
        outcome=outcome,  # type: ignore[arg-type]
        **times,  # type: ignore[arg-type]
    )


def denied(hook: str, link_domain: str | None = None) -> DecisionRecord:
    return DecisionRecord(
        ts_us=int(NOW * 1e6),
        hook=hook,  # type: ignore[arg-type]
        effect="deny",
        permitted=False,
        policy_rev="r",
        src_domain=US,
        dst_domain="",
        link_domain=link_domain,
        reason="policy",
    )


@pytest.fixture
def traffic() -> Traffic:
    return Traffic({"b.example": "node", "p.example": "plain"})


def test_times_are_split_into_queue_stub_and_acknowledgement(traffic: Traffic) -> None:
    traffic.observe([sent("b.example", d_total_us=9_000, d_peer_us=3_000, d_stub_us=700)] * 10, NOW)
    window = traffic.window("b.example", 1, NOW)
    assert (window.passed, window.failed) == (10, 0)
    bounds = {Stage.QUEUE: (0.005, 0.01), Stage.STUB: (0.0005, 0.001), Stage.ACKNOWLEDGEMENT: (0.0025, 0.005)}
    for stage, (low, high) in bounds.items():
        assert low <= (window.stages[stage].quantile(0.5) or 0) <= high
    assert traffic.by_class["node"][Stage.QUEUE].sum_us == 60_000
    assert not sum(traffic.by_class["plain"][Stage.QUEUE].counts)


@pytest.mark.parametrize("stub_us", [[700, 800, 40], [None, 800, None]])
def test_a_run_counts_as_its_records_do(stub_us: list[int | None]) -> None:
    columns: dict[str, list[Any]] = {
        "msg_id": ["01", "02", "03"],
        "d_total_us": [9_000, 70, 2_000],
        "d_peer_us": [3_000, 60, 1],
        "d_stub_us": stub_us,
    }
    run = MessageRun(sent("b.example"), columns)
    of_run, of_records = (Traffic({"b.example": "node"}) for _ in range(2))
    of_run.observe([run], NOW)
    of_records.observe(list(run.records()), NOW)
    for stage in Stage:
        one, other = (each.window("b.example", 1, NOW).stages[stage] for each in (of_run, of_records))
        assert (one.counts, one.sum_us) == (other.counts, other.sum_us)
    assert of_run.totals("b.example") == of_records.totals("b.example") == (3, 0)
    assert list(of_run.decisions) == list(of_records.decisions)


def test_a_run_that_came_in_is_no_traffic_to_its_domain(traffic: Traffic) -> None:
    came = sent("b.example")
    came.role = "in"
    traffic.observe([MessageRun(came, {"msg_id": ["01"] * 5})], NOW)
    assert traffic.totals("b.example") == (0, 0)


def test_times_of_nothing_are_measured_as_well(traffic: Traffic) -> None:
    traffic.observe([sent("b.example", d_total_us=0, d_peer_us=0, d_stub_us=0)], NOW)
    stages = traffic.window("b.example", 1, NOW).stages
    assert [(sum(stages[stage].counts), stages[stage].sum_us) for stage in Stage] == [(1, 0)] * 3


def test_totals_since_the_start_go_on_beyond_the_hour(traffic: Traffic) -> None:
    traffic.observe([sent("b.example")] * 3, NOW)
    traffic.observe([sent("b.example"), sent("b.example", "timeout"), sent("b.example", "denied")], NOW + 60 * 600)
    assert traffic.totals("b.example") == (4, 1)
    assert traffic.totals("p.example") == (0, 0)


def test_denials_say_when_what_by_whom_and_why_newest_first(traffic: Traffic) -> None:
    of_message, of_gate = sent("b.example", "denied"), denied("local")
    of_message.outcome_code, of_message.reason, of_message.rule_id = "policy", "text", "border/r1"
    of_gate.ts_us += 1_500_000
    of_gate.src_key, of_gate.dst_key, of_gate.rule_id = "hyperty://a.example/x", "hyperty://a.example/y", "local/r2"
    traffic.observe([of_message, of_gate], NOW)
    sender = "hyperty://a.example/x"
    assert traffic.denials() == [
        Denial(NOW + 1.5, "local", sender, "hyperty://a.example/y", "", "policy", "local/r2", ""),
        Denial(NOW, "out", sender, "hyperty://b.example/y", "create", "policy", "border/r1", of_message.msg_id),
    ]


@pytest.mark.parametrize(
    ("code", "reason", "rule", "shown"),
    [
        ("policy", "text", "border/r1", ("policy", "border/r1")),
        ("policy", "text", None, ("policy", "text")),
        (None, "text", None, ("text", "text")),
        (None, None, None, ("", "")),
    ],
)
def test_a_denial_shows_the_rule_or_else_the_reason(
    traffic: Traffic, code: str | None, reason: str | None, rule: str | None, shown: tuple[str, str]
) -> None:
    record = sent("b.example", "denied")
    record.outcome_code, record.reason, record.rule_id = code, reason, rule
    traffic.observe([record], NOW)
    assert [(one.code, one.rule) for one in traffic.denials()] == [shown]


@pytest.mark.parametrize("times", [{"d_total_us": 9_000}, {"d_peer_us": 3_000}, {"d_stub_us": 700}, {}])
def test_a_message_without_both_times_is_counted_and_has_no_stages(traffic: Traffic, times: dict[str, int]) -> None:
    record = sent("b.example", outcome="delivered", **times)
    traffic.observe([record], NOW)
    window = traffic.window("b.example", 1, NOW)
    assert window.passed == 1
    assert [sum(window.stages[stage].counts) for stage in Stage] == [0, 0, 0]


def test_windows_hold_their_minutes_and_an_hour_is_the_most(traffic: Traffic) -> None:
    for minute in range(2 * MINUTES):
        traffic.observe([sent("b.example")], NOW + 60 * minute)
    end = NOW + 60 * (2 * MINUTES - 1)
    assert [traffic.window("b.example", minutes, end).passed for minutes in (1, 5, 60, 600)] == [1, 5, 60, 60]
    assert traffic.window("b.example", 5, end + 600).passed == 0
    assert traffic.window("b.example", 5, end + 600).stages[Stage.QUEUE].quantile(0.5) is None


@pytest.mark.parametrize("outcome", ["trapped", "timeout", "undeliverable", "rejected", "expired"])
def test_what_does_not_arrive_is_a_failure(outcome: str, traffic: Traffic) -> None:
    traffic.observe([sent("b.example", outcome), sent("b.example", "duplicate")], NOW)
    window = traffic.window("b.example", 1, NOW)
    assert (window.passed, window.failed) == (0, 1)
    assert not traffic.denials()


def test_a_denial_is_no_failure_and_is_listed_once(traffic: Traffic) -> None:
    of_message, of_gate = sent("b.example", "denied"), denied("out", "b.example")  # the link writes both
    incoming = sent("b.example", "denied")
    incoming.role, incoming.src_domain, incoming.dst_domain = "in", "b.example", US
    traffic.observe([of_message, of_gate, incoming, denied("local"), denied("peer", "p.example")], NOW)
    assert traffic.window("b.example", 1, NOW).failed == 0
    assert [one.gate for one in traffic.denials("b.example")] == ["out", "in"]
    assert [one.gate for one in traffic.denials("p.example")] == ["peer"]
    assert [one.gate for one in traffic.denials(LOCAL)] == ["local"]
    assert len(traffic.denials()) == 4


def test_strangers_fill_one_place_and_push_no_partner_out(traffic: Traffic) -> None:
    traffic.observe([sent("b.example", "denied")], NOW)
    flood: list[Record] = [denied("peer", f"s{number}.example") for number in range(5000)]
    traffic.observe([*flood, *(sent(f"s{number}.example", "timeout") for number in range(5000))], NOW)
    assert (len(traffic.denials("b.example")), len(traffic.denials(OTHER))) == (1, DENIALS)
    assert (traffic.window("b.example", 1, NOW).failed, traffic.window("s1.example", 1, NOW).failed) == (0, 5000)
    assert sorted(traffic.domains()) == ["b.example", "p.example"]


def test_domains_of_changed_settings_keep_their_figures_or_lose_them(traffic: Traffic) -> None:
    traffic.observe([sent("b.example"), sent("p.example")], NOW)
    traffic.follow({"b.example": "plain", "c.example": "node"})
    traffic.observe([sent("b.example", d_total_us=9, d_peer_us=3), sent("p.example"), sent("c.example")], NOW)
    counts = {domain: traffic.window(domain, 1, NOW).passed for domain in ("b.example", "c.example", OTHER)}
    assert counts == {"b.example": 2, "c.example": 1, OTHER: 1}
    assert sum(traffic.by_class["plain"][Stage.QUEUE].counts) == 1


def test_quantiles_of_times_above_all_bounds_are_the_last_bound() -> None:
    histogram = Histogram()
    histogram.counts[-1] = 3
    assert histogram.quantile(0.99) == BOUNDS_SECONDS[-1]
    histogram.counts[0] = 97
    assert histogram.quantile(0.5) == pytest.approx(BOUNDS_SECONDS[0] * 50 / 97)


@pytest.mark.parametrize(("msg_type", "shown"), [("create", "create"), (None, "")])
def test_a_denial_names_the_type_of_the_message(traffic: Traffic, msg_type: str | None, shown: str) -> None:
    record = denied("local")
    record.msg_type = msg_type
    traffic.observe([record], NOW)
    assert [one.type for one in traffic.denials(LOCAL)] == [shown]


def received(domain: str, outcome: str) -> MessageRecord:
    return replace(sent(US, outcome), role="in", src_domain=domain)


def test_only_what_leaves_counts_as_arrived_or_failed(traffic: Traffic) -> None:
    for outcome in ("delivered", "timeout", "denied"):
        traffic.observe([received("b.example", outcome)], NOW)
    assert traffic.totals("b.example") == (0, 0)
    window = traffic.window("b.example", 1, NOW)
    assert (window.passed, window.failed) == (0, 0)
    assert len(traffic.denials("b.example")) == 1


def test_decisions_without_a_denial_and_other_records_are_no_denials(traffic: Traffic) -> None:
    permitted = replace(denied("peer", "b.example"), permitted=True)
    opened = SessionEvent(ts_us=1, event="opened", runtime_key="r")
    traffic.observe([permitted, opened, denied("out", "b.example")], NOW)
    assert traffic.denials() == []


def test_what_a_denial_does_not_know_is_shown_as_nothing(traffic: Traffic) -> None:
    traffic.observe([replace(denied("peer", "b.example"), reason=None)], NOW)
    assert traffic.denials() == [Denial(NOW, "peer", "", "", "", "", "", "")]
    known = {"src_key": "s", "dst_key": "d", "msg_type": "read", "reason": "why", "rule_id": "rule", "msg_id": "id"}
    traffic.observe([replace(denied("peer", "b.example"), ts_us=1, **known)], NOW)
    assert traffic.denials()[-1] == Denial(1e-6, "peer", "s", "d", "read", "why", "rule", "id")


def test_changed_settings_keep_the_figures_of_strangers_and_of_our_own_bus(traffic: Traffic) -> None:
    traffic.observe([sent("stranger.example"), denied("local")], NOW)
    traffic.follow({"c.example": "node"})
    assert traffic.totals(OTHER) == (1, 0)
    assert len(traffic.denials(LOCAL)) == 1


def test_decisions_are_kept_to_be_tried_on_other_policies(traffic: Traffic) -> None:
    traffic.observe([denied("peer", "b.example")], NOW)
    assert len(list(traffic.decisions)) == 1
