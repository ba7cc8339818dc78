"""Variants take turns inside each shape, round by round, so that what else the machine does meets all of them alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from benchmarks.plan import TRAPEZOID, Measured, Traffic, compared
from benchmarks.sides import Load, Run
from benchmarks.variants import Variant
from interop.processes import leaves
from protofly.errors import HostError

WARM_UP: Final = Load(count=400, rate=1000.0, body_bytes=200)
FIRST: Final = Load(count=1, rate=1.0, body_bytes=200)


async def start_variant(nursery: trio.Nursery, variant: Variant, left_out: dict[str, str]) -> None:
    """Start one variant. What is only compared with may fail and is left out; the whole trapezoid may not."""
    try:
        await nursery.start(variant.run)
    except* HostError as group:
        if variant.name == TRAPEZOID:
            raise
        left_out[variant.name] = "; ".join(str(error) for error in leaves(group))


async def measure_in_turns(
    shape: Traffic,
    variants: dict[tuple[str, bool], Variant],
    left_out: dict[str, str],
    on_progress: Callable[[str], None],
) -> list[Measured]:
    """Measure one shape with its variants, round by round; those that are left out are no rows.

    Args:
        shape: What is sent, and by which variants.
        variants: By name, and whether by TLS. They run; clients are connected here.
        left_out: Takes the variants that are not what they say, with the reason.
        on_progress: Called with a line about each run when it begins.
    """
    for name in shape.variants:
        await _warm_up(variants[name, shape.tls], shape, left_out)
    runs: dict[str, list[Run]] = {name: [] for name in shape.variants if name not in left_out}
    for number in range(shape.rounds):
        for name in runs:
            variant = variants[name, shape.tls]
            on_progress(f"{shape.name}, {shape.body_bytes} B{', TLS' if shape.tls else ''}: {name}, round {number + 1}")
            runs[name].append(await (await variant.pair(shape.width)).run(shape.load(name), variant.pids()))
    return compared([Measured(variant=name, shape=shape, runs=tuple(done)) for name, done in runs.items()])


async def _warm_up(variant: Variant, shape: Traffic, left_out: dict[str, str]) -> None:
    """Connect clients and bring up the link, then look whether the variant is what it says; a false one is left out."""
    if variant.name in left_out:
        return
    pair = await variant.pair(shape.width)
    if shape.width == 1:
        await pair.run(FIRST, variant.pids())  # while a link comes up, only few messages may wait for it
    contradiction = await variant.contradiction()
    if contradiction:
        left_out[variant.name] = contradiction
    else:
        await pair.run(WARM_UP, variant.pids())
