"""What a node says of what its stop has lost: one line, and whether it is complete."""

from __future__ import annotations

import logging

import pytest

from msg_node.admin.draining import Lost


@pytest.mark.parametrize(
    ("lost", "is_complete", "line"),
    [
        (Lost({}, 0), True, "stopped: no message is lost"),
        (
            Lost({"b.example": 2}, 1),
            False,
            "stopped: 3 messages are lost: 2 for b.example, 1 that runtimes did not read",
        ),
        (
            Lost({}, 0, unstored=4),
            False,
            "stopped: 4 changes of the state are not stored, 0 messages are lost: none for other domains, "
            "0 that runtimes did not read; it did not answer [engine-silent]",
        ),
    ],
)
def test_a_stop_says_in_one_line_what_is_lost(
    caplog: pytest.LogCaptureFixture, lost: Lost, is_complete: bool, line: str
) -> None:
    with caplog.at_level(logging.INFO):
        lost.report("it did not answer [engine-silent]")
    assert [record.getMessage() for record in caplog.records] == [line]
    assert lost.is_complete is is_complete
