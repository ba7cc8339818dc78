"""The benchmark of admin operations asks for all of them, and a short run of it loses nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.drain import Drained
from benchmarks.operations import AIMED, BESIDE, BUNDLES, LEFT_OUT, measure, plan
from benchmarks.sides import Load
from msg_node.admin.core.operations import OPERATIONS


def test_every_operation_is_asked_for_once_with_what_it_requires() -> None:
    planned = list(plan())
    assert sorted(name for name, _, _ in planned) == sorted(OPERATIONS)
    for name, given, _ in planned:
        required = {one.name for one in OPERATIONS[name].arguments if one.is_required}
        assert required - ({"bundle"} if name in BUNDLES else set()) <= set(given), name
        assert set(given) <= {one.name for one in OPERATIONS[name].arguments}, name


def test_what_would_end_the_traffic_is_only_tried() -> None:
    assert {name for name, _, dry_run in plan() if dry_run} == LEFT_OUT == {"drain"}
    assert set(BESIDE) | set(AIMED) <= set(OPERATIONS)


@pytest.mark.parametrize(
    ("exit_status", "taken", "arrived", "said_lost", "unsaid"),
    [
        (0, 9, 9, 0, 0),
        (0, 9, 7, 0, 2),
        (3, 9, 7, 2, 0),
        (3, 9, 7, 1, 2),
        (3, 9, 9, 0, 1),
        (3, 9, 9, 1, 0),
        (-9, 9, 7, 0, 2),
    ],
)
def test_a_stop_loses_nothing_or_says_how_much(
    exit_status: int, taken: int, arrived: int, said_lost: int, unsaid: int
) -> None:
    drained = Drained(
        exit_status=exit_status, taken=taken, arrived=arrived, said_lost=said_lost, duplicated=0, reordered=0
    )
    assert drained.unsaid == unsaid


@pytest.mark.long
async def test_messages_arrive_once_and_in_order_beside_operations_and_while_they_hit_the_link(tmp_path: Path) -> None:
    load = Load(count=800, rate=400.0, body_bytes=200)
    rows, asked, _ = await measure(
        tmp_path, load, ["sessions", "user add", "policy add", "policy activate", "reload"], 1
    )
    assert [(row.lost, row.duplicated, row.reordered) for row in rows] == [(0, 0, 0)] * 5
    found = re.fullmatch(r"stop under load: exit status 0, ([\d,]+) taken, none lost", rows[-1].name)
    assert found is not None, rows[-1].name  # although the load client goes on writing for as long as it is connected
    assert 100 < int(found[1].replace(",", "")) < 60 * load.rate
    assert set(asked.seconds) == {"sessions", "user add", "policy add", "policy activate", "reload"}
    assert set(asked.refused.values()) <= {"in-use", "duplicate"}  # the bundle and the user of the turn before
    assert all(row.operations for row in rows[1:])
