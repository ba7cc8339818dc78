"""`python -m benchmarks.nodes_of_domain --config node.toml`: what it costs that a message goes from node to node.

Two nodes of one domain share the engine of `[storage]` in the settings, under names of their own that are removed
afterwards. Senders are at the first node; receivers are there as well, or at the second one, in turns.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Final

import msgspec
import trio

from benchmarks.process_time import process_tree
from benchmarks.sides import Load, Pair, Run, Side
from interop.processes import Child
from msg_node.cluster.names import Names
from msg_node.settings.load import load_settings
from msg_node.settings.model import Settings
from msg_node.wiring.cluster import open_engine
from protofly.errors import SettingsError

NAMES: Final = ("benchmark-1", "benchmark-2")
CONNECTIONS: Final = 16
BODY_BYTES: Final = 200
START_SECONDS: Final = 60.0
FLOOD: Final = Load(count=160_000, rate=0, body_bytes=BODY_BYTES)
PACED: Final = Load(count=2_500, rate=500, body_bytes=BODY_BYTES)
LEAST_RATIO: Final = 0.6
MOST_ADDED_MS: Final = 0.4


@dataclass(frozen=True, slots=True)
class RunningNode:
    """One of the two nodes."""

    child: Child
    url: str


def settings_text(settings: Settings, folder: Path, name: str, *, processes: int = 1, has_others: bool = True) -> str:
    """The file of one node; keys are as TOML has them, which JSON texts are as well.

    Args:
        settings: Their engine and domain are those of the node.
        folder: Where the node keeps its data.
        name: Its name.
        processes: How many serve together as this node.
        has_others: It is one of several nodes, which find each other in the same folder.
    """
    storage: dict[str, object] = {"engine": settings.storage.engine, "tls": settings.storage.tls}
    for key in ("password_file", "ca_file", "certificate", "key"):
        if (path := getattr(settings.storage, key)) is not None:
            storage[key] = str(path)
    tables: dict[str, dict[str, object]] = {
        "node": {"domain": settings.node.domain, "name": name, "data_dir": str(folder / name), "processes": processes},
        "listen": {"port": 0, "insecure_plaintext": True},
        "storage": storage,
    }
    if has_others:
        tables["cluster"] = {"listen": f"unix:{folder / name}.sock", "key_file": str(folder / "cluster.key")}
    lines = []
    for table, members in tables.items():
        lines.append(f"[{table}]")
        lines += [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in members.items()]
    return "\n".join(lines)


@asynccontextmanager
async def running_node(text: str, folder: Path, name: str) -> AsyncIterator[RunningNode]:
    """Run one node with these settings."""
    config = folder / f"{name}.toml"
    config.write_text(text)
    child = Child(["trapezoid", "serve", "--config", str(config)], log_file=folder / f"{name}.log")
    await child.start()
    try:
        with trio.fail_after(START_SECONDS):
            ready = await child.wait_ready()
        yield RunningNode(child, str(ready["listen"]))
    finally:
        with trio.CancelScope(shield=True):
            await child.stop()


@asynccontextmanager
async def connected(settings: Settings, folder: Path, place: str, at: tuple[RunningNode, ...]) -> AsyncIterator[Pair]:
    """A sender at the first node, and a receiver at the second one."""
    sides = []
    for role, node in zip(("sender", "receiver"), at, strict=True):
        side = Side(f"{role}-{place[0]}", log_file=folder / f"{role}-{place[0]}.log")
        await side.start(url=node.url, ca_file="", domain=settings.node.domain, connections=CONNECTIONS, plain=False)
        sides.append(side)
    pair = Pair(*sides)
    try:
        yield pair
    finally:
        with trio.CancelScope(shield=True):
            await pair.stop()


async def measure(settings: Settings, folder: Path, rounds: int) -> dict[tuple[str, str], list[Run]]:
    """All runs, by place of the receivers and kind of load."""
    runs: dict[tuple[str, str], list[Run]] = {}
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(running_node(settings_text(settings, folder, name), folder, name))
            for name in NAMES
        ]
        nodes = process_tree(one.child.pid) | process_tree(two.child.pid)
        places = {"same node": (one, one), "other node": (one, two)}
        pairs = {
            place: await stack.enter_async_context(connected(settings, folder, place, at))
            for place, at in places.items()
        }
        for _ in range(rounds):
            for (kind, load), (place, pair) in product((("flood", FLOOD), ("500/s", PACED)), pairs.items()):
                runs.setdefault((place, kind), []).append(await pair.run(load, nodes))
    return runs


def remove_nodes(settings: Settings, all_names: Sequence[str] = NAMES) -> None:
    """Remove what nodes have left in the engine: sessions whose runtimes could come back."""
    engine, names_engine = open_engine(settings), open_engine(settings)
    assert engine is not None
    assert names_engine is not None
    with engine.transaction() as connection:
        for table in ("trapezoid_row", "trapezoid_claim"):
            connection.execute(f"DELETE FROM {table} WHERE node = ANY(%s)".encode(), (list(all_names),))  # noqa: S608  ours
    engine.close()
    names = Names(names_engine)
    for name in all_names:
        names.remove(name)
    names.close()


def report(runs: dict[tuple[str, str], list[Run]]) -> bool:
    """Print medians; whether both bars hold and nothing was lost."""
    cpu = {key: median(run.cpu_us_per_message for run in of_key) for key, of_key in runs.items()}
    p50 = {key: median(run.p50_ms or 0.0 for run in of_key) for key, of_key in runs.items()}
    rate = {key: median(run.messages_per_second for run in of_key) for key, of_key in runs.items()}
    for place, kind in runs:
        key = place, kind
        _show(f"{kind:6} {place:11} {rate[key]:8,.0f} msg/s  p50 {p50[key]:7.2f} ms  {cpu[key]:7.1f} µs of CPU")
    ratio = cpu["same node", "flood"] / cpu["other node", "flood"]
    added = p50["other node", "500/s"] - p50["same node", "500/s"]
    foreign = max(run.foreign_cores for of_key in runs.values() for run in of_key)
    is_faultless = all(run.is_faultless for of_key in runs.values() for run in of_key)
    _show(f"messages per second and core, other node : same node  {ratio:.2f}  (at least {LEAST_RATIO})")
    _show(f"added p50 at 500/s  {added:.2f} ms  (at most {MOST_ADDED_MS})")
    for key, of_key in runs.items():
        for run in of_key:
            if not run.is_faultless:
                _show(f"! {key}: lost {run.lost}, twice {run.duplicated}, late {run.reordered}, refused {run.refused}")
    _show(f"faultless: {is_faultless}; other programs used up to {foreign:.2f} processors meanwhile")
    return is_faultless and ratio >= LEAST_RATIO and added <= MOST_ADDED_MS


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="Measure messages between two nodes of one domain.")
    parser.add_argument("--config", type=Path, required=True, help="settings whose [storage] names the engine")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    settings = load_settings(arguments.config)
    if not settings.storage.engine:
        raise SettingsError("there is no storage.engine in these settings")
    with tempfile.TemporaryDirectory(prefix="trapezoid-") as text:
        folder = Path(text)
        key = folder / "cluster.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(32))
        try:
            is_good = report(trio.run(measure, settings, folder, arguments.rounds))
        finally:
            remove_nodes(settings)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
