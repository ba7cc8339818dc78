"""CPU time of one `/metrics` in the worst case: 256 links, each of whose counters is above 0.

`python -m benchmarks.metrics_page`: a real node in this process, with a real link and stub for each of 256 domains,
which cannot be reached. What they count is set; then the page is made as the site makes it: gathered from them all, and
written.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import trio

from federation.core.link_counts import LinkCount
from msg_node.app import serve
from msg_node.kernel.counts import NodeCount
from msg_node.node import Node
from msg_node.node_status import node_metrics
from msg_node.settings.load import load_settings
from msg_node.settings.model import Settings

LINKS: Final = 256
ROUNDS: Final = 40
_SETTINGS: Final = """
[node]
domain = "a.example"
data_dir = "data"
[listen]
port = 0
insecure_plaintext = true
[discovery]
nameservers = ["127.0.0.1:1"]
"""
_PEER: Final = '[[peer]]\ndomain = "partner-{}.example"\ndefault = "permit"\nstay_connected = true\n'


def settings_of(folder: Path, links: int) -> Settings:
    """The settings of a node that stays connected with so many domains."""
    file = folder / "node.toml"
    file.write_text(_SETTINGS + "".join(map(_PEER.format, range(links))), encoding="utf-8")
    return load_settings(file)


async def measured(folder: Path, links: int, rounds: int) -> tuple[bytes, list[float]]:
    """The page of a node with so many links, and the CPU milliseconds of each round, the shortest first."""
    settings, ready = settings_of(folder, links), trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(serve, settings, on_ready=lambda _facts: ready.set()))
        await ready.wait()
        gc.unfreeze()  # a node is among what `serve` has frozen
        [node] = [one for one in gc.get_objects() if isinstance(one, Node) and one.settings is settings]
        while len(node.federation.hosted_stubs()) < links:  # noqa: ASYNC110 - each tries to reach its domain once
            await trio.sleep(0.01)
        _count_everything(node)
        spent = []
        for _ in range(rounds):
            began = time.process_time()
            page = node_metrics(node)
            spent.append((time.process_time() - began) * 1e3)
        nursery.cancel_scope.cancel()
    return page, sorted(spent)


def _count_everything(node: Node) -> None:
    for link in node.federation.links:
        for name in LinkCount:
            link.counters[name] += 1_000_000
        link.stub.meters.exchanged(messages=1_000_000, elapsed_us=500, fuel=1_000_000, cpu_us=1_000_000, memory_bytes=1)
        link.stub.meters.traps += 1
    for one in NodeCount:
        for of_label in one.names:
            node.bus.counters[of_label] += 1_000_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and show."""
    parser = argparse.ArgumentParser(description="Measure the CPU time of one /metrics.")
    parser.add_argument("--links", type=int, default=LINKS, help="links to domains that cannot be reached")
    links = parser.parse_args(arguments).links
    logging.getLogger().setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        page, spent = trio.run(measured, Path(folder), links, ROUNDS)
    lines = page.count(b"\n")
    sys.stdout.write(f"{links} links, {lines} lines: median {median(spent):.1f} ms, longest {spent[-1]:.1f} ms\n")


if __name__ == "__main__":
    main()
