"""The node that shows what the sandbox costs: `benchmarks/bare_node.py` takes the place of a node with one."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from benchmarks.variants import BARE_NODE
from interop.laboratory import Laboratory, LaboratoryPlan
from tests.system.systems import System

LIMIT_SECONDS = 120


@pytest.mark.long
async def test_nodes_without_a_sandbox_carry_requests_both_ways_and_no_worker_runs(tmp_path: Path) -> None:
    laboratory = Laboratory(LaboratoryPlan(state_dir=tmp_path, serve=BARE_NODE))
    with trio.fail_after(LIMIT_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(laboratory.run)
            system = System(laboratory, nursery)
            await system.couple()
            links = [await system.link(node) for node in (system.a, system.b)]
            assert not any(link.worker_pid for link in links)
            nursery.cancel_scope.cancel()
