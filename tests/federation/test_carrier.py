"""Refusals of one message, as stubs and nodes write them."""

from __future__ import annotations

import pytest

from federation.core.carrier import Carrier, read_refusal
from federation.core.carrier_order import CarrierOrder
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


def test_of_carriers_that_are_up_the_first_takes_messages_unless_it_is_held_or_followed() -> None:
    order, first, second = CarrierOrder(), Line(), Line()
    assert not order.may_take(first)
    assert not order.designate(first, second)
    order += [first, second]
    assert [order.may_take(first), order.may_take(second)] == [True, False]
    order.are_held = True
    assert not order.may_take(first)
    order.are_held = False
    assert [order.designate(second, first), order.designate(first, Line())] == [False, False]
    assert (order.successor, order.promote(), order) == (None, None, [first, second])
    assert order.designate(first, second)
    assert not order.may_take(first)
    assert order.lose(second) is False
    assert (order.successor, order.may_take(first)) == (None, True)
    order.append(second)
    order.append(third := Line())
    assert order.designate(first, third)
    assert order.lose(first) is True
    assert (order.successor, order) == (None, [third, second])
    assert order.lose(third) is True
    assert order.may_take(second)
