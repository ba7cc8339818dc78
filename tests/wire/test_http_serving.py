"""The serving side of a connection as bytes: requests come out whole, in order and within their bounds."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.errors import Code, PeerError
from protofly.limits import HTTP_HEADERS
from wire.core.http_serving import HttpRequest, HttpServing

POST = b"POST /messages?x=1 HTTP/1.1\r\nHost: a.example\r\nX-A: 1\r\nContent-Length: 5\r\n\r\nhello"
GET = b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n"
HEAD = GET.replace(b"GET", b"HEAD")
OK = b"HTTP/1.1 200 OK\r\n"


def serving(data: bytes = b"", *, max_bytes: int = 100) -> HttpServing:
    served = HttpServing(max_bytes=max_bytes, check_head=lambda _: None)
    if data:
        served.receive(data)
    return served


def answered(served: HttpServing, *, is_last: bool = False) -> bytes:
    served.answer(200, {"X-B": "2"}, b"reply", is_last=is_last)
    return served.data_to_send()


def headers(count: int) -> bytes:
    return b"".join(b"X-%d: 1\r\n" % number for number in range(count))


@given(st.lists(st.integers(0, len(POST)), max_size=6))
def test_a_request_may_come_in_any_pieces(cuts: list[int]) -> None:
    served = serving()
    found = []
    for start, end in pairwise([0, *sorted(cuts), len(POST)]):
        if end > start:
            served.receive(POST[start:end])
            found.append(served.next_request())
    fields = {"host": "a.example", "x-a": "1", "content-length": "5"}
    assert found[-1] == HttpRequest("POST", "/messages?x=1", fields, b"hello")
    assert found[:-1] == [None] * (len(found) - 1)
    assert served.data_to_send() == b""


def test_a_header_that_is_given_twice_is_left_out() -> None:
    request = serving(GET.replace(b"\r\n\r\n", b"\r\nX-A: 1\r\nx-a: 1\r\nX-B: 2\r\n\r\n")).next_request()
    assert request is not None
    assert request.headers == {"host": "a.example", "x-b": "2"}


def test_requests_on_one_line_are_answered_one_after_the_other() -> None:
    served = serving(POST + GET + POST)
    for method, body in (("POST", b"hello"), ("GET", b""), ("POST", b"hello")):
        request = served.next_request()
        assert request is not None
        assert (request.method, request.body) == (method, body)
        assert not served.is_answered
        assert served.next_request() is None
        assert answered(served) == OK + b"X-B: 2\r\nContent-Length: 5\r\n\r\nreply"
        assert served.data_to_send() == b""
        assert (served.is_over, served.is_answered) == (False, True)
    assert served.next_request() is None


def test_the_last_answer_says_so_and_nothing_comes_behind_it() -> None:
    served = serving(GET + GET)
    assert served.next_request() is not None
    assert b"\r\nConnection: close\r\n" in answered(served, is_last=True)
    assert (served.is_over, served.is_answered) == (True, True)
    assert answered(served) == b""


def test_an_answer_to_head_has_length_and_no_body_and_the_next_one_has_its_body() -> None:
    served = serving(HEAD + GET)
    assert served.next_request() is not None
    assert answered(served) == OK + b"X-B: 2\r\nContent-Length: 5\r\n\r\n"
    assert served.next_request() is not None
    assert answered(served).endswith(b"\r\n\r\nreply")


def test_a_refused_request_after_head_has_a_body_in_its_answer() -> None:
    served = serving(HEAD)
    assert served.next_request() is not None
    answered(served)
    served.receive(b"nonsense\r\n\r\n")
    with pytest.raises(PeerError):
        served.next_request()
    assert answered(served).endswith(b"\r\n\r\nreply")


@pytest.mark.parametrize(
    ("status", "line"), [(403, b"403 Forbidden"), (405, b"405 Method Not Allowed"), (599, b"599 ")]
)
def test_an_answer_without_body_has_length_0(status: int, line: bytes) -> None:
    served = serving(GET)
    assert served.next_request() is not None
    served.answer(status, {}, b"")
    assert served.data_to_send() == b"HTTP/1.1 " + line + b"\r\nContent-Length: 0\r\n\r\n"


def test_a_client_that_waits_for_the_go_ahead_gets_it() -> None:
    served = serving(POST.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n").removesuffix(b"hello"))
    assert served.next_request() is None
    assert served.data_to_send() == b"HTTP/1.1 100 Continue\r\n\r\n"
    served.receive(b"hello")
    request = served.next_request()
    assert request is not None
    assert request.body == b"hello"
    assert served.data_to_send() == b""


def test_a_head_is_judged_before_its_body_comes_and_a_refusal_ends_the_line() -> None:
    seen: list[HttpRequest] = []

    def check(head: HttpRequest) -> None:
        seen.append(head)
        raise PeerError(Code.POLICY, "no")

    served = HttpServing(max_bytes=100, check_head=check)
    served.receive(POST.removesuffix(b"lo"))
    with pytest.raises(PeerError, match="no"):
        served.next_request()
    assert [(head.method, head.target, head.body) for head in seen] == [("POST", "/messages?x=1", b"")]
    served.answer(403, {}, b"no")
    assert served.data_to_send() == b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno"
    assert served.is_over


@pytest.mark.parametrize("size", [0, 99, 100])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_up_to_the_limit_is_taken(size: int, is_chunked: bool) -> None:
    request = serving(post_of(size, is_chunked)).next_request()
    assert request is not None
    assert request.body == b"x" * size


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_beyond_the_limit_is_refused_before_it_is_whole(is_chunked: bool) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.TOO_LARGE):
        serving(post_of(1000, is_chunked)[:-890]).next_request()


def test_bodies_of_several_requests_do_not_add_up() -> None:
    served = serving(post_of(60, is_chunked=False) * 3)
    for _ in range(3):
        request = served.next_request()
        assert request is not None
        assert len(request.body) == 60
        answered(served)


def post_of(size: int, is_chunked: bool) -> bytes:
    head = b"POST / HTTP/1.1\r\nHost: a.example\r\n"
    if not is_chunked:
        return head + b"Content-Length: %d\r\n\r\n" % size + b"x" * size
    chunks = b"".join(b"1\r\nx\r\n" for _ in range(size))
    return head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


def test_a_head_has_a_bounded_number_of_fields() -> None:
    most = GET.replace(b"\r\n\r\n", b"\r\n" + headers(HTTP_HEADERS - 1) + b"\r\n")
    assert serving(most).next_request() is not None
    with pytest.raises(PeerError, check=lambda error: error.code is Code.TOO_LARGE):
        serving(most.replace(b"\r\n\r\n", b"\r\nOne: more\r\n\r\n")).next_request()


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=4), st.booleans())
def test_any_bytes_give_requests_or_one_error_that_can_be_answered(pieces: list[bytes], has_start: bool) -> None:
    served = serving()
    for piece in [b"POST / HTTP/1.1\r\n"] * has_start + pieces + [b""]:
        served.receive(piece)
        code = None
        try:
            while served.next_request() is not None:
                answered(served)
        except PeerError as error:
            code = error.code
        if code is not None:
            assert code in {Code.PROTOCOL_ERROR, Code.TOO_LARGE}
            assert b"Connection: close" in answered(served)
            assert served.is_over
            return
