"""Every way in which a message can end leaves exactly one record in the records of the side where it ended."""

from __future__ import annotations

import time
from typing import Any

import pytest

from federation.core.carrier import Accepted, CarrierDown, Convicted
from federation.core.outbound_queue import OutboundMessage, QueueLimits
from federation.links.link_events import LOG_LINES_PER_MINUTE, LinkEvents
from federation.links.link_records import LinkRecords, Recording
from policy.core.engine import Facts
from policy.core.gate import Gate, GateVerdict, PeerRule
from policy.core.rates import RateLimit
from protofly.codec import build
from protofly.errors import Code
from protofly.record_runs import SHORTEST_RUN, MessageRun, Recorded, records_in
from protofly.records import LinkEvent, MessageRecord, Record
from tests.support.policies import both, deny, one_policy, permit
from tests.support.policies import test as condition
from tests.support.replayed import facts_of
from tests.support.sides import Bus, MemoryCarrier, Pair, chat, inbound, request, text


def live(pair: Pair) -> MemoryCarrier:
    carrier = pair.carrier()
    carrier.open()
    return carrier


def endings(bus: Bus) -> list[tuple[str, str, str | None, str | None]]:
    return [(one.role, one.outcome, one.outcome_code, one.reason) for one in bus.message_records]


@pytest.mark.parametrize(
    ("gate", "ending"),
    [
        (Gate(), ("denied", "domain-blocked", "default")),
        (Gate(peers={"*": PeerRule()}, deny=["b.example"]), ("denied", "domain-blocked", "list")),
        (Gate(one_policy(deny("nobody"))), ("denied", "policy", "policy")),
    ],
    ids=["default", "list", "policy"],
)
def test_what_our_gate_denies_is_in_our_records_with_the_step_that_said_so(gate: Gate, ending: tuple[str, ...]) -> None:
    pair = Pair(a=Bus("a.example", gate=gate))
    pair.to_b.send(request(1))
    [record] = pair.a.message_records
    assert (record.role, *endings(pair.a)[0][1:]) == ("out", *ending)
    assert (record.decision, record.size_in, record.size_wire) == ("deny", len(request(1).raw), None)
    assert (record.channel, record.peer_node, record.stub_ver) == (None, None, None)
    [decision] = pair.a.decisions
    assert (decision.msg_id, decision.rule_id) == (record.msg_id, record.rule_id)


def test_a_message_with_a_trace_has_the_same_id_whether_it_crosses_or_is_kept_back() -> None:
    traced = chat(1, trace="of its sender")
    pair, closed = Pair(), Pair(a=Bus("a.example", gate=Gate()))
    carrier = live(pair)
    pair.to_b.send(traced)
    carrier.pump()
    carrier.arrive()
    closed.to_b.send(traced)
    [arrived], [kept_back] = pair.b.message_records, closed.a.message_records
    assert kept_back.outcome == "denied"
    assert kept_back.msg_id == arrived.msg_id


def test_a_rate_that_is_used_up_is_a_denial_by_rate() -> None:
    rate = RateLimit(messages_per_second=1.0, burst_seconds=1.0)
    pair = Pair(a=Bus("a.example", gate=Gate(peers={"b.example": PeerRule(rate=rate)})))
    live(pair)
    pair.to_b.send(chat(1))
    pair.to_b.send(chat(2))
    assert ("out", "denied", "rate", "rate") in endings(pair.a)


def test_a_message_that_arrives_is_in_both_records_with_one_id_and_one_digest() -> None:
    pair = Pair()
    carrier = live(pair)
    pair.to_b.send(chat(1), frozenset({"admin"}))
    carrier.pump()
    carrier.arrive()
    carrier.acknowledge()
    [sent], [received] = pair.a.message_records, pair.b.message_records
    assert (sent.outcome, sent.reason, received.outcome, received.reason) == ("delivered", "default") * 2
    assert (sent.msg_id, sent.digest, sent.size_wire) == (received.msg_id, received.digest, received.size_wire)
    assert sent.facts is not None
    assert sent.facts.roles == ("admin",)
    assert received.facts is not None
    assert received.facts.via_length == 2


def test_what_their_gate_denies_is_denied_in_their_records_and_delivered_in_ours() -> None:
    pair = Pair(b=Bus("b.example", gate=Gate(one_policy(deny("no-chat")))))
    carrier = live(pair)
    pair.to_b.send(chat(1))
    carrier.pump()
    carrier.arrive()
    carrier.acknowledge()
    assert endings(pair.a) == [("out", "delivered", None, "default")]
    assert endings(pair.b) == [("in", "denied", "policy", "policy")]
    assert pair.b.message_records[0].msg_id == pair.a.message_records[0].msg_id


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (text("hyperty://c.example/eve"), "spoofed-source"),
        (text(body='{"via":"runtime://b.example/mn-1","source":7}'), "bad-body"),
        (text(body='{"via":["runtime://a.example/mn-1"]}'), "loop"),
    ],
    ids=["spoofed", "bad-body", "loop"],
)
def test_what_is_turned_away_before_our_gate_is_rejected_in_our_records(raw: bytes, code: str) -> None:
    pair = Pair()
    live(pair)
    pair.to_b.inbound(inbound(raw), "")
    assert endings(pair.a) == [("in", "rejected", code, None)]
    [record] = pair.a.message_records
    assert (record.decision, record.policy_rev, record.facts) == (None, None, None)
    assert (record.src_domain, record.size_wire) == ("b.example", len(raw))


def test_a_message_that_their_border_turns_away_has_the_same_id_in_both_records() -> None:
    pair = Pair()
    carrier = live(pair)
    pair.to_b.send(chat(1))
    carrier.pump()
    from_c = pair.b.link_to("c.example")
    from_c.inbound(inbound(carrier.on_the_way[0].wire), "")
    carrier.acknowledge()
    pair.to_b.handle(Accepted(1))
    [sent], [received] = pair.a.message_records, pair.b.message_records
    assert (sent.msg_id, received.outcome) == (received.msg_id, "rejected")


def test_a_forged_sender_is_named_where_addresses_are_hashed_and_nowhere_else() -> None:
    pair = Pair()
    live(pair)
    pair.to_b.inbound(inbound(text("hyperty://c.example/eve")), "")
    [event] = [one for one in pair.a.records if isinstance(one, LinkEvent) and one.event == "spoofed"]
    assert (event.src_key, event.detail) == ("hyperty://c.example/eve", None)
    assert "src_key" in LinkEvent.address_members


def test_a_message_for_which_the_queue_has_no_room_is_rejected() -> None:
    pair = Pair(a=Bus("a.example", limits=QueueLimits(waiting_messages=1)))
    pair.to_b.send(chat(1))
    pair.to_b.send(chat(2))
    assert endings(pair.a) == [("out", "rejected", "overload", "default")]


def test_a_message_that_the_link_does_not_take_is_rejected_with_its_reason() -> None:
    pair = Pair()
    pair.to_b.machine.refusal, pair.to_b.machine.refuse_until = Code.CIRCUIT_OPEN, time.monotonic() + 60
    pair.to_b.send(chat(1))
    assert endings(pair.a) == [("out", "rejected", "circuit-open", "default")]
    assert pair.a.message_records[0].decision == "permit"


def test_a_message_that_waits_too_long_is_expired() -> None:
    pair = Pair()
    pair.to_b.send(request(1))
    pair.to_b.tick(time.monotonic() + 1e6)
    assert endings(pair.a) == [("out", "expired", "deploy-timeout", "default")]


def test_a_message_that_kills_the_stub_is_trapped() -> None:
    pair = Pair()
    carrier = live(pair)
    pair.to_b.send(chat(1))
    carrier.pump()
    pair.to_b.handle(Convicted(pair.to_b.queue.refused(1) or pytest.fail("it was under way")))
    assert endings(pair.a) == [("out", "trapped", "quarantined", "default")]


def test_a_message_that_nobody_here_takes_is_undeliverable() -> None:
    pair = Pair(b=Bus("b.example", refuse=lambda _message: Code.NOT_REGISTERED))
    carrier = live(pair)
    pair.to_b.send(chat(1))
    carrier.pump()
    carrier.arrive()
    assert endings(pair.b) == [("in", "undeliverable", "not-registered", "default")]


def test_our_own_words_are_in_the_records_and_pass_no_gate() -> None:
    policies = one_policy(deny("no-reading", condition("actionType", "equals", "read")))
    pair = Pair(b=Bus("b.example", gate=Gate(policies)))
    carrier, back = live(pair), pair.back()
    back.open()
    pair.to_b.send(request(1))
    carrier.pump()
    carrier.arrive()
    back.pump()
    back.arrive()
    back.acknowledge()
    [own] = [one for one in pair.b.message_records if one.role == "out"]
    assert (own.msg_type, own.reason, own.policy_rev, own.rule_id) == ("response", "node", None, None)


def test_every_judged_message_in_either_records_can_be_judged_again_from_its_record() -> None:
    """The self-check of a replay, over real links: policies that read what stands in the message itself."""
    policies = one_policy(
        deny("private", both(condition("resource", "present", True), condition("resource", "like", "/private/*"))),
        deny("actions", condition("class", "equals", "action")),
        deny("one-id", condition("msgId", "equals", "4")),
        permit("rest"),
    )
    pair = Pair(a=Bus("a.example"), b=Bus("b.example", gate=Gate(policies)))
    carrier = live(pair)
    bodies: list[dict[str, object]] = [
        {},
        {"resource": "/private/x"},
        {"resource": "/public"},
        {"class": "action"},
        {"class": "event"},
        {"class": 7},
        {"resource": "/private/" + "x" * 400},
    ]
    for number, body in enumerate(bodies):
        pair.to_b.send(
            build(id=number, type="create", from_="hyperty://a.example/ana", to="comm://b.example/room", body=body)
        )
    carrier.pump()
    carrier.arrive()
    records = pair.b.message_records
    assert [one.outcome for one in records].count("denied") >= 3
    whole = [one for one in records if one.facts is not None and not one.facts.partial]
    assert len(whole) == len(records) - 1 == 6, "a resource that is too long cannot be judged again, and says so"
    for record in whole:
        assert (policies.decide(facts_of(record)).rule_id or None) == record.rule_id


def test_a_link_that_comes_and_goes_is_in_the_log_with_what_waits_and_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="federation")
    pair = Pair()
    carrier = live(pair)
    pair.to_b.machine.detail = "closed by\nnobody"
    pair.to_b.handle(CarrierDown(carrier))
    up, down = (record.getMessage() for record in caplog.records)
    assert up.startswith("the link to b.example is up: by their stub, which runs here")
    assert down == "the link to b.example is down: by their stub, which runs here, 0 messages wait; closed by.nobody"


def test_a_line_that_comes_and_goes_all_the_time_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="federation")
    events = LinkEvents("b.example", lambda _: None, monotonic=lambda: 60.0)
    for _ in range(LOG_LINES_PER_MINUTE * 5):
        events.came_up("out", peer_node="")
    assert len(caplog.records) == LOG_LINES_PER_MINUTE


# Runs of records.


def outbound(number: int, **members: Any) -> OutboundMessage:
    message = chat(number)
    facts: dict[str, Any] = {"handed_seconds": 5.0, "stub_us": number, "fuel": 100 + number, "reason": "policy"}
    wire, digest = message.raw + b"x" * number, f"{number:032x}"
    return OutboundMessage(
        message, wire, bytes([number] * 16), digest, number, 4.0, "r/1", "rev", 0, 30.0, **(facts | members)
    )


FLOW, OTHER_FLOW = object(), object()


@pytest.mark.parametrize(
    ("gone", "sizes"),
    [
        ([outbound(number, flow=FLOW) for number in range(1, 9)], [8]),
        ([outbound(number, flow=FLOW) for number in range(SHORTEST_RUN - 1)], [1] * (SHORTEST_RUN - 1)),
        ([outbound(number) for number in range(8)], [1] * 8),
        ([outbound(number, flow=(FLOW, OTHER_FLOW)[number // 4]) for number in range(8)], [4, 4]),
        ([outbound(number, flow=FLOW, suspected=number == 3) for number in range(8)], [1] * 8),
        ([outbound(number, flow=FLOW, handed_seconds=5.0 * (number != 3)) for number in range(8)], [1] * 8),
        ([outbound(number, flow=FLOW, trap="x" if number == 3 else None) for number in range(8)], [1] * 8),
        ([outbound(number, flow=None if number < 2 else FLOW) for number in range(8)], [1, 1, 6]),
    ],
    ids=["a flow", "a short one", "no flow", "two flows", "suspected", "never handed", "trapped", "behind others"],
)
def test_messages_of_a_flow_that_arrived_together_are_recorded_as_a_run_of_the_same_records(
    gone: list[OutboundMessage], sizes: list[int]
) -> None:
    singly: list[Record] = []
    recorded: list[Recorded] = []
    LinkRecords("b.example", Recording("a.example", Gate(), singly.append)).delivered(gone, 6.0)
    LinkRecords("b.example", Recording("a.example", Gate(), recorded.append, record_run=recorded.append)).delivered(
        gone, 6.0
    )
    assert [len(one) if isinstance(one, MessageRun) else 1 for one in recorded] == sizes
    assert list(records_in(recorded)) == singly
    assert len(singly) == len(gone)


@pytest.mark.parametrize("refused", [(), (2,), (0, 1, 2, 3, 4)])
def test_a_run_that_came_in_is_recorded_as_one_unless_some_of_it_reached_nobody(refused: tuple[int, ...]) -> None:
    recorded: list[Recorded] = []
    records = LinkRecords("b.example", Recording("a.example", Gate(), recorded.append, record_run=recorded.append))
    message = chat(1)
    facts = Facts("in", message, "b.example", "a.example", "b.example", len(message.raw), 1, 5.0)
    like = records.entering(facts, GateVerdict(permitted=True, code=None, rule_id="", revision="rev"), b"", "")
    codes = [Code.NO_ROUTE if number in refused else None for number in range(5)]
    records.arrived_run(MessageRun(like, {"msg_id": [f"{number:02x}" for number in range(5)]}), codes, 77)
    assert [isinstance(one, MessageRun) for one in recorded] == ([False] * 5 if refused else [True])
    ends = [
        (one.msg_id, one.outcome_code, one.d_total_us) for one in records_in(recorded) if isinstance(one, MessageRecord)
    ]
    assert ends == [(f"{number:02x}", "no-route" if number in refused else None, 77) for number in range(5)]
