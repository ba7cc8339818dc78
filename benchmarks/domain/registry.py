"""The embedded domain registry with many entries: how fast one is found, and what a sweep of all of them costs others.

The sweep is the worst one: every entry is due at the same second.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from benchmarks.domain.plan import NODE, QUIET, SWEPT, RegistryReads, registry_shapes
from benchmarks.domain.variants import DOMAIN, OneNode, run_of
from benchmarks.plan import Measured, compared
from benchmarks.sides import STOP_CLIENTS_SECONDS, Meter, Run, Side
from protofly.errors import Code, TransportError

CLIENT = "benchmarks.domain.registry_client"
_DUE_SECONDS = 600.0
_REGISTER_SECONDS = 60.0
"""Until when all are registered again; the client says how much of it is left."""
_BEFORE_SECONDS = 0.5


async def measure_registry(folder: Path, *, on_progress: Callable[[str], None]) -> list[Measured]:
    """Measure reads, then a pair while nothing and while everything is swept.

    Args:
        folder: Where data and logs are kept.
        on_progress: Called with a line about each run when it begins.

    Raises:
        TransportError: the node or a load client fails, or an entry was refused.
    """
    reads, pair = registry_shapes()
    node = OneNode(NODE, folder)
    client = Side("registry", log_file=folder / "clients.log", program=CLIENT)
    runs: dict[str, list[Run]] = {name: [] for name in (NODE, *pair.variants)}
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        await client.start_process()
        try:
            on_progress(f"{reads.entries:,} entries are registered")
            await register(client, node, reads.entries, _DUE_SECONDS)
            for number in range(reads.rounds):
                on_progress(f"{reads.name}, round {number + 1}")
                runs[NODE].append(await read(reads, client, node))
                await client.do("stay")
            await node.warm_up(pair)
            for number in range(pair.rounds):
                on_progress(f"{pair.name}: {QUIET}, round {number + 1}")
                left = await register(client, node, reads.entries, _REGISTER_SECONDS)  # which ends the sweep before
                due = trio.current_time() + left
                runs[QUIET].append(await node.flood(pair))
                on_progress(f"{pair.name}: {SWEPT}, round {number + 1}")
                await wait(client, due - trio.current_time() - _BEFORE_SECONDS)
                runs[SWEPT].append(await node.flood(pair))
        finally:
            with trio.move_on_after(STOP_CLIENTS_SECONDS, shield=True):
                await client.stop()
        nursery.cancel_scope.cancel()
    swept = [Measured(variant=name, shape=pair, runs=tuple(runs[name])) for name in pair.variants]
    return compared([Measured(variant=NODE, shape=reads, runs=tuple(runs[NODE]))]) + compared(swept)


async def register(client: Side, node: OneNode, entries: int, due_seconds: float) -> float:
    """Register all entries; return the seconds until they are due.

    Raises:
        TransportError: The node has refused some.
    """
    answer = await client.do(
        "register", url=node.urls()[0], ca_file="", domain=DOMAIN, count=entries, due_seconds=due_seconds
    )
    if answer["refused"] or answer["answered"] != entries:
        raise TransportError(Code.LINK_LOST, f"{answer['refused']} of {entries} entries were refused")
    return float(answer["seconds_left"])


async def wait(client: Side, seconds: float) -> None:
    """Let time pass, with the sessions of the client alive."""
    ends = trio.current_time() + seconds
    while (left := ends - trio.current_time()) > 0:
        await client.do("stay")
        await trio.sleep(min(left, 10.0))


async def read(shape: RegistryReads, client: Side, node: OneNode) -> Run:
    """One run of reads."""
    meter = Meter(node.pids(), {client.pid})
    answer: dict[str, Any] = await client.do(
        "read",
        url=node.urls()[0],
        ca_file="",
        domain=DOMAIN,
        count=shape.count,
        rate=shape.rate,
        users=shape.entries,
    )
    return run_of(answer, *meter.read())
