"""Measure the same translation of messages in a stub of each language, through the hop to the worker and back.

The stubs (`sources/translate.*`) read the members of a message of 547 bytes and write them again under other names, 16
messages in a batch. Languages take turns round by round, so that other load affects all alike; each figure is the
median of its rounds. Time is that on a processor, of host and worker together: other programs disturb it least.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from protofly.errors import SettingsError
from stubkit.build import build
from stubkit.cases import Script, load_script
from stubkit.certify import bench
from stubkit.live_stub import Rate

SOURCES: Final = Path(__file__).parent / "sources"
TARGETS_US: Final[dict[str, float | None]] = {".c": 15.0, ".zig": None, ".rs": None, ".ts": 18.0, ".js": 90.0}
"""By suffix of the source: how long the hop may take on a processor for a message; None: no target."""
BATCH: Final = 16
ROUNDS: Final = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and show; exit status 1 when a target is missed or memory grows, 2 when nothing could be measured."""
    parser = argparse.ArgumentParser(description="Measure stubs of each language.")
    parser.add_argument("--messages", type=int, default=1_000_000, help="messages for each language")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as JSON")
    options = parser.parse_args(arguments)
    console = Console()
    script = load_script(SOURCES / "cases.json")
    with tempfile.TemporaryDirectory(prefix="stub-bench-") as folder:
        modules = _built(Path(folder), console)
        rates = _measured(modules, script, options.messages // ROUNDS)
        memory = {suffix: _whole_run(module, script, options.messages) for suffix, module in modules.items()}
    if not rates:
        return 2
    _show(console, rates, memory)
    if options.json is not None:
        rows = {suffix: [asdict(rate) for rate in [*rates[suffix], memory[suffix]]] for suffix in rates}
        options.json.write_bytes(msgspec.json.encode(rows))
    return 0 if all(_is_good(suffix, rates[suffix], memory[suffix]) for suffix in rates) else 1


def _built(folder: Path, console: Console) -> dict[str, Path]:
    """Modules by suffix; a language whose compiler is not here is left out."""
    modules = {}
    for suffix in TARGETS_US:
        module = folder / f"translate{suffix}.wasm"
        try:
            build(SOURCES / f"translate{suffix}", module)
            modules[suffix] = module
        except SettingsError as exc:
            console.print(f"{suffix} is left out: {exc}", style="yellow", markup=False, highlight=False)
    return modules


def _measured(modules: dict[str, Path], script: Script, messages: int) -> dict[str, list[Rate]]:
    rates: dict[str, list[Rate]] = {suffix: [] for suffix in modules}
    for _ in range(ROUNDS):
        for suffix, module in modules.items():
            rates[suffix].append(bench(module, script, messages=max(messages // 10, BATCH), batch=BATCH))
    return rates


def _whole_run(module: Path, script: Script, messages: int) -> Rate:
    """One instance that carries all messages: its memory after a tenth, and at the end."""
    return bench(module, script, messages=messages, batch=256)


def _is_good(suffix: str, rates: list[Rate], whole: Rate) -> bool:
    target = TARGETS_US[suffix]
    is_quick = target is None or _median([rate.hop_cpu_us for rate in rates]) <= target
    return is_quick and whole.memory_bytes <= whole.first_memory_bytes


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _show(console: Console, rates: dict[str, list[Rate]], memory: dict[str, Rate]) -> None:
    columns = ("language", "hop, µs CPU", "target", "guest, µs CPU", "fuel", "memory, KiB")
    table = Table(*columns, title="Stubs by language")
    for suffix, rounds in rates.items():
        target, whole = TARGETS_US[suffix], memory[suffix]
        missed = "" if _is_good(suffix, rounds, whole) else " !"
        kib = [size >> 10 for size in (whole.first_memory_bytes, whole.memory_bytes)]
        table.add_row(
            suffix.removeprefix("."),
            f"{_median([rate.hop_cpu_us for rate in rounds]):.1f}{missed}",
            f"{target:.0f}" if target else "-",
            f"{_median([rate.cpu_us for rate in rounds]):.1f}",
            f"{_median([rate.fuel for rate in rounds]):,.0f}",
            f"{kib[0]:,} after {whole.messages // 10:,}, {kib[1]:,} after {whole.messages:,}",
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
