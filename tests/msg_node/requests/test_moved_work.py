"""Parked requests and reports that go to another node of the domain: taken once, and never over a newer word."""

from __future__ import annotations

import msgspec
import pytest

from msg_node.kernel.changes import Journal, Table
from msg_node.requests.core.inbox import Inboxes, Notice
from msg_node.requests.core.moved_work import MovedWork, given_prefix
from msg_node.requests.core.parked import Sender
from msg_node.requests.core.parking import Parking

ANA, LAMP = "hyperty://a.example/ana", "thing://a.example/lamp"
NOW = 1000.0


class Node:
    """What one node keeps of reports, and its part of the moves."""

    def __init__(self, name: str) -> None:
        self.journal = Journal()
        self.inboxes = Inboxes(self.journal)
        self.work = MovedWork(name, self.journal, Parking(self.journal), self.inboxes)

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
            if change.table is Table.GIVEN_INBOX and change.row is not None
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
