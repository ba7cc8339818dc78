"""Answers of back-ends and of the bus, as values."""

from __future__ import annotations

import pytest

from msg_node.kernel.answers import described, gap_word, not_stored, session_refusal, validator_reply
from msg_node.kernel.rest_calls import Answered, path_to
from protofly import codec
from protofly.codec import BrokenMessageError
from protofly.errors import Code
from protofly.message import Message

RUNTIME = "runtime://alpha.example/rt"


def reply(body: dict[str, object]) -> Message:
    return codec.build(id=b"1", type="response", from_="mn:/session", to=RUNTIME, body=body)


@pytest.mark.parametrize(("status", "is_failure"), [(200, False), (499, False), (500, True), (501, True), (599, True)])
def test_a_back_end_is_not_well_from_500_on(status: int, is_failure: bool) -> None:
    assert Answered(status).is_failure is is_failure


@pytest.mark.parametrize("content_type", ["", "application/json", "application/problem+json"])
def test_json_is_read_as_such(content_type: str) -> None:
    assert Answered(200, b'{"a":1}', content_type).document() == {"a": 1}


def test_addresses_stand_whole_in_paths() -> None:
    assert path_to("hyperty", "user://a/b c") == "/hyperty/user%3A%2F%2Fa%2Fb%20c"
    assert path_to("x", query={"a": "b&c"}) == "/x?a=b%26c"
    assert path_to("x", query={}) == "/x"


@pytest.mark.parametrize(
    ("body", "desc"),
    [
        ({"code": 200, "description": "OK"}, "OK"),
        ({"code": 200, "description": ""}, ""),
        ({"code": 200, "description": "new", "desc": "old"}, "old"),
        ({"code": 200, "description": 7}, None),
        ({"code": 200}, None),
    ],
)
def test_a_description_is_given_under_its_old_name_as_well(body: dict[str, object], desc: object) -> None:
    sent = described(reply(body))
    assert codec.body_members(sent.body) == (body if desc is None else {**body, "desc": desc})


def test_what_cannot_be_stored_is_said_in_the_words_of_the_reply() -> None:
    for old in ({"code": 200, "value": 1}, {"code": 200, "desc": "OK"}):
        members = codec.body_members(not_stored(reply(dict(old)), Code.STORAGE).body)
        assert (members["code"], members["reason"]) == (500, "storage")
        assert ("desc" in members) is ("desc" in old)
        assert "value" not in members


@pytest.mark.parametrize(
    ("from_", "runtime", "member", "to"),
    [
        ("hyperty://a/h", RUNTIME, "type", "hyperty://a/h"),
        ("hyperty://a/h", RUNTIME, "to", RUNTIME),
        ("hyperty://a/h", "", "to", "hyperty://a/h"),
        ("", RUNTIME, "type", RUNTIME),
    ],
)
def test_who_sent_a_broken_frame_is_notified(from_: str, runtime: str, member: str, to: str) -> None:
    broken = BrokenMessageError(Code.BAD_BODY, "broken", from_=from_, id=b"7", member=member)
    sent = validator_reply(broken, runtime)
    assert sent is not None
    assert (sent.to, sent.id) == (to, b"7")
    members = codec.body_members(sent.body)
    assert members["value"] == {"member": member}
    assert members["desc"] == members["description"]
    plain = validator_reply(broken, runtime, has_desc=False)
    assert plain is not None
    assert "desc" not in codec.body_members(plain.body)


@pytest.mark.parametrize(
    ("code", "from_", "runtime", "id_", "is_response", "is_answered"),
    [
        (Code.BROKEN_JSON, "", RUNTIME, None, False, False),  # nobody can distinguish it from another broken frame
        (Code.BROKEN_JSON, "", RUNTIME, b"7", False, True),
        (Code.BROKEN_JSON, RUNTIME, "", None, False, True),
        (Code.BAD_BODY, "", RUNTIME, None, False, True),
        (Code.BAD_BODY, "", RUNTIME, b"7", True, False),
        (Code.BAD_BODY, "", "", b"7", False, False),
        (Code.BAD_BODY, RUNTIME, "", b"7", True, False),
    ],
)
def test_a_broken_frame_is_answered_unless_it_is_a_response_or_nobody_s(
    code: Code, from_: str, runtime: str, id_: bytes | None, is_response: bool, is_answered: bool
) -> None:
    broken = BrokenMessageError(code, "broken", from_=from_, id=id_, is_response=is_response)
    sent = validator_reply(broken, runtime)
    assert (sent is not None) is is_answered
    assert sent is None or "value" not in codec.body_members(sent.body)


@pytest.mark.parametrize(
    ("objects", "is_vague", "more"),
    [
        ((), True, {"others": True}),
        (("comm://a/1", "comm://a/2"), False, {}),
        (("comm://a/1",), True, {"others": True}),
    ],
)
def test_a_runtime_that_is_back_hears_which_objects_it_missed_and_whether_perhaps_others(
    objects: tuple[str, ...], is_vague: bool, more: dict[str, object]
) -> None:
    sent = gap_word(RUNTIME, objects, is_vague=is_vague)
    assert (sent.id, sent.type, sent.from_, sent.to) == (None, "update", "mn:/session", f"{RUNTIME}/status")
    assert codec.body_members(sent.body) == {"value": "missed", "resources": list(objects), **more}


@pytest.mark.parametrize("value", [None, {}, {"member": "to"}])
def test_a_refusal_has_a_value_when_there_is_one(value: dict[str, object] | None) -> None:
    asked = codec.build(id=b"1", type="read", from_=RUNTIME, to="mn:/session", body={})
    members = codec.body_members(session_refusal(asked, Code.QUOTA, value, source="mn:/session", detail="why").body)
    assert ("value" in members) is (value is not None)
    assert members.get("value") == value
    assert members["description"] == f"{Code.QUOTA.description}: why"
