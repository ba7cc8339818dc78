"""A parked request in each of its forms: submitted, handed over, stored, and back after a restart."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from msg_node.kernel.changes import Journal
from msg_node.requests.core.delivery_messages import QUEUED, waiting_report
from msg_node.requests.core.delivery_status import EXPIRED, Status, StatusReport
from msg_node.requests.core.parked import ParkedRequest, ParkedRow, Sender, Submission, from_row, row_of, value_of
from msg_node.requests.core.parking import Bounds, Parking
from msg_node.requests.core.request_queues import RequestQueues
from protofly import codec
from protofly.message import Message

FROM, AGENT = "hyperty://a.example/ana", "thing://a.example/agent"
ANA = Sender("runtime://a.example/ana", "credential", "")


def request(id_: int | str | None = 1) -> Message:
    return codec.build(id=id_, type="execute", from_=FROM, to=f"{AGENT}/lamp/actions/on", body={"class": "action"})


def parked(id_: int | str | None = 1, *, wire_id: bytes = b"1", number: int = 7, queue: str = AGENT) -> ParkedRequest:
    message = request(id_)
    transaction = (message.from_key, wire_id, message.to_key)
    return ParkedRequest(
        number, f"d-{number}", queue, message, ANA, 1.0, 60.0, transaction, roles=frozenset({"x", "y"})
    )


# Submitted.


@pytest.mark.parametrize(
    ("id_", "first_id", "second_id"), [(1, b"1", b'"d-2"'), ("one", b'"one"', b'"d-2"'), (None, b'"d-1"', b'"d-2"')]
)
def test_a_request_is_handed_over_under_its_own_id_unless_it_has_none_or_an_open_one_has_it(
    id_: int | str | None, first_id: bytes, second_id: bytes
) -> None:
    parking = Parking(Journal(), Bounds())
    entries = [parking.submit(Submission(request(id_), AGENT, ANA, f"d-{one}", 60.0), 0.0) for one in (1, 2)]
    assert [one.wire_id for one in entries] == [first_id, second_id]
    assert [one.has_own_id for one in entries] == [id_ is not None, False]
    assert set(parking.transactions) == {
        (FROM, wire_id, f"{AGENT}/lamp/actions/on") for wire_id in (first_id, second_id)
    }


@pytest.mark.parametrize(
    ("is_invitation", "status", "code", "description"),
    [
        (False, Status.PENDING, 202, QUEUED),
        (False, Status.DELIVERED, 202, ""),
        (True, Status.PENDING, 100, ""),
        (True, Status.DELIVERED, 100, ""),
    ],
)
def test_who_waits_hears_of_acceptance_and_who_invites_only_that_it_goes_on(
    is_invitation: bool, status: Status, code: int, description: str
) -> None:
    report = waiting_report(replace(parked(), is_invitation=is_invitation, status=status))
    assert (report.status, report.code, report.reason or report.description) == (status, code, description)


def test_requests_are_numbered_in_order_of_arrival_without_a_gap() -> None:
    parking = Parking(Journal(), Bounds())
    entries = [parking.submit(Submission(request(one), AGENT, ANA, f"d-{one}", 60.0), 0.0) for one in range(3)]
    assert [one.number for one in entries] == [1, 2, 3]


# Handed over.


def queues_with(*entries: ParkedRequest) -> RequestQueues:
    queues = RequestQueues()
    for entry in entries:
        queues.add(entry)
    return queues


def test_when_a_taker_is_lost_nobody_has_its_queues_and_what_it_acknowledged_stands_aside() -> None:
    first, second, other = parked(number=1), parked(number=2), parked(number=3, queue="b.example")
    queues = queues_with(first, second, other)
    assert queues.take(AGENT, 5, unanswered=2) == [first, second]
    assert queues.take("b.example", 5, unanswered=2) == [other]
    first.is_acknowledged = True
    assert queues.lost(5) == ["b.example", AGENT]
    assert [queues.taker_of(one) for one in (AGENT, "b.example")] == [0, 0]
    assert (queues.waiting(AGENT), queues.first(AGENT), second.status) == (1, second, Status.PENDING)
    assert queues.entries(AGENT) == [first, second]
    assert queues.lost(5) == []


def test_of_a_queue_that_there_is_not_nothing_waits() -> None:
    queues = queues_with(parked())
    assert (queues.waiting("b.example"), queues.count("b.example"), queues.entries("b.example")) == (0, 0, [])
    assert (queues.first("b.example"), queues.taker_of("b.example")) == (None, 0)


def test_what_was_acknowledged_before_a_restart_is_not_handed_over_again() -> None:
    kept, waiting = replace(parked(number=1), is_acknowledged=True), parked(number=2)
    queues = queues_with(kept, waiting)
    assert (queues.waiting(AGENT), queues.count(AGENT)) == (1, 2)
    assert queues.take(AGENT, 5, unanswered=9) == [waiting]


@pytest.mark.parametrize("only_kept", [True, False])
def test_what_another_node_has_waits_again_once_and_is_not_acknowledged(only_kept: bool) -> None:
    kept, handed, waiting = (parked(number=number) for number in (1, 2, 3))
    queues = queues_with(kept, handed, waiting)
    queues.take(AGENT, 5, unanswered=2)
    queues.release(kept)
    kept.is_acknowledged = True
    queues.ask_again(AGENT, only_kept=only_kept)
    again = [kept] if only_kept else [kept, handed]
    assert queues.waiting(AGENT) == 1 + len(again)
    assert queues.count(AGENT) == 3, "each stands in one place"
    assert [(one.is_acknowledged, one.status) for one in again] == [(False, Status.PENDING)] * len(again)
    assert queues.take(AGENT, 5, unanswered=9) == [*again, waiting]
    assert queues.entries(AGENT) == [kept, handed, waiting]


# Stored.


@pytest.mark.parametrize("is_acknowledged", [True, False])
@pytest.mark.parametrize(
    ("id_", "wire_id"), [(1, b"1"), ("one", b'"one"'), (1, b'"d-7"'), (None, b'"d-7"'), ("d-7", b'"d-7"')]
)
def test_a_request_comes_back_from_its_row_as_it_was(
    id_: int | str | None, wire_id: bytes, is_acknowledged: bool
) -> None:
    entry = replace(
        parked(id_, wire_id=wire_id), is_acknowledged=is_acknowledged, is_cancelling=True, is_invitation=True
    )
    row = msgspec.json.decode(msgspec.json.encode(row_of(entry)), type=type(row_of(entry)))
    again = from_row(row, entry.expires_at)
    names = set(ParkedRequest.__slots__) - {"request", "is_stored"}
    assert {name: getattr(again, name) for name in names} == {name: getattr(entry, name) for name in names}
    assert (again.request.raw, again.transaction, again.is_stored) == (entry.request.raw, entry.transaction, True)


def test_the_row_of_a_request_that_waits_has_what_it_needs_alone_and_is_read_as_one_that_waits() -> None:
    """Rows are read by later versions: what a row leaves out means what it meant when it was written."""
    needed = {"number", "request_id", "queue", "message", "runtime_key", "accepted_at", "expires_at", "value"}
    raw = msgspec.json.encode(row_of(replace(parked(), roles=frozenset(), sender=Sender("runtime://a.example/ana"))))
    assert set(msgspec.json.decode(raw)) == needed

    row = msgspec.json.decode(raw, type=ParkedRow)
    assert (row.status, row.is_acknowledged, row.is_cancelling) == (Status.PENDING, False, False)
    assert (row.is_invitation, row.is_given, row.code, value_of(row)) == (False, False, 0, b"")


@pytest.mark.parametrize("value", [b"", b'{"on":true}'])
def test_the_value_of_a_final_answer_comes_back_from_its_row(value: bytes) -> None:
    row = msgspec.json.encode(row_of(parked(), StatusReport(Status.COMPLETED, 200, value=value)))
    assert value_of(msgspec.json.decode(row, type=ParkedRow)) == value


def test_a_request_belongs_to_no_session_after_a_restart_or_if_it_came_from_none() -> None:
    submission = Submission(request(), AGENT, ANA, "d-1", 60.0)
    assert from_row(row_of(replace(parked(), asker=5)), 60.0).asker == 0
    assert Parking(Journal()).submit(submission, 0.0).asker == 0


def test_what_was_delivered_and_not_acknowledged_waits_again_after_a_restart() -> None:
    assert row_of(replace(parked(), status=Status.DELIVERED)).status is Status.PENDING
    assert row_of(replace(parked(), status=Status.DELIVERED, is_acknowledged=True)).status is Status.DELIVERED


@pytest.mark.parametrize(
    ("word", "is_open"), [(None, True), (EXPIRED, False), (StatusReport(Status.PENDING, 202), False)]
)
def test_after_a_restart_a_request_is_open_unless_it_ended_or_another_node_has_it(
    word: StatusReport | None, is_open: bool
) -> None:
    entry = parked()
    parking = Parking(Journal(), Bounds())
    parking.restore({"7": msgspec.json.encode(row_of(entry, word))}, now=10.0)
    assert (len(parking), len(list(parking.finished)), parking.next_number) == (int(is_open), int(not is_open), 8)
    assert parking.queues.count(AGENT) == int(is_open)


def test_the_row_of_what_ended_has_the_header_of_its_message_alone() -> None:
    row = row_of(parked(), EXPIRED)
    assert codec.decode(bytes(row.message))[0].body == b""
    assert (row.status, row.code, row.is_given) == (EXPIRED.status, EXPIRED.code, False)
    assert row_of(parked(), StatusReport(Status.PENDING, 202)).is_given
