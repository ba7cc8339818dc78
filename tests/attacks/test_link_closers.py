"""A runtime that tries to have the other domain close the link for everybody: its own node is to look like a forger.

Three forgeries close a carrier (`test_link_forgeries`), so nothing that the far end would take for one may leave.
"""

from __future__ import annotations

import pytest

from federation.core.forgeries import FORGERIES_BEFORE_CLOSE
from federation.links.link_context import Refusal
from protofly.codec import build
from protofly.errors import Code
from tests.support.sides import Pair, inbound, request

STREAM = "6" * 32
ANA, BO = "hyperty://a.example/ana", "hyperty://b.example/bo"


def live_pair() -> Pair:
    pair = Pair()
    pair.carrier().open()
    return pair


@pytest.mark.parametrize(
    "from_", ["ana", "user-guid://somebody", BO, "hyperty://c.example/x", "sip://ana@a.example", "mn:/session"]
)
def test_what_the_far_end_would_take_for_a_forgery_does_not_leave(from_: str) -> None:
    pair = live_pair()
    for number in range(FORGERIES_BEFORE_CLOSE):
        message = build(id=number, type="read", from_=from_, to=BO)
        assert pair.to_b.send(message) == Refusal(Code.SPOOFED_SOURCE)
    assert pair.to_b.queue.waiting == 0
    assert pair.to_b.send(request(9)) is None


@pytest.mark.parametrize("source", [BO, "hyperty://c.example/x", "plain"])
def test_a_source_that_the_far_end_would_refuse_does_not_leave(source: str) -> None:
    pair = live_pair()
    message = build(id=1, type="read", from_=ANA, to=BO, body={"source": source})
    assert pair.to_b.send(message) == Refusal(Code.SPOOFED_SOURCE)
    assert pair.to_b.send(build(id=2, type="read", from_=ANA, to=BO, body={"source": ANA})) is None


def test_replies_that_nobody_waits_for_are_dropped_and_do_not_close_the_link() -> None:
    pair = live_pair()
    replies = [
        build(id=number, type="response", from_=f"{ANA}/x", to=BO, body={"code": 200}).raw
        for number in range(FORGERIES_BEFORE_CLOSE + 1)
    ]
    pair.to_b.inbound(inbound(*replies), STREAM)
    assert (pair.a.delivered, pair.to_b.counters["spoofed"]) == ([], FORGERIES_BEFORE_CLOSE + 1)
    pair.to_b.inbound(inbound(build(id=1, type="read", from_=BO, to=ANA).raw, first=90), STREAM)
    assert len(pair.a.delivered) == 1
