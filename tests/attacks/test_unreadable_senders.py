"""A partner whose messages are from nobody that has an address: their refusals cannot be answered, and end nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest

from federation.core.carrier import Refused
from federation.links.domain_link import DomainLink
from federation.links.router import _tick
from protofly.errors import Code, MisuseError
from protofly.limits import WAITING_SECONDS
from tests.support.sides import Bus, Pair, decoded, inbound, request

UNREADABLE = [
    "hyperty://a.example\x00/ana",
    "hyperty://\uff41.example/ana",
    "hyperty://[a.example/ana",
    "hyperty://a.example:99999/ana",
    "hyperty://a.example../ana",
    "1:x",
    "a\nb",
]
TYPES = ["create", "read", "subscribe", "forward", "x"]
STREAM = "5" * 32


def requests() -> list[bytes]:
    """A request of each type from each of them."""
    header = {"to": "hyperty://b.example/bo", "body": {"value": 1}}
    return [
        json.dumps({"id": number, "type": type_, "from": name, **header}).encode()
        for number, (name, type_) in enumerate([(name, type_) for name in UNREADABLE for type_ in TYPES])
    ]


def give_up(link: DomainLink) -> None:
    link.give_up(Code.CIRCUIT_OPEN, "")


def wait_too_long(link: DomainLink) -> None:
    link.tick(link.now() + 2 * WAITING_SECONDS)


def refuse_all(link: DomainLink) -> None:
    for number in range(1, link.queue.next_number):
        link.handle(Refused(number, Code.BAD_HEADER, ""))


@pytest.mark.parametrize("is_carried", [True, False], ids=["while its line is up", "after its line is down"])
@pytest.mark.parametrize("end", [give_up, wait_too_long, refuse_all])
def test_what_is_from_no_address_is_not_answered_and_the_link_goes_on(
    end: Callable[[DomainLink], None], *, is_carried: bool
) -> None:
    pair = Pair(b=Bus("b.example"))
    back = pair.back()
    back.open()
    link = pair.to_a
    link.inbound(inbound(*requests()), STREAM)
    link.flush()
    assert back.on_the_way == []
    assert pair.b.delivered == []
    assert len(pair.b.message_records) == len(requests())
    if not is_carried:
        back.cut()
    link.send(request(1, from_="b.example", to="a.example"))
    end(link)
    again = pair.back()
    again.open()
    link.send(request(2, from_="b.example", to="a.example"))
    link.flush()
    assert [decoded(one.wire).id for one in again.on_the_way + back.on_the_way][-1] == b"2"


async def test_a_defect_while_one_link_is_looked_at_costs_no_other_link(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Pair().to_b, Pair().to_b
    looked_at: list[float] = []

    def fail(_now: float) -> bool:
        raise MisuseError("a defect")

    def look(now: float) -> bool:
        looked_at.append(now)
        return False

    monkeypatch.setattr(first, "tick", fail)
    monkeypatch.setattr(second, "tick", look)
    with caplog.at_level(logging.ERROR):
        await _tick([first, second], lambda: 7.0)
    assert looked_at == [7.0]
    assert [one.levelname for one in caplog.records] == ["ERROR"]
