"""`./run bench`: start all variants, measure them in turns, show the tables.

Variants take turns inside each shape, round by round, so that whatever else the machine does meets all of them alike.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec
import trio
from rich.console import Console

from benchmarks.domain.suite import measure_domain
from benchmarks.footprint import Footprint, measure_footprint
from benchmarks.plan import NO_SANDBOX, RELAYS, TRAPEZOID, VERTX_PEER, Measured, Traffic, compared, shapes
from benchmarks.process_time import resident_kib
from benchmarks.report import DOMAIN_TITLE, show_absent, show_crowds, show_neighbours, show_report, show_sweep
from benchmarks.sides import Load, Run
from benchmarks.variants import PlainVariant, RelayVariant, TrapezoidVariant, Variant
from interop.processes import leaves
from protofly.errors import HostError

WARM_UP: Final = Load(count=400, rate=1000.0, body_bytes=200)
FIRST: Final = Load(count=1, rate=1.0, body_bytes=200)


class Part(StrEnum):
    """What can be measured by itself."""

    TRAPEZOID = "trapezoid"
    DOMAIN = "domain"


@dataclass(slots=True)
class Results:
    """Everything that was measured. `absent` are programs of others that this machine does not have."""

    measured: list[Measured]
    left_out: dict[str, str] = field(default_factory=dict)
    footprint: Footprint | None = None
    inside: list[Measured] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    @property
    def is_faultless(self) -> bool:
        """True if everything of ours was measured and nothing was lost, doubled, reordered or refused."""
        return not self.left_out and all(one.is_faultless for one in (*self.measured, *self.inside))


def run(
    *,
    quick: bool = False,
    json_file: Path | None = None,
    state_dir: Path | None = None,
    parts: frozenset[Part] = frozenset(Part),
) -> int:
    """Measure and show; returns the exit status: 0, 1 when a message was lost or came wrongly, 2 when nothing ran."""
    console = Console(stderr=json_file == Path("-"))
    folder = state_dir or default_state_dir()
    results: Results | None = None
    try:
        with console.status("starting all variants") as status:
            results = trio.run(_run, folder, quick, parts, status.update)
    except* HostError as group:
        for error in leaves(group):
            console.print(f"✗ {error}", style="bold red", markup=False, highlight=False)
    if results is None:
        return 2
    if results.measured:
        show_report(console, results.measured, results.footprint)
    if results.inside:
        show_report(console, results.inside, None, title=DOMAIN_TITLE)
        show_neighbours(console, results.inside)
        show_sweep(console, results.inside)
        show_crowds(console, results.inside)
    show_absent(console, results.absent)
    for name, reason in results.left_out.items():
        console.print(f"✗ {name} is left out: {reason}", style="bold red", highlight=False)
    if json_file is not None:
        _write_rows(json_file, [*results.measured, *results.inside])
    return 0 if results.is_faultless else 1


def default_state_dir() -> Path:
    """Where keys, certificates and caches of the benchmark's laboratories are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trapezoid" / "bench"


def _write_rows(json_file: Path, measured: list[Measured]) -> None:
    text = msgspec.json.format(msgspec.json.encode([one.row for one in measured]), indent=2) + b"\n"
    if json_file == Path("-"):
        os.write(1, text)
    else:
        json_file.write_bytes(text)


async def _run(folder: Path, quick: bool, parts: frozenset[Part], on_progress: Callable[[str], None]) -> Results:
    results = Results([])
    if Part.TRAPEZOID in parts:
        await _measure_trapezoid(folder, quick, on_progress, results)
    if Part.DOMAIN in parts:
        await _measure_domain(folder / "domain", quick, on_progress, results)
    return results


async def _measure_domain(folder: Path, quick: bool, on_progress: Callable[[str], None], results: Results) -> None:
    """A failure here does not cost what was measured before."""
    try:
        results.inside = await measure_domain(folder, quick=quick, on_progress=on_progress, absent=results.absent)
    except* HostError as group:
        results.left_out[DOMAIN_TITLE] = "; ".join(str(error) for error in leaves(group))


async def _measure_trapezoid(folder: Path, quick: bool, on_progress: Callable[[str], None], results: Results) -> None:
    plan = shapes(quick=quick)
    variants = _variants(folder, plan)
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as starting:
            for variant in variants.values():
                starting.start_soon(_start, nursery, variant, results.left_out)
        whole = variants[TRAPEZOID, False]
        assert isinstance(whole, TrapezoidVariant)
        idle_kib = resident_kib(whole.node_pids()[0])
        for shape in plan:
            results.measured += await _measure(shape, variants, results.left_out, on_progress)
        on_progress("memory")
        rested = None if quick else TrapezoidVariant("rested", folder / "rested", tls=False, is_bare=False)
        if rested is not None:
            await nursery.start(rested.run)
        results.footprint = await measure_footprint(whole, rested, node_rss_kib=idle_kib)
        nursery.cancel_scope.cancel()


def _variants(folder: Path, plan: tuple[Traffic, ...]) -> dict[tuple[str, bool], Variant]:
    """One of each kind that the plan needs; records and logs of earlier benchmarks are removed."""
    wanted = dict.fromkeys((name, shape.tls) for shape in plan for name in shape.variants)
    made: dict[tuple[str, bool], Variant] = {}
    for name, tls in wanted:
        place = folder / f"{name.replace(' ', '-')}{'-tls' if tls else ''}"
        for data in place.glob("*/data/records"):
            shutil.rmtree(data)
        if name == RELAYS:
            made[name, tls] = RelayVariant(name, place, tls=tls)
        elif name == VERTX_PEER:
            made[name, tls] = PlainVariant(name, place)
        else:
            made[name, tls] = TrapezoidVariant(name, place, tls=tls, is_bare=name == NO_SANDBOX)
    return made


async def _start(nursery: trio.Nursery, variant: Variant, left_out: dict[str, str]) -> None:
    """Start one variant. What is only compared with may fail and is left out; the whole trapezoid may not."""
    try:
        await nursery.start(variant.run)
    except* HostError as group:
        if variant.name == TRAPEZOID:
            raise
        left_out[variant.name] = "; ".join(str(error) for error in leaves(group))


async def _measure(
    shape: Traffic,
    variants: dict[tuple[str, bool], Variant],
    left_out: dict[str, str],
    on_progress: Callable[[str], None],
) -> list[Measured]:
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
