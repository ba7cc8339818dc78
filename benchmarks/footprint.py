"""What an idle node, a further foreign domain and idle runtimes cost in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.process_time import private_kib, resident_kib
from benchmarks.variants import DOMAINS, TrapezoidVariant

IDLE_RUNTIMES: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory figures in KiB; `worker_start_ms` is the step of the first contact that starts the worker."""

    node_rss_kib: int
    worker_private_kib: int | None
    worker_start_ms: float | None
    idle_runtime_kib: float | None


async def measure_footprint(busy: TrapezoidVariant, rested: TrapezoidVariant | None, *, node_rss_kib: int) -> Footprint:
    """Look at nodes; `node_rss_kib` was read when the busy one was still idle.

    Args:
        busy: Its traffic has started a worker.
        rested: Has seen no traffic: a node that has gives new runtimes the memory that its messages left.
            None leaves idle runtimes out.
        node_rss_kib: Memory of an idle node.
    """
    node = busy.laboratory.nodes[DOMAINS[0]]
    link = (await node.status()).link_to(DOMAINS[1])
    worker = link.worker_pid if link is not None else None
    starts = [step.ms for step in link.steps if step.name == "start"] if link is not None else []
    return Footprint(
        node_rss_kib=node_rss_kib,
        worker_private_kib=private_kib(worker) if worker else None,
        worker_start_ms=starts[0] if starts else None,
        idle_runtime_kib=await _idle_runtime_kib(rested) if rested is not None else None,
    )


async def _idle_runtime_kib(variant: TrapezoidVariant) -> float:
    pair = await variant.pair(1)  # the first runtime also pays for what all share
    pid = variant.node_pids()[0]
    before = resident_kib(pid)
    await pair.sender.do(
        "idle",
        url=variant.urls()[0],
        ca_file=variant.ca_file,
        domain=DOMAINS[0],
        name="rest",
        connections=IDLE_RUNTIMES,
    )
    return round((resident_kib(pid) - before) / IDLE_RUNTIMES, 1)
