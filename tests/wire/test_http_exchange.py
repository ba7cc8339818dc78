"""One request and its answer as bytes: whatever comes gives an answer or one error, however it is cut."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.errors import Code, PeerError
from wire.core.http_exchange import HttpAnswer, HttpExchange, OutgoingRequest

WHOLE = b"HTTP/1.1 200 OK\r\nA: 1\r\na: 2\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"


def exchange(*, method: str = "GET", body: bytes = b"", max_bytes: int = 1000) -> HttpExchange:
    url = "https://mn.b.example:444/api?x=1"
    return HttpExchange(
        OutgoingRequest(url=url, method=method, headers={"X-A": ""}, body=body), max_bytes=max_bytes, domain="b.example"
    )


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


@pytest.mark.parametrize(
    ("url", "target", "host"),
    [
        ("https://b.example", b"/", b"b.example"),
        ("https://b.example:443/x?", b"/x", b"b.example"),
        ("http://b.example:80?y=2", b"/?y=2", b"b.example"),
        ("http://b.example:443/", b"/", b"b.example:443"),
        ("https://b.example:80/", b"/", b"b.example:80"),
    ],
)
def test_a_request_names_no_default_port_and_always_a_path(url: str, target: bytes, host: bytes) -> None:
    sent = HttpExchange(OutgoingRequest(url=url, headers={}), max_bytes=10, domain="b.example").data_to_send()
    assert sent.startswith(b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n")
    assert b"\r\nAccept-Encoding: identity\r\nConnection: close\r\n" in sent


def test_a_get_with_a_body_says_its_length_and_head_without_none() -> None:
    assert exchange(body=b"abc").data_to_send().endswith(b"Content-Length: 3\r\n\r\nabc")
    assert b"Content-Length" not in exchange(method="HEAD").data_to_send()


def test_status_and_headers_are_judged_before_the_body_and_may_be_refused() -> None:
    seen: list[tuple[int, dict[str, str]]] = []

    def check(status: int, headers: Mapping[str, str]) -> None:
        seen.append((status, dict(headers)))
        raise PeerError(Code.POLICY, "no")

    request = OutgoingRequest(url="https://b.example", headers={})
    ours = HttpExchange(request, max_bytes=10, domain="b.example", check_head=check)
    assert ours.receive(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 OK\r\nX-A: 1\r\n") is None
    assert seen == []
    with pytest.raises(PeerError, check=lambda error: error.code is Code.POLICY):
        ours.receive(b"Content-Length: 3\r\n\r\nabc")
    assert seen == [(201, {"x-a": "1", "content-length": "3"})]
    assert ours.body_bytes == 0


def test_cookies_and_what_concerns_only_the_line_are_forgotten() -> None:
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nConnection: close\r\nKeep-Alive: timeout=5\r\nX-A: 1\r\n"
    answer = exchange().receive(head + b"Content-Length: 0\r\n\r\n")
    assert answer is not None
    assert answer.headers == {"x-a": "1", "content-length": "0"}


@pytest.mark.parametrize(("coding", "is_taken"), [("identity", True), ("Identity", True), ("gzip", False), ("", False)])
def test_a_content_coding_that_was_not_asked_for_is_refused(coding: str, is_taken: bool) -> None:
    answer = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: 2\r\n\r\nab".encode()
    assert outcome([answer]) == ("answer" if is_taken else "bad-reply")


@pytest.mark.parametrize(
    "pieces",
    [
        [b""],
        [b"HTTP/1.1 200 OK\r\n", b""],
        [b"HTTP/1.1 100 Continue\r\n\r\n", b""],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab", b""],
    ],
)
def test_an_answer_that_ends_too_early_is_none(pieces: list[bytes]) -> None:
    assert outcome(pieces) == "bad-reply"


def test_how_much_of_the_body_has_come_is_known() -> None:
    ours = exchange()
    assert ours.receive(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab") is None
    assert ours.body_bytes == 2
    assert ours.receive(b"cd") is None
    assert ours.body_bytes == 4


def test_a_body_of_many_small_pieces_is_bounded() -> None:
    ours = exchange(max_bytes=10)
    assert ours.receive(b"HTTP/1.1 200 OK\r\n\r\n") is None
    for _ in range(5):
        assert ours.receive(b"ab") is None
    with pytest.raises(PeerError, check=lambda error: error.code is Code.DOCUMENT_TOO_LARGE):
        ours.receive(b"a")


def test_what_is_no_body_is_bounded_as_well() -> None:
    """Words behind the sizes of chunks: 64 KiB beside the body, and not a byte more."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"1;" + b"x" * 1018 + b"\r\nx\r\n"
    assert len(chunk) == 1025
    ours = exchange(max_bytes=1000)
    left = (64 << 10) + 1000 - len(head)
    assert ours.receive(head) is None
    while left >= len(chunk):
        assert ours.receive(chunk) is None
        left -= len(chunk)
    assert ours.receive(chunk[:left]) is None
    with pytest.raises(PeerError, check=lambda error: error.code is Code.DOCUMENT_TOO_LARGE):
        ours.receive(chunk[left : left + 1])


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
