"""`python -m benchmarks.processes_of_node --config node.toml`: what a message costs where a node is several processes.

The same load at a node of one process and at one of four, in turns; the state of both is in the engine of `[storage]`
in the settings, under names of their own that are removed afterwards. The system spreads senders and receivers over the
processes, so with four of them three messages in four cross. Cost is CPU time of all processes of the node, for each
message; on two cores it says what four cores would spend.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from statistics import median
from typing import Final

import trio

from benchmarks.nodes_of_domain import FLOOD, PACED, connected, remove_nodes, running_node, settings_text
from benchmarks.process_time import process_tree
from benchmarks.sides import Pair, Run
from msg_node.settings.load import load_settings
from msg_node.settings.model import Settings
from protofly.errors import SettingsError

PROCESSES: Final = (1, 4)
MOST_RATIO: Final = 1.25
LOADS: Final = {"flood": FLOOD, "500/s": PACED}


def name_of(processes: int) -> str:
    """The name of the node with so many processes."""
    return f"benchmark-{processes}"


def names_of(processes: int) -> list[str]:
    """The names of all its processes."""
    return [name_of(processes), *(f"{name_of(processes)}-p{number}" for number in range(2, processes + 1))]


async def measure(settings: Settings, folder: Path, rounds: int) -> dict[tuple[int, str], list[Run]]:
    """All runs, by number of processes and kind of load."""
    runs: dict[tuple[int, str], list[Run]] = {}
    for processes in PROCESSES:  # one node at a time: all of them would be one domain
        async with AsyncExitStack() as stack:
            name = name_of(processes)
            text = settings_text(settings, folder, name, processes=processes, has_others=False)
            node = await stack.enter_async_context(running_node(text, folder, name))
            pair: Pair = await stack.enter_async_context(connected(settings, folder, str(processes), (node, node)))
            pids = process_tree(node.child.pid)
            for _, (kind, load) in product(range(rounds), LOADS.items()):
                runs.setdefault((processes, kind), []).append(await pair.run(load, pids))
    return runs


def report(runs: dict[tuple[int, str], list[Run]]) -> bool:
    """Print medians; returns True if the bar holds in a flood, and nothing was lost."""
    cpu = {key: median(run.cpu_us_per_message for run in of_key) for key, of_key in runs.items()}
    for key, of_key in sorted(runs.items(), key=str):
        processes, kind = key
        rate, p50 = median(one.messages_per_second for one in of_key), median(one.p50_ms or 0.0 for one in of_key)
        _show(f"{kind:6} {processes} processes {rate:8,.0f} msg/s  p50 {p50:7.2f} ms  {cpu[key]:7.1f} µs of CPU")
    few, many = min(PROCESSES), max(PROCESSES)
    ratios = {kind: cpu[many, kind] / cpu[few, kind] for kind in LOADS}
    for kind, ratio in ratios.items():
        _show(f"cost of a message, {many} processes : {few}, {kind}  {ratio:.2f}  (at most {MOST_RATIO})")
    all_runs = [one for of_key in runs.values() for one in of_key]
    is_faultless = all(one.is_faultless for one in all_runs)
    foreign = max(one.foreign_cores for one in all_runs)
    _show(f"faultless: {is_faultless}; other programs used up to {foreign:.2f} processors meanwhile")
    return is_faultless and max(ratios.values()) <= MOST_RATIO


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="Measure messages at a node of several processes.")
    parser.add_argument("--config", type=Path, required=True, help="settings whose [storage] names the engine")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    settings = load_settings(arguments.config)
    if not settings.storage.engine:
        raise SettingsError("there is no storage.engine in these settings")
    with tempfile.TemporaryDirectory(prefix="trapezoid-") as text:
        try:
            is_good = report(trio.run(measure, settings, Path(text), arguments.rounds))
        finally:
            remove_nodes(settings, [name for processes in PROCESSES for name in names_of(processes)])
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
