"""Bytes to messages: the promise that hostile bytes give messages or one error, and that bodies keep their bytes."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly import codec
from protofly.codec import BrokenMessageError
from protofly.errors import Code, PeerError
from protofly.limits import (
    HEADER_CHARS,
    HEADER_QUOTES,
    NESTING_LEVELS,
    RECIPIENTS_BYTES,
    REQUEST_PARTS,
    RESOURCES_ENTRIES,
)
from protofly.message import Message

HEADER = '"type":"create","from":"hyperty://a.example/h","to":"comm://b.example/r"'


def _decode(text: str) -> Message:
    [message] = codec.decode(text.encode())
    return message


def test_a_message_keeps_the_bytes_that_came() -> None:
    raw = '{ "id" : 7 , ' + HEADER + ', "body" : {"value": 123456789012345678901234567890, "b":1,"a":1.50} }'
    message = _decode(raw)
    assert message.raw == raw.encode()
    assert message.body == b'{"value": 123456789012345678901234567890, "b":1,"a":1.50}'


def test_a_message_of_the_shortest_members_keeps_the_bytes_that_came() -> None:
    for raw in ('{ "type":"x","from":"a","to":"b"}', '{ "id":1,"type":"x","from":"a","to":"b","body":{} }'):
        assert _decode(raw).raw == raw.encode()


@pytest.mark.parametrize(("name", "most"), [("type", 32), ("from", HEADER_CHARS), ("to", HEADER_CHARS)])
def test_a_message_whose_header_is_as_long_as_it_may_be_keeps_the_bytes_that_came(name: str, most: int) -> None:
    header = {"type": "create", "from": "a:b", "to": "b:c"}
    header[name] = header[name].ljust(most, "x")
    raw = json.dumps(header, separators=(" , ", " : "))
    assert _decode(raw).raw == raw.encode()


@pytest.mark.parametrize("id_", ["1", '"1"', "0", '"x-9"', "-4", "123456789012345678901234567890"])
def test_an_id_is_echoed_in_its_own_spelling(id_: str) -> None:
    reply = codec.response(_decode('{"id":' + id_ + "," + HEADER + "}"), 200)
    assert f'"id":{id_},' in reply.raw.decode()


@pytest.mark.parametrize("id_", ["9" * 129, "-" + "9" * 129, '"' + "9" * 900 + '"'])
def test_an_endless_id_is_refused_and_not_repeated(id_: str) -> None:
    with pytest.raises(BrokenMessageError) as caught:
        _decode('{"id":' + id_ + "," + HEADER + "}")
    assert (caught.value.code, caught.value.member) == (Code.BAD_HEADER, "id")
    assert len(caught.value.id or b"") <= 129


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("cut \\ud83d", "cut \ufffd"),
        ("\\uDE00 alone", "\ufffd alone"),
        ("\\ud83d\\ud83d\\ude00", "\ufffd\U0001f600"),
        ("\\\\ud83d", "\\ud83d"),
        ("\\\\\\ud83d \\n", "\\\ufffd \n"),
        ("\\ud800 \\\\ud83d\\ude00", "\ufffd \\ud83d\ufffd"),
    ],
)
def test_half_a_character_is_replaced_and_the_message_goes_on(written: str, read: str) -> None:
    message = _decode('{"id":1,' + HEADER + ',"body":{"value":"' + written + '","n":1.50}}')
    assert json.loads(message.body) == {"value": read, "n": 1.5}
    assert json.loads(message.raw)["body"] == json.loads(message.body)


def test_half_a_character_in_a_header_is_replaced_as_well() -> None:
    raw = b'{"id":"\\ud83d","type":"read","from":"h\\ude00","to":"a","to":"b\\ud800"}'
    [message] = codec.decode(raw)
    assert (message.id, message.from_, message.to) == (b'"\\ufffd"', "h\ufffd", "b\ufffd")
    assert codec.repeats_members(raw)


def test_half_characters_are_found_among_4096_escapes_and_no_more() -> None:
    def read(escapes: int) -> str:
        text = "\\ud83d\\ude00" * (escapes - 1) + "\\ud83d"
        value: str = json.loads(_decode("{" + HEADER + ',"body":{"value":"' + text + '"}}').body)["value"]
        return value

    assert read(4096) == "\U0001f600" * 4095 + "\ufffd"
    with pytest.raises(BrokenMessageError, check=lambda error: error.code is Code.BROKEN_JSON):
        read(4097)


@given(
    text=st.lists(st.sampled_from(["\\", '"', "u", "d83d", "\ud83d", "\ude00", "\U0001f600", "\n"]), max_size=12).map(
        "".join
    )
)
def test_any_text_of_a_runtime_goes_through(text: str) -> None:
    raw = json.dumps({"type": "update", "from": "a", "to": "b", "body": {"value": text}}).encode()
    [message] = codec.decode(raw)
    whole = re.sub("[\ud800-\udfff]", "\ufffd", json.loads(json.dumps(text)))
    assert json.loads(message.body)["value"] == whole


def test_a_null_id_counts_as_none() -> None:
    assert _decode('{"id":null,' + HEADER + "}").id is None


def test_upper_case_types_leave_in_lower_case() -> None:
    message = _decode('{"type":"SUBSCRIBE","from":"a","to":"b","extra":[1]}')
    assert message.type == "subscribe"
    assert json.loads(message.raw) == {"type": "subscribe", "from": "a", "to": "b", "extra": [1]}


def test_several_recipients_become_one_message_each_with_the_same_id() -> None:
    messages = codec.decode(b'{"id":5,"type":"update","from":"a","to":["b","c","b"],"body":{"value":1}}')
    assert [(message.to, json.loads(message.raw)["to"], message.id) for message in messages] == [
        ("b", "b", b"5"),
        ("c", "c", b"5"),
    ]


def test_a_null_body_is_left_out() -> None:
    assert json.loads(_decode("{" + HEADER + ',"body":null}').raw) == json.loads("{" + HEADER + "}")


@pytest.mark.parametrize(
    ("raw", "code", "member"),
    [
        (b"", Code.BROKEN_JSON, ""),
        (b"[]", Code.BROKEN_JSON, ""),
        (b"\xff", Code.BROKEN_JSON, ""),
        (b'{"type":"x","to":"b"}', Code.BAD_HEADER, "from"),
        (b'{"type":"x","from":"a"}', Code.BAD_HEADER, "to"),
        (b'{"from":"a","to":"b"}', Code.BAD_HEADER, "type"),
        (b'{"type":"x","from":1,"to":"b"}', Code.BAD_HEADER, "from"),
        (b'{"type":"x","from":"a","to":[]}', Code.BAD_HEADER, "to"),
        (b'{"type":"x","from":"a","to":[1]}', Code.BAD_HEADER, "to"),
        (b'{"type":"x","from":"a","to":[1],"body":{}}', Code.BAD_HEADER, "to"),
        (b'{"type":"x","from":"a","to":"b","id":1.5}', Code.BAD_HEADER, "id"),
        (b'{"type":"x","from":"a","to":"b","id":{}}', Code.BAD_HEADER, "id"),
        (b'{"type":"x","from":"a","to":"b","body":[1]}', Code.BAD_BODY, "body"),
        (b'{"type":"x","from":"a","to":"b","body":"x"}', Code.BAD_BODY, "body"),
        (b'{"type":"' + b"x" * 40 + b'","from":"a","to":"b"}', Code.BAD_HEADER, "type"),
        (b'{"type":"x","from":"a","to":"' + b"x" * 2049 + b'"}', Code.TOO_LARGE, ""),
    ],
)
def test_each_fault_has_its_code_and_names_the_member(raw: bytes, code: Code, member: str) -> None:
    with pytest.raises(BrokenMessageError) as caught:
        codec.decode(raw)
    assert (caught.value.code, caught.value.member) == (code, member)


@pytest.mark.parametrize(
    ("id_", "is_id"),
    [
        *(("7", True), ("-7", True), ('"x"', True), ("9" * 128, True), ("-" + "9" * 127, True)),
        *(("9" * 129, False), ("-" + "9" * 128, False), ('"' + "x" * 766 + '"', True), ('"' + "x" * 767 + '"', False)),
        *(("1.5", False), ("-1.5", False), ("1e5", False), ("true", False), ("{}", False), ("[7]", False)),
    ],
)
def test_an_id_is_an_integer_or_a_text_and_is_in_the_answer_to_a_broken_frame(id_: str, is_id: bool) -> None:
    frame = '{"id":' + id_ + "," + HEADER
    if is_id:
        assert _decode(frame + "}").id == id_.encode()
    else:
        with pytest.raises(BrokenMessageError, check=lambda error: error.member == "id"):
            codec.decode((frame + "}").encode())
    with pytest.raises(BrokenMessageError) as caught:
        codec.decode((frame + ',"body":[]}').encode())
    assert (caught.value.code, caught.value.from_) == (Code.BAD_BODY, "hyperty://a.example/h")
    assert caught.value.id == (id_.encode() if is_id else None)


@pytest.mark.parametrize(
    ("frame", "code", "detail", "from_"),
    [
        ("[]", Code.BROKEN_JSON, "not a JSON object", ""),
        ("{", Code.BROKEN_JSON, "not a JSON object", ""),
        ('{"id":1,"from":"a:b","to":"c:d"}', Code.BAD_HEADER, "type is missing or of the wrong kind", "a:b"),
        ('{"id":1,"type":2,"from":"a:b","to":"c:d"}', Code.BAD_HEADER, "type is missing or of the wrong kind", "a:b"),
        ('{"id":1,"type":"x","from":["a:b"],"to":"c:d"}', Code.BAD_HEADER, "from is missing or of the wrong kind", ""),
        ('{"id":1,"type":"x","from":"a:b","to":7}', Code.BAD_HEADER, "to is missing or of the wrong kind", "a:b"),
        ('{"type":"x","from":"a:b","to":"c:d","body":7}', Code.BAD_BODY, "body is missing or of the wrong kind", "a:b"),
        ('{"id":1,"type":"x","from":"\xff","to":"c:d"}', Code.BROKEN_JSON, "not UTF-8", ""),
        ('{"id":1,"type":"x","from":"a:b","to":"c:d","x":"\xff"}', Code.BROKEN_JSON, "not UTF-8", "a:b"),
        ("[" * 100_000, Code.BROKEN_JSON, "not a JSON object", ""),
        ('{"x":' + "[" * 100_000, Code.TOO_DEEP, "nested too deeply", ""),
    ],
)
def test_a_broken_frame_is_described_for_who_sent_it(frame: str, code: Code, detail: str, from_: str) -> None:
    with pytest.raises(BrokenMessageError) as caught:
        codec.decode(frame.encode("latin-1"))
    assert (caught.value.code, caught.value.detail, caught.value.from_) == (code, detail, from_)
    assert not caught.value.is_response


@pytest.mark.parametrize(("type_", "is_it"), [("response", True), ("Response", True), ("read", False), ("", False)])
def test_a_broken_response_is_known_as_one_since_nobody_answers_it(type_: str, is_it: bool) -> None:
    with pytest.raises(BrokenMessageError, check=lambda error: error.is_response is is_it):
        codec.decode(f'{{"type":"{type_}","from":"a:b"}}'.encode())


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("levels", [NESTING_LEVELS, 1_000, 200_000])
def test_deep_nesting_is_refused_whatever_its_depth(opening: bytes, levels: int) -> None:
    closing = b"]" if opening == b"[" else b"1}"
    raw = b"{" + HEADER.encode() + b',"body":{"value":' + opening * levels + b"1" + closing[-1:] * levels + b"}}"
    with pytest.raises(BrokenMessageError) as caught:
        codec.decode(raw)
    assert caught.value.code is Code.TOO_DEEP


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_nesting_is_allowed_to_its_last_level_and_no_further(opening: str, closing: str) -> None:
    times = (NESTING_LEVELS - 2) // len(closing)  # the message and its body are levels as well
    deepest = opening * times + "1" + closing * times
    body = '{"value":' + deepest + "}"
    assert _decode("{" + HEADER + f',"body":{body}' + "}").body == body.encode()
    with pytest.raises(BrokenMessageError):
        _decode("{" + HEADER + ',"body":{"value":[' + deepest + "]}}")


def test_brackets_inside_texts_are_no_nesting() -> None:
    text = json.dumps({"value": '["{' * 500 + "\\" + '"' * 9})
    assert _decode("{" + HEADER + f',"body":{text}' + "}").body == text.encode()


def test_many_shallow_brackets_are_fine() -> None:
    body = json.dumps({"value": [[] for _ in range(5_000)]})
    assert _decode("{" + HEADER + f',"body":{body}' + "}").body == body.encode()


@pytest.mark.parametrize(
    "raw",
    [
        b'{"id":1,"type":"response","from":"a","to":"b","body":{"code":200}}',
        b'{"id":1,"type":"response","from":"a","to":"b","body":{"code":200} }',
        b'{"id":1,"type":"response","from":"a","to":"b","body":{}}',
        b'{"id":1,"type":"response","from":"a","to":"b","body":{ }}',
        b'{"id":1,"type":"response","from":"a","to":"b"}',
        b'{"id":1,"body":{"code":200,"v":"}}"},"type":"response","from":"a","to":"b"}',
    ],
)
def test_a_member_at_the_end_is_in_body_and_text_and_nothing_else_changes(raw: bytes) -> None:
    (message,) = codec.decode(raw)
    changed = codec.with_last_member(message, b'"desc":"\\u00fc"')

    (read,) = codec.decode(changed.raw)
    assert (read.id, read.type, read.body, read.raw) == (message.id, message.type, changed.body, changed.raw)
    assert read.takes_members or not changed.takes_members
    assert changed.body.rstrip().endswith(b'"desc":"\\u00fc"}')
    assert codec.body_members(changed.body) == {**codec.body_members(message.body), "desc": "\u00fc"}
    assert codec.with_body(changed, message.body or b"{}").peek == message.peek
    members = json.loads(message.raw)
    assert json.loads(changed.raw) == {**members, "body": {**members.get("body", {}), "desc": "\u00fc"}}


@pytest.mark.parametrize("name", [',"body":', ', "body" : ', ',"body":' + " " * 50])
def test_another_body_leaves_every_other_byte(name: str) -> None:
    message = _decode('{ "id":1, ' + HEADER + " " + name + '{"a":1}}')
    changed = codec.with_body(message, codec.append_members(message.body, b'"via":["x"]'))
    assert changed.raw.decode() == '{ "id":1, ' + HEADER + " " + name + '{"a":1,"via":["x"]}}'
    assert bytes(changed.peek.via) == b'["x"]'


@pytest.mark.parametrize(
    "raw",
    [
        b'{"id":1,"type":"create","from":"a:b","to":"c:d","body":{"x":1}}',
        b'{"id":1,"type":"create","from":"a:b","to":"c:d"}',
        b'{"id":1,"type":"create","from":"a:b","to":"c:d"} ',
        b'{"body":{"x":1},"id":1,"type":"create","from":"a:b","to":"c:d"}',
        b'{"id":1,"type":"create","from":"a:b","to":"c:d","body":{"x":1} }',
        b'{"id":1,"type":"create","from":"a:b","to":"c:d","body":{"x":1},"more":{"x":1}}',
        b'{"id":1,"type":"create","from":"a:b","to":"c:d","body":null}',
    ],
)
def test_another_body_takes_the_place_of_the_one_that_was_there_once(raw: bytes) -> None:
    [message] = codec.decode(raw)
    changed = codec.with_body(message, b'{"y":2,"via":"z:1"}')
    members = json.loads(changed.raw)
    assert members["body"] == {"y": 2, "via": "z:1"}
    assert changed.raw.count(b'"body"') == 1
    assert (changed.body, bytes(changed.peek.via)) == (b'{"y":2,"via":"z:1"}', b'"z:1"')
    [read] = codec.decode(changed.raw)
    assert (read.id, read.type, read.from_, read.to, read.body) == (b"1", "create", "a:b", "c:d", changed.body)
    assert set(members) == set(json.loads(raw)) | {"body"}


@given(
    members=st.permutations(["id", "type", "from", "to", "body", "more", "last"]),
    body=st.dictionaries(st.sampled_from(["a", "body", '","body":{', "}"]), st.sampled_from([1, "body", {"body": {}}])),
    name=st.sampled_from(["body", "b\\u006fdy"]),
    spaces=st.tuples(*[st.sampled_from(["", " ", "\n\t", " " * 100])] * 3),
)
def test_the_body_is_changed_whichever_other_member_has_the_same_value(
    members: list[str], body: dict[str, Any], name: str, spaces: tuple[str, str, str]
) -> None:
    before, behind, end = spaces
    values = {"id": "1", "type": '"create"', "from": '"a:b"', "to": '"c:d"'}
    written = [
        f'{before}"{name if one == "body" else one}"{before}:{behind}{values.get(one, json.dumps(body))}'
        for one in members
    ]
    raw = ("{" + ",".join(written) + end + "}").encode()
    [message] = codec.decode(raw)
    changed = codec.with_body(message, b'{"new":1}')
    expected = json.loads(raw) | {"body": {"new": 1}}
    assert json.loads(changed.raw) == expected
    [again] = codec.decode(changed.raw)
    assert again.body == changed.body == b'{"new":1}'
    assert codec.ends_with_body(raw, message.body) <= (members[-1] == "body")
    for one in (message, changed, again):
        _check_takes_members(one)


def _check_takes_members(message: Message) -> None:
    if message.takes_members:
        expected = json.loads(message.raw)
        expected["body"]["added"] = 1
        longer, body = message.raw[:-2] + b',"added":1}}', message.body[:-1] + b',"added":1}'
        assert json.loads(longer) == expected
        assert json.loads(body) == expected["body"]


@given(
    members=st.permutations(["id", "type", "from", "to", "body"]),
    id_=st.sampled_from(["1", '"1"', "null"]),
    body=st.sampled_from(["{}", "{ }", '{"a":{}}', '{"a":1 }', '{"a":"}}"}', '{"body":{"a":1}}', '{"type":"\\"}}"}']),
    more=st.sampled_from(["", '"more":{"a":1},', '"to":"e:f",', '"body":{"b":2},', '"x\\"":{},']),
    end=st.sampled_from(["", " ", "\n"]),
)
def test_members_are_added_in_front_of_the_braces_of_the_body_or_not_at_all(
    members: list[str], id_: str, body: str, more: str, end: str
) -> None:
    values = {"id": id_, "type": '"create"', "from": '"a:b"', "to": '"c:d"', "body": body}
    raw = "{" + more + ",".join(f'"{name}":{values[name]}' for name in members) + end + "}"
    [message] = codec.decode(raw.encode())
    _check_takes_members(message)
    is_kept = more in ("", '"more":{"a":1},')  # what gives a member twice is written anew
    assert message.takes_members == (is_kept and members[-1] == "body" and not end and body[-2] not in "{ ")


@pytest.mark.parametrize("more", ["", '"more":1,', '"more":"a","other":"b",'])
def test_a_body_at_the_end_takes_members_whatever_further_members_the_header_has(more: str) -> None:
    [message] = codec.decode(f'{{{more}"id":1,"type":"read","from":"a:b","to":"c:d","body":{{"a":1}}}}'.encode())
    assert message.takes_members
    _check_takes_members(message)


def test_quotation_marks_of_a_body_in_front_of_the_header_are_not_those_of_the_header() -> None:
    body = json.dumps({"texts": ["x"] * HEADER_QUOTES}, separators=(",", ":"))
    raw = f'{{"body":{body},"type":"create","from":"a:b","to":"c:d"}}'.encode()
    [message] = codec.decode(raw)
    assert (message.raw, message.body, message.takes_members) == (raw, body.encode(), False)


@pytest.mark.parametrize("type_", ["create", "CREATE"])
def test_header_members_may_have_their_most_characters_and_no_more(type_: str) -> None:
    """In the usual form, and in the one that is written anew."""

    def size_of(type_: str, from_: str, to: object) -> Code | None:
        raw = json.dumps({"id": 1, "type": type_, "from": from_, "to": to}).encode()
        try:
            codec.decode(raw)
        except BrokenMessageError as error:
            return error.code
        return None

    word, most = type_[0], "a:" + "x" * (HEADER_CHARS - 2)
    assert size_of(word * 32, most, most) is None
    assert size_of(word * 32, "a:b", [most, "a:b"]) is None
    assert size_of(word * 33, "a:b", "c:d") is Code.BAD_HEADER
    assert size_of(type_, most + "x", "c:d") is Code.TOO_LARGE
    assert size_of(type_, "a:b", most + "x") is Code.TOO_LARGE
    assert size_of(type_, "a:b", ["c:d", most + "x"]) is Code.TOO_LARGE
    for wrong in ("", [], ["c:d", ""]):
        assert size_of(type_, "a:b", wrong) is Code.BAD_HEADER
    assert size_of(type_, "", "c:d") is Code.BAD_HEADER
    assert size_of("", "a:b", "c:d") is Code.BAD_HEADER


def test_a_request_may_have_its_most_parts_and_no_more() -> None:
    def body(parts: int) -> bytes:
        return json.dumps({"list": [{}] * (parts - 2), "text": "x" * REQUEST_PARTS}).encode()

    assert len(codec.request_members(body(REQUEST_PARTS))) == 2
    with pytest.raises(PeerError) as caught:
        codec.request_members(body(REQUEST_PARTS + 1))
    assert caught.value.code is Code.TOO_LARGE
    nested = json.dumps({"list": [[]] * (REQUEST_PARTS - 2), "text": "x" * REQUEST_PARTS}).encode()
    assert codec.request_members(nested)
    assert codec.request_members(b"") == {}
    for broken in (b"[", b"\xff", b"[" * 100_000):
        with pytest.raises(PeerError) as caught:
            codec.body_members(broken)
        assert caught.value.code is Code.BAD_BODY


def test_an_answer_says_its_description_a_second_time_only_for_who_wants_it() -> None:
    [request] = codec.decode(b'{"id":7,"type":"read","from":"a:b","to":"c:d"}')
    for more in ({}, {"extra": {"reason": "why"}}, {"extra": {"source": "e:f"}}, {"extra": {"x": 1}}):
        plain = json.loads(codec.response(request, 200, value=1, **more).raw)["body"]
        twice = json.loads(codec.response(request, 200, value=1, has_desc=True, **more).raw)["body"]
        assert plain | {"desc": plain["description"]} == twice
        assert "desc" not in plain
        assert plain["value"] == 1


def test_members_are_removed_however_they_are_spelt() -> None:
    body = b'{"\\u0061uth":true,"value":{"auth":1},"auth":false}'
    assert codec.without_members(body, ["auth"]) == b'{"value":{"auth":1}}'
    assert bytes(_decode("{" + HEADER + ',"body":' + body.decode() + "}").peek.auth) == b"false"


def test_events_and_responses_expect_no_reply() -> None:
    def expects(text: str) -> bool:
        return _decode(text).expects_reply

    assert expects('{"id":1,' + HEADER + "}")
    assert not expects("{" + HEADER + "}")
    assert not expects('{"id":1,"type":"response","from":"a","to":"b","body":{"code":404}}')
    assert not expects('{"id":1,"type":"update","from":"comm://a.example/r","to":"comm://a.example/r/changes"}')
    assert expects('{"id":1,"type":"update","from":"a","to":"b/changes","body":{"receipt":true}}')


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(raw=st.binary(max_size=2048))
def test_any_bytes_give_messages_or_a_broken_message_error(raw: bytes) -> None:
    with contextlib.suppress(BrokenMessageError):
        codec.decode(raw)


@given(
    members=st.fixed_dictionaries(
        {}, optional=dict.fromkeys(["id", "type", "from", "to", "body", "x"], JSON | st.sampled_from(["update", "a"]))
    )
)
def test_any_object_gives_messages_or_a_broken_message_error(members: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenMessageError):
        for message in codec.decode(json.dumps(members).encode()):
            decoded = json.loads(message.raw)
            assert decoded["to"] == message.to
            assert decoded.get("body") == members.get("body")
            with contextlib.suppress(PeerError):
                codec.refusal(message, Code.NO_ROUTE)


MEMBERS = {
    '"id"': ["1", '"1"', '"a\\"b"', "null"],
    '"type"': ['"read"', '"create"'],
    '"from"': ['"a"', '"b"', '"\\u0061"'],
    '"to"': ['"a"', '"b"', '"a\\"b"'],
    '"body"': ['{"to":"x","type":["\\u0061"]}', '{"a":"}"}', "{}", "null"],
    '"x"': ["1", '"\\""', '{"to":"y"}'],
    '"t\\u006f"': ['"a"', '"b"'],
    '"\\""': ['""'],
    '"\\u0022"': ["2"],
}
"""Names and values of a header as they may be written."""
PAIRS = st.sampled_from([(name, value) for name, values in MEMBERS.items() for value in values])


@given(
    pairs=st.lists(PAIRS, max_size=5).flatmap(
        lambda more: st.permutations([('"type"', '"read"'), ('"from"', '"a"'), ('"to"', '"b"'), *more])
    ),
    space=st.sampled_from(["", " "]),
)
def test_first_and_last_of_a_name_are_the_same_in_what_goes_out(pairs: list[tuple[str, str]], space: str) -> None:
    raw = "{" + f",{space}".join(f"{name}:{space}{value}" for name, value in pairs) + space + "}"
    [message] = codec.decode(raw.encode())
    seen: list[list[tuple[str, object]]] = []
    json.loads(message.raw, object_pairs_hook=seen.append)
    names = [name for name, _ in seen[-1]]  # the outermost object ends last
    assert len(names) == len(set(names))
    given = {name: value for name, value in json.loads(raw).items() if (name, value) != ("body", None)}
    assert json.loads(message.raw) == given
    is_repeated = len({json.loads(name) for name, _ in pairs}) < len(pairs)
    assert not is_repeated or codec.repeats_members(raw.encode())
    if not is_repeated and "body" in given and '"\\""' not in dict(pairs):
        assert message.raw == raw.encode()


@pytest.mark.parametrize("more", ["", '"id":1,', '"id":"1",', '"id":1,"zz":{"to":1,"type":2},'])
@pytest.mark.parametrize("end", ["}", ',"body":{"type":"\\u0061","to":"\\"","from":["to","to"]}}'])
def test_names_inside_bodies_and_further_members_are_no_repetition(more: str, end: str) -> None:
    raw = "{" + more + HEADER + end
    assert _decode(raw).raw == raw.encode()
    assert not codec.repeats_members(raw.encode())


@pytest.mark.parametrize("type_", ["create", "CREATE"])
def test_a_header_may_have_its_most_quotation_marks_and_no_more(type_: str) -> None:
    """In the usual form, which keeps its bytes, and in the one that is written anew."""

    def raw(quotes: int) -> bytes:
        header = f'{{ "type":"{type_}","from":"a:b","to":"c:d"'
        return (header + "".join(f',"{number}":1' for number in range((quotes - 12) // 2)) + "}").encode()

    [message] = codec.decode(raw(HEADER_QUOTES))
    assert (message.raw == raw(HEADER_QUOTES)) is (type_ == "create")
    with pytest.raises(BrokenMessageError, check=lambda error: error.code is Code.TOO_LARGE):
        codec.decode(raw(HEADER_QUOTES + 2))


def test_copies_for_all_recipients_may_have_their_most_bytes_and_no_more() -> None:
    def raw(size: int) -> bytes:
        start = '{"type":"create","from":"a:b","to":' + json.dumps([f"c:{number}" for number in range(512)]) + ',"x":"'
        return (start.ljust(size - 2, "x") + '"}').encode()

    assert len(codec.decode(raw(RECIPIENTS_BYTES // 512))) == 512
    with pytest.raises(BrokenMessageError, check=lambda error: (error.code, error.member) == (Code.TOO_LARGE, "to")):
        codec.decode(raw(RECIPIENTS_BYTES // 512 + 1))


@pytest.mark.parametrize("name", ['"x"', '"{}"'])
def test_header_of_thousands_of_members_is_refused_before_they_are_looked_at(name: str) -> None:
    more = ",".join(f"{name.format(number)}:1" for number in range(HEADER_QUOTES // 2))
    with pytest.raises(BrokenMessageError) as caught:
        codec.decode(("{" + HEADER + "," + more + "}").encode())
    assert (caught.value.code, caught.value.from_) == (Code.TOO_LARGE, "hyperty://a.example/h")
    assert _decode("{" + HEADER + ',"body":{' + more + "}}").type == "create"


def test_large_message_goes_to_a_few_and_not_to_a_thousand() -> None:
    def raw(count: int, size: int) -> bytes:
        recipients = json.dumps([f"comm://b.example/{number}" for number in range(count)] * 2)
        return f'{{"type":"create","from":"a","to":{recipients},"body":{{"value":"{"x" * size}"}}}}'.encode()

    assert len(codec.decode(raw(16, 1 << 20))) == 16
    assert len(codec.decode(raw(500, 1 << 10))) == 500
    with pytest.raises(BrokenMessageError) as caught:
        codec.decode(raw(500, 1 << 20))
    assert (caught.value.code, caught.value.member) == (Code.TOO_LARGE, "to")


def test_thousand_recipients_and_further_members_are_fine() -> None:
    recipients = json.dumps([f"comm://b.example/{number}" for number in range(RESOURCES_ENTRIES)])
    more = json.dumps({str(number): "x" for number in range(500)})
    raw = '{"type":"create","from":"a","to":' + recipients + ',"x":' + more + "}"
    assert len(codec.decode(raw.encode())) == RESOURCES_ENTRIES


@given(body=st.dictionaries(st.text(max_size=6), JSON, max_size=6), names=st.lists(st.text(max_size=6), max_size=3))
def test_removing_members_keeps_all_others(body: dict[str, Any], names: list[str]) -> None:
    rest = codec.without_members(json.dumps(body).encode(), names)
    assert json.loads(rest) == {name: value for name, value in body.items() if name not in names}


def test_a_frame_has_a_bounded_number_of_recipients() -> None:
    def frame(count: int) -> bytes:
        recipients = [f"comm://b.example/{number}" for number in range(count)]
        return json.dumps({"type": "event", "from": "hyperty://a.example/h", "to": recipients}).encode()

    assert len(codec.decode(frame(RESOURCES_ENTRIES))) == RESOURCES_ENTRIES
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_HEADER):
        codec.decode(frame(RESOURCES_ENTRIES + 1))


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", ""),
        (b'"a\\u0062"', "ab"),
        (b"1", ""),
        (b'"\\ud83d"', ""),
        (b'"\xff"', ""),
        (b"[" * 100_000, ""),
        (b"[" * 100_000 + b"]" * 100_000, ""),
    ],
)
def test_a_member_that_is_no_text_reads_as_none(raw: bytes, text: str) -> None:
    assert codec.body_text(raw) == text


@pytest.mark.parametrize(
    ("code", "description", "said"),
    [(404, None, "Not Found"), (404, "", "Not Found"), (404, "x", "x"), (299, None, "")],
)
@pytest.mark.parametrize("extra", [None, {"reason": "r"}])
def test_an_answer_is_described_by_its_code_unless_it_says_more(
    code: int, description: str | None, said: str, extra: dict[str, object] | None
) -> None:
    request = codec.build(id=1, type="read", from_="a", to="b")
    answer = codec.response(request, code, description=description, extra=extra)
    assert codec.body_members(answer.body) == {"code": code, "description": said, **(extra or {})}


@pytest.mark.parametrize("name", [b'"body":', b'"body" :', b'"body": ', b'"body"\n:\t'])
def test_the_body_is_found_at_the_end_however_its_name_is_set(name: bytes) -> None:
    raw = b'{"type":"read","from":"a","to":"b",' + name + b'{"a":1}}'
    [message] = codec.decode(raw)
    assert codec.ends_with_body(raw, b'{"a":1}')
    assert codec.with_body(message, b'{"b":2}').raw == raw.replace(b'{"a":1}', b'{"b":2}')


@pytest.mark.parametrize(("body", "takes"), [(b'{"a":1}', True), (b"{}", False), (b'{"a":1 }', False)])
def test_a_new_body_takes_members_where_one_stands_before_its_end(body: bytes, takes: bool) -> None:
    [message] = codec.decode(b'{"type":"read","from":"a","to":"b","body":{"x":1}}')
    assert codec.with_body(message, body).takes_members is takes


@pytest.mark.parametrize(("detail", "said"), [("", "Forbidden"), ("why", "Forbidden: why")])
@pytest.mark.parametrize(("source", "more"), [(None, {}), ("runtime://a/mn", {"source": "runtime://a/mn"})])
def test_a_refusal_says_its_code_in_words_and_why(
    detail: str, said: str, source: str | None, more: dict[str, object]
) -> None:
    request = codec.build(id=1, type="read", from_="a", to="b")
    members = codec.body_members(codec.refusal(request, Code.POLICY, detail=detail, source=source).body)
    assert members == {"code": 403, "description": said, "reason": "policy", **more}


@pytest.mark.parametrize(
    ("id_", "written_id"), [(None, ""), (b'"x"', '"id":"x",'), (b"-7", '"id":-7,'), (7, '"id":7,'), ("a", '"id":"a",')]
)
@pytest.mark.parametrize(
    ("body", "written_body"),
    [(None, ""), (b"", ""), ({}, ""), (b'{"a": 1}', ',"body":{"a": 1}'), ({"a": 1}, ',"body":{"a":1}')],
)
def test_a_message_of_ours_is_written_without_what_it_does_not_have(
    id_: bytes | int | str | None, written_id: str, body: bytes | dict[str, object] | None, written_body: str
) -> None:
    raw = codec.encode_message(id=id_, type="read", from_="a:b", to="c:d", body=body)
    assert raw.decode() == "{" + written_id + '"type":"read","from":"a:b","to":"c:d"' + written_body + "}"
    if not isinstance(body, bytes):
        built = codec.build(id=id_, type="read", from_="a:b", to="c:d", body=body)
        [read] = codec.decode(raw)
        assert (built.raw, built.takes_members, built) == (raw, read.takes_members, read)


@pytest.mark.parametrize("body", [{}, {"a": 1}])
def test_members_are_added_to_no_body_that_is_empty(body: dict[str, object]) -> None:
    assert codec.build(id=1, type="read", from_="a:b", to="c:d", body=body).takes_members is bool(body)
    message = codec.build(id=1, type="read", from_="a:b", to="c:d", body={"x": 1})
    for text in (b"{}", b"{ }", b'{"a":1 }', b'{"a":{}}'):
        changed = codec.with_body(message, text)
        assert changed.takes_members is (text == b'{"a":{}}')


def test_a_message_without_a_body_gets_one_behind_all_its_bytes() -> None:
    message = _decode("{ " + HEADER + ' , "x" : 1 }')
    changed = codec.with_body(message, b'{"a":1}')
    assert changed.raw.decode() == "{ " + HEADER + ' , "x" : 1 ,"body":{"a":1}}'
    assert (changed.body, changed.takes_members) == (b'{"a":1}', True)


@pytest.mark.parametrize(("body", "takes"), [(b'{"a":1}', True), (b'{"a":1} ', False), (b'{"a":1}\n', False)])
def test_a_body_with_a_blank_behind_it_takes_no_members(body: bytes, takes: bool) -> None:
    changed = codec.with_body(_decode("{" + HEADER + ',"body":{"x":1}}'), body)
    assert changed.takes_members is takes
    _check_takes_members(changed)


@pytest.mark.parametrize("to", ["e:f", "comm://c.example/\u00e9"])
def test_a_message_for_another_recipient_differs_in_that_alone(to: str) -> None:
    message = _decode('{"id":7,' + HEADER + ',"x":[1],"body":{"a": 1}}')
    message.judged(True)
    changed = codec.with_recipient(message, to)
    assert json.loads(changed.raw) == {**json.loads(message.raw), "to": to}
    assert (changed.id, changed.type, changed.from_, changed.to, changed.body) == (
        *(b"7", "create", message.from_, to, b'{"a": 1}'),
    )
    assert (changed.takes_members, changed.verdict, changed.is_late) == (False, True, False)


def test_a_broken_frame_is_no_response_unless_it_says_so() -> None:
    error = BrokenMessageError(Code.BROKEN_JSON, "")
    assert (error.is_response, error.member, error.from_, error.id) == (False, "", "", None)
