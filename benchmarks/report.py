"""The table of a benchmark, for people."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.domain.plan import ALONE, SWEPT, TRIO_RELAY, WS_RELAY, neighbours_shape
from benchmarks.footprint import Footprint
from benchmarks.peers.plan import LACKS
from benchmarks.plan import RELAYS, Measured

TRAPEZOID_TITLE: Final = "The whole trapezoid beside its parts"
DOMAIN_TITLE: Final = "Inside one domain, beside plain relays"
PEERS_TITLE: Final = "The whole trapezoid beside what others carry messages with"
DISTURBED_CORES: Final = 0.25  # performance study, section 1: runs with less foreign load count as clean
_MEMORY_BARS_KIB: Final = {"node": 80 * 1024, "worker": 15 * 1024, "runtime": 18}
_WORKER_START_MS: Final = 30.0


def show_report(
    console: Console, measured: list[Measured], footprint: Footprint | None, *, title: str = TRAPEZOID_TITLE
) -> None:
    """Print the table, what missed its bar, and the memory figures."""
    table = Table(title=title, title_style="bold", header_style="bold", box=box.SIMPLE_HEAD, padding=0)
    for name, justify in (
        ("shape", "left"),
        ("what", "left"),
        ("body", "right"),
        ("msg/s", "right"),
        ("p50", "right"),
        ("p99", "right"),
        ("CPU", "right"),
        ("×", "right"),
        ("lost", "right"),
        ("others", "right"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # literals through a tuple
    previous = None
    for one in measured:
        if previous is not None and one.shape is not previous:
            table.add_section()
        shape = "" if one.shape is previous else one.shape.name + (", TLS" if one.shape.tls else "")
        previous = one.shape
        table.add_row(
            shape,
            *_cells(one),
            style="bold" if one.variant == one.shape.judged else "dim" if _is_plain(one) else "",
        )
    console.print(table)
    _show_verdict(console, measured)
    if footprint is not None:
        _show_footprint(console, footprint)


def show_crowds(console: Console, measured: list[Measured]) -> None:
    """Print what a session weighs, and the longest that a message had to wait beside quiet ones."""
    for one in measured:
        row = one.row
        if row.session_kib is not None and one.shape.is_paced:
            console.print(f"  {one.variant}: {row.session_kib:.1f} KiB each, longest wait {_time(row.longest_ms)} ms")


def show_neighbours(console: Console, measured: list[Measured]) -> None:
    """Print by how much a pair waits longer beside each attack than alone."""
    waits = {one.variant: one.row for one in measured if one.shape.name == neighbours_shape().name}
    alone = waits.pop(ALONE, None)
    for name, row in waits.items():
        if alone is not None and alone.p50_ms and alone.p99_ms and row.p50_ms and row.p99_ms:
            p50, p99 = row.p50_ms / alone.p50_ms - 1, row.p99_ms / alone.p99_ms - 1
            console.print(f"  neighbours {name}: p50 {p50:+.0%}, p99 {p99:+.0%}", highlight=False)


def show_sweep(console: Console, measured: list[Measured]) -> None:
    """Print by how much a pair waits longer while the registry sweeps everything that is in it."""
    for one in measured:
        if one.variant == SWEPT and one.row.p99_ratio is not None:
            console.print(f"  while {SWEPT}: p99 ×{one.row.p99_ratio:.2f}", highlight=False)


def show_absent(console: Console, absent: dict[str, str]) -> None:
    """Say what could not be compared with, and why."""
    for name, reason in absent.items():
        console.print(f"! {name} is not in the table: {reason}", style="yellow", markup=False, highlight=False)


def show_lacks(console: Console, measured: list[Measured]) -> None:
    """Say what each peer leaves out."""
    for name in dict.fromkeys(one.variant for one in measured):
        if name in LACKS:
            console.print(f"  [dim]{name}: {LACKS[name]}[/]", highlight=False)


def _is_plain(one: Measured) -> bool:
    return one.variant in (RELAYS, WS_RELAY, TRIO_RELAY)


def _cells(one: Measured) -> tuple[str, ...]:
    row = one.row
    faults = f"{row.lost}" if one.is_faultless else f"[red]{row.lost} ✗[/]"
    cores = f"{one.foreign_cores:.2f}"
    return (
        one.variant,
        str(row.body_bytes or "–"),
        f"{row.messages_per_second:,.0f}",
        _time(row.p50_ms),
        _time(row.p99_ms),
        f"{row.cpu_us_per_message:.1f}",
        "" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}",
        faults,
        f"[yellow]{cores}[/]" if one.foreign_cores > DISTURBED_CORES else cores,
    )


def _time(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"
    return f"{milliseconds:.2f}" if milliseconds < 100 else f"{milliseconds:.0f}"


def _show_verdict(console: Console, measured: list[Measured]) -> None:
    for one in measured:
        for text in one.missed_bars:
            console.print(f"[yellow]! {one.row.name}: misses {text}[/]")
        if not one.is_faultless:
            sums = {
                word: sum(getattr(run, word) for run in one.runs)
                for word in ("lost", "duplicated", "reordered", "refused")
            }
            console.print(f"[red]✗ {one.row.name}: {sums}[/]")
    if any(one.foreign_cores > DISTURBED_CORES for one in measured):
        console.print(
            "[dim]Others were busy (yellow), here or on the host: compare CPU per message before throughput.[/]"
        )
    console.print(
        "[dim]Flood: the sender writes as fast as TCP accepts, so its latencies are those of full queues. "
        "Times in ms. CPU: µs per message, nodes with their workers, without clients; ×: the same over the first row "
        "of the shape. Others: processors that others used, the host included. Medians of rounds in turns.[/]"
    )


def _show_footprint(console: Console, footprint: Footprint) -> None:
    figures: list[tuple[str, float | None, float, str]] = [
        ("idle node, RSS", footprint.node_rss_kib / 1024, _MEMORY_BARS_KIB["node"] / 1024, "MiB"),
        (
            "further foreign domain, private",
            _mib(footprint.worker_private_kib),
            _MEMORY_BARS_KIB["worker"] / 1024,
            "MiB",
        ),
        ("worker start", footprint.worker_start_ms, _WORKER_START_MS, "ms"),
        ("idle local runtime, RSS", footprint.idle_runtime_kib, _MEMORY_BARS_KIB["runtime"], "KiB"),
    ]
    for name, value, bar, unit in figures:
        if value is not None:
            mark = "[green]✓[/]" if value <= bar else "[yellow]![/]"
            console.print(f"{mark} {name}: {value:.1f} {unit} (bar {bar:g} {unit})")


def _mib(kib: int | None) -> float | None:
    return None if kib is None else kib / 1024
