"""`python -m benchmarks.cluster_model`: how many nodes, engines and links so many sessions take, and what ends first.

A simulation from measured costs. Sessions come to nodes by chance, and some talk much more than others; the busiest
node decides. One node dies, and its sessions come back to the others. Each resource gets the share of its bound that is
used. docs/cluster-sizes.md explains the figures.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from dataclasses import dataclass
from typing import Final

SIZES: Final = (1_000_000, 10_000_000, 100_000_000)
FULL: Final = 0.7
"""A node or an engine is full at this share of a core: above, latencies rise."""
DAY_SECONDS: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Measured costs; two shared cores under load, so these are upper bounds. Sources: docs/cluster-sizes.md.

    Attributes:
        local_us: CPU of a message inside one node, 500 a second over 16 connections.
        crossing_us: CPU of one from node to node, both together.
        session_kib: Memory of a session with TLS.
        node_mib: Of a node without sessions.
        change_us: Engine, a change among many.
        notice_us: Engine, an announcement for each node that hears it.
        heard_us: Node, an announcement, without what follows from it.
        name_us: Engine, a row of the table of names, which each node reads once a second.
        tick_us: Node, a look at the link to another node; five a second.
        look_up_us: Engine, one look into an index for a session of a dead node; three find it with what it holds.
        engine_connections: Of one node.
    """

    local_us: float = 163.0
    crossing_us: float = 285.0
    session_kib: float = 30.0
    node_mib: float = 73.0
    change_us: float = 110.0
    notice_us: float = 18.0
    heard_us: float = 1.8
    name_us: float = 55.0
    tick_us: float = 0.4
    look_up_us: float = 20.0
    engine_connections: int = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """Assumed behaviour of sessions.

    Attributes:
        messages_per_second: Of one session, on average.
        spread: Of that, as the sigma of a log-normal distribution.
        opens_per_day: How often a runtime comes and goes.
        changes_per_open: Rows and claims that this takes, and ends.
        ended_claims_per_open: Of those that are announced.
        sessions_per_node: `limits.sessions`.
        engine_connections: That an engine bears.
        return_seconds: In which the runtimes of a dead node come back.
    """

    messages_per_second: float = 0.05
    spread: float = 1.5
    opens_per_day: float = 6.0
    changes_per_open: float = 8.0
    ended_claims_per_open: float = 3.0
    sessions_per_node: int = 20_000
    engine_connections: int = 2_000
    return_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Size:
    """Resources for a number of sessions. `used` has the share of its bound for each resource, largest first."""

    sessions: int
    nodes: int
    busiest: float
    memory_gib: float
    links: int
    engines: int
    used: tuple[tuple[str, float], ...]


def simulate(sessions: int, costs: Costs, habits: Habits, chance: random.Random) -> Size:
    """Find the fewest nodes that carry the sessions, and what these nodes ask of the rest."""
    low, high = 1, 2
    while not _carries(sessions, high, costs, habits, chance)[0]:
        low, high = high, high * 2
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        if _carries(sessions, middle, costs, habits, chance)[0]:
            high = middle
        else:
            low = middle
    busiest = _carries(sessions, high, costs, habits, chance)[1]
    used = _used(sessions, high, costs, habits)
    engine_work = used["engine: changes"] + used["engine: announcements"] + used["engine: names"]
    engines = max(1, math.ceil(max(engine_work, used["engine: connections"])))
    memory = (sessions * costs.session_kib + high * costs.node_mib * 1024) / (1 << 20)
    ranked = sorted(used.items(), key=lambda one: -one[1])
    return Size(sessions, high, busiest, memory, high * (high - 1) // 2, engines, tuple(ranked))


def _carries(sessions: int, nodes: int, costs: Costs, habits: Habits, chance: random.Random) -> tuple[bool, float]:
    """True if the busiest of so many nodes has room for its sessions and its work, and its share of a core."""
    each = sessions / nodes
    crossing = (nodes - 1) / nodes
    per_message = (1 - crossing) * costs.local_us + crossing * costs.crossing_us
    rate = habits.messages_per_second * per_message / 1e6
    variance = math.exp(habits.spread**2) * rate**2  # second moment of one session's work: number and habit both vary
    fixed = _fixed(sessions, nodes, costs, habits)
    busiest = most = 0.0
    for _ in range(nodes):
        busiest = max(busiest, chance.gauss(each * rate, math.sqrt(each * variance)))
        most = max(most, chance.gauss(each, math.sqrt(each)))
    returning = each / max(nodes - 1, 1)  # what comes when one of the others dies
    work = busiest * (1 + returning / each) + fixed
    return work <= FULL and most + returning <= habits.sessions_per_node, work


def _fixed(sessions: int, nodes: int, costs: Costs, habits: Habits) -> float:
    """What a node does for the others, as a share of a core: its links, and announcements of all."""
    ended = sessions * habits.opens_per_day * habits.ended_claims_per_open / DAY_SECONDS
    return ((nodes - 1) * 5 * costs.tick_us + (ended * costs.heard_us if nodes > 1 else 0.0)) / 1e6


def _used(sessions: int, nodes: int, costs: Costs, habits: Habits) -> dict[str, float]:
    """The share of its bound that each common resource has, by its name."""
    opens = sessions * habits.opens_per_day / DAY_SECONDS
    each = sessions / nodes
    returning_us = 3 * costs.look_up_us + habits.changes_per_open * costs.change_us
    return {
        "engine: changes": opens * habits.changes_per_open * costs.change_us / 1e6 / FULL,
        "engine: announcements": opens * habits.ended_claims_per_open * nodes * costs.notice_us / 1e6 / FULL,
        "engine: names": nodes * nodes * costs.name_us / 1e6 / FULL,
        "engine: connections": nodes * costs.engine_connections / habits.engine_connections,
        "engine: sessions of a dead node": each * returning_us / 1e6 / habits.return_seconds / FULL,
        "node: announcements of all": _fixed(sessions, nodes, costs, habits) / FULL,
    }


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Simulate how large a cluster has to be.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--messages-per-second", type=float, default=Habits().messages_per_second)
    arguments = parser.parse_args()
    habits = Habits(messages_per_second=arguments.messages_per_second)
    for sessions in arguments.sessions:
        size = simulate(sessions, Costs(), habits, random.Random(arguments.seed))
        _show(
            f"{sessions:,} sessions: {size.nodes:,} nodes (busiest {size.busiest:.2f} of a core), "
            f"{size.memory_gib:,.0f} GiB, {size.links:,} links, {size.engines:,} times the engine"
        )
        for name, share in size.used:
            _show(f"    {share:10.2f} of its bound  {name}")


if __name__ == "__main__":
    main()
