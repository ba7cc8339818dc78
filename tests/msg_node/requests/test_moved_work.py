"""Parked requests and reports that go to another node of the domain: taken once, and never over a newer word."""

from __future__ import annotations

import msgspec
import pytest

from msg_node.kernel.changes import Journal, Table
from msg_node.requests.core.delivery_status import Status, StatusReport
from msg_node.requests.core.inbox import Inboxes, Notice
from msg_node.requests.core.moved_work import MovedWork, given_prefix
from msg_node.requests.core.parked import FinishedRequest, ParkedRequest, Sender, Submission
from msg_node.requests.core.parking import Parking
from protofly import codec

ANA, LAMP = "hyperty://a.example/ana", "thing://a.example/lamp"
NOW = 1000.0


class Node:
    """What one node keeps of reports, and its part of the moves."""

    def __init__(self, name: str) -> None:
        self.journal = Journal()
        self.inboxes = Inboxes(self.journal)
        self.parking = Parking(self.journal)
        self.work = MovedWork(name, self.journal, self.parking, self.inboxes)

    def park(self, name: str, now: float, *, domain: str = "") -> ParkedRequest:
        """Keep an action for the lamp."""
        request = codec.build(id=name, type="execute", from_=ANA, to=LAMP, body={"class": "action"})
        sender = Sender("runtime://a.example/ana", domain=domain)
        entry = self.parking.submit(Submission(request, LAMP, sender, name, 60.0), now)
        self.parking.store(entry)
        return entry

    def take(self, rows: dict[str, bytes]) -> None:
        """Take in what another node gives."""
        self.work.take_requests(rows, NOW)

    @property
    def waiting(self) -> list[str]:
        """Ids of the actions for the lamp, as they are handed over."""
        return [one.request_id for one in self.parking.queues.entries(LAMP)]

    def deposit(self, word: str, *, is_final: bool, is_notified: bool = False) -> None:
        """Keep a report about the one request."""
        notice = Notice(ANA, Sender("runtime://a.example/ana", "jwt x"), "r", LAMP, f'"{word}"'.encode(), is_final)
        entry = self.inboxes.deposit(notice, NOW)
        if is_notified:
            self.inboxes.notified(entry)

    def given(self) -> dict[str, bytes]:
        """Rows that were given away since they were asked for last."""
        return {
            change.key: msgspec.json.encode(change.row)
            for change in self.journal.take()
            if change.table in (Table.GIVEN_INBOX, Table.GIVEN_PARKED) and change.row is not None
        }


@pytest.mark.parametrize(
    ("here", "given_is_final", "is_taken"),
    [(None, False, True), (None, True, True), (False, False, False), (False, True, True), (True, False, False),
     (True, True, False)],
)  # fmt: skip
def test_a_given_report_counts_unless_a_newer_word_is_here(
    here: bool | None, *, given_is_final: bool, is_taken: bool
) -> None:
    giver, taker = Node("n1"), Node("n2")
    giver.deposit("given", is_final=given_is_final)
    assert giver.work.give_reports(ANA, "n2", NOW) == 1
    rows = giver.given()
    if here is not None:
        taker.deposit("here", is_final=here)
    taker.journal.take()
    assert taker.work.take_reports(rows) == ([ANA] if is_taken else [])
    [entry] = taker.inboxes.of_owner(ANA)
    assert (entry.body, entry.is_final) == ((b'"given"', given_is_final) if is_taken else (b'"here"', here))
    removed = [change.key for change in taker.journal.take() if change.table is Table.GIVEN_INBOX]
    assert removed == list(rows), "a given row is taken once"


@pytest.mark.parametrize("is_notified", [False, True])
def test_a_report_comes_as_it_went_and_is_not_pushed_again(*, is_notified: bool) -> None:
    giver, taker = Node("n1"), Node("n2")
    giver.deposit("word", is_final=False, is_notified=is_notified)
    [before] = giver.inboxes.of_owner(ANA)
    giver.work.give_reports(ANA, "n2", NOW + 5)
    taker.work.take_reports(giver.given())
    [entry] = taker.inboxes.of_owner(ANA)
    assert msgspec.structs.replace(entry.row(), number=0) == msgspec.structs.replace(before.row(), number=0)
    assert (giver.inboxes.of_owner(ANA), taker.inboxes.has_unnotified(ANA)) == ([], not is_notified)


def test_only_rows_for_this_node_are_taken() -> None:
    giver, taker = Node("n1"), Node("n2")
    giver.deposit("word", is_final=True)
    giver.work.give_reports(ANA, "n22", NOW)
    rows = giver.given()
    assert all(key.startswith(given_prefix("n22")) for key in rows)
    assert taker.work.take_reports(rows) == []
    assert len(taker.inboxes) == 0


# The order of actions from two nodes.


def given_by(node: Node, *, to: str = "n2") -> dict[str, bytes]:
    node.journal.take()
    node.work.give_requests(LAMP, to, NOW)
    return node.given()


def test_actions_of_two_nodes_that_meet_waiting_are_handed_over_in_the_order_in_which_they_came() -> None:
    giver, taker = Node("n1"), Node("n2")
    for name, now in (("a", NOW), ("b", NOW), ("d", NOW + 2)):
        giver.park(name, now)
    for name, now in (("c", NOW + 1), ("e", NOW + 3)):
        taker.park(name, now)
    taker.take(given_by(giver))
    assert taker.waiting == ["a", "b", "c", "d", "e"]
    taker.park("f", NOW - 5)  # its clock was set back meanwhile
    assert taker.waiting[-1] == "f"


def test_who_takes_actions_learns_once_which_queues_have_some() -> None:
    giver, taker = Node("n1"), Node("n2")
    for name in ("a", "b"):
        giver.park(name, NOW)
    rows = given_by(giver)
    assert taker.work.take_requests(rows, NOW) == [LAMP]
    assert taker.work.take_requests(rows, NOW) == []


def test_the_order_outlives_a_restart_and_a_further_move() -> None:
    giver, taker = Node("n1"), Node("n2")
    giver.park("a", NOW)
    taker.park("b", NOW + 1)
    kept = {change.key: msgspec.json.encode(change.row) for change in taker.journal.take()}
    taker.take(given_by(giver))
    kept |= {
        change.key: msgspec.json.encode(change.row)
        for change in taker.journal.take()
        if change.table is Table.PARKED and change.row is not None
    }
    again, third = Node("n2"), Node("n3")
    again.parking.restore(kept, now=NOW)
    third.park("c", NOW + 2)
    assert again.waiting == ["a", "b"]
    third.take(given_by(again, to="n3"))
    assert third.waiting == ["a", "b", "c"]


def test_what_was_handed_over_is_not_overtaken_by_an_older_one_twice() -> None:
    giver, taker = Node("n1"), Node("n2")
    giver.park("old", NOW)
    taker.park("new", NOW + 1)
    [handed] = taker.parking.queues.take(LAMP, 7, unanswered=32)
    taker.take(given_by(giver))
    assert [one.request_id for one in taker.parking.queues.take(LAMP, 7, unanswered=32)] == ["old"]
    assert handed.status is Status.DELIVERED


def test_an_action_from_another_node_takes_no_row_that_something_has_here() -> None:
    giver, taker = Node("n1"), Node("n2")
    giver.park("a", NOW)
    open_ = taker.park("b", NOW)
    foreign = taker.park("c", NOW, domain="b.example")
    finished = taker.parking.finish(foreign, StatusReport(Status.COMPLETED, 200), NOW)
    assert isinstance(finished, FinishedRequest)
    taken = {open_.number, finished.number}
    taker.take(given_by(giver))
    [moved] = [one for one in taker.parking.queues.entries(LAMP) if one.request_id == "a"]
    assert moved.number not in taken


def test_actions_of_a_node_of_the_version_before_have_the_place_of_their_time() -> None:
    giver, taker = Node("n1"), Node("n2")
    rows = {}
    for name, now in (("a", NOW), ("c", NOW + 2)):
        giver.park(name, now)
    for number, (key, raw) in enumerate(given_by(giver).items(), 1):  # it counts from one
        rows[key] = msgspec.json.encode({**msgspec.json.decode(raw), "number": number})
    taker.park("b", NOW + 1)
    taker.take(rows)
    assert taker.waiting == ["a", "b", "c"]


def test_a_request_that_comes_back_to_the_node_that_gave_it_away_waits_there_and_expires_once() -> None:
    one, two = Node("n1"), Node("n2")
    one.park("first", NOW)
    for giver, taker, name in ((one, two, "n2"), (two, one, "n1"), (one, two, "n2"), (two, one, "n1")):
        giver.journal.take()
        giver.work.give_requests(LAMP, name, NOW)
        taker.take(giver.given())
    assert (one.waiting, two.waiting) == (["first"], [])
    assert [entry.request_id for entry in one.parking.expired(NOW + 61)] == ["first"]
    assert two.parking.expired(NOW + 61) == []
