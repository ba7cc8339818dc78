"""What operators forbid: one restriction per subject, which ends at its time and survives a restart."""

from __future__ import annotations

import msgspec
import pytest

from msg_node.kernel.changes import Journal, Table
from msg_node.kernel.restrictions import Restricted, Restriction, Restrictions
from protofly.errors import Code, HostError


def restriction(subject: str, *, until: float | None = None, what: Restricted = Restricted.PEER) -> Restriction:
    return Restriction(what=what, subject=subject, reason="abuse", by="root", since=1.0, until=until)


def test_a_newer_restriction_replaces_that_of_its_subject_and_of_no_other() -> None:
    known = Restrictions(Journal())
    for one in (restriction("b.example"), restriction("b.example", what=Restricted.STUB), restriction("c.example")):
        known.set(one)
    known.set(restriction("b.example", until=9.0))
    assert [(one.what, one.subject, one.until) for one in known] == [
        ("peer", "b.example", 9.0),
        ("peer", "c.example", None),
        ("stub", "b.example", None),
    ]
    assert [one.subject for one in known.of(Restricted.PEER)] == ["b.example", "c.example"]
    assert known.find(Restricted.RUNTIME, "b.example") is None


def test_what_is_lifted_is_gone_and_lifting_it_again_does_nothing() -> None:
    known = Restrictions(journal := Journal())
    known.set(restriction("b.example"))
    journal.take()
    assert known.lift(Restricted.PEER, "b.example") == restriction("b.example")
    assert [change.row for change in journal.take()] == [None]
    assert known.lift(Restricted.PEER, "b.example") is None
    assert (list(known), journal.take()) == ([], [])


def test_a_restriction_ends_at_its_time() -> None:
    known = Restrictions(Journal())
    known.set(restriction("b.example", until=10.0))
    known.set(restriction("c.example"))
    assert known.ended(9.9) == []
    assert [one.subject for one in known.ended(10.0)] == ["b.example"]


def test_restrictions_come_back_but_those_that_have_ended_meanwhile() -> None:
    known = Restrictions(journal := Journal())
    for one in (restriction("b.example", until=10.0), restriction("c.example", until=20.0), restriction("*.d.example")):
        known.set(one)
    rows = {change.key: msgspec.json.encode(change.row) for change in journal.take()}
    again = Restrictions(journal)
    again.restore(rows, now=15.0)
    assert [one.subject for one in again] == ["*.d.example", "c.example"]
    assert [(change.table, change.row) for change in journal.take()] == [(Table.RESTRICTIONS, None)]


def test_a_row_that_cannot_be_read_is_an_error_of_the_storage() -> None:
    with pytest.raises(HostError, check=lambda error: error.code is Code.STORAGE):
        Restrictions(Journal()).restore({"peer b.example": b"{}"}, now=0.0)
