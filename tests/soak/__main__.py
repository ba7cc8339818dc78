"""Mixed traffic with faults against two real domains: `./run endurance soak [--minutes 30] [--seed 1] [--json FILE]`.

Exit code 0 when every promise held, memory has a plateau and no log has an ERROR that no fault explains; else 1.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import trio
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .soak import Outcome, soak

ROOT = Path(__file__).parents[2]
OWN_DISK = "TRAPEZOID_SOAK_DISK"


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="./run endurance soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="how long the traffic lasts (default 30)")
    parser.add_argument("--seed", type=int, default=1, help="seed of traffic and faults")
    parser.add_argument("--json", type=Path, help="write everything that was seen to this file")
    parser.add_argument("--keep", type=Path, help="folder for the laboratory, kept afterwards; by default a new one")
    arguments = parser.parse_args()
    if os.environ.get(OWN_DISK) is None and (unshare := _own_mounts()):
        command = [unshare, "-rm", sys.executable, "-m", "tests.soak", *sys.argv[1:]]
        return subprocess.run(command, check=False, env={**os.environ, OWN_DISK: "1"}).returncode
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="soak-"))
    try:
        outcome = run(folder, minutes=arguments.minutes, seed=arguments.seed)
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.encode(outcome))
    show(outcome)
    return 1 if outcome.findings else 0


def _own_mounts() -> str:
    """`unshare`, when this process may have mounts of its own: only then can a disk be filled without harm."""
    unshare = shutil.which("unshare") or ""
    if unshare and subprocess.run([unshare, "-rm", "true"], check=False, capture_output=True).returncode == 0:
        return unshare
    return ""


def run(folder: Path, *, minutes: float, seed: int) -> Outcome:
    """Run one soak with a progress bar."""
    if os.environ.get(OWN_DISK):
        data = folder / "a.example" / "data"
        data.mkdir(parents=True, mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512m,mode=0700", "tmpfs", str(data)], check=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("starting", total=minutes * 60)

        def show_progress(seconds: float, text: str) -> None:
            progress.update(bar, completed=seconds, description=text)

        return trio.run(soak, folder, minutes * 60, random.Random(seed), show_progress)


def show(outcome: Outcome) -> None:
    """Print tables and findings."""
    console = Console()
    flows = Table("flow", "answers", title="Requests and their final answers")
    for flow, codes in outcome.answers.items():
        flows.add_row(flow, ", ".join(f"{count:,} × {code}" for code, count in codes.items()))
    console.print(flows)
    facts = Table("what", "seen", title="Soak")
    facts.add_row("messages heard by runtimes", f"{outcome.heard:,}")
    facts.add_row("parked actions acknowledged, ended", f"{outcome.acknowledged:,}, {outcome.ended:,}")
    facts.add_row("registrations granted, found at the end", f"{outcome.registered:,}, {outcome.found:,}")
    facts.add_row("faults", ", ".join(f"{count} × {name}" for name, count in outcome.faults.items()))
    memory = outcome.memory
    sizes = ", ".join(str(size >> 20) for size in (memory.start, memory.peak, memory.end))
    slope = f"{memory.slope_per_hour / 2**20:+.1f} MiB/h"
    facts.add_row("memory of A: start, peak, end, slope", f"{sizes} MiB, {slope}")
    facts.add_row("ERROR lines explained by faults", f"{outcome.explained_errors}")
    console.print(facts)
    for finding in outcome.findings:
        console.print(f"✗ {finding}", style="red", markup=False)
    if not outcome.findings:
        console.print("✓ every promise held, memory has a plateau, every ERROR has a fault that explains it")


if __name__ == "__main__":
    sys.exit(main())
