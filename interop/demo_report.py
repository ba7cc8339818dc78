"""The final report of a demo on a terminal: picture, first contact, a message hop by hop, counts, files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.columns import Columns
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from interop.demo_view import shown_ms, trapezoid_picture
from interop.node_status import ContactStep, LinkStatus
from interop.summary import PassedHop, Summary
from protofly.printable import escaped


def show_report(
    console: Console,
    *,
    domains: tuple[str, str],
    summary: Summary,
    link: LinkStatus | None,
    hops: Sequence[PassedHop],
    state_dir: Path,
) -> None:
    """Print everything a newcomer wants to see after the run."""
    worker = summary.worker_pids.get(domains[0])
    console.print()
    console.print(Panel(trapezoid_picture(domains, summary.node_pids, worker), expand=False, border_style="blue"))
    console.print(Columns([_contact(summary, link), _hops(hops)], padding=(0, 3)))
    console.print(Columns([_counts(summary), _files(state_dir, domains)], padding=(0, 3)))
    if summary.cache == "hit":
        compiled = "" if any(step.name == "compile" for step in summary.steps) else ", nothing was compiled"
        console.print(
            f"[green]{domains[0]} used its stubs cache for {domains[1]}:[/] all was verified again{compiled}. "
            "[dim]`--fresh` starts without it.[/]"
        )
    for fault in summary.faults:
        console.print(f"✗ {escaped(str(fault))}", style="bold red", markup=False, highlight=False, soft_wrap=True)
    if summary.ok:
        console.print(
            f"[bold green]✓ {summary.delivered:,} delivered once, equal and in order; "
            f"{summary.denied} forbidden ones denied; nothing lost.[/]"
        )


def _contact(summary: Summary, link: LinkStatus | None) -> Table:
    table = Table(title="First contact, step by step", title_style="bold", header_style="bold")
    table.add_column("step")
    table.add_column("this run" if summary.cache != "hit" else "this run (cache)", justify="right")
    table.add_column("after restart", justify="right")
    warm = _by_name(summary.warm_steps)
    cold = _by_name(summary.steps)
    for name in dict.fromkeys([*cold, *warm]):
        table.add_row(name, _shown(cold.get(name)), _shown(warm.get(name)))
    table.add_section()
    table.add_row(
        "look-up, there and back", _shown(summary.first_contact_ms), _shown(summary.warm_contact_ms), style="bold"
    )
    if link is not None and link.stub is not None:
        stub = link.stub
        about = f"{stub.name} {stub.version}, sha256 {stub.sha256[:16]}…, state {link.state}"
        table.caption = Text(escaped(about))
    return table


def _by_name(steps: Sequence[ContactStep]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for step in steps:
        sums[step.name] = sums.get(step.name, 0.0) + step.ms
    return sums


def _shown(milliseconds: float | None) -> str:
    return "–" if milliseconds is None else shown_ms(milliseconds)


def _hops(hops: Sequence[PassedHop]) -> Table:
    table = Table(title="One message, hop by hop", title_style="bold", header_style="bold")
    table.add_column("where")
    table.add_column("at", justify="right")
    table.add_column("+", justify="right", style="dim")
    for hop in hops:
        table.add_row(hop.place, shown_ms(hop.since_start_us / 1e3), shown_ms(hop.since_previous_us / 1e3))
    return table


def _counts(summary: Summary) -> Table:
    table = Table(title="Counts", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name in ("sent", "delivered", "denied", "lost", "duplicated", "reordered", "differing"):
        value: int = getattr(summary, name)
        is_bad = bool(value) and name in {"lost", "duplicated", "reordered", "differing"}
        table.add_row(name, f"[bold red]{value:,}[/]" if is_bad else f"{value:,}")
    table.add_section()
    table.add_row("p50 across domains", _shown(summary.p50_ms))
    table.add_row("p99 across domains", _shown(summary.p99_ms))
    return table


def _files(state_dir: Path, domains: tuple[str, str]) -> Table:
    table = Table(title=f"Files in {state_dir}", title_style="bold", header_style="bold")
    table.add_column("folder")
    table.add_column("files", justify="right")
    table.add_column("KiB", justify="right")
    for domain in domains:
        folders: dict[str, list[int]] = {}
        for path in sorted((state_dir / domain).rglob("*")):
            parts = path.relative_to(state_dir).parts
            if path.is_file():
                folders.setdefault("/".join(parts[: min(3, len(parts) - 1)]), []).append(path.stat().st_size)
        for folder, sizes in folders.items():
            table.add_row(folder, str(len(sizes)), f"{sum(sizes) / 1024:,.1f}")
    return table
