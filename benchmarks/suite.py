"""`./run bench`: start all variants, measure them in turns, show the tables."""

from __future__ import annotations

import os
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
from benchmarks.peers.suite import measure_peers
from benchmarks.plan import NO_SANDBOX, RELAYS, TRAPEZOID, VERTX_PEER, Measured, Traffic, shapes
from benchmarks.process_time import resident_kib
from benchmarks.report import (
    DOMAIN_TITLE,
    PEERS_TITLE,
    show_absent,
    show_crowds,
    show_lacks,
    show_neighbours,
    show_report,
    show_sweep,
)
from benchmarks.turns import measure_in_turns, start_variant
from benchmarks.variants import PlainVariant, RelayVariant, TrapezoidVariant, Variant, remove_records
from interop.processes import leaves
from protofly.errors import HostError


class Part(StrEnum):
    """A part of the suite that can be measured by itself."""

    TRAPEZOID = "trapezoid"
    DOMAIN = "domain"
    PEERS = "peers"


USUAL: Final = frozenset({Part.TRAPEZOID, Part.DOMAIN})
"""Measured when no part is named: these need no programs of others."""


@dataclass(slots=True)
class Results:
    """Everything that was measured. `absent` are programs of others that this machine does not have."""

    measured: list[Measured]
    left_out: dict[str, str] = field(default_factory=dict)
    footprint: Footprint | None = None
    inside: list[Measured] = field(default_factory=list)
    peers: list[Measured] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)

    @property
    def is_faultless(self) -> bool:
        """True if everything of ours was measured and nothing was lost, doubled, reordered or refused."""
        ours = [one for one in self.peers if one.variant == TRAPEZOID]
        return not self.left_out and all(one.is_faultless for one in (*self.measured, *self.inside, *ours))


def run(
    *,
    quick: bool = False,
    json_file: Path | None = None,
    state_dir: Path | None = None,
    parts: frozenset[Part] = USUAL,
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
    if results.peers:
        show_report(console, results.peers, None, title=PEERS_TITLE)
        show_lacks(console, results.peers)
    show_absent(console, results.absent)
    for name, reason in results.left_out.items():
        console.print(f"✗ {name} is left out: {reason}", style="bold red", highlight=False)
    if json_file is not None:
        _write_rows(json_file, [*results.measured, *results.inside, *results.peers])
    return 0 if results.is_faultless else 1


def default_state_dir() -> Path:
    """Folder for keys, certificates and caches of the benchmark's laboratories."""
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
    if Part.PEERS in parts:
        results.peers = await measure_peers(
            folder / "peers", quick=quick, on_progress=on_progress, absent=results.absent
        )
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
                starting.start_soon(start_variant, nursery, variant, results.left_out)
        whole = variants[TRAPEZOID, False]
        assert isinstance(whole, TrapezoidVariant)
        idle_kib = resident_kib(whole.node_pids()[0])
        for shape in plan:
            results.measured += await measure_in_turns(shape, variants, results.left_out, on_progress)
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
        remove_records(place)
        if name == RELAYS:
            made[name, tls] = RelayVariant(name, place, tls=tls)
        elif name == VERTX_PEER:
            made[name, tls] = PlainVariant(name, place)
        else:
            made[name, tls] = TrapezoidVariant(name, place, tls=tls, is_bare=name == NO_SANDBOX)
    return made
