"""`./run bench --peers`: the whole trapezoid and everything that it is compared with, in turns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import trio

from benchmarks.peers.plan import BRIDGE_QOS_0, BRIDGE_QOS_1, EJABBERD, FLOOR, NATS, WS_RELAYS, peer_shapes
from benchmarks.peers.variants import EjabberdFederation, MosquittoBridge, NatsLeaf, RelaysOnAdapter, RelaysOnWs
from benchmarks.plan import TRAPEZOID, Measured
from benchmarks.turns import measure_in_turns, start_variant
from benchmarks.variants import TrapezoidVariant, Variant, remove_records


async def measure_peers(
    folder: Path, *, quick: bool, on_progress: Callable[[str], None], absent: dict[str, str]
) -> list[Measured]:
    """Measure the trapezoid beside its peers. The trapezoid decides with a policy, in a sandbox, and writes records.

    Args:
        folder: Where data, settings and logs are kept.
        quick: Shorter and fewer runs.
        on_progress: Called with a line about each run when it begins.
        absent: Takes the peers that cannot be had, with the reason.

    Raises:
        TransportError: our nodes or a load client fail.
    """
    remove_records(folder / "trapezoid")
    variants: list[Variant] = [
        TrapezoidVariant(TRAPEZOID, folder / "trapezoid", tls=False, is_bare=False),
        MosquittoBridge(BRIDGE_QOS_0, folder / "bridge-0", qos=0),
        MosquittoBridge(BRIDGE_QOS_1, folder / "bridge-1", qos=1),
        NatsLeaf(NATS, folder / "nats"),
        EjabberdFederation(EJABBERD, folder / "ejabberd"),
        RelaysOnWs(WS_RELAYS, folder / "ws-relays"),
        RelaysOnAdapter(FLOOR, folder / "adapter-relays"),
    ]
    measured: list[Measured] = []
    async with trio.open_nursery() as nursery:
        for variant in variants:
            on_progress(f"{variant.name} starts")
            await start_variant(nursery, variant, absent)
        by_name = {(variant.name, False): variant for variant in variants}
        for shape in peer_shapes(quick=quick):
            measured += await measure_in_turns(shape, by_name, absent, on_progress)
        nursery.cancel_scope.cancel()
    return measured
