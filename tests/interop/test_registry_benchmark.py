"""The benchmark of the registry: everything is asked and counted, and what is refused is not taken for a figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import trio

from benchmarks.domain.plan import NODE, QUIET, SWEPT, registry_shapes
from benchmarks.domain.registry import CLIENT, read, register, wait
from benchmarks.domain.variants import OneNode
from benchmarks.plan import Measured, compared
from benchmarks.sides import Run, Side

A_RUN = Run(
    messages_per_second=500.0,
    p50_ms=1.0,
    p99_ms=2.0,
    cpu_us_per_message=10.0,
    lost=0,
    duplicated=0,
    reordered=0,
    refused=0,
    foreign_cores=0.0,
)


async def test_entries_are_registered_read_and_registered_again(tmp_path: Path) -> None:
    reads = replace(registry_shapes()[0], entries=300, count=40, rate=400.0)
    node = OneNode(NODE, tmp_path)
    client = Side("registry", log_file=tmp_path / "clients.log", program=CLIENT)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(node.run)
            await client.start_process()
            assert 500 < await register(client, node, reads.entries, 600) < 600
            run = await read(reads, client, node)
            await wait(client, 0.01)
            await register(client, node, reads.entries, 600)
            again = await read(reads, client, node)
            await client.stop()
            nursery.cancel_scope.cancel()
    assert run.is_faultless
    assert again.is_faultless
    assert run.p99_ms is not None
    assert run.cpu_us_per_message > 0


@pytest.mark.parametrize(("p99_ms", "missed"), [(2.9, ()), (3.1, ("p99_ratio ≤ 1.5",))])
def test_the_wait_during_a_sweep_is_held_against_the_wait_without_one(p99_ms: float, missed: tuple[str, ...]) -> None:
    pair = registry_shapes()[1]
    quiet, swept = compared(
        [
            Measured(variant=QUIET, shape=pair, runs=(A_RUN,)),
            Measured(variant=SWEPT, shape=pair, runs=(replace(A_RUN, p99_ms=p99_ms),)),
        ]
    )
    assert (quiet.missed_bars, swept.missed_bars) == ((), missed)
