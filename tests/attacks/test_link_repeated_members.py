"""Members given twice in a body: `via`, `trace` and `source` are judged and stripped as one, wherever they stand."""

from __future__ import annotations

import itertools
import json

import pytest

from federation.core.border import hops_of
from protofly.errors import Code
from protofly.limits import MAX_HOPS, REPEATED_MEMBERS_BYTES
from tests.support.sides import Bus, Pair, body_of, decoded, inbound, text

US, THEM = "hyperty://b.example/bo", "hyperty://a.example/ana"
OUR_NODE, THEIR_NODE = "runtime://b.example/mn-1", "runtime://a.example/mn-1"
STREAM = "5" * 32
PARTS = list(itertools.permutations(['"via":["x"]', '"trace":"mn:2"', '"value":1', '"\\u0074race":"mn:1"']))
TRACE = '"trace":"mn:' + "0" * 32 + '"'
TRAILER = f'{TRACE},"via":["{THEIR_NODE}"]'
"""What a node like ours appends."""


def received(*bodies: str) -> tuple[Pair, list[str]]:
    """What comes of messages with these bodies, one after the other; the words with which they were refused."""
    pair = Pair(b=Bus("b.example"))
    back = pair.back()
    back.open()
    pair.to_a.inbound(inbound(*[text(THEM, US, body) for body in bodies]), STREAM)
    pair.to_a.flush()
    answers = [body_of(decoded(pending.wire)) for pending in back.on_the_way]
    return pair, [str(answer["reason"]) for answer in answers]


LOOPS = [
    f'{{"via":["{OUR_NODE}"],"value":1,{TRAILER}}}',
    f'{{"value":1,"via":"{OUR_NODE}",{TRAILER}}}',
    f'{{"\\u0076ia":["{OUR_NODE}"],"value":1,{TRAILER}}}',
    f'{{"via":["x"],"via":["{OUR_NODE}"],"via":["y"],{TRAILER}}}',
    f'{{"via":["{OUR_NODE}"],{TRACE},{TRAILER}}}',
    f'{{"via":["{OUR_NODE}"],"via":["x"],"value":1}}',
    f'{{"via":["{OUR_NODE}"],"auth":true,{TRAILER}}}',
    f'{{ "via" : ["{OUR_NODE}"] , {TRAILER}}}',
]


@pytest.mark.parametrize("body", LOOPS)
def test_a_loop_in_an_earlier_via_is_a_loop(body: str) -> None:
    pair, words = received(f"{{{TRAILER}}}", body, f'{{"value":2,{TRAILER}}}')
    assert words == ["loop"]
    assert [body_of(message) for message in pair.b.delivered] == [{}, {"value": 2}]
    assert pair.to_a.is_live


def test_hops_of_all_together_are_counted() -> None:
    few = json.dumps([f"runtime://n{number}.example/mn" for number in range(MAX_HOPS - 1)])
    many = json.dumps([f"runtime://n{number}.example/mn" for number in range(MAX_HOPS)])
    assert received(f'{{"via":{few},{TRAILER}}}')[1] == []
    assert received(f'{{"via":{many},{TRAILER}}}')[1] == ["hop-limit"]


@pytest.mark.parametrize("value", ["7", "{}", "[7]", "null", "true", '{"a":1}', '[["x"]]'])
def test_an_earlier_via_that_is_no_list_of_addresses_is_refused(value: str) -> None:
    pair, words = received(f'{{"via":{value},{TRAILER}}}')
    assert (words, pair.b.delivered) == (["bad-body"], [])


@pytest.mark.parametrize("parts", PARTS)
def test_no_order_of_repeated_members_leaves_one_in_the_body(parts: tuple[str, ...]) -> None:
    for body in (f"{{{','.join(parts)},{TRAILER}}}", f"{{{TRAILER},{','.join(parts)}}}"):
        pair, _ = received(body)
        [message] = pair.b.delivered
        assert body_of(message) == {"value": 1}
        assert b"via" not in message.raw
        assert b'"trace"' not in message.raw


def test_a_trace_of_a_runtime_stays_once() -> None:
    pair, _ = received(f'{{"trace":"first","trace":"last","value":1,"via":["{THEIR_NODE}"]}}')
    assert pair.b.delivered[0].body == b'{"trace":"last","value":1}'


def test_a_source_given_twice_reaches_nobody_who_believes_the_first() -> None:
    pair, _ = received(f'{{"source":"{US}","value":1,"source":"{THEM}",{TRAILER}}}')
    assert pair.b.delivered[0].body == f'{{"source":"{THEM}","value":1}}'.encode()


def test_a_large_body_that_gives_members_twice_is_refused_and_not_read_further() -> None:
    filler = ",".join("1" * (REPEATED_MEMBERS_BYTES // 2))
    _, words = received(f'{{"via":["x"],"value":[{filler}],{TRAILER}}}')
    assert words == ["too-large"]


def test_bodies_that_give_each_member_once_keep_their_bytes() -> None:
    for body in ('{ "a" : 1 , "via2":2', '{"value":{"via":["x"],"via":["y"]}', '{"value":"\\"via\\":[]"'):
        pair, _ = received(f"{body},{TRAILER}}}")
        assert pair.b.delivered[0].body == f"{body}}}".encode()


def test_a_runtime_of_ours_does_not_hide_a_loop_from_the_far_end_either() -> None:
    pair = Pair()
    body = f'{{"via":["{THEIR_NODE}"],"via":["x"]}}'
    refusal = pair.to_b.send(decoded(text("hyperty://a.example/ana", US, body)))
    assert refusal is not None
    assert refusal.code is Code.LOOP
    carrier = pair.carrier()
    carrier.open()
    pair.to_b.send(decoded(text("hyperty://a.example/ana", US, '{"via":["x"],"via":["y"],"value":1}')))
    pair.to_b.flush()
    wire = carrier.on_the_way[0].wire
    assert wire.count(b'"via"') == 1
    assert body_of(decoded(wire))["via"] == ["x", "y", THEIR_NODE, pair.to_b.stub.url]


def test_half_a_character_in_a_repeated_via_is_no_defect() -> None:
    for via in ('["\\ud800"]', '"\\udfff"'):
        message = decoded(text(THEM, US, f'{{"via":{via},"via":["x"]}}'))
        assert hops_of(message) == ["\ufffd", "x"]
