"""`trapezoid bench`: start all variants, measure them in turns, show the table.

Variants take turns inside each shape, round by round, so that whatever else the machine does meets all of them alike.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import trio
from rich.console import Console

from benchmarks.footprint import Footprint, measure_footprint
from benchmarks.plan import NO_SANDBOX, RELAYS, TRAPEZOID, Measured, Shape, shapes
from benchmarks.process_time import resident_kib
from benchmarks.report import show_report
from benchmarks.sides import Load, Run
from benchmarks.variants import RelayVariant, TrapezoidVariant, Variant
from interop.processes import leaves
from protofly.errors import HostError

WARM_UP: Final = Load(count=400, rate=1000.0, body_bytes=200)
FIRST: Final = Load(count=1, rate=1.0, body_bytes=200)


@dataclass(slots=True)
class Results:
    """Everything that was measured."""

    measured: list[Measured]
    footprint: Footprint | None = None

    @property
    def is_faultless(self) -> bool:
        """Whether nothing was lost, doubled, reordered or refused anywhere."""
        return all(measured.is_faultless for measured in self.measured)


def run(*, quick: bool = False, json_file: Path | None = None, state_dir: Path | None = None) -> int:
    """Measure and show; returns the exit status: 0, 1 when a message was lost or came wrongly, 2 when nothing ran."""
    console = Console(stderr=json_file == Path("-"))
    folder = state_dir or default_state_dir()
    results: Results | None = None
    try:
        with console.status("starting all variants") as status:
            results = trio.run(_run, folder, quick, status.update)
    except* HostError as group:
        for error in leaves(group):
            console.print(f"✗ {error}", style="bold red", markup=False, highlight=False)
    if results is None:
        return 2
    show_report(console, results.measured, results.footprint)
    if json_file is not None:
        _write_rows(json_file, results.measured)
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


async def _run(folder: Path, quick: bool, tell: Callable[[str], None]) -> Results:
    plan = shapes(quick=quick)
    variants = _variants(folder, plan)
    results = Results([])
    async with trio.open_nursery() as nursery:
        async with trio.open_nursery() as starting:
            for variant in variants.values():
                starting.start_soon(nursery.start, variant.run)
        whole = variants[TRAPEZOID, False]
        assert isinstance(whole, TrapezoidVariant)
        idle_kib = resident_kib(whole.node_pids()[0])
        for shape in plan:
            results.measured += await _measure(shape, variants, tell)
        tell("memory")
        results.footprint = await measure_footprint(whole, idle_kib, with_idle_runtimes=not quick)
        nursery.cancel_scope.cancel()
    return results


def _variants(folder: Path, plan: tuple[Shape, ...]) -> dict[tuple[str, bool], Variant]:
    """One of each kind that the plan needs; records and logs of earlier benchmarks are removed."""
    wanted = dict.fromkeys((name, shape.tls) for shape in plan for name in shape.variants)
    made: dict[tuple[str, bool], Variant] = {}
    for name, tls in wanted:
        place = folder / f"{name.replace(' ', '-')}{'-tls' if tls else ''}"
        for data in place.glob("*/data/records"):
            shutil.rmtree(data)
        if name == RELAYS:
            made[name, tls] = RelayVariant(name, place, tls=tls)
        else:
            mode = "none" if name == NO_SANDBOX else ""
            made[name, tls] = TrapezoidVariant(name, place, tls=tls, sandbox_mode=mode)
    return made


async def _measure(
    shape: Shape, variants: dict[tuple[str, bool], Variant], tell: Callable[[str], None]
) -> list[Measured]:
    runs: dict[str, list[Run]] = {name: [] for name in shape.variants}
    for name in shape.variants:
        pair = await variants[name, shape.tls].pair(shape.width)
        pids = variants[name, shape.tls].pids()
        if shape.width == 1:
            await pair.run(FIRST, pids)  # brings up the link: while it comes up only few messages may wait
        await pair.run(WARM_UP, pids)
    for number in range(shape.rounds):
        for name in shape.variants:
            variant = variants[name, shape.tls]
            tell(f"{shape.name}, {shape.body_bytes} B{', TLS' if shape.tls else ''}: {name}, round {number + 1}")
            runs[name].append(await (await variant.pair(shape.width)).run(shape.load(name), variant.pids()))
    return [Measured(variant=name, shape=shape, runs=tuple(done)) for name, done in runs.items()]
