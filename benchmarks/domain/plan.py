"""What is measured inside one domain, with which variants, and what the node has to reach. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.plan import Bar, Shape

NODE: Final = "node"
WS_RELAY: Final = "ws (Node.js)"
TRIO_RELAY: Final = "trio-websocket"

OBSERVERS: Final = 100
PIPELINED: Final = 1000
"""Requests that may be unanswered. The published suites write all of theirs before they read."""
PARKED_AT_ONCE: Final = 64
"""Actions that may be unanswered: what many senders together have under way, so that waiting for the disk shows."""
CROWDS: Final = (10, 1_000, 10_000)
ADDRESSES_PER_SESSION: Final = 10

_PAIR_BARS: Final = {100: 60_000, 1_000: 40_000, 10_000: 10_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flood(Shape):
    """As fast as TCP accepts; the slow relay gets fewer, so that all take about equally long."""

    count: int
    slow_count: int = 0

    def count_for(self, variant: str) -> int:
        """Messages that are sent in one run."""
        return self.slow_count if variant == TRIO_RELAY else self.count


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFlood(Flood):
    """From `width` runtimes to as many others of the same domain; paced with a `rate`."""

    width: int = 1
    rate: float = 0.0
    variants: tuple[str, ...] = (NODE, WS_RELAY, TRIO_RELAY)
    judged: str = NODE

    @property
    def is_paced(self) -> bool:
        """See `Shape.is_paced`."""
        return self.rate > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FanOut(Flood):
    """Updates of one object to many observers; figures count deliveries."""

    observers: int
    variants: tuple[str, ...] = (NODE, WS_RELAY, TRIO_RELAY)
    judged: str = NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation(Shape):
    """Addresses one by one, at most `window` requests unanswered; figures count requests."""

    count: int
    window: int
    body_bytes: int = 0
    variants: tuple[str, ...] = (NODE,)
    judged: str = NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class Parking(Shape):
    """Actions for an agent that is away, at most `window` unanswered; or, with `drains`, its return to them.

    Figures count actions: answered when they are on the disk, or taken and answered by the agent.
    """

    count: int
    window: int
    drains: bool = False
    body_bytes: int = 0
    variants: tuple[str, ...] = (NODE,)
    judged: str = NODE


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryReads(Shape):
    """Reads of the domain registry by user, at `rate` a second, with `entries` in it."""

    entries: int
    count: int
    rate: float
    body_bytes: int = 0
    variants: tuple[str, ...] = (NODE,)
    judged: str = NODE

    @property
    def is_paced(self) -> bool:
        """See `Shape.is_paced`."""
        return True


def shapes(*, quick: bool) -> tuple[Shape, ...]:
    """The whole plan; quick runs are fewer and leave out the larger bodies."""
    rounds = 3 if quick else 7
    pairs = [
        PairFlood(
            name="pair",
            body_bytes=body_bytes,
            count=10_000,
            slow_count=2_000,
            rounds=rounds,
            bars=(Bar(figure="messages_per_second", limit=limit, at_least=True),),
        )
        for body_bytes, limit in _PAIR_BARS.items()
        if not quick or body_bytes < 1_000
    ]
    return (
        *pairs,
        FanOut(
            name="observers",
            body_bytes=100,
            observers=OBSERVERS,
            count=500,
            slow_count=50,
            rounds=rounds,
            bars=(Bar(figure="messages_per_second", limit=150_000, at_least=True),),
        ),
        Allocation(
            name="allocate",
            count=10_000,
            window=PIPELINED,
            rounds=rounds,
            bars=(Bar(figure="messages_per_second", limit=25_000, at_least=True),),
        ),
        Allocation(name="sequential", count=500 if quick else 2_000, window=1),
        Parking(
            name="park",
            count=10_000,
            window=PARKED_AT_ONCE,
            rounds=rounds,
            bars=(Bar(figure="messages_per_second", limit=5_000, at_least=True), Bar(figure="p99_ms", limit=20.0)),
        ),
        Parking(
            name="drain",
            count=10_000,
            window=PARKED_AT_ONCE,
            drains=True,
            rounds=rounds,
            bars=(Bar(figure="messages_per_second", limit=5_000, at_least=True),),
        ),
    )


@dataclass(frozen=True, slots=True)
class Attack:
    """The attack of a hostile runtime or a stranger, and its rate per second."""

    kind: str
    rate: float
    is_at_site: bool = False


ALONE: Final = "alone"
ATTACKS: Final = {
    "beside one that never reads": Attack("unread", 1_000.0),
    "beside broken frames": Attack("broken", 50.0),
    "beside guessed sessions": Attack("guessed", 50.0),
    "beside requests at the site": Attack("requests", 50.0, is_at_site=True),
    "beside handshakes at the site": Attack("handshakes", 100.0, is_at_site=True),
}
"""Events of 4 kB to somebody who does not read them; connections that break the protocol; connections that ask five
times for the session of somebody else; TLS connections to the site with 20 requests each, and such that ask for
nothing."""


def neighbours_shape() -> PairFlood:
    """A pair at an easy pace, alone and beside each attack; full runs only."""
    return PairFlood(
        name="neighbours",
        body_bytes=100,
        rate=200.0,
        count=600,
        rounds=5,
        variants=(ALONE, *ATTACKS),
        judged=ALONE,
    )


QUIET: Final = "nothing is swept"
SWEPT: Final = "all entries are swept"


def registry_shapes() -> tuple[RegistryReads, PairFlood]:
    """A full registry: reads, and a pair at an easy pace while every entry of it ends at once; full runs only."""
    reads = RegistryReads(
        name="registry reads",
        entries=100_000,
        count=5_000,
        rate=500.0,
        rounds=3,
        bars=(Bar(figure="p99_ms", limit=5.0),),
    )
    pair = PairFlood(
        name="registry sweep",
        body_bytes=100,
        rate=500.0,
        count=2_500,
        rounds=3,
        variants=(QUIET, SWEPT),
        judged=SWEPT,
        bars=(Bar(figure="p99_ratio", limit=1.5),),
    )
    return reads, pair


def crowd_name(sessions: int) -> str:
    """The variant with that many quiet sessions."""
    return f"{sessions:,} sessions"


def crowd_shapes() -> tuple[PairFlood, ...]:
    """The same traffic beside ever more quiet sessions; full runs only."""
    names = tuple(crowd_name(sessions) for sessions in CROWDS)
    flood = PairFlood(
        name="10 pairs",
        width=10,
        body_bytes=100,
        count=40_000,
        rounds=5,
        variants=names,
        judged=names[-1],
        bars=(Bar(figure="cpu_ratio", limit=1.3), Bar(figure="session_kib", limit=30.0)),
    )
    paced = PairFlood(
        name="500/s",
        width=1,
        body_bytes=100,
        rate=500.0,
        count=2_500,
        rounds=3,
        variants=names,
        judged=names[-1],
    )
    return flood, paced
