"""Members that are given more than once: all their values are seen, in bounded time."""

from __future__ import annotations

import pytest

from protofly.errors import Code, PeerError
from protofly.limits import REPEATED_MEMBERS_BYTES
from protofly.repeated_members import values_of


@pytest.mark.parametrize("body", [b"", b"{}", b'{"via":"a"}', b'{"x":{"via":1},"via":2}'])
def test_nothing_is_said_of_an_object_that_gives_no_member_twice(body: bytes) -> None:
    assert values_of(body, "via") is None


def test_all_values_come_in_order_and_no_others() -> None:
    assert values_of(b'{"via":"a","x":1,"via":["b","c"],"y":{"via":"inner"}}', "via") == ["a", ["b", "c"]]
    assert values_of(b'{"x":1,"x":2}', "via") == []


@pytest.mark.parametrize(("more", "is_refused"), [(0, False), (1, True)])
def test_a_large_object_with_repeated_members_is_refused(more: int, is_refused: bool) -> None:
    frame = b'{"x":1,"x":2,"y":""}'
    body = frame[:-2] + b"y" * (REPEATED_MEMBERS_BYTES + more - len(frame)) + frame[-2:]
    assert len(body) == REPEATED_MEMBERS_BYTES + more
    if is_refused:
        with pytest.raises(PeerError, check=lambda error: error.code is Code.TOO_LARGE):
            values_of(body, "x")
    else:
        assert values_of(body, "x") == [1.0, 2.0]


def test_a_large_object_without_repeated_members_is_not_looked_at() -> None:
    assert values_of(b'{"y":"%b"}' % (b"y" * REPEATED_MEMBERS_BYTES), "y") is None


def test_what_is_no_text_cannot_be_read() -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        values_of(b'{"x":1,"x":"\xff"}', "x")
