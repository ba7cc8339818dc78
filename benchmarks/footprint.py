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


async def measure_footprint(variant: TrapezoidVariant, node_rss_kib: int, *, with_idle_runtimes: bool) -> Footprint:
    """Look at the first node after traffic has started its worker; `node_rss_kib` was read when it was idle."""
    node = variant.laboratory.nodes[DOMAINS[0]]
    link = (await node.status()).link_to(DOMAINS[1])
    worker = link.worker_pid if link is not None else None
    starts = [step.ms for step in link.steps if step.name == "start"] if link is not None else []
    idle_runtime_kib = None
    if with_idle_runtimes:
        pair = await variant.pair(1)
        before = resident_kib(node.pid)
        await pair.sender.do(
            "idle",
            url=variant.urls()[0],
            ca_file=variant.ca_file,
            domain=DOMAINS[0],
            name="rest",
            connections=IDLE_RUNTIMES,
        )
        idle_runtime_kib = round((resident_kib(node.pid) - before) / IDLE_RUNTIMES, 1)
    return Footprint(
        node_rss_kib=node_rss_kib,
        worker_private_kib=private_kib(worker) if worker else None,
        worker_start_ms=starts[0] if starts else None,
        idle_runtime_kib=idle_runtime_kib,
    )
