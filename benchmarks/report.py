"""The table of a benchmark, for people."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.footprint import Footprint
from benchmarks.plan import RELAYS, TRAPEZOID, Measured

DISTURBED_CORES: Final = 0.25  # federation study: only runs with less foreign load count as clean
_MEMORY_BARS_KIB: Final = {"node": 80 * 1024, "worker": 15 * 1024, "runtime": 18}
_WORKER_START_MS: Final = 30.0


def show_report(console: Console, measured: list[Measured], footprint: Footprint | None) -> None:
    """Print the table, what missed its bar, and the memory figures."""
    title = "The whole trapezoid beside its parts"
    table = Table(title=title, title_style="bold", header_style="bold", box=box.SIMPLE_HEAD, collapse_padding=True)
    for name, justify in (
        ("shape", "left"),
        ("what", "left"),
        ("body", "right"),
        ("TLS", "center"),
        ("msg/s", "right"),
        ("p50 ms", "right"),
        ("p99 ms", "right"),
        ("CPU µs", "right"),
        ("lost", "right"),
        ("others", "right"),
    ):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # literals through a tuple
    previous = None
    for one in measured:
        if previous is not None and one.shape is not previous:
            table.add_section()
        shape = "" if one.shape is previous else one.shape.name
        previous = one.shape
        table.add_row(
            shape, *_cells(one), style="bold" if one.variant == TRAPEZOID else "dim" if one.variant == RELAYS else ""
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
        one.variant,
        str(row.body_bytes),
        "yes" if row.tls else "",
        f"{row.messages_per_second:,.0f}",
        _time(row.p50_ms),
        _time(row.p99_ms),
        f"{row.cpu_us_per_message:.1f}",
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
        console.print("[dim]Other processes were busy (yellow): compare CPU per message before throughput.[/]")
    console.print(
        "[dim]Flood: the sender writes as fast as TCP accepts, so its latencies are those of full queues. "
        "CPU: per message, both nodes with their workers, without clients. Others: processors that other processes "
        "used. Medians of rounds in turns.[/]"
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
