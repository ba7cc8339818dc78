"""The benchmark of admin operations asks for all of them, and a short run of it loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.mark.long
async def test_messages_arrive_once_and_in_order_beside_operations_and_while_they_hit_the_link(tmp_path: Path) -> None:
    load = Load(count=800, rate=400.0, body_bytes=200)
    rows, asked, _ = await measure(tmp_path, load, ["sessions", "policy add", "policy activate", "reload"], 1)
    assert [(row.lost, row.duplicated, row.reordered) for row in rows] == [(0, 0, 0)] * 4
    assert set(asked.seconds) == {"sessions", "policy add", "policy activate", "reload"}
    assert set(asked.refused.values()) <= {"in-use"}  # the bundle of the turn before
    assert all(row.operations for row in rows[1:])
