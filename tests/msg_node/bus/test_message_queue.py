"""The queue of one runtime, without its channel, and the form in which it is sent messages."""

from __future__ import annotations

import json

import pytest

from msg_node.bus.core.message_queue import MessageQueue, QueueBounds, as_delivered
from msg_node.kernel.counts import NodeCount
from protofly import codec
from protofly.counters import Counters
from protofly.message import Message
from tests.support.runtime_rig import a_message, parsed, runtime_address

ANA = runtime_address("ana")
HEADER = '"type":"create","from":"hyperty://a.example/h","to":"comm://b.example/r"'


def an(type_: str, value: object = 1) -> Message:
    return parsed(a_message(type_, ANA, ANA, {"value": value}, id_=1))


def _decoded(text: str) -> Message:
    [message] = codec.decode(text.encode())
    return message


def queue_of(*messages: Message, counters: Counters | None = None) -> MessageQueue:
    queue = MessageQueue(QueueBounds(3, 10_000), Counters(NodeCount) if counters is None else counters)
    assert all(queue.take(message) for message in messages)
    return queue


def test_a_full_queue_takes_nothing_and_stays_as_it_is() -> None:
    queue = queue_of(an("read"), an("read"), an("read"))
    size = queue.size_bytes
    assert not queue.has_room(an("event"))
    assert not queue.take(an("event"))
    assert (len(queue.messages), queue.size_bytes) == (3, size)


def test_the_oldest_event_makes_room_and_is_counted() -> None:
    counters = Counters(NodeCount)
    queue = queue_of(an("read"), an("event", "old"), an("event", "new"), counters=counters)
    assert queue.make_room(an("response"))
    assert [message.type for message in queue.messages] == ["read", "event"]
    assert queue.messages[1].raw == an("event", "new").raw
    assert counters["dropped"] == 1


def test_without_an_event_there_is_no_room_to_be_made() -> None:
    queue = queue_of(an("read"), an("response"), an("read"))
    assert not queue.make_room(an("event"))
    assert len(queue.messages) == 3


def test_what_exceeds_the_bounds_counts_in_bytes() -> None:
    queue = queue_of(an("read"), an("read"), an("read"))
    queue.exceed(an("response"))
    assert queue.size_bytes == sum(len(message.raw) for message in queue.messages)


def test_only_messages_that_count_their_time_expire() -> None:
    timed, other = parsed(a_message("read", ANA, ANA, {"ttl": 5}, id_=2)), an("read")
    queue = queue_of(timed, other)
    queue.count_time(timed, 100.0)
    assert queue.counts_time
    assert queue.expire(106.0) == [timed]
    assert queue.messages == [other]
    assert not queue.counts_time


def test_a_closed_queue_takes_messages_again_when_it_is_opened() -> None:
    queue = queue_of()
    queue.close_for_all_but_answers()
    assert not queue.take(an("event"))
    queue.open_again()
    assert queue.take(an("event"))


def test_bytes_are_bounded_to_the_last_one() -> None:
    one = an("read")
    queue = MessageQueue(QueueBounds(3, 2 * len(one.raw)), Counters(NodeCount))
    assert queue.take(one)
    assert queue.has_room(one)
    assert queue.take(one)
    assert not queue.has_room(an("response"))
    queue = MessageQueue(QueueBounds(3, 2 * len(one.raw) - 1), Counters(NodeCount))
    assert queue.take(one)
    assert not queue.has_room(one)
    assert not queue.take(one)


def test_events_are_dropped_one_after_the_other_from_the_front_until_there_is_room() -> None:
    queue = queue_of(an("event"), an("read"), an("update"))
    queue.exceed(an("response"))
    assert queue.make_room(an("response"))
    assert [message.type for message in queue.messages] == ["read", "response"]
    assert queue.size_bytes == sum(len(message.raw) for message in queue.messages)
    assert queue.take(an("event"))
    assert queue.make_room(an("response"))
    assert [message.type for message in queue.messages] == ["read", "response"]


def test_a_queue_that_was_cleared_is_empty_and_takes_and_drops_as_before() -> None:
    queue = queue_of(an("read"), an("read"), an("event"))
    assert queue.make_room(an("read"))
    queue.clear()
    assert (queue.messages, queue.size_bytes) == ([], 0)
    assert all(queue.take(an(type_)) for type_ in ("event", "read", "read"))
    assert queue.make_room(an("response"))
    assert [message.type for message in queue.messages] == ["read", "read"]


def test_a_run_is_queued_up_to_the_first_that_has_no_room() -> None:
    three = [an("read"), an("event"), an("response")]
    for before in range(4):
        queue = queue_of(*three[:before])
        assert queue.take_run([an("read")] * 5) == 3 - before
        assert (len(queue.messages), queue.size_bytes) == (3, sum(len(one.raw) for one in queue.messages))
    assert queue_of().take_run([]) == 0


def test_a_run_is_queued_up_to_the_last_byte_that_has_room() -> None:
    one = an("read")
    for most_bytes, taken in ((2 * len(one.raw), 2), (2 * len(one.raw) - 1, 1), (len(one.raw) - 1, 0)):
        queue = MessageQueue(QueueBounds(3, most_bytes), Counters(NodeCount))
        assert queue.take_run([one, one, one]) == taken
        assert queue.size_bytes == taken * len(one.raw)
        assert not queue.take(one)


def test_a_message_without_a_verdict_and_without_hops_is_delivered_as_it_came() -> None:
    for body in ('{"value":1}', "{}"):
        message = _decoded("{" + HEADER + f',"body":{body}' + "}")
        assert as_delivered(message) is message


@pytest.mark.parametrize("verdict", [None, True, False])
@pytest.mark.parametrize(
    "rest",
    [
        ',"body":{"value":1}}',
        ',"body":{"value":1,"auth":7}}',
        ',"body":{"value":{}}}',
        ',"body":{}}',
        ',"body":{ }}',
        ',"body":{"value":1} }',
        ',"body":{"via":"x","value":1}}',
        ',"body":{"via":["x"]}}',
        ',"body":{"value":1},"more":{"value":1}}',
        ',"body":{"value":1},"more":{"value":2}}',
        ',"body":{"value":1},"more":1}',
        "}",
    ],
)
def test_a_message_is_delivered_without_hops_and_with_the_verdict_of_our_gate(rest: str, verdict: bool | None) -> None:
    message = _decoded('{"id":1,' + HEADER + rest)
    if verdict is not None:
        message.judged(verdict)
    delivered = as_delivered(message)
    expected = json.loads(message.raw)
    if "body" in expected:
        expected["body"].pop("via", None)
        expected["body"] |= {} if verdict is None else {"auth": verdict}
        assert json.loads(delivered.body) == expected["body"]
    assert json.loads(delivered.raw) == expected
    assert (delivered.id, delivered.to, delivered.verdict) == (message.id, message.to, verdict)
    assert codec.decode(delivered.raw)[0].body == delivered.body


@pytest.mark.parametrize("verdict", [True, False])
def test_a_message_that_was_delivered_takes_members_as_before(verdict: bool) -> None:
    message = _decoded("{" + HEADER + ',"body":{"x":1}}')
    message.judged(verdict)
    delivered = as_delivered(message)
    assert (delivered.takes_members, delivered.verdict) == (True, verdict)
    longer = json.loads(delivered.raw[:-2] + b',"added":1}}')
    assert longer == {**json.loads(message.raw), "body": {"x": 1, "auth": verdict, "added": 1}}
    assert json.loads(delivered.body[:-1] + b',"added":1}') == longer["body"]
