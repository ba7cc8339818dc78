"""Refusals of one message, as stubs and nodes write them."""

from __future__ import annotations

import pytest

from federation.core.carrier import Carrier, read_refusal
from protofly.errors import Code


@pytest.mark.parametrize(
    ("text", "code", "detail"),
    [
        (b"404 no-route nobody there", Code.NO_ROUTE, "nobody there"),
        (b"404 no-route", Code.NO_ROUTE, ""),
        (b"406 too-loud please whisper", Code.STUB_REFUSED, "406 too-loud please whisper"),
        (b"no", Code.STUB_REFUSED, "no"),
        (b"", Code.STUB_REFUSED, ""),
        (b"\xff\xfe", Code.STUB_REFUSED, "\ufffd\ufffd"),
        (b"404 no-route " + b"x" * 600, Code.NO_ROUTE, "x" * 499),
    ],
)
def test_a_refusal_is_a_code_of_ours_or_said_in_full(text: bytes, code: Code, detail: str) -> None:
    refused = read_refusal(7, text)
    assert (refused.number, refused.code, refused.detail) == (7, code, detail)


class Line(Carrier):
    """A carrier that only counts its ends."""

    channel = "stub"

    def __init__(self) -> None:
        self.ends = 0

    def end(self) -> None:
        self.ends += 1

    def cut_off(self, code: Code) -> None:  # noqa: ARG002
        raise AssertionError("nobody cuts it off")

    def pump(self) -> None:
        raise AssertionError("nothing waits")


def test_a_carrier_that_says_no_more_was_never_heard_cannot_be_asked_and_drains_by_its_end() -> None:
    line = Line()
    assert (line.heard_seconds, line.probe(), line.origin, line.direction) == (0.0, False, "", "out")
    line.drain()
    assert line.ends == 1
    line.channel = "peer"
    assert line.direction == "in"
