"""One request and its answer as bytes: whatever comes gives an answer or one error, however it is cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.errors import Code, PeerError
from wire.core.http_exchange import HttpAnswer, HttpExchange

WHOLE = b"HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"


def exchange(*, method: str = "GET", body: bytes = b"", max_bytes: int = 1000) -> HttpExchange:
    url = "https://mn.b.example:444/api?x=1"
    return HttpExchange(url, method=method, headers={"X-A": ""}, body=body, max_bytes=max_bytes, domain="b.example")


def test_a_request_names_host_port_target_and_length() -> None:
    sent = exchange(method="PUT", body=b"abc").data_to_send()
    assert sent.startswith(b"PUT /api?x=1 HTTP/1.1\r\nHost: mn.b.example:444\r\n")
    assert sent.endswith(b"Content-Length: 3\r\n\r\nabc")


def test_a_post_without_body_says_so() -> None:
    assert b"Content-Length: 0\r\n" in exchange(method="POST").data_to_send()
    assert b"Content-Length" not in exchange().data_to_send()


def test_an_answer_to_head_has_no_body() -> None:
    answer = exchange(method="HEAD").receive(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    assert answer == HttpAnswer(200, {"content-length": "5"}, b"")


def test_an_answer_that_ends_with_its_line_is_whole() -> None:
    ours = exchange()
    assert ours.receive(b"HTTP/1.0 404 Not Found\r\n\r\nno") is None
    assert ours.receive(b"") == HttpAnswer(404, {}, b"no")


@given(st.lists(st.integers(0, len(WHOLE)), max_size=8))
def test_an_answer_may_come_in_any_pieces(cuts: list[int]) -> None:
    ours = exchange()
    edges = [0, *sorted(cuts), len(WHOLE)]
    pieces = [WHOLE[start:end] for start, end in pairwise(edges) if end > start]
    answers = [ours.receive(piece) for piece in pieces]
    assert answers[-1] == HttpAnswer(200, {"a": "1, 2"}, b"abcde")
    assert answers[:-1] == [None] * (len(answers) - 1)


@pytest.mark.parametrize("size", [0, 999, 1000])
def test_a_body_up_to_the_limit_is_taken(size: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size
    answer = exchange().receive(head + bytes(size))
    assert answer is not None
    assert len(answer.body) == size


def test_a_body_beyond_the_limit_is_refused() -> None:
    with pytest.raises(PeerError) as caught:
        exchange().receive(b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + bytes(1001))
    assert caught.value.code is Code.DOCUMENT_TOO_LARGE


@given(st.lists(st.binary(max_size=80), max_size=6), st.booleans())
def test_any_bytes_give_an_answer_or_the_one_error(pieces: list[bytes], has_status: bool) -> None:
    assert outcome([b"HTTP/1.1 200 OK\r\n"] * has_status + pieces + [b""]) in {
        "answer",
        "bad-reply",
        "document-too-large",
    }


def outcome(pieces: list[bytes]) -> str:
    ours = exchange()
    try:
        for piece in pieces:
            if ours.receive(piece) is not None:
                return "answer"
    except PeerError as exc:
        return exc.code.word
    return "nothing"
