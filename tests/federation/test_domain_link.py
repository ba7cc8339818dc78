"""All that one side does towards one domain: judged, queued, numbered, handed over, answered, written down.

Both sides are the product's own links; what carries between them is a pair of lists.
"""

from __future__ import annotations

import time

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from federation.core.rates import RateLimit
from federation.core.trapezoid import LegLimits
from federation.domain_link import Refusal
from federation.gate import Gate, PeerRule
from protofly.codec import build
from protofly.errors import Code, PeerError
from protofly.limits import REQUEST_TTL_SECONDS, WAITING_BYTES, WAITING_MESSAGES, WAITING_SECONDS
from protofly.records import LinkEvent
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
    return build(
        id=to, type="response", from_=from_, to="hyperty://a.example/ana", body={"code": code, **body}
    ).raw


# The gate, before anything else.


def test_what_the_gate_denies_is_refused_and_written_down() -> None:
    pair = Pair(a=Bus("a.example", gate=Gate()))
    assert pair.to_b.send(request(1)) == Refusal(Code.DOMAIN_BLOCKED)
    [decision] = pair.a.decisions
    assert (decision.hook, decision.permitted, decision.reason) == ("out", False, "domain-blocked")
    assert (decision.src_domain, decision.dst_domain, decision.link_domain) == ("a.example",) + ("b.example",) * 2
    assert (pair.to_b.leg.waiting, pair.a.answers, pair.a.message_records) == (0, [], [])


def test_the_rule_that_denied_is_told_to_our_own_sender() -> None:
    policies = one_policy(deny("no-reading", condition("type", "equals", "read")), permit("rest"))
    pair = Pair(a=Bus("a.example", gate=Gate(policies)))
    assert pair.to_b.send(request(1)) == Refusal(Code.POLICY, {"rule": "s/no-reading"})
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
    gate = Gate(one_policy(deny("no", condition("type", "equals", "read")), permit("rest")))
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


@pytest.mark.parametrize("via", ["1", "{}", "[1]", "true", '"runtime://a.example/mn-1"'])
def test_hops_that_make_no_sense_are_refused_to_our_own_sender(via: str) -> None:
    pair = Pair()
    raw = text("hyperty://a.example/ana", "hyperty://b.example/bo", f'{{"via":{via}}}')
    refusal = pair.to_b.send(decoded(raw))
    assert refusal is not None
    assert refusal.code in (Code.BAD_BODY, Code.LOOP)
    assert pair.to_b.leg.waiting == 0


# Waiting.


def test_only_so_many_may_wait_for_first_contact() -> None:
    pair = Pair()
    refusals = [pair.to_b.send(chat(number)) for number in range(WAITING_MESSAGES + 3)]
    assert refusals == [None] * WAITING_MESSAGES + [Refusal(Code.OVERLOAD)] * 3
    assert [record.outcome for record in pair.a.message_records] == ["rejected"] * 3
    assert pair.to_b.needed.is_set()


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
    pair.to_b.refuse_code, pair.to_b.refuse_until_seconds = Code.CIRCUIT_OPEN, after(60)
    assert pair.to_b.send(request(1)) == Refusal(Code.CIRCUIT_OPEN)
    pair.to_b.refuse_until_seconds = after(-1)
    assert pair.to_b.send(request(2)) is None
    pair.to_b.refuse_until_seconds = after(60)
    pair.carrier().open()  # the domain came to us
    assert pair.to_b.send(request(3)) is None


def test_a_retired_link_answers_who_waits() -> None:
    pair = Pair()
    pair.to_b.send(request(1))
    pair.to_b.retire()
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
    assert not pair.to_b._transactions.expired(after(REQUEST_TTL_SECONDS - 1))
    pair.to_b.tick(after(REQUEST_TTL_SECONDS + 1))
    assert pair.a.answer_codes == [Code.GATEWAY_TIMEOUT]


def test_changes_to_children_may_stay_without_a_reply() -> None:
    pair, _ = live_pair()
    pair.to_b.send(chat(1))
    pair.to_b.tick(after(1_000))
    assert pair.a.answers == []


@pytest.mark.parametrize("how", ["refused", "quarantined"])
def test_a_message_that_ended_here_is_answered_once_and_never_again(how: str) -> None:
    pair, _ = live_pair()
    pair.to_b.send(request(1))
    pair.to_b.flush()
    if how == "refused":
        pair.to_b.refused(1, Code.NO_ROUTE, "nobody there")
    else:
        pending = pair.to_b.leg.refused(1)
        assert pending is not None
        pair.to_b.quarantined(pending)
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


def test_a_reply_that_our_gate_denies_leaves_the_asker_with_a_timeout() -> None:
    gate = Gate(one_policy(deny("no", condition("type", "equals", "response")), permit("rest")))
    pair, _ = live_pair(a=Bus("a.example", gate=gate))
    pair.to_b.send(build(id=1, type="read", from_="hyperty://a.example/ana", to="user-guid://somebody"))
    pair.to_b.send(request(2))
    pair.to_b.inbound(inbound(reply(1, from_="user-guid://somebody"), reply(2)), STREAM)
    pair.to_b.tick(after(1_000))
    assert (pair.a.delivered, pair.a.answer_codes) == ([], [Code.GATEWAY_TIMEOUT] * 2)


# Inward.


def test_what_nobody_here_can_be_given_is_answered_to_the_far_sender_and_written_down() -> None:
    pair, carrier = live_pair(b=Bus("b.example", refuse=lambda _message: Code.NO_ROUTE))
    pair.to_b.send(request(1))
    pair.to_b.flush()
    carrier.arrive()
    [record] = pair.b.message_records
    assert (record.role, record.outcome, record.outcome_code) == ("in", "undeliverable", "no-route")
    assert pair.to_a.leg.waiting == 1


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
    raw = b'{"id":1,"type":"read","from":"hyperty://b.example/bo","to":["hyperty://a.example/1","hyperty://a.example/2"]}'
    pair.to_b.inbound(inbound(raw), STREAM)
    assert [message.to for message in pair.a.delivered] == ["hyperty://a.example/1", "hyperty://a.example/2"]


def test_what_was_taken_already_is_dropped_and_counted() -> None:
    pair = Pair()
    pair.to_b.inbound(inbound(chat(1, from_="b.example").raw, chat(2, from_="b.example").raw), STREAM)
    pair.to_b.inbound(inbound(chat(2, from_="b.example").raw, chat(3, from_="b.example").raw, first=2), STREAM)
    assert (numbers_of(pair.a.delivered), pair.to_b.counters["duplicates"]) == ([1, 2, 3], 1)
    assert pair.to_b.newest_stream() == (STREAM, 3)


def test_streams_are_counted_apart_and_only_so_many_are_remembered() -> None:
    pair = Pair()
    for number in range(200):
        pair.to_b.inbound(inbound(text()), f"{number:032x}")
    assert len(pair.a.delivered) == 200
    assert pair.to_b.newest_stream() == (f"{199:032x}", 1)
    assert len(pair.to_b._processed) <= 64


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


def test_refusals_in_the_peers_name_need_a_readable_request() -> None:
    """The answer to a request for nobody of ours is given in the name of the node."""
    pair, _ = live_pair(a=Bus("a.example", refuse=lambda _message: Code.TRANSIT))
    carrier = pair.to_b._carriers[0]
    assert isinstance(carrier, MemoryCarrier)
    pair.to_b.inbound(inbound(text(to="hyperty://c.example/x"), text(to="hyperty://a.example/x")), STREAM)
    pair.to_b.flush()
    answers = [decoded(pending.wire) for pending in carrier.on_the_way]
    assert [answer.from_ for answer in answers] == ["runtime://a.example/mn-1", "hyperty://a.example/x"]


# Carriers.


def test_the_first_carrier_that_is_up_carries_until_it_is_lost() -> None:
    pair, stub = live_pair()
    peer = pair.carrier(channel="peer")
    peer.open()
    pair.to_b.send(chat(1))
    pair.to_b.flush()
    assert (len(stub.on_the_way), len(peer.on_the_way), pair.to_b.carried_by) == (1, 0, "stub")
    assert (pair.to_b.is_active(stub), pair.to_b.is_active(peer)) == (True, False)
    stub.cut()
    assert (len(peer.on_the_way), pair.to_b.carried_by) == (1, "peer")
    assert not pair.to_b.needed.is_set()


def test_losing_a_carrier_that_does_not_carry_changes_nothing() -> None:
    pair, stub = live_pair()
    peer = pair.carrier(channel="peer")
    peer.open()
    pair.to_b.send(chat(1))
    pair.to_b.flush()
    peer.cut()
    peer.cut()
    assert (pair.to_b.leg.under_way, pair.to_b.leg.waiting) == (1, 0)
    assert pair.a.events == ["up", "up", "down"]
    assert pair.to_b.is_live


def test_the_last_carrier_lost_leaves_the_link_needed_while_something_waits() -> None:
    pair, stub = live_pair()
    stub.cut()
    assert (pair.to_b.state, pair.to_b.needed.is_set()) == ("disconnected", False)
    stub.open()
    pair.to_b.send(chat(1))
    pair.to_b.flush()
    stub.cut()
    assert pair.to_b.needed.is_set()
    [down] = [one for one in pair.a.records if isinstance(one, LinkEvent) and one.event == "down"][-1:]
    assert (down.waiting, down.direction) == (1, "out")


def test_what_waits_is_handed_over_as_soon_as_a_carrier_is_up() -> None:
    pair = Pair()
    pair.to_b.send(chat(1))
    pair.to_b.send(chat(2))
    carrier = pair.carrier()
    carrier.open()
    assert [pending.number for pending in carrier.on_the_way] == [1, 2]
    assert pair.a.came_live == ["b.example"]


def test_an_acceptance_makes_room_for_what_waits() -> None:
    limits = LegLimits(in_flight_messages=2)
    pair, carrier = live_pair(a=Bus("a.example", limits=limits))
    for number in range(1, 5):
        pair.to_b.send(chat(number))
        pair.to_b.flush()
    assert len(carrier.on_the_way) == 2
    carrier.arrive()
    carrier.acknowledge()
    assert [pending.number for pending in carrier.on_the_way] == [3, 4]


async def test_everybody_who_waits_for_relief_is_woken() -> None:
    pair, carrier = live_pair()
    woken: list[int] = []

    async def wait(number: int) -> None:
        await pair.to_b.wait_relief()
        woken.append(number)

    pair.to_b.send(chat(1))
    pair.to_b.flush()
    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(wait, number)
        await trio.testing.wait_all_tasks_blocked()
        carrier.arrive()
        carrier.acknowledge()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert sorted(woken) == [0, 1, 2]


async def test_who_waits_for_a_carrier_is_woken_and_a_lost_one_does_not_count() -> None:
    pair, carrier = live_pair()
    await pair.to_b.wait_live()
    carrier.cut()
    woken: list[int] = []

    async def wait() -> None:
        await pair.to_b.wait_live()
        woken.append(1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert woken == []
        carrier.open()
        await trio.testing.wait_all_tasks_blocked()
        assert woken == [1]


async def test_a_reader_waits_while_our_bus_has_no_room() -> None:
    pair = Pair()
    pair.a.room = trio.Event()
    with trio.move_on_after(0) as scope:
        await pair.to_b.wait_for_room()
    assert scope.cancelled_caught
    pair.a.room.set()
    await pair.to_b.wait_for_room()


def test_when_the_numbers_are_used_up_another_stream_begins_and_nothing_is_lost() -> None:
    pair, carrier = live_pair()
    old = pair.to_b.leg.stream
    pair.to_b.leg._next_number = 0xFFFFFFFF
    for number in (1, 2):
        pair.to_b.send(chat(number))
        pair.to_b.flush()
    assert [pending.number for pending in carrier.on_the_way] == [0xFFFFFFFF]
    carrier.arrive()
    carrier.acknowledge()
    assert carrier.is_ended
    carrier.cut()
    again = pair.carrier()
    again.open()
    assert pair.to_b.leg.stream != old
    assert [pending.number for pending in again.on_the_way] == [1]
    again.arrive()
    again.acknowledge()
    assert numbers_of(pair.b.delivered) == [1, 2]


# The books.


def test_both_sides_write_down_the_same_message() -> None:
    pair, carrier = live_pair()
    message = chat(1, text="grüße")
    pair.to_b.stub_version = "ab" * 32
    pair.to_b.send(message)
    pair.to_b.flush()
    carrier.arrive()
    carrier.acknowledge()
    [sent], [received] = pair.a.message_records, pair.b.message_records
    assert (sent.msg_id, sent.digest) == (received.msg_id, received.digest)
    assert len(sent.msg_id) == len(sent.digest) == 32
    for record in (sent, received):
        assert (record.src_domain, record.dst_domain) == ("a.example", "b.example")
        assert (record.src_key, record.dst_key, record.msg_type) == (message.from_, message.to, "create")
        assert (record.outcome, record.outcome_code, record.decision) == ("delivered", None, "permit")
        assert record.attempt == 1
    assert (sent.role, sent.channel, sent.size_in) == ("out", "stub", len(message.raw))
    assert (received.role, received.channel, received.size_in) == ("in", None, len(message.raw))
    assert sent.size_wire == received.size_wire
    assert sent.size_wire is not None
    assert sent.size_wire > sent.size_in
    assert abs(sent.ts_us - time.time() * 1e6) < 60e6
    assert sent.d_peer_us is not None
    assert sent.d_total_us is not None
    assert 0 <= sent.d_peer_us <= sent.d_total_us


def test_the_rule_and_revision_that_let_a_message_pass_are_written_down() -> None:
    policies = one_policy(permit("chat-is-fine"))
    pair, carrier = live_pair(a=Bus("a.example", gate=Gate(policies)))
    pair.to_b.send(chat(1))
    pair.to_b.flush()
    carrier.arrive()
    carrier.acknowledge()
    [sent] = pair.a.message_records
    assert (sent.rule_id, sent.policy_rev) == ("s/chat-is-fine", policies.revision)


def test_each_message_has_one_line_per_side_whatever_happens_to_it() -> None:
    pair, carrier = live_pair()
    for number in range(1, 6):
        pair.to_b.send(request(number))
    pair.to_b.flush()
    carrier.arrive(2)
    carrier.acknowledge()
    pair.to_b.refused(3, Code.NO_ROUTE, "")
    carrier.cut()
    pair.to_b.tick(after(60))
    assert [record.outcome for record in pair.a.message_records] == [
        "delivered",
        "delivered",
        "rejected",
        "expired",
        "expired",
    ]
    assert len({record.msg_id for record in pair.a.message_records}) == 5


def test_a_traced_message_can_be_followed_hop_by_hop() -> None:
    pair, carrier = live_pair()
    pair.to_b.send(chat(1, trace="t-1"))
    pair.to_b.flush()
    carrier.arrive()
    carrier.acknowledge()
    [ours], [theirs] = pair.a.traces.snapshot(), pair.b.traces.snapshot()
    assert [hop["name"] for hop in ours["hops"]] == ["gate out", "stub", "delivered"]  # type: ignore[attr-defined]
    assert [hop["name"] for hop in theirs["hops"]] == ["link in", "bus"]  # type: ignore[attr-defined]


SPACE = st.sampled_from(["", " ", "\n", "  "])


@settings(max_examples=150, deadline=None)
@given(spaces=st.lists(SPACE, min_size=12, max_size=12), order=st.permutations(range(5)), members=st.integers(0, 2))
def test_however_a_message_is_written_both_sides_hash_the_same(
    spaces: list[str], order: list[int], members: int
) -> None:
    s = iter(spaces)
    inner = ("," + next(s)).join(f'"m{number}"{next(s)}:{next(s)}{number}' for number in range(members))
    parts = [
        f'"id":{next(s)}1',
        '"type":"create"',
        '"from":"hyperty://a.example/ana"',
        '"to":"hyperty://b.example/bo"',
        f'"body":{{{next(s)}{inner}{next(s)}}}',
    ]
    raw = "{" + next(s) + ",".join(parts[index] for index in order) + next(s) + "}"
    pair, carrier = live_pair()
    assert pair.to_b.send(decoded(raw.encode())) is None
    pair.to_b.flush()
    carrier.arrive()
    carrier.acknowledge()
    [sent], [received] = pair.a.message_records, pair.b.message_records
    assert (sent.msg_id, sent.digest) == (received.msg_id, received.digest)


# Any order of events.


class LinkMachine(RuleBasedStateMachine):
    """Two links, carriers that come and go, acknowledgements that are late: all arrive once, in order."""

    def __init__(self) -> None:
        super().__init__()
        limits = LegLimits(waiting_messages=30, in_flight_messages=20, in_flight_bytes=1 << 20)
        self.pair = Pair(a=Bus("a.example", limits=limits), b=Bus("b.example"))
        self.up: list[MemoryCarrier] = []
        self.count = 0

    @rule(some=st.integers(1, 8))
    def send(self, some: int) -> None:
        for _ in range(some):
            if self.pair.to_b.send(chat(self.count + 1)) is None:
                self.count += 1
        self.pair.to_b.flush()

    @precondition(lambda self: len(self.up) < 3)
    @rule(channel=st.sampled_from(["stub", "peer"]))
    def come(self, channel: str) -> None:
        carrier = self.pair.carrier(channel=channel)
        self.up.append(carrier)
        carrier.open()

    @precondition(lambda self: self.up)
    @rule(which=st.integers(0, 2), some=st.integers(0, 5))
    def go(self, which: int, some: int) -> None:
        """Some of what was on the way still arrives; its acknowledgement does not."""
        carrier = self.up.pop(which % len(self.up))
        carrier.arrive(some)
        carrier.cut()

    @precondition(lambda self: self.up)
    @rule(some=st.integers(0, 10))
    def arrive(self, some: int) -> None:
        self.up[0].arrive(some)

    @precondition(lambda self: self.up)
    @rule()
    def acknowledge(self) -> None:
        self.up[0].acknowledge()

    @invariant()
    def what_arrived_is_a_beginning_of_what_was_sent(self) -> None:
        numbers = numbers_of(self.pair.b.delivered)
        assert numbers == list(range(1, len(numbers) + 1))

    def teardown(self) -> None:
        if not self.up:
            self.come("stub")
        carrier = self.up[0]
        while self.pair.to_b.leg.waiting or self.pair.to_b.leg.under_way:
            carrier.arrive()
            carrier.acknowledge()
        assert numbers_of(self.pair.b.delivered) == list(range(1, self.count + 1))
        outcomes = [record.outcome for record in self.pair.a.message_records if record.outcome != "rejected"]
        assert outcomes == ["delivered"] * self.count


TestLinkMachine = LinkMachine.TestCase
TestLinkMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
