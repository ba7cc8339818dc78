"""What an answer of a global registry means."""

from __future__ import annotations

import json

import pytest

from msg_node.registries.core.global_registry_rest import RestAnswer, check_written, read_answer, record_in
from protofly.errors import Code, PeerError

HOST = "gr.example"


@pytest.mark.parametrize(
    ("status", "members", "answer"),
    [
        (200, {"Code": 200, "Value": "x"}, RestAnswer(200, "x", "")),
        (200, {"responseCode": 404, "data": "x", "Description": "d"}, RestAnswer(404, "x", "d")),
        (500, {"code": 200, "value": "x", "message": "m"}, RestAnswer(200, "x", "m")),
        (404, {}, RestAnswer(404, "", "")),
        (200, {"Code": 100, "Value": 7, "data": "", "value": "x"}, RestAnswer(100, "x", "")),
        (200, {"Code": 599, "Explanation": "e" * 201}, RestAnswer(599, "", "e" * 200)),
    ],
)
def test_the_code_inside_counts_and_each_name_for_a_member(
    status: int, members: dict[str, object], answer: RestAnswer
) -> None:
    assert read_answer(status, json.dumps(members).encode(), host=HOST) == answer


@pytest.mark.parametrize("code", [99, 600, True, "200", 200.0, None, []])
def test_what_is_no_code_is_a_bad_reply(code: object) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_REPLY):
        read_answer(200, json.dumps({"Code": code}).encode(), host=HOST)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b'"x"', b'{"a":1,"a":2}', b"\xff"])
@pytest.mark.parametrize(("status", "code"), [(200, Code.BAD_REPLY), (201, Code.HTTP_STATUS), (502, Code.HTTP_STATUS)])
def test_what_is_no_object_is_a_bad_reply_or_that_of_a_server_in_between(body: bytes, status: int, code: Code) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        read_answer(status, body, host=HOST)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (RestAnswer(404, "x", ""), Code.NOT_REGISTERED),
        (RestAnswer(500, "x", "broken"), Code.HTTP_STATUS),
        (RestAnswer(201, "x", ""), Code.HTTP_STATUS),
        (RestAnswer(200, "", ""), Code.BAD_REPLY),
    ],
)
def test_a_read_without_a_record_is_a_refusal(answer: RestAnswer, code: Code) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        record_in(answer, host=HOST)
    assert record_in(RestAnswer(200, "x", ""), host=HOST) == "x"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, Code.BAD_BODY),
        (401, Code.BAD_BODY),
        (404, Code.HTTP_STATUS),
        (409, Code.RECORD_OUTDATED),
        (410, Code.RECORD_REVOKED),
        (413, Code.TOO_LARGE),
        (429, Code.RATE),
        (500, Code.HTTP_STATUS),
    ],
)
def test_a_write_that_was_not_taken_says_what_the_writer_did_wrong(status: int, code: Code) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is code) as refused:
        check_written(RestAnswer(status, "", "why"), host=HOST)
    assert refused.value.detail == f"the global registry answers {status}: why"
    check_written(RestAnswer(200, "", ""), host=HOST)
