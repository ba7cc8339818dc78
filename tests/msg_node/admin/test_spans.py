"""Spans of messages: which are chosen, how those of both nodes fit together, what they say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.admin.core.spans import Span, SpanKind, is_sampled, spans_of
from protofly.records import MessageRecord

ID = "4bf92f3577b34da6a3ce929d0e0e4736"
GIVEN = f"00-{'ab' * 16}-{'cd' * 8}-01"
MSG_IDS = st.binary(min_size=16, max_size=16).map(bytes.hex)


def record(**changes: Any) -> MessageRecord:
    values: dict[str, Any] = {
        "ts_us": 1_800_000_000_000_000,
        "role": "out",
        "msg_id": ID,
        "attempt": 1,
        "src_domain": "a.example",
        "dst_domain": "b.example",
        "src_key": "hyperty://a.example/ana",
        "dst_key": "hyperty://b.example/bruno",
        "msg_type": "update",
        "size_in": 200,
        "digest": "",
        "outcome": "delivered",
        "d_policy_us": 30,
    }
    return MessageRecord(**{**values, **changes})


def crossed() -> tuple[MessageRecord, MessageRecord]:
    """What both nodes write about one message."""
    ours = record(d_total_us=5000, d_peer_us=4000, d_stub_us=600)
    return ours, record(role="in", ts_us=ours.ts_us + 3000, d_total_us=200)


def test_span_of_the_receiver_is_below_that_of_the_sender() -> None:
    (sent, *_), (received, *more) = (list(spans_of(one)) for one in crossed())
    assert (sent.kind, received.kind, more) == (SpanKind.SEND, SpanKind.RECEIVE, [])
    assert sent.trace_id == received.trace_id == int(ID, 16)
    assert sent.parent_id == 0
    assert received.parent_id == sent.span_id
    assert received.is_parent_remote
    assert (sent.name, received.name) == ("send update", "receive update")


def test_nodes_of_all_versions_derive_the_same_ids() -> None:
    sent, queue, *_ = spans_of(crossed()[0])
    received = next(spans_of(crossed()[1]))
    assert [f"{one.span_id:016x}" for one in (sent, queue, received)] == [
        "1b5eebf9438411b6",
        "57f56c3e98234609",
        "db8a469641113f72",
    ]


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_messages_are_chosen_by_the_low_bits_of_their_ids_alone(share: float) -> None:
    first = int((1.0 - share) * 2**56)
    assert is_sampled(record(msg_id=f"{first:032x}"), share)
    assert not is_sampled(record(msg_id=f"{first - 1:032x}"), share)
    assert not is_sampled(record(msg_id=f"{2**128 - 2**56 + first - 1:032x}"), share)


def test_stages_lie_in_the_time_of_the_whole() -> None:
    whole, *stages = spans_of(crossed()[0])
    times = {one.name: ((one.begin_ns - whole.begin_ns) // 1000, (one.end_ns - one.begin_ns) // 1000) for one in stages}
    assert times == {"queue": (0, 1000), "acknowledgement": (1000, 4000), "stub": (1000, 600)}
    assert {one.parent_id for one in stages} == {whole.span_id}
    assert whole.end_ns - whole.begin_ns == 5_000_000


@pytest.mark.parametrize("total_us", [3999, 4000])
def test_a_message_that_never_waited_was_in_the_queue_for_no_time(total_us: int) -> None:
    whole, queue, *_ = spans_of(record(d_total_us=total_us, d_peer_us=4000))
    assert queue.begin_ns == queue.end_ns == whole.begin_ns


def test_message_that_ends_at_the_gate_takes_as_long_as_the_decision() -> None:
    (span,) = spans_of(record(outcome="denied", outcome_code="policy", rule_id="border/r1"))
    assert span.end_ns - span.begin_ns == 30_000
    assert span.error == "policy"
    assert span.attributes["trapezoid.policy.rule"] == "border/r1"


def test_attempts_have_spans_of_their_own_and_the_first_has_the_receiver_below() -> None:
    first, second = (next(spans_of(record(attempt=number))) for number in (1, 2))
    assert first.span_id != second.span_id
    assert next(spans_of(crossed()[1])).parent_id == first.span_id


def test_traceparent_of_the_sender_is_above_the_span_of_its_node() -> None:
    sent, received = (next(spans_of(one)) for one in (record(trace_id=GIVEN), record(role="in", trace_id=GIVEN)))
    assert sent.trace_id == received.trace_id == int("ab" * 16, 16)
    assert sent.parent_id == int("cd" * 8, 16)
    assert received.parent_id == sent.span_id


def test_no_span_says_who_wrote_to_whom() -> None:
    said = repr([list(spans_of(one)) for one in crossed()])
    assert "ana" not in said
    assert "bruno" not in said


@given(msg_id=MSG_IDS, share=st.floats(0.0, 1.0))
def test_both_nodes_choose_the_same_messages(msg_id: str, share: float) -> None:
    assert is_sampled(record(msg_id=msg_id), share) == is_sampled(record(msg_id=msg_id, role="in"), share)


@given(msg_id=MSG_IDS)
def test_who_is_chosen_at_a_small_share_is_chosen_at_a_larger_one(msg_id: str) -> None:
    shares = [is_sampled(record(msg_id=msg_id), share) for share in (0.0, 0.01, 0.1, 0.5, 1.0)]
    assert shares == sorted(shares)
    assert shares[-1]


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0, 0), (0.1, 60, 140), (1.0, 1000, 1000)])
def test_share_of_messages_is_chosen(share: float, least: int, most: int) -> None:
    ids = (f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128):032x}" for number in range(1000))
    assert least <= sum(is_sampled(record(msg_id=one), share) for one in ids) <= most


@pytest.mark.parametrize(("trace", "is_chosen"), [(GIVEN, True), (f"{GIVEN[:-1]}0", False), ("nonsense", False)])
def test_traceparent_decides_itself(trace: str, is_chosen: bool) -> None:
    assert is_sampled(record(trace_id=trace), 0.0) is is_chosen
    assert is_sampled(record(trace_id=trace), 1.0) is is_chosen


@given(msg_id=MSG_IDS, role=st.sampled_from(["out", "in"]), attempt=st.integers(1, 9))
def test_ids_of_spans_are_never_zero_and_differ(msg_id: str, role: str, attempt: int) -> None:
    spans: list[Span] = list(spans_of(record(msg_id=msg_id, role=role, attempt=attempt, d_total_us=9, d_peer_us=3)))
    assert all(one.span_id for one in spans)
    assert len({one.span_id for one in spans}) == len(spans)


@pytest.mark.parametrize(
    "times",
    [
        {"role": "in", "d_total_us": 9, "d_peer_us": 5},
        {"d_total_us": 9},
        {"d_peer_us": 5},
        {"d_stub_us": 5},
        {},
    ],
)
def test_only_a_message_that_was_sent_and_acknowledged_has_stages(times: dict[str, Any]) -> None:
    assert [one.kind for one in spans_of(record(**times))][1:] == []


def test_a_span_says_nothing_of_what_was_not_measured() -> None:
    whole = next(spans_of(record()))
    assert None not in whole.attributes.values()
    assert {"trapezoid.stub.fuel", "error.type", "trapezoid.peer.node"}.isdisjoint(whole.attributes)


@pytest.mark.parametrize(("size_wire", "shown"), [(None, 200), (150, 150)])
def test_the_size_of_a_message_is_that_on_the_wire_where_it_is_known(size_wire: int | None, shown: int) -> None:
    assert next(spans_of(record(size_wire=size_wire))).attributes["messaging.message.envelope.size"] == shown


@pytest.mark.parametrize(
    ("outcome", "code", "error"),
    [
        ("delivered", None, ""),
        ("delivered", "late", ""),
        ("timeout", None, "timeout"),
        ("timeout", "link-lost", "link-lost"),
        ("denied", "policy", "policy"),
    ],
)
def test_a_span_says_why_a_message_failed_by_its_code_or_else_by_its_outcome(
    outcome: str, code: str | None, error: str
) -> None:
    whole = next(spans_of(record(outcome=outcome, outcome_code=code)))
    assert (whole.error, whole.attributes.get("error.type", "")) == (error, error)


@pytest.mark.parametrize(("trace", "is_remote"), [(None, False), (GIVEN, True)])
def test_the_parent_of_a_span_is_remote_where_the_sender_named_one(trace: str | None, *, is_remote: bool) -> None:
    whole = next(spans_of(record(trace_id=trace)))
    assert (whole.is_parent_remote, whole.parent_id != 0) == (is_remote, is_remote)


def test_a_message_of_which_no_time_was_measured_takes_none() -> None:
    whole = next(spans_of(record(d_policy_us=None)))
    assert whole.begin_ns == whole.end_ns
