"""Replies that are awaited, by values: what is remembered of a message, and which reply is late."""

from __future__ import annotations

import msgspec

from federation.core.awaited_replies import AwaitedReplies, LinkNames
from federation.core.link_counts import LinkCount
from protofly import codec
from protofly.counters import Counters
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
