"""Observers that were taken off: what is kept of them, and how many of an object, of a reporter, of all."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from msg_node.addresses.core import expulsions as module
from msg_node.addresses.core.expulsions import ExpulsionRow, Expulsions
from msg_node.kernel.changes import Journal
from protofly.errors import Code, PeerError

ROOM = "comm://alpha.example/room"
OTHER = "comm://alpha.example/other"


def a_row(observer: str, *, room: str = ROOM, runtime: str = "", by: str = "ana") -> ExpulsionRow:
    return ExpulsionRow(room, observer, runtime, by)


def filled(*rows: ExpulsionRow) -> tuple[Expulsions, Journal]:
    journal = Journal()
    expulsions = Expulsions(journal)
    for row in rows:
        expulsions.expel(row)
    journal.take()
    return expulsions, journal


@pytest.mark.parametrize(
    ("rows", "keys"),
    [
        ([], set()),
        ([a_row("h-1")], {"h-1"}),
        ([a_row("h-1", runtime="rt-1")], {"h-1", "rt-1"}),
        ([a_row("h-1", runtime="rt-1"), a_row("h-2"), a_row("h-3", room=OTHER)], {"h-1", "rt-1", "h-2"}),
    ],
)
def test_off_an_object_are_its_observers_and_their_runtimes_where_known(
    rows: Sequence[ExpulsionRow], keys: set[str]
) -> None:
    expulsions, _ = filled(*rows)
    assert set(expulsions.keys(ROOM)) == keys
    assert {key for key in ("h-1", "h-2", "h-3", "rt-1", "") if key and expulsions.holds(ROOM, key)} == keys


def test_an_observer_that_is_taken_off_again_in_the_same_way_is_not_written_again() -> None:
    expulsions, journal = filled(a_row("h-1"))
    expulsions.expel(a_row("h-1"))
    assert (journal.take(), len(expulsions)) == ([], 1)
    expulsions.expel(a_row("h-1", by="bo"))
    assert [change.row for change in journal.take()] == [None, a_row("h-1", by="bo")]
    assert list(expulsions) == [a_row("h-1", by="bo")]


@pytest.mark.parametrize(
    ("limits", "last", "code"),
    [
        ({"EXPULSIONS_PER_OBJECT": 2}, a_row("h-3", by="bo"), Code.QUOTA),
        ({"EXPULSIONS_PER_OBJECT": 2}, a_row("h-3", room=OTHER, by="bo"), None),
        ({"EXPULSIONS_PER_OBJECT": 2}, a_row("h-2", by="bo"), None),
        ({"EXPULSIONS_PER_OBJECT": 3}, a_row("h-3"), None),
        ({"EXPULSIONS_PER_REPORTER": 2}, a_row("h-3", room=OTHER), Code.QUOTA),
        ({"EXPULSIONS_PER_REPORTER": 2}, a_row("h-3", by="bo"), None),
        ({"EXPULSIONS_PER_REPORTER": 2}, a_row("h-2", runtime="rt"), None),
        ({"EXPULSIONS_PER_REPORTER": 3}, a_row("h-3"), None),
        ({"EXPULSIONS": 2}, a_row("h-3", room=OTHER, by="bo"), Code.OVERLOAD),
        ({"EXPULSIONS": 2}, a_row("h-2", by="bo"), None),
        ({"EXPULSIONS": 3}, a_row("h-3"), None),
    ],
)
def test_so_many_are_off_one_object_by_one_reporter_and_in_all(
    limits: dict[str, int], last: ExpulsionRow, code: Code | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(module, name, value)
    expulsions, _ = filled(a_row("h-1"), a_row("h-2"))
    found = None
    try:
        expulsions.expel(last)
    except PeerError as exc:
        found = exc.code
    assert found is code
    assert expulsions.holds(last.object_key, last.observer) is (code is None)


def test_who_is_let_in_again_makes_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXPULSIONS_PER_REPORTER", 2)
    monkeypatch.setattr(module, "EXPULSIONS", 2)
    expulsions, journal = filled(a_row("h-1", runtime="rt-1"), a_row("h-2", runtime="rt-2"))
    expulsions.readmit(ROOM, "rt-1")
    expulsions.readmit(ROOM, "h-2")
    expulsions.readmit(OTHER, "h-2")
    assert [change.row for change in journal.take()] == [None, None]
    assert (len(expulsions), list(expulsions), expulsions.keys(ROOM)) == (0, [], ())
    for observer in ("h-3", "h-4"):
        expulsions.expel(a_row(observer))
    expulsions.forget(OTHER)
    assert len(expulsions) == 2
    expulsions.forget(ROOM)
    assert not expulsions


def test_who_lets_one_in_again_has_room_for_one_more_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXPULSIONS_PER_REPORTER", 2)
    expulsions, _ = filled(a_row("h-1"), a_row("h-2"))
    expulsions.readmit(ROOM, "h-1")
    expulsions.expel(a_row("h-3"))
    with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
        expulsions.expel(a_row("h-4"))


def test_a_restart_keeps_everybody_off_and_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXPULSIONS_PER_REPORTER", 2)
    rows = {str(number): msgspec.json.encode(a_row(f"h-{number}")) for number in range(2)}
    expulsions = Expulsions(Journal())
    expulsions.restore(rows)
    assert set(expulsions.keys(ROOM)) == {"h-0", "h-1"}
    with pytest.raises(PeerError):
        expulsions.expel(a_row("h-3"))
