"""Heads that HTTP readers read in different ways are refused, each for its own reason."""

from __future__ import annotations

import h11
import pytest

from wire.core.strict_http import StrictConnection

GET = b"GET / HTTP/1.1\r\nHost: a.example\r\n"


def refusal_of(raw: bytes) -> str:
    """What is said of a request; "" when it is read."""
    connection = StrictConnection(h11.SERVER)
    connection.receive_data(raw)
    try:
        while type(connection.next_event()) not in (h11.EndOfMessage, h11.NEED_DATA):
            pass
    except h11.RemoteProtocolError as exc:
        return str(exc)
    return ""


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (GET + b"\r\n", ""),
        (GET + b"X: a\rb\r\n\r\n", "CR LF"),
        (GET + b"X: a\nY: b\r\n\r\n", "CR LF"),
        (GET + b"X: a\r\n b\r\n\r\n", "folded"),
        (GET + b"X: a\r\n\tb\r\n\r\n", "folded"),
        (GET + b"Content-Length: 1\r\n\r\na", ""),
        (GET + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na", "more than one"),
        (GET + b"Content-Length: 1, 1\r\n\r\na", "no number"),
        (GET + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", "together with"),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", ""),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n1", ""),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: a\rb\r\n\r\n", "CR LF"),
        (b"GET / HTTP/1.2\r\nHost: a.example\r\n\r\n", "neither"),
        (b"GET / HTTP/1.0\r\n\r\n", ""),
        (b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "in HTTP/1.0"),
    ],
)
def test_a_head_is_refused_for_what_could_be_read_in_two_ways(raw: bytes, words: str) -> None:
    said = refusal_of(raw)
    assert words in said
    assert bool(said) is bool(words)
