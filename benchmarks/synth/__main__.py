"""`python -m benchmarks.synth --out DIR`: records of several domains with planted faults, to try the pipeline on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from benchmarks.synth.run import KEYS_NAME, SPOOL_FOLDER, synth
from benchmarks.synth.world import SynthOptions
from protofly.errors import SettingsError


def main(argv: Sequence[str] | None = None) -> int:
    """Write the traffic and say what is in it; 2 if the options make no sense or the folder has something in it."""
    arguments = _parser().parse_args(argv)
    console = Console(stderr=True, highlight=False)
    options = SynthOptions(
        rows=arguments.rows,
        domains=arguments.domains,
        has_faults=not arguments.no_faults,
        seed=arguments.seed,
        days=arguments.days,
    )
    out: Path = arguments.out
    try:
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("messages", total=None)
            truth = synth(
                options, out, on_progress=lambda done, total: progress.update(task, completed=done, total=total)
            )
    except (SettingsError, OSError) as error:
        console.print(f"error: {error}", markup=False, soft_wrap=True)
        return 2
    console.print(
        f"{truth.records.get('mdr', 0):,} message records of {arguments.domains} domains in {out}\n"
        f"next: trapezoid pipeline run --spool {out / SPOOL_FOLDER} --keys {out / KEYS_NAME} --lake LAKE",
        markup=False,
        soft_wrap=True,
    )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.synth",
        description="Write sealed segments of several domains, keys, policies, and a list of planted faults.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to create; empty or missing")
    parser.add_argument("--rows", type=int, default=200_000, help="about so many records, of all nodes together")
    parser.add_argument("--domains", type=int, default=50, help="number of domains")
    parser.add_argument("--no-faults", action="store_true", help="plant none; otherwise truth.json lists them")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal traffic")
    parser.add_argument("--days", type=int, default=3, help="number of days")
    return parser


if __name__ == "__main__":
    sys.exit(main())
