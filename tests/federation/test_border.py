"""The border: what is stamped on the way out comes off on the way in, and the body in between keeps its bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.core.border import (
    BareBorder,
    HopBound,
    InwardBorder,
    OutwardBorder,
    Speaker,
    check_speaks_for,
    id_carried,
    refusal_abroad,
)
from federation.core.carried import cleaned_forward
from federation.core.message_ids import MessageIds
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.limits import CROSSING_BYTES
from protofly.message import Message
from protofly.records import envelope_digest

OUR_NODE = "runtime://a.example/mn-1"
STUB = "runtime://a.example/mn-1/protostub/b7c1"
PEER_NODE = "runtime://b.example/mn-7"
IDS = MessageIds(b"\x01" * 8)


def message(body: str = "", *, from_: str = "hyperty://a.example/h", to: str = "comm://b.example/r") -> Message:
    tail = f',"body":{body}' if body else ""
    [decoded] = codec.decode(f'{{"id":1,"type":"create","from":"{from_}","to":"{to}"{tail}}}'.encode())
    return decoded


def cross(outgoing: Message) -> tuple[Message, bytes, bytes]:
    """Out at a.example, in at b.example."""
    crossing = OutwardBorder(OUR_NODE, STUB).cross(outgoing, IDS.next(1_000_000.0))
    [arrived] = codec.decode(crossing.wire)
    inner, msg_id = InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"}))).cross(arrived)
    return inner, crossing.msg_id, msg_id


BODIES = st.dictionaries(
    st.text(max_size=5).filter(lambda name: name not in ("via", "auth", "sessionToken", "assertedIdentity", "trace")),
    st.none() | st.integers() | st.text(max_size=9) | st.lists(st.text(max_size=3), max_size=3),
    max_size=5,
)


@given(body=BODIES, indent=st.sampled_from([None, 1]))
def test_a_message_arrives_with_the_bytes_with_which_it_left(body: dict[str, Any], indent: int | None) -> None:
    outgoing = message(json.dumps(body, indent=indent) if body else "")
    inner, sent_id, received_id = cross(outgoing)
    assert json.loads(inner.raw) == json.loads(outgoing.raw)
    assert received_id == sent_id
    if indent is None:
        assert inner.raw == outgoing.raw


HEAD = '{"id":1,"type":"create","from":"hyperty://a.example/h","to":"comm://b.example/r"'
MSG_ID = "0123456789abcdef" * 2
HOPS = json.dumps([OUR_NODE, STUB], separators=(",", ":"))
TRAILER = f'"trace":"mn:{MSG_ID}","via":{HOPS}'


@pytest.mark.parametrize(
    ("text", "is_usual"),
    [
        (f'{HEAD},"body":{{"a":1,{TRAILER}}}}}', True),
        (f'{HEAD},"body" : {{ "a" : {{}} ,"b":[1] ,{TRAILER}}}}}', False),  # a blank in front of the comma
        (f'{HEAD},"body" : {{ "a" : {{}} ,"b":[1],{TRAILER}}}}}', True),
        (f'{HEAD},"body":{{"source":"hyperty://a.example/h","b":[1],{TRAILER}}}}}', True),
        (f'{HEAD},"body":{{"source":1,"source":2,{TRAILER}}}}}', False),
        (f'{HEAD},"body":{{{TRAILER}}}}}', False),
        (f'{HEAD},"body":{{ ,{TRAILER}}}}}', False),
        (f'{HEAD},"body":{{"a":1,,{TRAILER}}}}}', False),
        (f'{HEAD},"body":{{"a":,{TRAILER}}}}}', False),
        (f'{HEAD},"body":{{"a":1,{TRAILER}}}}} ', False),
        (f'{HEAD},"body":{{"a":1,{TRAILER}}} }}', False),
        (f'{HEAD},"body":{{"a":1,{TRAILER.replace(MSG_ID, "zz" * 16)}}}}}', False),
        (f'{HEAD},"body":{{"a":1,{TRAILER.replace(MSG_ID, " " * 32)}}}}}', False),
        (f'{HEAD},"body":{{"a":1,"auth":true,{TRAILER}}}}}', False),
        (f'{HEAD},"body":{{"sessionToken":"x",{TRAILER}}}}}', False),
        (f'{HEAD},"body":{{"\\u0076ia":["x"],{TRAILER}}}}}', False),
        (f'{HEAD},"body":{{"trace":"x","a":1,{TRAILER}}}}}', False),
        (f'{HEAD},"body":{{"a":{{"b":1,{TRAILER}}}}}}}', False),
        (f'{HEAD},"body":{{"a":1}},"x":{{"a":1,{TRAILER}}}}}', False),
        (f'{HEAD},"x":{{"b":1}},"body":{{"b":1,{TRAILER}}}}}', True),
        (f'{{"body":{{ "a":1,{TRAILER}}},{HEAD[1:]}}}', False),
        (f'{HEAD.replace("comm:", "comm" + chr(92) + "u003a")},"body":{{"a":1,{TRAILER}}}}}', True),
        (f'{HEAD},"body":{{"a":"{{",{TRAILER}}}}}', True),
        (f'{HEAD},"body":{{"a":"}},{TRAILER}}}}}', False),
    ],
)
def test_a_text_without_its_trailer_is_what_crosses_the_border_or_is_left_to_be_looked_at(
    text: str, *, is_usual: bool
) -> None:
    border = InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"})))
    raw = text.encode()
    assert border.without_trailer(raw) is None  # these hops were not judged yet
    border.cross(message('{"via":' + HOPS + "}"))
    found = border.without_trailer(raw)
    assert (found is not None) == is_usual
    if found is not None:
        [arrived] = codec.decode(raw)
        assert found == InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"}))).cross(arrived)
        assert border.hops_crossed == 2


@given(body=BODIES)
def test_both_sides_hash_the_same_envelope(body: dict[str, Any]) -> None:
    outgoing = message(json.dumps(body))
    crossing = OutwardBorder(OUR_NODE, STUB).cross(outgoing, IDS.next(1.0))
    [arrived] = codec.decode(crossing.wire)
    inner, _ = InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"}))).cross(arrived)
    sent = envelope_digest(outgoing.type, outgoing.from_, outgoing.to, outgoing.id, crossing.body)
    assert envelope_digest(inner.type, inner.from_, inner.to, inner.id, inner.body) == sent or not body


def test_the_far_side_sees_both_hops() -> None:
    crossing = OutwardBorder(OUR_NODE, STUB).cross(message('{"value":1}'), IDS.next(1.0))
    assert json.loads(crossing.wire)["body"]["via"] == [OUR_NODE, STUB]


@pytest.mark.parametrize("marks", ["", '"auth":true,'], ids=["plain", "marked"])
def test_a_message_that_is_too_long_for_a_guest_does_not_leave(marks: str) -> None:
    def crossed(size: int) -> bytes:
        return OutwardBorder(OUR_NODE, STUB).cross(message(f'{{{marks}"v":"{"x" * size}"}}'), IDS.next(1.0)).wire

    room = CROSSING_BYTES - len(crossed(0))
    assert len(crossed(room)) == CROSSING_BYTES
    with pytest.raises(PeerError) as caught:
        crossed(room + 1)
    assert caught.value.code is Code.TOO_LARGE


@pytest.mark.parametrize("flag", ["auth", "sessionToken", "assertedIdentity"])
def test_flags_that_mean_nothing_abroad_are_taken_off_on_both_sides(flag: str) -> None:
    inner, _, _ = cross(message(json.dumps({flag: True, "value": 2})))
    assert json.loads(inner.raw)["body"] == {"value": 2}
    arrived = message(json.dumps({flag: True, "value": 2}))
    cleaned, _ = InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"}))).cross(arrived)
    assert json.loads(cleaned.raw)["body"] == {"value": 2}


def test_a_trace_of_the_sender_reaches_the_receiver() -> None:
    inner, sent_id, received_id = cross(message('{"trace":"t-1","value":2}'))
    assert json.loads(inner.raw)["body"] == {"value": 2, "trace": "t-1"}
    assert sent_id == received_id


@pytest.mark.parametrize("trace", ["t-1", "x" * 5000, "mn:", "mn:00", "mn:" + "zz" * 16, "mn:" + "00" * 17])
def test_an_id_that_is_made_of_a_foreign_trace_is_as_long_as_any_other(trace: str) -> None:
    incoming = message(json.dumps({"trace": trace}), from_="hyperty://b.example/h", to="comm://a.example/r")
    assert len(id_carried(incoming)) == 16
    outgoing = message(json.dumps({"trace": trace}))
    assert len(OutwardBorder(OUR_NODE, STUB).cross(outgoing, IDS.next(1_000_000.0)).msg_id) == 16


def test_ids_of_foreign_traces_differ_by_trace_sender_recipient_and_id() -> None:
    plain = message('{"trace":"t"}')
    others = (
        message('{"trace":"u"}'),
        message('{"trace":"t"}', from_="hyperty://a.example/i"),
        message('{"trace":"t"}', to="comm://b.example/s"),
        codec.decode(plain.raw.replace(b'"id":1', b'"id":2'))[0],
    )
    assert len({id_carried(one) for one in (plain, *others)}) == 5
    assert id_carried(message('{"trace":"t","more":1}')) == id_carried(plain)


def test_a_trace_that_pretends_to_be_ours_is_replaced() -> None:
    inner, sent_id, received_id = cross(message('{"trace":"mn:00000000000000000000000000000000","value":2}'))
    assert json.loads(inner.raw)["body"] == {"value": 2}
    assert sent_id == received_id != bytes(16)


MEMBERS = [
    '"auth":true',
    '"sessionToken":"t"',
    '"assertedIdentity":"i"',
    '"via":["runtime://c.example/mn"]',
    '"trace":"0af7"',
    '"source":"hyperty://a.example/h"',
    '"x":{"via":"kept"}',
]


@given(members=st.lists(st.sampled_from(MEMBERS), max_size=4, unique=True), has_more=st.booleans())
def test_only_what_means_nothing_here_is_taken_off_whatever_stands_before_the_trailer(
    members: list[str], has_more: bool
) -> None:
    crossing = OutwardBorder(OUR_NODE, STUB).cross(message('{"y":1}' if has_more else ""), IDS.next(1.0))
    text = crossing.wire.replace(b'"body":{', b'"body":{' + "".join(f"{one}," for one in members).encode())
    inner, msg_id = InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"}))).cross(codec.decode(text)[0])
    assert msg_id == crossing.msg_id
    assert dict(pairs(inner.raw)).get("body", []) == [
        (name, value)
        for name, value in dict(pairs(text))["body"]
        if name not in {"via", "trace", "auth", "sessionToken", "assertedIdentity"}
    ]


def pairs(text: bytes) -> list[tuple[str, Any]]:
    """Members of an object in their order, also those that are given twice."""
    found: list[tuple[str, Any]] = json.loads(text, object_pairs_hook=list)
    return found


def test_the_quick_way_is_only_for_the_hops_that_were_judged_and_for_one_recipient() -> None:
    inward = InwardBorder("runtime://c.example/mn-9", Speaker(frozenset({"a.example"})))
    crossing = OutwardBorder(OUR_NODE, STUB).cross(message('{"y":1}'), IDS.next(1.0))
    assert inward.without_trailer(crossing.wire) is None  # nothing was judged yet
    inward.cross(codec.decode(crossing.wire)[0])
    quick = inward.without_trailer(crossing.wire)
    assert quick is not None
    assert (quick[0].body, quick[1]) == (b'{"y":1}', crossing.msg_id)
    other_hops = crossing.wire.replace(OUR_NODE.encode(), b"runtime://c.example/mn-9")
    assert len(other_hops) == len(crossing.wire)
    assert inward.without_trailer(other_hops) is None
    with pytest.raises(PeerError, check=lambda error: error.code is Code.LOOP):
        inward.cross(codec.decode(other_hops)[0])
    two = crossing.wire.replace(b'"comm://b.example/r"', b'["comm://b.example/r","comm://b.example/q"]')
    assert inward.without_trailer(two) is None


def test_what_only_looks_like_the_trailer_is_kept() -> None:
    crossing = OutwardBorder(OUR_NODE, STUB).cross(message('{"y":1}'), IDS.next(1.0))
    looks_alike = crossing.wire.replace(b'"trace":', b'"tracf":')
    inner, msg_id = InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"}))).cross(codec.decode(looks_alike)[0])
    assert [name for name, _ in dict(pairs(inner.raw))["body"]] == ["y", "tracf"]
    assert msg_id != crossing.msg_id


def test_a_message_that_was_here_before_is_a_loop() -> None:
    with pytest.raises(PeerError) as caught:
        OutwardBorder(OUR_NODE, STUB).cross(message(json.dumps({"via": [OUR_NODE]})), bytes(16))
    assert caught.value.code is Code.LOOP
    with pytest.raises(PeerError) as caught:
        InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"}))).cross(message(json.dumps({"via": [PEER_NODE, "x"]})))
    assert caught.value.code is Code.LOOP


def test_a_message_that_passed_this_stub_before_is_a_loop() -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.LOOP):
        OutwardBorder(OUR_NODE, STUB).cross(message(json.dumps({"via": ["x", STUB]})), bytes(16))
    OutwardBorder(OUR_NODE, STUB).cross(message(json.dumps({"via": ["x", f"{STUB}0"]})), bytes(16))


def test_a_forward_that_carries_nothing_crosses_as_it_is() -> None:
    [outgoing] = codec.decode(b'{"id":1,"type":"forward","from":"hyperty://a.example/h","to":"comm://b.example/r"}')
    inner, sent_id, received_id = cross(outgoing)
    assert (inner.raw, received_id) == (outgoing.raw, sent_id)


def test_a_message_without_a_body_and_a_trailer_keeps_its_bytes() -> None:
    [arrived] = codec.decode(b'{ "type" : "read", "from" : "hyperty://a.example/h", "to" : "comm://b.example/r" }')
    assert InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"}))).cross(arrived)[0].raw == arrived.raw


@pytest.mark.parametrize("size", range(1, 60))
def test_a_trailer_with_a_short_id_gives_no_short_id(size: int) -> None:
    border = InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"})))
    for id_ in ("", "00", "0" * 30, "0" * 34):
        arrived = message('{"a":' + "1" * size + f',"trace":"mn:{id_}","via":[]}}')
        for _ in range(2):  # the second time its hops are known
            inner, msg_id = border.cross(arrived)
            assert inner.body == b'{"a":%b}' % (b"1" * size)
            assert len(msg_id) == 16


def test_a_message_that_travelled_too_far_is_refused() -> None:
    with pytest.raises(PeerError) as caught:
        InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"}))).cross(message(json.dumps({"via": ["x"] * 9})))
    assert caught.value.code is Code.HOP_LIMIT


def test_a_single_text_counts_as_a_list_of_hops() -> None:
    with pytest.raises(PeerError) as caught:
        OutwardBorder(OUR_NODE, STUB).cross(message(json.dumps({"via": OUR_NODE})), bytes(16))
    assert caught.value.code is Code.LOOP


@pytest.mark.parametrize("via", ["1", "{}", "[1]", "true"])
def test_hops_that_are_no_addresses_are_refused(via: str) -> None:
    with pytest.raises(PeerError) as caught:
        OutwardBorder(OUR_NODE, STUB).cross(message(f'{{"via":{via}}}'), bytes(16))
    assert caught.value.code is Code.BAD_BODY


@given(trailer=st.text(max_size=60))
def test_a_forged_trailer_never_damages_the_body(trailer: str) -> None:
    body = {"value": 1, "text": f'","via":["{trailer}"]}}'}
    inner, _ = InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"}))).cross(
        message(json.dumps({**body, "via": ["y"]}))
    )
    assert json.loads(inner.raw)["body"] == body


_SENDERS = [
    "hyperty://a.example/h",
    "hyperty://A.example/h",
    "hyperty://b.example/h",
    "x@a.example",
    "hyperty://u@a.example",
]
_SOURCES = ["", "null", '"hyperty://a.example/s"', '"hyperty://b.example/s"', "7"]


@given(st.lists(st.tuples(st.sampled_from(_SENDERS), st.sampled_from(_SOURCES)), max_size=8))
def test_senders_are_judged_alike_in_any_order(seen: list[tuple[str, str]]) -> None:
    domains = frozenset({"a.example"})
    border = InwardBorder(PEER_NODE, Speaker(domains))
    for sender, source in seen:
        one = message(f'{{"source":{source}}}' if source else "", from_=sender)
        assert _code(border.check_sender, one) is _code(check_speaks_for, one, Speaker(domains))


@pytest.mark.parametrize(
    ("source", "code"),
    [
        *(("", None), ('"hyperty://a.example/s"', None), ('"hyperty://b.example/s"', Code.SPOOFED_SOURCE)),
        *((value, Code.BAD_BODY) for value in ("null", "7", '""', "[]")),
    ],
)
def test_a_source_is_absent_or_an_address_of_the_speaker(source: str, code: Code | None) -> None:
    one = message(f'{{"source":{source}}}' if source else '{"value":1}')
    assert _code(check_speaks_for, one, Speaker(frozenset({"a.example"}))) is code


def _code(check: Callable[..., None], *arguments: object) -> Code | None:
    try:
        check(*arguments)
    except PeerError as exc:
        return exc.code
    return None


@given(st.lists(st.sampled_from([0, 1, 3]), max_size=6))
def test_hops_are_counted_for_each_message_anew(counts: list[int]) -> None:
    border = InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"})))
    for count in counts:
        via = json.dumps([f"runtime://c.example/{number}" for number in range(count)])
        border.cross(message(f'{{"via":{via}}}' if count else ""))
        assert border.hops_crossed == count


def test_ids_are_unique_ordered_and_of_version_7() -> None:
    ids = [IDS.next(1_700_000_000.0 + index) for index in range(5_000)]
    assert len(set(ids)) == 5_000
    assert sorted(ids) == ids
    assert {one[6] >> 4 for one in ids} == {7}
    assert {one[8] >> 6 for one in ids} == {2}


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ('{"value": 1}', '{"value": 1}'),
        ('{"via":["runtime://x.example/mn"],"value":1,"trace":"t","auth":true}', '{"value":1}'),
        ("", "{}"),
        ("{}", "{}"),
    ],
)
def test_bare_border_adds_nothing_and_takes_off_what_means_nothing_abroad(body: str, left: str) -> None:
    crossing = BareBorder(OUR_NODE).cross(message(body), bytes(16))
    [arrived] = codec.decode(crossing.wire)
    assert arrived.body == left.encode()
    assert (crossing.msg_id, crossing.body) == (bytes(16), b"" if left == "{}" else left.encode())


@pytest.mark.parametrize(
    ("via", "max_hops", "code"),
    [([OUR_NODE], 20, Code.LOOP), (["runtime://x.example/mn", "runtime://y.example/mn"], 1, Code.HOP_LIMIT)],
)
def test_bare_border_holds_the_rules_of_hops(via: list[str], max_hops: int, code: Code) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        BareBorder(OUR_NODE, max_hops=HopBound(max_hops)).cross(message(json.dumps({"via": via})), bytes(16))


@pytest.mark.parametrize("flag", ["", '"auth":true,'])
def test_bare_border_lets_no_message_pass_that_is_too_long(flag: str) -> None:
    def crossed(size: int) -> bytes:
        return BareBorder(OUR_NODE).cross(message(f'{{{flag}"v":"{"x" * size}"}}'), bytes(16)).wire

    room = CROSSING_BYTES - len(crossed(0))
    assert len(crossed(room)) == CROSSING_BYTES
    with pytest.raises(PeerError, check=lambda error: error.code is Code.TOO_LARGE):
        crossed(room + 1)


@pytest.mark.parametrize(
    ("sender", "is_never", "may_use"),
    [
        ("hyperty://a.example/h", False, True),
        ("domain://registry.a.example", False, True),
        ("hyperty://c.example/h", False, False),
        ("sip:bo@a.example", False, False),
        ("sip://bo@a.example", False, False),
        ("hyperty://b.example/h", True, False),
        ("domain://registry.b.example", True, False),
        ("sip:bo@b.example", True, False),
        ("sip://bo@b.example", True, False),
        ("hyperty://x.b.example/h", False, False),
    ],
)
def test_a_side_speaks_for_its_domains_and_never_for_ours(sender: str, is_never: bool, may_use: bool) -> None:
    speaker = Speaker(frozenset({"a.example", "b.example"}), never=frozenset({"b.example"}))
    assert (speaker.is_never(sender), speaker.may_use(sender)) == (is_never, may_use)
    trusting = Speaker(frozenset(), never=speaker.never, is_theirs=lambda _: True)
    assert trusting.may_use(sender) is not is_never
    denying = Speaker(speaker.domains, is_theirs=lambda _: False)
    assert not denying.is_never(sender)
    assert not denying.may_use(sender)


MARKED = ["auth", "sessionToken", "assertedIdentity"]


@pytest.mark.parametrize("flag", MARKED)
def test_no_flag_that_only_nodes_set_leaves_by_either_border(flag: str) -> None:
    marked = message(json.dumps({flag: True, "value": 2}))
    assert set(json.loads(OutwardBorder(OUR_NODE, STUB).cross(marked, bytes(16)).wire)["body"]) == {
        *("value", "trace", "via")
    }
    bare = BareBorder(OUR_NODE).cross(marked, bytes(16))
    assert (bare.body, json.loads(bare.wire)["body"]) == (b'{"value":2}', {"value": 2})


@pytest.mark.parametrize("marks", [{"via": ["runtime://c.example/mn"]}, {"trace": "t"}, {"trace": "mn:00"}])
def test_nothing_is_left_of_the_way_of_a_message_at_a_bare_border(marks: dict[str, Any]) -> None:
    bare = BareBorder(OUR_NODE).cross(message(json.dumps({**marks, "value": 2})), bytes(16))
    assert (bare.msg_id, bare.body) == (bytes(16), b'{"value":2}')
    assert json.loads(bare.wire)["body"] == {"value": 2}


@pytest.mark.parametrize(("body", "far_body"), [('{"a":1 }', b'{"a":1}'), ("{}", b""), ("{ }", b""), ("", b"")])
def test_the_record_of_a_crossing_has_the_body_that_the_far_side_gets_back(body: str, far_body: bytes) -> None:
    crossing = OutwardBorder(OUR_NODE, STUB).cross(message(body), bytes(16))
    assert crossing.body == far_body
    arrived, _ = InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"}))).cross(codec.decode(crossing.wire)[0])
    assert arrived.body == far_body


def test_the_hops_of_each_message_are_counted_also_when_it_names_them_twice() -> None:
    border = InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"})))
    border.cross(message('{"a":1}'))
    assert border.hops_crossed == 0
    border.cross(message('{"via":["runtime://c.example/mn"],"via":' + HOPS + "}"))
    assert border.hops_crossed == 3
    assert border.without_trailer(f'{HEAD},"body":{{"a":1,{TRAILER}}}}}'.encode()) is not None
    assert border.hops_crossed == 2
    border.cross(message('{"a":1}'))
    assert border.hops_crossed == 0


def test_senders_that_were_found_good_are_known_and_of_too_many_the_last_ones() -> None:
    border = InwardBorder(PEER_NODE, Speaker(frozenset({"a.example"})))
    senders = [f"hyperty://a.example/{number}" for number in range(1025)]
    for sender in senders[:-1]:
        border.check_sender(message("", from_=sender))
    assert border.known_senders == set(senders[:-1])
    border.check_sender(message("", from_=senders[-1]))
    assert border.known_senders == set(senders[-1:])
    with pytest.raises(PeerError):
        border.check_sender(message("", from_="hyperty://c.example/x"))
    assert border.known_senders == set(senders[-1:])


@pytest.mark.parametrize(
    ("to", "from_"),
    [
        ("comm://b.example/r", "comm://b.example/r"),
        ("user-guid://AbC", "user-guid://AbC"),
        ("comm://c.example/r", PEER_NODE),
        ("comm://a b/r", PEER_NODE),
    ],
)
def test_a_refusal_comes_in_the_asked_name_if_that_is_ours_and_else_in_that_of_our_node(to: str, from_: str) -> None:
    asked = Message(b"1", "read", "hyperty://a.example/h", to, b"", b"")
    refusal = refusal_abroad(asked, Code.POLICY, "no", node=PEER_NODE, our_domains=frozenset({"b.example"}))
    assert (refusal.id, refusal.type, refusal.from_, refusal.to) == (b"1", "response", from_, asked.from_)
    assert json.loads(refusal.body)["code"] == 403


@pytest.mark.parametrize("name", ["from", "type"])
def test_a_forward_is_a_carried_message_itself_when_it_has_sender_and_type_and_else_keeps_its_bytes(name: str) -> None:
    members = {"from": "hyperty://a.example/h", "type": "read", "body": {"via": ["x"], "value": 1}}
    whole = json.dumps(members, separators=(",", ":")).encode()
    assert json.loads(cleaned_forward(whole, lambda _: True)) == {**members, "body": {"value": 1}}
    del members[name]
    part = json.dumps(members, separators=(",", ":")).encode()
    assert cleaned_forward(part, lambda _: False) == part
