"""All that one side does towards one domain: judged, queued, numbered, handed over, answered, written down.

Both sides are the product's own links; what carries between them is a pair of lists.
"""

from __future__ import annotations

import logging
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.core.carrier import Accepted, Convicted, Refused
from federation.core.link_counts import LinkCount
from federation.core.peer_streams import STREAMS_REMEMBERED
from federation.links.link_context import Refusal
from policy.core.gate import Gate, PeerRule
from policy.core.rates import RateLimit
from protofly.codec import build
from protofly.errors import Code, PeerError
from protofly.limits import CROSSING_BYTES, REQUEST_TTL_SECONDS, WAITING_BYTES, WAITING_MESSAGES, WAITING_SECONDS
from tests.support.policies import deny, one_policy, permit
from tests.support.policies import test as condition
from tests.support.sides import Bus, MemoryCarrier, Pair, body_of, chat, decoded, inbound, numbers_of, request, text

STREAM = "5" * 32


def after(seconds: float) -> float:
    return time.monotonic() + seconds


def live_pair(*, a: Bus | None = None, b: Bus | None = None) -> tuple[Pair, MemoryCarrier]:
    pair = Pair(a=a, b=b)
    carrier = pair.carrier()
    carrier.open()
    return pair, carrier


def reply(to: int, code: int = 200, *, from_: str = "hyperty://b.example/bo", **body: object) -> bytes:
    return build(id=to, type="response", from_=from_, to="hyperty://a.example/ana", body={"code": code, **body}).raw


# The gate, before anything else.


def test_what_the_gate_denies_is_refused_and_written_down() -> None:
    pair = Pair(a=Bus("a.example", gate=Gate()))
    refusal = pair.to_b.send(request(1))
    [decision] = pair.a.decisions
    assert refusal == Refusal(Code.DOMAIN_BLOCKED, {"msgId": decision.msg_id})
    assert (decision.hook, decision.permitted, decision.reason) == ("out", False, "domain-blocked")
    assert (decision.src_domain, decision.dst_domain, decision.link_domain) == ("a.example",) + ("b.example",) * 2
    [record] = pair.a.message_records
    assert (record.outcome, record.decision, record.msg_id) == ("denied", "deny", decision.msg_id)
    assert (pair.to_b.queue.waiting, pair.a.answers) == (0, [])


def test_the_rule_that_denied_is_named_to_our_own_sender() -> None:
    policies = one_policy(deny("no-reading", condition("actionType", "equals", "read")), permit("rest"))
    pair = Pair(a=Bus("a.example", gate=Gate(policies)))
    refusal = pair.to_b.send(request(1))
    assert refusal == Refusal(Code.POLICY, {"rule": "s/no-reading", "msgId": pair.a.decisions[0].msg_id})
    assert pair.to_b.send(chat(2)) is None
    assert pair.a.decisions[0].rule_id == "s/no-reading"


def test_more_than_the_rate_is_refused_with_the_time_to_wait() -> None:
    gate = Gate(peers={"b.example": PeerRule(rate=RateLimit(messages_per_second=2.0))})
    pair = Pair(a=Bus("a.example", gate=gate))
    refusals = [pair.to_b.send(chat(number)) for number in range(1, 5)]
    assert refusals[:2] == [None, None]
    assert refusals[2] is not None
    assert refusals[2].code is Code.RATE
    assert refusals[2].value is not None
    assert 0 < refusals[2].value["retryAfter"] <= 0.5  # type: ignore[operator]


def test_each_direction_has_its_own_rate() -> None:
    gate = Gate(peers={"b.example": PeerRule(rate=RateLimit(messages_per_second=2.0))})
    pair = Pair(a=Bus("a.example", gate=gate))
    for number in range(1, 4):
        pair.to_b.send(chat(number))
    pair.to_b.inbound(inbound(text(), text(), text()), STREAM)
    assert len(pair.a.delivered) == 2
    assert [one.reason for one in pair.a.decisions] == ["rate", "rate"]


def test_what_the_gate_denies_on_the_way_in_is_answered_to_the_far_sender() -> None:
    gate = Gate(one_policy(deny("no", condition("actionType", "equals", "read")), permit("rest")))
    pair, carrier = live_pair(b=Bus("b.example", gate=gate))
    back = pair.back()
    back.open()
    pair.to_b.send(request(1))
    pair.to_b.send(chat(2))
    pair.to_b.flush()
    carrier.arrive()
    assert numbers_of(pair.b.delivered) == [2]
    pair.to_a.flush()
    back.arrive()
    [answer] = pair.a.delivered
    assert (answer.type, body_of(answer)["code"], body_of(answer)["reason"]) == ("response", 403, "policy")


def test_a_message_that_no_guest_can_read_is_refused_and_the_next_one_goes() -> None:
    pair, carrier = live_pair()
    refusal = pair.to_b.send(chat(1, value="x" * CROSSING_BYTES))
    assert refusal is not None
    assert (refusal.code, f"{CROSSING_BYTES:,}" in refusal.detail) == (Code.TOO_LARGE, True)
    assert pair.to_b.send(chat(2)) is None
    pair.to_b.flush()
    carrier.arrive()
    assert numbers_of(pair.b.delivered) == [2]
    assert [record.outcome for record in pair.a.message_records][:1] == ["rejected"]


@pytest.mark.parametrize("via", ["1", "{}", "[1]", "true", '"runtime://a.example/mn-1"'])
def test_hops_that_make_no_sense_are_refused_to_our_own_sender(via: str) -> None:
    pair = Pair()
    raw = text("hyperty://a.example/ana", "hyperty://b.example/bo", f'{{"via":{via}}}')
    refusal = pair.to_b.send(decoded(raw))
    assert refusal is not None
    assert refusal.code in (Code.BAD_BODY, Code.LOOP)
    assert pair.to_b.queue.waiting == 0


# Waiting.


def test_only_so_many_may_wait_for_first_contact() -> None:
    pair = Pair()
    refusals = [pair.to_b.send(chat(number)) for number in range(WAITING_MESSAGES + 3)]
    assert refusals == [None] * WAITING_MESSAGES + [Refusal(Code.OVERLOAD)] * 3
    assert [record.outcome for record in pair.a.message_records] == ["rejected"] * 3
    assert pair.to_b.need.has_arisen


def test_an_event_that_does_not_fit_into_the_queue_is_counted_recorded_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pair = Pair()
    for number in range(WAITING_MESSAGES):
        assert pair.to_b.send(chat(number)) is None
    counters = pair.to_b.machine.counters
    assert (counters[LinkCount.OVERFLOWED], counters[LinkCount.LOST_EVENTS]) == (0, 0)
    event = build(
        id=None, type="update", from_="hyperty://a.example/ana", to="comm://b.example/room/changes", body={"value": 1}
    )
    with caplog.at_level(logging.INFO, logger="federation"):
        for message in (request(9001), event):
            assert pair.to_b.send(message) == Refusal(Code.OVERLOAD)
    assert (counters[LinkCount.OVERFLOWED], counters[LinkCount.LOST_EVENTS]) == (2, 1)
    assert counters[LinkCount.REJECTED] == 0
    assert [record.outcome_code for record in pair.a.message_records] == ["overload"] * 2
    ids = [record.msg_id for record in pair.a.message_records]
    assert caplog.messages == [f"a message from a.example to b.example was rejected: overload, id {one}" for one in ids]


def test_only_so_many_bytes_may_wait_for_first_contact() -> None:
    pair = Pair()
    taken = 0
    while pair.to_b.send(chat(taken, text="x" * 100_000)) is None:
        taken += 1
    assert taken == WAITING_BYTES // 100_000
    assert pair.to_b.send(chat(99)) is None  # a small one still fits


def test_what_waited_too_long_is_answered_with_its_code() -> None:
    pair = Pair()
    pair.to_b.send(request(1))
    pair.to_b.send(chat(2))
    pair.to_b.tick(after(WAITING_SECONDS - 1))
    assert pair.a.answers == []
    pair.to_b.tick(after(WAITING_SECONDS))
    assert pair.a.answer_codes == [Code.DEPLOY_TIMEOUT] * 2
    assert [record.outcome for record in pair.a.message_records] == ["expired", "expired"]
    pair.to_b.tick(after(1_000))
    assert len(pair.a.answers) == 2
    assert pair.to_b.is_idle


def test_a_message_that_expects_no_reply_expires_in_silence() -> None:
    pair = Pair()
    raw = b'{"type":"event","from":"hyperty://a.example/ana","to":"hyperty://b.example/bo"}'
    pair.to_b.send(decoded(raw))
    pair.to_b.tick(after(WAITING_SECONDS))
    assert (pair.a.answers, [record.outcome for record in pair.a.message_records]) == ([], ["expired"])


def test_a_short_life_ends_the_waiting_earlier() -> None:
    pair = Pair()
    pair.to_b.send(request(1, ttl=2))
    pair.to_b.tick(after(2.1))
    assert pair.a.answer_codes == [Code.DEPLOY_TIMEOUT]


def test_the_time_spent_in_a_queue_is_subtracted_and_both_records_still_agree() -> None:
    pair, carrier = live_pair()
    carrier.is_blocked = True
    pair.to_b.send(request(1, ttl=5, value=12345678901234567890))
    (pending,) = pair.to_b.queue.take_batch(10, 1 << 20, after(2.0))
    pair.to_a.inbound(inbound(pending.wire), STREAM)
    (delivered,) = pair.b.delivered
    assert 2.9 < float(bytes(delivered.ttl)) <= 3.0
    assert b'"value":12345678901234567890' in delivered.raw
    pair.to_b.handle(Accepted(1))
    assert [one.digest for one in pair.a.message_records] == [one.digest for one in pair.b.message_records]


def test_a_message_that_did_not_wait_keeps_its_bytes() -> None:
    pair, carrier = live_pair()
    pair.to_b.send(request(1, ttl=5))
    pair.to_b.flush()
    carrier.arrive()
    assert pair.b.delivered[0].raw == request(1, ttl=5).raw


def test_what_outlived_its_time_in_a_queue_is_answered_504_once_and_never_sent() -> None:
    pair, carrier = live_pair()
    carrier.is_blocked = True
    pair.to_b.send(request(1, ttl=5))
    pair.to_b.send(request(2))
    assert [one.message.id for one in pair.to_b.queue.take_batch(10, 1 << 20, after(6.0))] == [b"2"]
    pair.to_b.tick(after(6.0))
    pair.to_b.tick(after(7.0))
    assert pair.a.answer_codes == [Code.GATEWAY_TIMEOUT]
    assert [(one.outcome, one.outcome_code) for one in pair.a.message_records] == [("expired", "timeout")]


def test_silence_that_was_answered_is_not_answered_again_when_the_message_expires() -> None:
    pair, carrier = live_pair()
    carrier.is_blocked = True
    pair.to_b.send(request(1, ttl=5))
    pair.to_b.tick(after(6.0))
    assert pair.to_b.queue.take_batch(10, 1 << 20, after(7.0)) == []
    pair.to_b.tick(after(8.0))
    assert pair.a.answer_codes == [Code.GATEWAY_TIMEOUT]


def test_why_the_domain_cannot_be_reached_is_the_answer() -> None:
    pair = Pair()
    pair.to_b.send(request(1))
    pair.to_b.send(request(2))
    pair.to_b.give_up(Code.ROLLBACK, "live is older than it was")
    assert pair.a.answer_codes == [Code.ROLLBACK] * 2
    assert "older" in str(body_of(pair.a.answers[0])["description"])
    assert [record.outcome_code for record in pair.a.message_records] == ["rollback"] * 2
    pair.to_b.tick(after(1_000))
    assert len(pair.a.answers) == 2


def test_while_a_domain_is_left_alone_messages_are_refused_at_once() -> None:
    pair = Pair()
    pair.to_b.machine.refusal, pair.to_b.machine.refuse_until = Code.CIRCUIT_OPEN, after(60)
    assert pair.to_b.send(request(1)) == Refusal(Code.CIRCUIT_OPEN)
    pair.to_b.machine.refuse_until = after(-1)
    assert pair.to_b.send(request(2)) is None
    pair.to_b.machine.refuse_until = after(60)
    pair.carrier().open()  # the domain came to us
    assert pair.to_b.send(request(3)) is None


def test_a_retired_link_answers_who_waits() -> None:
    pair = Pair()
    pair.to_b.send(request(1))
    pair.to_b.retire(Code.OVERLOAD, "the link is closed")
    assert pair.a.answer_codes == [Code.OVERLOAD]


# Exactly one answer.


def test_silence_of_the_far_end_is_answered_504_once() -> None:
    pair, carrier = live_pair()
    pair.to_b.send(request(1))
    pair.to_b.flush()
    carrier.arrive()
    carrier.acknowledge()
    pair.to_b.tick(after(REQUEST_TTL_SECONDS - 1))
    assert pair.a.answers == []
    for _ in range(2):
        pair.to_b.tick(after(REQUEST_TTL_SECONDS))
    assert pair.a.answer_codes == [Code.GATEWAY_TIMEOUT]
    assert pair.to_b.is_idle


def test_a_reply_in_time_leaves_nothing_to_answer() -> None:
    pair, _ = live_pair()
    pair.to_b.send(request(1))
    assert not pair.to_b.is_idle
    pair.to_b.inbound(inbound(reply(1)), STREAM)
    pair.to_b.tick(after(1_000))
    assert pair.a.answers == []


def test_a_provisional_reply_gives_more_time() -> None:
    pair, _ = live_pair()
    pair.to_b.send(request(1))
    pair.to_b.inbound(inbound(reply(1, 183)), STREAM)
    assert not pair.to_b.machine.replies.expire(after(REQUEST_TTL_SECONDS - 1))
    pair.to_b.tick(after(REQUEST_TTL_SECONDS + 1))
    assert pair.a.answer_codes == [Code.GATEWAY_TIMEOUT]


def test_changes_to_children_may_stay_without_a_reply() -> None:
    pair, _ = live_pair()
    pair.to_b.send(chat(1))
    pair.to_b.tick(after(1_000))
    assert pair.a.answers == []


@pytest.mark.parametrize(("type_", "suffix"), [("create", "children/messages"), ("delete", "changes")])
def test_acknowledgements_abroad_in_the_name_of_our_object_reach_nobody_and_are_no_forgery(
    type_: str, suffix: str
) -> None:
    pair, _ = live_pair()
    to, sender = f"comm://a.example/room/{suffix}", "hyperty://a.example/ana"
    pair.to_b.send(build(id=7, type=type_, from_=sender, to=to))
    for first in range(1, 6):  # as many as would close the carrier, were they forgeries
        ack = build(id=7, type="response", from_=to, to=sender, body={"code": 200}).raw
        pair.to_b.inbound(inbound(ack, first=first), STREAM)
    counters = pair.to_b.counters
    assert (len(pair.a.delivered), counters["spoofed"], counters["unheard acknowledgements"]) == (0, 0, 5)
    pair.to_b.tick(after(1_000))
    pair.to_b.inbound(inbound(ack, first=6), STREAM)
    assert (pair.a.answers, pair.a.delivered, counters["spoofed"]) == ([], [], 1)


def test_a_reply_after_the_final_one_passes_and_is_counted_late() -> None:
    pair, _ = live_pair()
    pair.to_b.send(request(1))
    pair.to_b.inbound(inbound(reply(1)), STREAM)
    pair.to_b.inbound(inbound(reply(1), first=2), STREAM)
    assert (len(pair.a.delivered), pair.to_b.counters["late replies"]) == (2, 1)


@pytest.mark.parametrize("how", ["refused", "quarantined"])
def test_a_message_that_ended_here_is_answered_once_and_never_again(how: str) -> None:
    pair, _ = live_pair()
    pair.to_b.send(request(1))
    pair.to_b.flush()
    if how == "refused":
        pair.to_b.handle(Refused(1, Code.NO_ROUTE, "nobody there"))
    else:
        pending = pair.to_b.queue.refused(1)
        assert pending is not None
        pair.to_b.handle(Convicted(pending))
        assert pair.a.quarantined == [pending]
    pair.to_b.tick(after(1_000))
    assert pair.a.answer_codes == [Code.NO_ROUTE if how == "refused" else Code.QUARANTINED]
    assert pair.to_b.is_idle


def test_a_reply_of_a_stranger_that_nobody_asked_for_is_a_forgery() -> None:
    pair, _ = live_pair()
    pair.to_b.inbound(inbound(reply(1, from_="user-guid://somebody")), STREAM)
    assert (pair.a.delivered, pair.to_b.counters["spoofed"]) == ([], 1)


def test_a_reply_of_a_stranger_that_was_asked_through_this_link_passes() -> None:
    pair, _ = live_pair()
    pair.to_b.send(build(id=1, type="read", from_="hyperty://a.example/ana", to="user-guid://somebody"))
    pair.to_b.inbound(inbound(reply(1, from_="user-guid://somebody")), STREAM)
    assert len(pair.a.delivered) == 1
    pair.to_b.inbound(inbound(reply(1, from_="user-guid://somebody"), first=2), STREAM)
    assert (len(pair.a.delivered), pair.to_b.counters["spoofed"]) == (1, 1)


def test_a_reply_that_our_gate_denies_leaves_the_asker_with_one_answer() -> None:
    gate = Gate(one_policy(deny("no", condition("actionType", "equals", "response")), permit("rest")))
    pair, _ = live_pair(a=Bus("a.example", gate=gate))
    pair.to_b.send(build(id=1, type="read", from_="hyperty://a.example/ana", to="user-guid://somebody"))
    pair.to_b.send(request(2))
    pair.to_b.inbound(inbound(reply(1, from_="user-guid://somebody"), reply(2)), STREAM)
    pair.to_b.tick(after(1_000))
    assert (pair.a.delivered, pair.a.answer_codes) == ([], [Code.POLICY] * 2)


# Inward.


def test_what_nobody_here_can_be_given_is_answered_to_the_far_sender_and_written_down() -> None:
    pair, carrier = live_pair(b=Bus("b.example", refuse=lambda _message: Code.NO_ROUTE))
    pair.to_b.send(request(1))
    pair.to_b.flush()
    carrier.arrive()
    [record] = pair.b.message_records
    assert (record.role, record.outcome, record.outcome_code) == ("in", "undeliverable", "no-route")
    assert pair.to_a.queue.waiting == 1


def test_a_message_without_a_readable_recipient_costs_itself_only() -> None:
    pair, _ = live_pair()
    bad = [text(to="a b"), text(to="hyperty://a\\u0000b/x"), text(to="{}"), text(to="a b", body='{"via":1}')]
    pair.to_b.inbound(inbound(text(), *bad, text()), STREAM)
    assert len(pair.a.delivered) == 2
    assert pair.to_b.processed(STREAM) == 6


def test_broken_messages_cost_themselves_only() -> None:
    pair = Pair()
    broken = [b"", b"{", b"\xff", b"[" * 70_000, b"null", b'{"type":"ping"}', text() + b"x"]
    pair.to_b.inbound(inbound(text(), *broken, text()), STREAM)
    assert (len(pair.a.delivered), pair.to_b.counters["broken"]) == (2, len(broken))


@settings(max_examples=200, deadline=None)
@given(raw=st.binary(max_size=120) | st.text(max_size=40).map(lambda part: text(to=part, body="{}")))
def test_any_bytes_are_taken_or_refused_and_nothing_else(raw: bytes) -> None:
    pair, _ = live_pair()
    pair.to_b.inbound(inbound(raw, text()), STREAM)
    assert pair.to_b.processed(STREAM) == 2
    assert pair.a.delivered


def test_a_message_for_several_is_judged_for_each() -> None:
    pair = Pair()
    raw = (
        b'{"id":1,"type":"read","from":"hyperty://b.example/bo","to":["hyperty://a.example/1","hyperty://a.example/2"]}'
    )
    pair.to_b.inbound(inbound(raw), STREAM)
    assert [message.to for message in pair.a.delivered] == ["hyperty://a.example/1", "hyperty://a.example/2"]


def test_what_was_taken_already_is_dropped_and_counted() -> None:
    pair = Pair()
    pair.to_b.inbound(inbound(chat(1, from_="b.example").raw, chat(2, from_="b.example").raw), STREAM)
    pair.to_b.inbound(inbound(chat(2, from_="b.example").raw, chat(3, from_="b.example").raw, first=2), STREAM)
    assert (numbers_of(pair.a.delivered), pair.to_b.counters["duplicates"]) == ([1, 2, 3], 1)
    assert pair.to_b.machine.streams.newest() == (STREAM, 3)


def test_streams_are_counted_apart_and_only_so_many_are_remembered() -> None:
    pair = Pair()
    for number in range(200):
        pair.to_b.inbound(inbound(text()), f"{number:032x}")
    assert len(pair.a.delivered) == 200
    assert pair.to_b.machine.streams.newest() == (f"{199:032x}", 1)
    assert len(pair.to_b.machine.streams) <= STREAMS_REMEMBERED


def test_messages_without_a_number_are_never_taken_for_duplicates() -> None:
    pair = Pair()
    for _ in range(3):
        pair.to_b.inbound(inbound(text(), first=0), "")
    assert len(pair.a.delivered) == 3


def test_three_messages_in_the_name_of_others_close_the_carrier_and_harm_nobody_else() -> None:
    pair = Pair()
    forged = text("hyperty://a.example/ana")
    pair.to_b.inbound(inbound(forged, text(), forged), STREAM)
    with pytest.raises(PeerError) as caught:
        pair.to_b.inbound(inbound(text(), forged, text(), first=4), STREAM)
    assert (caught.value.code, caught.value.domain) == (Code.SPOOFED_SOURCE, "b.example")
    assert len(pair.a.delivered) == 3
    assert pair.to_b.processed(STREAM) == 6
    assert pair.a.events == ["spoofed"] * 3
    pair.to_b.inbound(inbound(text(), first=7), STREAM)
    assert len(pair.a.delivered) == 4


def test_nobody_is_refused_in_a_name_that_is_not_ours() -> None:
    """The answer to a request for nobody of ours is given in the name of the node."""
    pair, carrier = live_pair(a=Bus("a.example", refuse=lambda _message: Code.TRANSIT))
    pair.to_b.inbound(inbound(text(to="hyperty://c.example/x"), text(to="hyperty://a.example/x")), STREAM)
    pair.to_b.flush()
    answers = [decoded(pending.wire) for pending in carrier.on_the_way]
    assert [answer.from_ for answer in answers] == ["runtime://a.example/mn-1", "hyperty://a.example/x"]
