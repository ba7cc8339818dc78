"""The table of a benchmark, for people."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.footprint import Footprint
from benchmarks.plan import RELAYS, TRAPEZOID, Measured

DISTURBED_CORES: Final = 0.25  # federation study: only runs with less foreign load count as clean
_MEMORY_BARS_KIB: Final = {"node": 80 * 1024, "worker": 15 * 1024, "runtime": 18}
_WORKER_START_MS: Final = 30.0


def show_report(console: Console, measured: list[Measured], footprint: Footprint | None) -> None:
    """Print the table, what missed its bar, and the memory figures."""
    table = Table(title="The whole trapezoid beside its parts", title_style="bold", header_style="bold")
    for name, justify in (
        ("what", "left"),
        ("body", "right"),
        ("TLS", "center"),
        ("msg/s", "right"),
        ("p50 ms", "right"),
        ("p99 ms", "right"),
        ("CPU µs/msg", "right"),
        ("lost", "right"),
        ("others' cores", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]  # literals through a tuple
    previous = None
    for one in measured:
        if previous is not None and one.shape is not previous:
            table.add_section()
        previous = one.shape
        table.add_row(
            *_cells(one), style="bold" if one.variant == TRAPEZOID else "dim" if one.variant == RELAYS else ""
        )
    console.print(table)
    _show_verdict(console, measured)
    if footprint is not None:
        _show_footprint(console, footprint)


def _cells(one: Measured) -> tuple[str, ...]:
    row = one.row
    faults = f"{row.lost}" if one.is_faultless else f"[red]{row.lost} ✗[/]"
    cores = f"{one.foreign_cores:.2f}"
    return (
        row.name,
        str(row.body_bytes),
        "yes" if row.tls else "",
        f"{row.messages_per_second:,.0f}",
        "–" if row.p50_ms is None else f"{row.p50_ms:.2f}",
        "–" if row.p99_ms is None else f"{row.p99_ms:.2f}",
        f"{row.cpu_us_per_message:.1f}",
        faults,
        f"[yellow]{cores}[/]" if one.foreign_cores > DISTURBED_CORES else cores,
    )


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
        console.print("[dim]Other processes were busy (yellow): compare CPU per message before throughput.[/]")
    console.print(
        "[dim]Flood: the sender writes as fast as TCP accepts, so its latencies are those of full queues. "
        "CPU: both nodes with their workers, without clients. Medians of rounds in turns.[/]"
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
