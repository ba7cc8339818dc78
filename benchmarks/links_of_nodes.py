"""`python -m benchmarks.links_of_nodes`: what it costs that another node of the domain has the link to another domain.

Two domains of two nodes each, in a laboratory of its own with PostgreSQL, TLS and the default stub. The receivers are
at the node of the other domain that has the link there; the senders are at the node of theirs that has the link, or at
the other one, in turns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import product
from pathlib import Path
from statistics import median
from typing import Final

import trio

from benchmarks.process_time import process_tree
from benchmarks.sides import Load, Pair, Run, Side
from interop.lab.kept import KeptLab, make_lab
from protofly.errors import TransportError

CONNECTIONS: Final = 16
BODY_BYTES: Final = 200
FLOOD: Final = Load(count=16_000, rate=0, body_bytes=BODY_BYTES)
PACED: Final = Load(count=1_500, rate=500, body_bytes=BODY_BYTES)
PLACES: Final = {"at the link": 0, "at the other node": 1}
LOADS: Final = {"flood": FLOOD, "500/s": PACED}
WARM: Final = Load(count=320, rate=0, body_bytes=BODY_BYTES)


@asynccontextmanager
async def client(lab: KeptLab, folder: Path, domain: str, number: int, name: str) -> AsyncIterator[Side]:
    """A load client at one node of a domain."""
    side = Side(name, log_file=folder / f"{name}.log")
    try:
        url = lab.access_point(domain, number).url
        await side.start(url=url, ca_file=str(lab.ca_file), domain=domain, connections=CONNECTIONS, plain=False)
        yield side
    finally:
        with trio.CancelScope(shield=True):
            await side.stop()


async def measure(folder: Path, rounds: int) -> dict[tuple[str, str], list[Run]]:
    """All runs, by place of the senders and kind of load."""
    lab = await make_lab(folder / "lab", 2, nodes=2)
    runs: dict[tuple[str, str], list[Run]] = {}
    try:
        await lab.up()
        async with AsyncExitStack() as stack:
            receiver = await stack.enter_async_context(client(lab, folder, lab.domains[1], 0, "receiver"))
            pairs = {}
            for place, number in PLACES.items():  # the first one that sends has the link
                sender = await stack.enter_async_context(
                    client(lab, folder, lab.domains[0], number, f"sender-{number}")
                )
                pairs[place] = Pair(sender, receiver)
                await pairs[place].run(WARM, set())
            nodes = set[int]().union(*(process_tree(one.pid) for one in await lab.states()))
            for _, (place, pair), (kind, load) in product(range(rounds), pairs.items(), LOADS.items()):
                runs.setdefault((place, kind), []).append(await pair.run(load, nodes))
    finally:
        lab.down()
    return runs


def report(runs: dict[tuple[str, str], list[Run]]) -> bool:
    """Print medians; whether nothing was lost, doubled or out of order."""
    for (place, kind), of_key in sorted(runs.items()):
        cpu, rate = (median(getattr(one, name) for one in of_key) for name in ("cpu_us_per_message", _RATE))
        p50 = median(one.p50_ms or 0.0 for one in of_key)
        _show(f"{kind:6} senders {place:17} {rate:8,.0f} msg/s  p50 {p50:7.2f} ms  {cpu:7.1f} µs of CPU of all nodes")
    all_runs = [one for of_key in runs.values() for one in of_key]
    is_faultless = all(one.is_faultless for one in all_runs)
    foreign = max(one.foreign_cores for one in all_runs)
    _show(f"faultless: {is_faultless}; other programs used up to {foreign:.2f} processors meanwhile")
    return is_faultless


_RATE: Final = "messages_per_second"


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> int:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description="Measure messages to another domain by a node without the link.")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trapezoid-") as text:
        folder = Path(text)
        folder.chmod(0o711)  # PostgreSQL runs as another user where we are root
        try:
            is_good = report(trio.run(measure, folder, arguments.rounds))
        except TransportError as exc:
            _show(f"! {exc}")
            return 1
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
