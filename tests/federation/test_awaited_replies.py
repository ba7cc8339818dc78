"""Replies that are awaited, by values: what is remembered of a message, and which reply is late."""

from __future__ import annotations

import msgspec

from federation.core.awaited_replies import AwaitedReplies, LinkNames
from federation.core.link_counts import LinkCount
from federation.core.outbound_queue import OutboundMessage
from protofly import codec
from protofly.counters import Counters
from protofly.errors import Code
from protofly.message import Message

ANA, ROOM = "hyperty://a.example/ana", "comm://a.example/room"
ELSEWHERE = "comm://alias.example/room"


def awaited() -> tuple[AwaitedReplies, Counters]:
    counters = Counters(LinkCount)
    names = LinkNames("b.example", "runtime://a.example/mn-1", frozenset({"a.example"}))
    return AwaitedReplies(names, doubt_until=0.0, counters=counters), counters


def sent(to: str, type_: str = "create") -> Message:
    return codec.build(id=1, type=type_, from_=ANA, to=to)


def is_late(reply: Message) -> bool:
    return bool(msgspec.json.decode(reply.body).get("late", False))


def test_observers_abroad_acknowledge_what_our_object_got_and_are_not_late() -> None:
    replies, counters = awaited()
    replies.sent(sent(ROOM), 0.0, 15.0)
    assert len(replies) == 0
    for _ in range(3):
        assert not is_late(replies.came(codec.response(sent(ROOM), 200), 1.0))
    assert is_late(replies.came(codec.response(sent(f"{ROOM}/other"), 200), 1.0))
    assert counters["late replies"] == 1


def test_a_message_that_expects_nothing_opens_nothing() -> None:
    replies, counters = awaited()
    for to in (ROOM, ELSEWHERE):
        answer = codec.response(codec.build(id=1, type="create", from_=to, to=ANA), 200)
        assert (answer.from_, answer.to) == (ANA, to)
        replies.sent(answer, 0.0, 15.0)
        reply = codec.response(sent(to), 200)
        assert not replies.is_open(reply)
        assert is_late(replies.came(reply, 1.0))
    assert counters["late replies"] == 2


def gone(message: Message) -> OutboundMessage:
    return OutboundMessage(message, message.raw, b"", "", 0, 0.0, "", "", 0, 15.0)


def test_who_asked_for_a_receipt_gets_one_when_the_far_end_answers_for_the_message() -> None:
    replies, counters = awaited()
    to = "comm://b.example/room/changes"
    asked = codec.build(id=7, type="update", from_=ANA, to=to, body={"receipt": True})
    replies.sent(asked, 0.0, 15.0)
    assert len(replies) == 1
    others = [
        codec.build(id=8, type="update", from_=ANA, to=to, body={"receipt": False}),
        codec.build(id=9, type="update", from_=ANA, to=to),
        codec.build(id=None, type="update", from_=ANA, to=to, body={"receipt": True}),
    ]
    [receipt] = replies.receipts([asked, *others], 1.0)
    assert (receipt.id, receipt.type, receipt.from_, receipt.to) == (b"7", "response", to, ANA)
    body = msgspec.json.decode(receipt.body)
    assert (body["code"], body["source"]) == (200, "runtime://a.example/mn-1")
    assert len(replies) == 0
    assert replies.expire(100.0) == []  # it was answered
    assert counters["timeouts"] == 0


def test_silence_is_answered_504_once_and_counted() -> None:
    replies, counters = awaited()
    replies.sent(sent("comm://b.example/room", "read"), 0.0, 15.0)
    assert replies.expire(14.9) == []
    [answer] = replies.expire(15.0, detail="b.example is stalled", value={"link": "stalled"})
    body = msgspec.json.decode(answer.body)
    assert (answer.id, answer.from_, answer.to) == (b"1", "comm://b.example/room", ANA)
    assert (body["code"], body["source"]) == (504, "runtime://a.example/mn-1")
    assert (body["reason"], body["value"]) == (Code.GATEWAY_TIMEOUT.word, {"link": "stalled"})
    assert body["description"].endswith(": b.example is stalled")
    assert (replies.expire(100.0), counters["timeouts"]) == ([], 1)


def test_all_that_wait_are_answered_when_the_node_waits_no_longer() -> None:
    replies, counters = awaited()
    for number in (1, 2):
        replies.sent(codec.build(id=number, type="read", from_=ANA, to="comm://b.example/x"), 0.0, 15.0)
    answers = replies.abandon(Code.OVERLOAD, "over", 1.0)
    assert [(answer.id, msgspec.json.decode(answer.body)["code"]) for answer in answers] == [(b"1", 503), (b"2", 503)]
    assert (len(replies), replies.abandon(Code.OVERLOAD, "over", 1.0), counters["timeouts"]) == (0, [], 0)
    assert "value" not in msgspec.json.decode(answers[0].body)


def test_a_message_that_failed_is_answered_once_and_only_if_its_sender_waits() -> None:
    replies, _ = awaited()
    request = sent("comm://b.example/room", "read")
    replies.sent(request, 0.0, 15.0)
    answer = replies.failed(gone(request), Code.OVERLOAD, "no", 1.0)
    assert answer is not None
    assert msgspec.json.decode(answer.body)["description"].endswith(": no")
    assert replies.failed(gone(request), Code.OVERLOAD, "no", 1.0) is None
    event = codec.build(id=2, type="event", from_=ANA, to="comm://b.example/room")
    assert replies.failed(gone(event), Code.OVERLOAD, "no", 1.0) is None
    to_observers = sent(ROOM)  # no reply is awaited from them, but a refusal of ours is due
    assert replies.failed(gone(to_observers), Code.OVERLOAD, "no", 1.0) is not None


def test_a_denied_reply_leads_to_one_answer_in_its_place_if_one_is_expected() -> None:
    replies, _ = awaited()
    request = sent("comm://b.example/room", "read")
    reply = codec.response(request, 200)
    assert replies.denied(reply, Code.POLICY, None, 1.0) is None
    replies.sent(request, 0.0, 15.0)
    answer = replies.denied(reply, Code.POLICY, {"rule": "r"}, 1.0)
    assert answer is not None
    assert (answer.from_, answer.to, answer.id) == (reply.from_, ANA, b"1")
    assert msgspec.json.decode(answer.body)["value"] == {"rule": "r"}
    assert replies.denied(reply, Code.POLICY, None, 1.0) is None


def test_another_node_waits_for_a_reply_for_as_long_as_was_left() -> None:
    replies, _ = awaited()
    replies.sent(sent(ELSEWHERE, "read"), 100.0, 15.0)
    requests, addressed = replies.hand_over(105.0)
    again, _ = awaited()
    again.restore(requests, addressed, 1000.0)
    assert [len(again.expire(now)) for now in (1000.0, 1009.0, 1011.0)] == [0, 0, 1]
