"""Measures inside one domain: the node beside plain relays, beside attackers, then with ever larger crowds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import trio

from benchmarks.domain.neighbours import measure_neighbours
from benchmarks.domain.plan import (
    CROWDS,
    NODE,
    TRIO_RELAY,
    WS_RELAY,
    Allocation,
    FanOut,
    PairFlood,
    Parking,
    crowd_name,
    crowd_shapes,
    shapes,
)
from benchmarks.domain.registry import measure_registry
from benchmarks.domain.variants import BroadcastRelay, DomainVariant, OneNode
from benchmarks.plan import Measured, Shape, compared
from benchmarks.sides import Run
from interop.processes import leaves
from protofly.errors import Code, HostError, TransportError

OnProgress = Callable[[str], None]


async def measure_domain(
    folder: Path, *, quick: bool, on_progress: OnProgress, absent: dict[str, str]
) -> list[Measured]:
    """Measure everything that goes on inside one domain.

    Args:
        folder: Where data, logs and the relay's package are kept.
        quick: Leave out the larger bodies, the attackers, the full registry and the crowds.
        on_progress: Called with a line about each run when it begins.
        absent: Takes the relays that cannot be had, with the reason.

    Raises:
        TransportError: a node or a load client fails.
    """
    variants: dict[str, DomainVariant] = {
        NODE: OneNode(NODE, folder / "node"),
        WS_RELAY: BroadcastRelay(WS_RELAY, folder / "ws-relay", in_node_js=True),
        TRIO_RELAY: BroadcastRelay(TRIO_RELAY, folder / "trio-relay", in_node_js=False),
    }
    measured = await _measure_all(shapes(quick=quick), variants, on_progress, absent)
    if quick:
        return measured
    measured += await measure_neighbours(folder / "neighbours", on_progress=on_progress)
    measured += await measure_registry(folder / "registry", on_progress=on_progress)
    on_progress("sessions join")
    crowds: dict[str, DomainVariant] = {
        crowd_name(sessions): OneNode(crowd_name(sessions), folder / f"crowd-{sessions}", sessions=sessions)
        for sessions in CROWDS
    }
    return measured + await _measure_all(crowd_shapes(), crowds, on_progress, {})


async def _measure_all(
    plan: tuple[Shape, ...], variants: dict[str, DomainVariant], on_progress: OnProgress, absent: dict[str, str]
) -> list[Measured]:
    measured: list[Measured] = []
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as starting:
            for variant in variants.values():
                starting.start_soon(_start, nursery, variant, absent)
        for shape in plan:
            measured += await _measure(shape, variants, on_progress, absent)
        for variant in variants.values():
            if isinstance(variant, OneNode) and await variant.missing_sessions():
                raise TransportError(Code.LINK_LOST, f"{variant.name}: sessions of the crowd were lost")
        nursery.cancel_scope.cancel()
    return measured


async def _start(nursery: trio.Nursery, variant: DomainVariant, absent: dict[str, str]) -> None:
    """Start one variant. A relay may fail and is then absent; a node may not."""
    try:
        await nursery.start(variant.run)
    except* HostError as group:
        if isinstance(variant, OneNode):
            raise
        absent[variant.name] = "; ".join(str(error) for error in leaves(group))


async def _measure(
    shape: Shape, variants: dict[str, DomainVariant], on_progress: OnProgress, absent: dict[str, str]
) -> list[Measured]:
    present = {name: variants[name] for name in shape.variants if name not in absent}
    if isinstance(shape, PairFlood):
        for variant in present.values():
            await variant.warm_up(shape)
    runs: dict[str, list[Run]] = {name: [] for name in present}
    for number in range(shape.rounds):
        for name, variant in present.items():
            on_progress(f"{shape.name}, {shape.body_bytes} B: {name}, round {number + 1}")
            runs[name].append(await _run(shape, variant))
    return compared(
        [
            Measured(variant=name, shape=shape, runs=tuple(done), session_kib=_session_kib(present[name]))
            for name, done in runs.items()
        ]
    )


async def _run(shape: Shape, variant: DomainVariant) -> Run:
    match shape:
        case PairFlood():
            return await variant.flood(shape)
        case FanOut():
            return await variant.fan_out(shape)
        case Allocation():
            assert isinstance(variant, OneNode)
            return await variant.allocate(shape)
        case Parking():
            assert isinstance(variant, OneNode)
            return await variant.park(shape)
        case _:
            raise AssertionError(shape)


def _session_kib(variant: DomainVariant) -> float | None:
    return variant.session_kib if isinstance(variant, OneNode) else None
