"""Replies after the final answer: one link's view, and the requests that may have several replies."""

from __future__ import annotations

import time

import pytest

from federation.core import transactions
from federation.core.carrier import CarrierUp, Refused
from federation.core.transactions import SHARED_SECONDS, Transactions
from federation.links.domain_link import DomainLink
from protofly import codec
from protofly.codec import build
from protofly.errors import Code
from protofly.limits import REQUEST_TTL_SECONDS
from protofly.message import Message
from tests.support.sides import Bus, Clock, MemoryCarrier, body_of, inbound, request

STREAM = "5" * 32
ANA, BO = "hyperty://a.example/ana", "hyperty://b.example/bo"


def old_bus() -> Bus:
    """A node that has been running for an hour: no request is of the process before it."""
    return Bus("a.example", clock=Clock(time.monotonic() - 3_600.0))


def live_link(bus: Bus) -> DomainLink:
    link = bus.link_to("b.example")
    link.handle(CarrierUp(MemoryCarrier(link), "runtime://b.example/mn-1"))
    return link


def reply(id_: int = 1, code: int | str = 200, *, from_: str = BO, **body: object) -> bytes:
    return build(id=id_, type="response", from_=from_, to=ANA, body={"code": code, **body}).raw


class Far:
    """The far end of a link, which says what it likes."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.link = live_link(bus)
        self._next = 1

    def says(self, *raws: bytes) -> list[tuple[object, bool]]:
        """Code and lateness of each reply that the bus was given."""
        before = len(self.bus.delivered)
        self.link.inbound(inbound(*raws, first=self._next), STREAM)
        self._next += len(raws)
        new = self.bus.delivered[before:]
        for one in new:
            assert (body_of(one).get("late") is True) == one.is_late
        return [(body_of(one)["code"], one.is_late) for one in new]

    def stays_silent(self, seconds: float = REQUEST_TTL_SECONDS + 1) -> None:
        self.link.tick(time.monotonic() + seconds)


def test_a_reply_after_our_own_504_is_marked_late_and_counted() -> None:
    bus = old_bus()
    far = Far(bus)
    far.link.send(request(1))
    far.stays_silent()
    assert bus.answer_codes == [Code.GATEWAY_TIMEOUT]
    assert far.says(reply(code=100), reply(), reply()) == [(100, True), (200, True), (200, True)]
    assert (far.link.counters["late replies"], len(bus.answers)) == (3, 1)


def test_of_many_requests_in_a_stall_each_has_one_answer_that_is_not_late() -> None:
    bus = old_bus()
    far = Far(bus)
    for number in range(433):
        far.link.send(request(number))
    far.says(*(reply(number) for number in range(0, 433, 2)))
    while far.link.tick(time.monotonic() + REQUEST_TTL_SECONDS + 1):
        pass
    far.says(*(reply(number) for number in range(433)))
    final = [int(one.id or b"") for one in [*bus.delivered, *bus.answers] if not one.is_late]
    assert sorted(final) == list(range(433))
    assert far.link.counters["late replies"] == 433


@pytest.mark.parametrize("code", [200, "200", "2XX", 404, "error"])
def test_a_second_final_reply_is_late(code: int | str) -> None:
    far = Far(old_bus())
    far.link.send(request(1))
    assert far.says(reply(code=code), reply(code=code)) == [(code, False), (code, True)]


def test_a_reply_to_nothing_is_late() -> None:
    far = Far(old_bus())
    raw = build(id=None, type="response", from_=BO, to=ANA, body={"code": 200}).raw
    assert far.says(reply(77), raw) == [(200, True), (200, True)]


def test_a_provisional_reply_keeps_a_request_open() -> None:
    far = Far(old_bus())
    far.link.send(request(1))
    assert far.says(reply(code=183), reply(code=100), reply()) == [(183, False), (100, False), (200, False)]


def test_an_id_used_again_has_an_answer_again() -> None:
    far = Far(old_bus())
    far.link.send(request(1))
    far.stays_silent()
    far.link.send(request(1))
    assert far.says(reply()) == [(200, False)]


@pytest.mark.parametrize("ending", ["refused", "denied"])
def test_a_reply_after_any_answer_of_ours_is_late(ending: str) -> None:
    bus = old_bus()
    far = Far(bus)
    far.link.send(request(1))
    far.link.flush()
    [pending] = far.link.queue.take_batch(9, 1 << 20, time.monotonic()) or [far.link.queue._under_way[0]]
    if ending == "refused":
        far.link.handle(Refused(pending.number, Code.NO_ROUTE, "nobody there"))
    else:
        denied = codec.decode(reply(code=100))[0]
        bus.answers += filter(None, [far.link.machine.replies.denied(denied, Code.POLICY, None, time.monotonic())])
    assert len(bus.answers) == 1
    assert far.says(reply()) == [(200, True)]


# Requests that several answer.


def test_repliers_that_name_themselves_may_all_reply_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    far = Far(old_bus())
    far.link.send(request(1))
    named = [reply(source=f"hyperty://b.example/{name}") for name in ("x", "y", "z")]
    assert far.says(*named) == [(200, False)] * 3
    assert far.says(named[0], reply()) == [(200, True), (200, True)]  # the first one again, and a nameless one
    monkeypatch.setattr(transactions, "SHARED_SECONDS", -1.0)
    far.link.send(request(2))
    assert far.says(reply(2, extra={"source": f"{BO}/1"}), reply(2, extra={"source": f"{BO}/2"})) == [
        (200, False),
        (200, True),
    ]


def test_after_our_own_504_no_name_helps() -> None:
    far = Far(old_bus())
    far.link.send(request(1))
    far.stays_silent()
    assert far.says(reply(source="hyperty://b.example/x"), reply(source="hyperty://b.example/y")) == [(200, True)] * 2


def test_all_hyperties_of_a_user_may_reply() -> None:
    far = Far(old_bus())
    user = "user://b.example/bo"
    far.link.send(build(id=1, type="read", from_=ANA, to=user))
    assert far.says(*[reply(from_=user)] * 3) == [(200, False)] * 3
    far.link.send(build(id=2, type="read", from_=ANA, to=user))
    far.stays_silent()
    assert far.says(reply(2, from_=user)) == [(200, True)]


@pytest.mark.parametrize(("type_", "suffix"), [("create", "children/messages/"), ("delete", "changes")])
def test_observers_may_all_acknowledge_and_are_never_late(type_: str, suffix: str) -> None:
    far = Far(old_bus())
    to = f"comm://b.example/room/{suffix}"
    far.link.send(build(id=1, type=type_, from_=ANA, to=to))
    far.stays_silent(3_600.0)
    assert far.says(*[reply(from_=to)] * 3) == [(200, False)] * 3


def test_a_request_to_a_child_that_was_answered_504_has_a_late_reply() -> None:
    far = Far(old_bus())
    child = "comm://b.example/room/children/messages/1"
    far.link.send(build(id=1, type="read", from_=ANA, to=child))
    far.stays_silent()
    assert far.says(reply(from_=child)) == [(200, True)]


# The first seconds of a process.


def test_a_reply_to_a_request_of_the_process_before_is_not_late() -> None:
    far = Far(Bus("a.example"))
    assert far.says(reply(77)) == [(200, False)]
    far.link.send(request(1, ttl=1))
    far.stays_silent(2.0)
    assert far.says(reply()) == [(200, True)]  # but what this process has answered is


# Bounds.


def a_request(number: int) -> Message:
    return build(id=number, type="read", from_=ANA, to=BO)


def test_requests_beyond_the_bound_are_answered_and_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MAX_OPEN", 3)
    open_ = Transactions()
    for number in range(5):
        open_.started(a_request(number), 0.0, 15.0)
    assert [one.id for one in open_.expired(0.0)] == [b"0", b"1"]
    assert open_.expired(0.0) == []
    assert open_.is_late(codec.response(a_request(0), 200), 0.0)
    assert len(open_.expired(15.0)) == 3


@pytest.mark.parametrize(("table", "bound"), [("_shared", "MAX_SHARED"), ("_ended", "MAX_ENDED")])
def test_what_is_remembered_of_ended_requests_is_bounded(
    monkeypatch: pytest.MonkeyPatch, table: str, bound: str
) -> None:
    monkeypatch.setattr(transactions, bound, 10)
    open_ = Transactions(doubt_until=100.0)
    for number in range(50):
        open_.started(a_request(number), 0.0, 15.0)
        answer = codec.response(a_request(number), 200, extra={"source": f"{BO}/{number}"})
        assert open_.replied(answer, 1.0)
    assert len(getattr(open_, table)) == 10


def test_the_minute_of_further_replies_ends() -> None:
    open_ = Transactions()
    open_.started(a_request(1), 0.0, 15.0)
    open_.replied(codec.response(a_request(1), 200, extra={"source": f"{BO}/1"}), 1.0)
    second = codec.response(a_request(1), 200, extra={"source": f"{BO}/2"})
    assert not open_.is_late(second, SHARED_SECONDS)
    assert open_.is_late(second, SHARED_SECONDS + 1.0)
