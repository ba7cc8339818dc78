"""The newest block list that is known: by author and key, never lower, and there again after a restart."""

from __future__ import annotations

import msgspec
import pytest

from msg_node.kernel.changes import Journal, Table
from msg_node.kernel.list_marks import ListMarks
from protofly.errors import Code, HostError


def test_a_mark_is_of_its_author_and_key_and_never_becomes_lower() -> None:
    marks = ListMarks(journal := Journal())
    assert marks.serial("b.example", ["k1"]) == 0
    marks.raise_to("b.example", ["k1"], 5)
    marks.raise_to("b.example", ["k1"], 5)
    marks.raise_to("b.example", ["k1"], 4)
    assert [(one.table, one.key) for one in journal.take()] == [(Table.BLOCK_LISTS, "b.example k1")]
    assert (marks.serial("b.example", ["k1"]), marks.serial("c.example", ["k1"])) == (5, 0)
    assert marks.serial("b.example", ["k2"]) == 0, "an author that lost its numbers makes itself a new key"
    assert marks.serial("b.example", []) == 0


def test_a_key_that_is_replaced_step_by_step_takes_its_mark_along() -> None:
    marks = ListMarks(Journal())
    marks.raise_to("b.example", ["old"], 5)
    assert marks.serial("b.example", ["old", "new"]) == 5
    marks.raise_to("b.example", ["old", "new"], 6)
    assert marks.serial("b.example", ["new"]) == 6


def test_marks_come_back_and_a_row_that_cannot_be_read_is_an_error_of_the_storage() -> None:
    marks = ListMarks(journal := Journal())
    marks.raise_to("b.example", ["k1", "k2"], 7)
    rows = {change.key: msgspec.json.encode(change.row) for change in journal.take()}
    again = ListMarks(Journal())
    again.restore(rows)
    assert (again.serial("b.example", ["k1"]), again.serial("b.example", ["k2"])) == (7, 7)
    with pytest.raises(HostError, check=lambda error: error.code is Code.STORAGE):
        again.restore({"b.example k1": b'{"serial":"seven"}'})
