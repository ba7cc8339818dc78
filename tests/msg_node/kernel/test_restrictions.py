"""What operators forbid: one restriction per subject, which ends at its time and survives a restart."""

from __future__ import annotations

import msgspec
import pytest

from msg_node.kernel.changes import Journal, Table
from msg_node.kernel.restrictions import Restricted, Restriction, Restrictions, is_module
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


@pytest.mark.parametrize(
    ("subject", "domain", "is_covered"),
    [
        ("b.example", "b.example", True),
        ("b.example", "a.b.example", False),
        ("b.example", "alias.example", True),
        ("b.example", "x.alias.example", False),
        ("*.b.example", "a.b.example", True),
        ("*.b.example", "c.a.b.example", True),
        ("*.b.example", "b.example", False),
        ("*.b.example", "ab.example", False),
        ("*.b.example", "alias.example", True),
    ],
)
def test_a_restriction_covers_its_domain_or_all_below_it_and_aliases(
    subject: str, domain: str, is_covered: bool
) -> None:
    one = msgspec.structs.replace(restriction(subject), aliases=("alias.example",))
    assert one.covers(domain) is is_covered


def test_the_row_of_a_restriction_that_was_replaced_is_deleted_and_a_row_that_stays_is_written_again() -> None:
    known = Restrictions(journal := Journal())
    known.set(since(1.0))
    known.set(since(2.0))
    known.set(since(2.0, until=9.0))
    rows = {change.key: change.row for change in journal.take()}
    assert rows == {"peer b.example 1.0": None, "peer b.example 2.0": since(2.0, until=9.0)}


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


def stored(*restrictions: Restriction) -> dict[str, bytes]:
    """The rows that a node stores of them."""
    journal = Journal()
    for one in restrictions:
        Restrictions(journal).set(one)
    return {change.key: msgspec.json.encode(change.row) for change in journal.take()}


def since(moment: float, **changes: float) -> Restriction:
    return msgspec.structs.replace(restriction("b.example"), since=moment, **changes)


def test_what_another_node_forbids_and_lifts_counts_here_and_is_not_stored_again() -> None:
    known = Restrictions(journal := Journal())
    assert known.shared(stored(since(1.0)), now=5.0) == ([since(1.0)], [])
    assert known.shared(stored(since(1.0)), now=5.0) == ([], [])
    assert list(known) == [since(1.0)]
    assert known.shared({}, now=5.0) == ([], [since(1.0)])
    assert (list(known), journal.take()) == ([], [])


def test_what_is_not_stored_yet_is_neither_lost_nor_brought_back_by_what_others_have_stored() -> None:
    known = Restrictions(Journal())
    known.set(restriction("c.example"))
    assert known.shared(stored(since(1.0)), now=5.0).ended == []
    known.lift(Restricted.PEER, "b.example")
    assert known.shared(stored(since(1.0)), now=5.0) == ([], [])
    assert [one.subject for one in known] == ["c.example"]


def test_the_last_thousand_that_were_removed_here_are_not_brought_back_by_others() -> None:
    known, many = Restrictions(Journal()), [restriction(f"{number:04}.example") for number in range(1_001)]
    for one in many:
        known.set(one)
    rows = stored(*many)
    for one in many[:1_000]:
        known.lift(Restricted.PEER, one.subject)
    assert known.shared(rows, now=5.0).came == []
    known.lift(Restricted.PEER, many[1_000].subject)
    assert known.shared(rows, now=5.0).came == many[:1]


def test_a_node_that_ends_a_restriction_leaves_a_newer_one_of_another_node_alone() -> None:
    known, journal = Restrictions(Journal()), Journal()
    known.restore(rows := stored(since(1.0, until=4.0)), now=2.0)
    elsewhere = Restrictions(journal)
    elsewhere.restore(rows, now=2.0)
    elsewhere.lift(Restricted.PEER, "b.example")
    (gone,) = journal.take()
    newer = stored(since(3.0))
    assert gone.key not in newer
    assert known.shared(newer, now=5.0) == ([since(3.0)], [])


def test_a_replacement_counts_even_when_the_clock_of_its_node_is_behind() -> None:
    known = Restrictions(Journal())
    known.restore(stored(since(9.0)), now=9.0)
    assert known.shared(stored(since(3.0)), now=9.0) == ([since(3.0)], [])
    assert list(known) == [since(3.0)]


def test_a_row_of_version_0_1_is_stored_under_its_new_key() -> None:
    known = Restrictions(journal := Journal())
    known.restore({"peer b.example": msgspec.json.encode(since(1.0))}, now=2.0)
    assert {change.key: change.row for change in journal.take()} == {
        "peer b.example": None,
        "peer b.example 1.0": since(1.0),
    }
    assert list(known) == [since(1.0)]


def test_a_digest_is_a_module_and_no_domain_however_long_is_one() -> None:
    assert is_module("ab" * 32)
    assert not any(map(is_module, ("b.example", f"{'a' * 56}.example", "a" * 63, "")))
