"""A link that moves to another node of its domain: nothing is lost or repeated, requests are answered."""

from __future__ import annotations

import contextlib
import time

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.core import moved_link
from federation.core.moved_link import LinkParts, MovedLink, MovedMessage, moved_message, parts_of
from federation.core.outbound_queue import OutboundMessage
from federation.links.domain_link import DomainLink
from federation.links.link_moves import (
    CALL_SECONDS,
    hand_over_link,
    keeps_link,
    put_in,
    take_over_link,
    taken_out,
    undo_link,
)
from policy.core.gate import Gate
from protofly.codec import build
from protofly.errors import Code, PeerError
from protofly.limits import REQUEST_TTL_SECONDS
from tests.federation.test_router import Rig
from tests.support.policies import deny, one_policy
from tests.support.sides import (
    Bus,
    MemoryCarrier,
    Pair,
    chat,
    decoded,
    everybody,
    node_of,
    numbers_of,
    request,
)

NODE = node_of("a.example")


def moved_to(bus: Bus, link: DomainLink) -> DomainLink:
    """The link of another node, which goes on for this one, by way of bytes."""
    parts = LinkParts()
    whole = [parts.take(part)[1] for part in parts_of("b.example", taken_out(link))][-1]
    assert whole is not None
    new = bus.link_to("b.example", stream="e" * 32)
    put_in(new, whole)
    return new


def test_what_was_under_way_goes_again_with_its_numbers_and_the_rest_follows() -> None:
    pair = Pair()
    carrier = pair.carrier()
    carrier.open()
    for number in range(1, 7):
        pair.to_b.send(chat(number))
    pair.to_b.flush()
    carrier.arrive(4)  # of six that are on the way; nothing was acknowledged
    pair.to_b.send(chat(7))
    link = moved_to(Bus("a.example"), pair.to_b)
    assert (pair.to_b.queue.under_way, pair.to_b.queue.waiting, len(pair.to_b.machine.replies)) == (0, 0, 0)
    link.send(chat(8))
    again = MemoryCarrier(link, pair.to_a)
    again.open()
    link.flush()
    again.arrive()
    assert numbers_of(pair.b.delivered) == list(range(1, 9))
    assert link.queue.stream == pair.to_b.queue.stream


def test_what_the_other_domain_sends_again_is_known_where_the_link_is_now() -> None:
    pair = Pair()
    back = pair.back()
    back.open()
    for number in range(1, 4):
        pair.to_a.send(chat(number, from_="b.example", to="a.example"))
    pair.to_a.flush()
    back.arrive()
    back.cut()  # before an acknowledgement
    there = Bus("a.example")
    link = moved_to(there, pair.to_b)
    again = MemoryCarrier(pair.to_a, link)
    again.open()
    pair.to_a.send(chat(4, from_="b.example", to="a.example"))
    pair.to_a.flush()
    again.arrive()
    assert (numbers_of(pair.a.delivered), numbers_of(there.delivered)) == ([1, 2, 3], [4])


def test_a_reply_to_a_request_that_moved_is_not_late_and_silence_is_answered_once() -> None:
    pair = Pair()
    carrier = pair.carrier()
    carrier.open()
    pair.to_b.send(request(1))
    pair.to_b.send(request(2))
    pair.to_b.flush()
    carrier.arrive()
    carrier.acknowledge()
    there = Bus("a.example")
    link = moved_to(there, pair.to_b)
    reply = build(
        id=1, type="response", from_="hyperty://b.example/bo", to="hyperty://a.example/ana", body={"code": 200}
    )
    link.inbound([(1, reply.raw)], "b" * 32)
    assert [one.is_late for one in there.delivered] == [False]
    pair.to_b.tick(time.monotonic() + 2 * REQUEST_TTL_SECONDS)
    link.tick(time.monotonic() + 2 * REQUEST_TTL_SECONDS)
    assert (pair.a.answer_codes, there.answer_codes) == ([], [Code.GATEWAY_TIMEOUT])


def test_what_waited_keeps_its_time_and_is_answered_when_that_is_over() -> None:
    pair = Pair()
    pair.to_b.send(request(1))
    there = Bus("a.example")
    link = moved_to(there, pair.to_b)
    assert link.queue.waiting == 1
    link.tick(time.monotonic() + 2 * REQUEST_TTL_SECONDS)
    assert there.answer_codes == [Code.DEPLOY_TIMEOUT]


@given(steps=st.lists(st.sampled_from(["send", "arrive", "acknowledge", "move", "cut"]), max_size=60))
@settings(max_examples=60)
def test_messages_arrive_once_and_in_order_however_often_the_link_moves(steps: list[str]) -> None:
    pair = Pair()
    link, sent = pair.to_b, 0
    carrier = MemoryCarrier(link, pair.to_a)
    carrier.open()
    for step in [*steps, "move"]:
        if step == "send" and sent < 90:
            sent += 1
            assert link.send(chat(sent)) is None
            link.flush()
        elif step == "arrive":
            carrier.arrive(1)
        elif step == "acknowledge":
            carrier.acknowledge()
        elif step in ("move", "cut"):
            carrier.cut()
            if step == "move":
                link = moved_to(Bus("a.example"), link)
            carrier = MemoryCarrier(link, pair.to_a)
            carrier.open()
            link.flush()
    while link.queue.waiting or link.queue.under_way:
        carrier.arrive()
        carrier.acknowledge()
    assert numbers_of(pair.b.delivered) == list(range(1, sent + 1))


def test_a_large_link_goes_in_parts_that_fit_and_comes_back_whole() -> None:
    pair = Pair()
    carrier = pair.carrier()
    carrier.open()
    for number in range(40):
        assert pair.to_b.send(chat(number, text="x" * 60_000)) is None
    moved = taken_out(pair.to_b)
    parts = parts_of("b.example", moved)
    assert len(parts) > 2
    assert max(map(len, parts)) < 2 << 20
    reader = LinkParts()
    results = [reader.take(part) for part in parts]
    assert [whole for _, whole in results[:-1]] == [None] * (len(parts) - 1)
    assert results[-1] == ("b.example", moved)


def test_parts_without_those_before_them_and_other_bytes_are_refused() -> None:
    parts = parts_of(
        "b.example", MovedLink("a" * 32, 1, [], [msgspec.structs.replace(_a_message(), raw=b"x" * (1 << 20))] * 2)
    )
    reader = LinkParts()
    for raw in (parts[1], b"", b"\xc1", b"\x93\x01", parts[0][:-1]):
        with pytest.raises(PeerError) as refused:
            reader.take(raw)
        assert refused.value.code is Code.PROTOCOL_ERROR
    assert reader.take(parts[0]) == ("b.example", None)


def test_a_message_that_this_version_cannot_read_is_left_out_and_the_others_go_on() -> None:
    link = Bus("a.example").link_to("b.example")
    good, bad = _a_message(), msgspec.structs.replace(_a_message(), raw=b"{")
    put_in(link, MovedLink("a" * 32, 1, [], [bad, good]))
    assert link.queue.waiting == 1


def _a_message() -> MovedMessage:
    raw = chat(1).raw
    return MovedMessage(raw, True, True, raw, b"", "", 0, 0.0, 5.0, "", "", 0, 0, "", None, 0.0, 0)


def test_links_that_can_go_on_nowhere_answer_who_waits() -> None:
    pair = Pair()
    pair.to_b.send(request(1))
    [answer] = undo_link(NODE, taken_out(pair.to_b), Code.NOT_CONNECTED)
    assert (answer.id, answer.to) == (b"1", "hyperty://a.example/ana")
    assert decoded(answer.raw).is_response


async def test_a_node_gives_its_link_with_all_it_has_and_another_goes_on(nursery: trio.Nursery) -> None:
    giver, taker = Rig(everybody()), Rig(everybody())
    for rig in (giver, taker):
        await nursery.start(rig.federation.run)
    assert hand_over_link(giver.federation, "b.example") is None
    giver.federation.send("b.example", request(1))
    moved = hand_over_link(giver.federation, "b.example")
    assert moved is not None
    assert (giver.federation.links, giver.bus.answers) == ([], [])
    take_over_link(taker.federation, NODE, "b.example", moved)
    [link] = taker.federation.links
    assert (link.queue.waiting, link.queue.stream) == (1, moved.stream)


async def test_a_domain_that_the_policy_there_does_not_talk_to_is_not_taken_over(nursery: trio.Nursery) -> None:
    rig = Rig(Gate(one_policy(deny("nobody")), peers={}))
    await nursery.start(rig.federation.run)
    with pytest.raises(PeerError) as refused:
        take_over_link(rig.federation, NODE, "b.example", MovedLink("a" * 32, 1, []))
    assert refused.value.code is Code.DOMAIN_BLOCKED
    assert rig.federation.links == []


async def test_what_a_carrier_brings_after_its_link_has_moved_is_dropped_and_comes_again(nursery: trio.Nursery) -> None:
    rig = Rig(everybody())
    await nursery.start(rig.federation.run)
    rig.federation.send("b.example", chat(1))
    [link] = rig.federation.links
    await trio.testing.wait_all_tasks_blocked()
    moved = hand_over_link(rig.federation, "b.example")
    link.inbound([(1, chat(1, from_="b.example", to="a.example").raw)], "b" * 32)
    assert moved is not None
    assert (moved.seen, rig.bus.delivered) == ([], [])


@given(raw=st.binary(max_size=200))
def test_any_bytes_in_place_of_a_part_give_a_value_or_a_peer_error(raw: bytes) -> None:
    with contextlib.suppress(PeerError):
        LinkParts().take(raw)


def test_a_link_that_is_up_stays_unless_its_far_end_has_come_again() -> None:
    pair = Pair()
    link = pair.to_b
    assert not keeps_link(link, "a.example", "b" * 32, now=0.0)
    theirs = MemoryCarrier(link, channel="peer")
    theirs.origin = "b" * 32
    theirs.open()
    assert keeps_link(link, "a.example", "c" * 32, now=0.0)
    assert not keeps_link(link, "a.example", "b" * 32, now=0.0)
    MemoryCarrier(link, pair.to_a).open()  # our own stub is up as well
    assert keeps_link(link, "a.example", "b" * 32, now=0.0)


@pytest.mark.parametrize("state", ["deploying", "deployed", "created", "in-progress"])
def test_of_two_domains_that_call_each_other_only_the_lesser_one_keeps_its_link_and_not_for_long(state: str) -> None:
    link = Pair().to_b
    link.stub.became(state, now=100.0)
    assert keeps_link(link, "a.example", "b" * 32, now=100.0)
    assert not keeps_link(link, "c.example", "b" * 32, now=100.0)
    assert not keeps_link(link, "a.example", "b" * 32, now=100.0 + CALL_SECONDS)
    link.stub.became("failed", now=101.0)
    assert not keeps_link(link, "a.example", "b" * 32, now=101.0)


@pytest.mark.parametrize("part_bytes", [1, 1 << 20])
def test_what_is_larger_than_a_part_makes_one_part_and_none_is_empty(
    part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moved_link, "PART_BYTES", part_bytes)
    heard = [(f"comm://b.example/{number}", "key", "source") for number in range(3)]
    parts, reader = parts_of("b.example", MovedLink("s", 1, [], heard=heard)), LinkParts()
    whole = [reader.take(part)[1] for part in parts][-1]
    assert len(parts) == (3 if part_bytes == 1 else 1)
    assert whole is not None
    assert whole.heard == heard


@pytest.mark.parametrize("is_late", [True, False])
def test_a_message_that_moves_stays_as_late_as_it_was(*, is_late: bool) -> None:
    moved = msgspec.structs.replace(_a_message(), is_late=is_late)
    assert moved.outbound(0.0).message.is_late is is_late


@pytest.mark.parametrize("verdict", [None, True, False])
def test_a_message_that_moves_keeps_its_age_its_time_and_all_that_was_decided(verdict: bool | None) -> None:
    queued = OutboundMessage(chat(1), b"wire", b"id", "digest", 7, 40.0, "rule", "revision", 8, 65.0, 9)
    queued.suspected, queued.reason, queued.ttl_seconds = 1, "step", 30.0
    if verdict is not None:
        queued.message.judged(is_permitted_by_rule=verdict)
    gone_on = moved_message(queued, 50.0).outbound(1_000.0)  # the clock of the other node
    assert (gone_on.accepted_seconds, gone_on.deadline_seconds) == (990.0, 1_015.0)
    assert gone_on.message.verdict is verdict
    assert msgspec.structs.replace(gone_on, accepted_seconds=40.0, deadline_seconds=65.0) == queued
