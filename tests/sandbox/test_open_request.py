"""What a stub may write into an `open` action, each member at its bound."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protofly.errors import Code, StubFaultError
from sandbox.core.exchange import ChannelKind
from sandbox.core.open_request import OpenRequest, check_open, decode_open

WEBSOCKET, TCP, HTTP = ChannelKind.WEBSOCKET, ChannelKind.TCP_TLS, ChannelKind.HTTP


def fault_of(raw: bytes) -> Code:
    with pytest.raises(StubFaultError) as caught:
        decode_open(raw)
    return caught.value.code


def is_refused(kind: int = WEBSOCKET, **members: Any) -> bool:
    request = decode_open(msgspec.json.encode({"endpoint": "mn", **members}))
    try:
        check_open(request, kind)
    except StubFaultError as fault:
        return (fault.code, fault.fault) == (Code.STUB_DENIED, "connect")
    return False


@pytest.mark.parametrize("kind", [WEBSOCKET, TCP, HTTP])
def test_an_endpoint_alone_will_do_for_every_kind(kind: ChannelKind) -> None:
    assert not is_refused(kind)
    assert decode_open(b'{"endpoint":"mn"}') == OpenRequest(endpoint="mn")


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"\xff", b'{"endpoint":"\xff"}', b"[" * 5000, b'{"endpoint":"a","host":"b"}']
)
def test_what_cannot_be_read_is_a_fault_of_the_stub(raw: bytes) -> None:
    assert fault_of(raw) is Code.STUB_OUTPUT


@given(raw=st.binary(max_size=200))
def test_any_bytes_are_a_request_or_a_fault(raw: bytes) -> None:
    with contextlib.suppress(StubFaultError):
        decode_open(raw)


@pytest.mark.parametrize("kind", [0, 4, 255])
def test_unknown_kinds_are_refused(kind: int) -> None:
    assert is_refused(kind)


def test_sixteen_headers_are_read_and_seventeen_are_not() -> None:
    headers = {f"X-{number}": "v" for number in range(17)}
    assert fault_of(msgspec.json.encode({"endpoint": "mn", "headers": headers})) is Code.STUB_OUTPUT
    del headers["X-0"]
    assert not is_refused(headers=headers)


@pytest.mark.parametrize("member", ["subprotocol", "token"])
def test_words_have_at_most_64_characters_of_their_alphabet(member: str) -> None:
    for text in ("a" * 65, "a b", "a\n", "ä", "a/b"):
        assert fault_of(msgspec.json.encode({"endpoint": "mn", member: text})) is Code.STUB_OUTPUT
    assert not is_refused(HTTP, **{member: "a" * 64})


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("", False),
        ("/" + "a" * 512, False),
        ("/" + "a" * 513, True),
        ("/?" + "a" * 512, False),
        ("/?" + "a" * 513, True),
        ("a", True),
        ("/a b", True),
        ("/a#b", True),
        ("/a\r\nX: y", True),
        ("//evil.example/\n", True),
    ],
)
def test_a_path_is_bounded_and_cannot_end_the_line(path: str, refused: bool) -> None:
    assert is_refused(path=path) is refused


@pytest.mark.parametrize("member", [{"method": "GET"}, {"body": "x"}, {"token": "service"}])
def test_what_belongs_to_http_is_refused_elsewhere(member: dict[str, str]) -> None:
    assert not is_refused(HTTP, **member)
    assert is_refused(WEBSOCKET, **member)
    assert is_refused(TCP, **member)


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "CONNECTION", "upgrade", "Origin", "Cookie", "Authorization", "Transfer-Encoding", "Content-Length"),
        *("Proxy-Authorization", "Accept-Encoding", "Expect", "Keep-Alive", "TE", "Trailer", "User-Agent"),
        *("Sec-WebSocket-Key", "sec-x", "", "a b", "a:", "ä", "a" * 65),
    ],
)
def test_headers_of_the_host_and_names_that_are_none_are_refused(name: str) -> None:
    assert is_refused(headers={name: "v"})
    assert is_refused(headers={"X-Good": "v", name: "v"})


@pytest.mark.parametrize("name", ["X-Room", "Accept", "second", "a" * 64])
def test_other_headers_pass_with_printable_values(name: str) -> None:
    for value in ("", "v", "a b", "x" * 1024):
        assert not is_refused(headers={name: value})
    for value in (" v", "v ", "a\tb", "a\r\nb", "ä", "x" * 1025):
        assert is_refused(headers={name: value})
