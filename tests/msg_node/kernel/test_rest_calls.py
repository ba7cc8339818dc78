"""Calls to back-ends as values: what counts as JSON, and what each status means."""

from __future__ import annotations

import pytest

from msg_node.kernel.rest_calls import Answered, path_to, refusal_of
from protofly.errors import Code, PeerError


@pytest.mark.parametrize(
    ("content_type", "is_json"),
    [
        ("", True),
        ("application/json", True),
        ("text/json", True),
        ("application/problem+json", True),
        ("json", False),
        ("text/html", False),
        ("application/json-seq", False),
    ],
)
def test_an_answer_is_json_if_it_says_so_or_nothing(content_type: str, is_json: bool) -> None:
    answer = Answered(200, b'{"a":[1]}', content_type)
    if is_json:
        assert answer.document() == {"a": [1]}
        return
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_REPLY):
        answer.document()


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", "application/json"),
        (b"{", "application/json"),
        (b"{", ""),
        (b'"\xff"', ""),
        (b'{"a":1}x', "application/json"),
        (b"[" * 100_000, ""),
        (b"{}", "text/html"),
    ],
)
def test_what_is_not_json_is_a_bad_reply(body: bytes, content_type: str) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_REPLY):
        Answered(200, body, content_type).document()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (200, Code.BAD_REPLY),
        (299, Code.BAD_REPLY),
        (300, Code.REDIRECT_REFUSED),
        (399, Code.REDIRECT_REFUSED),
        (400, Code.BAD_BODY),
        (401, Code.STUB_REFUSED),
        (402, Code.BAD_REPLY),
        (403, Code.STUB_REFUSED),
        (404, Code.BAD_REPLY),
        (428, Code.BAD_REPLY),
        (429, Code.RATE),
        (430, Code.BAD_REPLY),
        (500, Code.BAD_REPLY),
    ],
)
def test_each_status_has_its_code_and_names_the_back_end(status: int, code: Code) -> None:
    error = refusal_of(Answered(status), "the broker")
    assert error.code is code
    assert error.detail.startswith("the broker ")


@pytest.mark.parametrize(("status", "is_failure"), [(200, False), (499, False), (500, True), (503, True)])
def test_a_back_end_that_answers_500_or_more_is_not_well(status: int, is_failure: bool) -> None:
    assert Answered(status).is_failure is is_failure


def test_parts_of_a_path_are_encoded_whole() -> None:
    assert path_to("a/b", "c?d") == "/a%2Fb/c%3Fd"
    assert path_to("a", query={}) == "/a"
    assert path_to("a", query={"b": "c d"}) == "/a?b=c+d"
