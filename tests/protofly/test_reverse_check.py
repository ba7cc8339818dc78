"""What the reverse check takes and gives: each text within its bounds."""

from __future__ import annotations

import contextlib

import msgspec
import pytest

from protofly.limits import TOKEN_BYTES
from protofly.reverse_check import ReverseAnswer, ReverseChallenge, ReverseProof, endpoint_of

CHALLENGE = "c" * 22


@pytest.mark.parametrize(
    ("kind", "member", "shortest", "longest"),
    [
        (ReverseChallenge, "challenge", 22, 86),
        (ReverseProof, "challenge", 22, 86),
        (ReverseProof, "token", 1, TOKEN_BYTES),
        (ReverseAnswer, "code", 0, 64),
        (ReverseAnswer, "hint", 0, 512),
    ],
)
def test_a_text_is_taken_within_its_bounds_and_not_beyond(kind: type, member: str, shortest: int, longest: int) -> None:
    members = {"challenge": CHALLENGE, "token": "t", "admitted": True, "code": "ok"}
    if kind is ReverseProof:
        del members["admitted"], members["code"]
    for length in (shortest - 1, shortest, longest, longest + 1):
        is_taken = shortest <= length <= longest
        with contextlib.nullcontext() if is_taken or length < 0 else pytest.raises(msgspec.ValidationError):
            msgspec.convert({**members, member: "x" * length}, kind)


def test_the_endpoint_of_a_check_is_below_the_domain_that_is_asked() -> None:
    assert endpoint_of("b.example") == "https://b.example/.well-known/rethink-mn/reverse-check"
