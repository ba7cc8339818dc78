"""Who takes part: domains with their clocks, users and stubs, and how much each pair of them talks.

Everything follows from the seed. Domains have parts to play, so that faults of one sort do not hide those of another:
faults of segments strike `wards`, the records of `late` end early, and faults of messages happen between the others.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

import numpy as np
from numpy.typing import NDArray

from protofly.documents import SigningKey
from protofly.errors import SettingsError

Array = NDArray[np.float64]
Indexes = NDArray[np.int64]

SLOT_US: Final = 600 * 1_000_000
DAY_US: Final = 86_400 * 1_000_000
CLOCK_SIGMA_US: Final = 30_000
WRONG_CLOCK_US: Final = 2_500_000
USERS: Final = 240
PAIRS_PER_DOMAIN: Final = 30
LEAST_DOMAINS: Final = 8
_SCHEMES: Final = ("hyperty",) * 14 + ("comm",) * 4 + ("connection", "context")


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthOptions:
    """Options of the traffic to make.

    `rows` is about how many message records all nodes write together; `segments` is how many each node seals.
    """

    rows: int = 200_000
    domains: int = 50
    has_faults: bool = True
    seed: int = 1
    days: int = 3
    segments: int = 8
    first_day: dt.date = dt.date(2026, 3, 2)
    has_blocks: bool = True
    """Nodes write messages in columns; False: in lines, as before version 2."""

    def check(self) -> None:
        """Refuse what cannot be made. Raises SettingsError."""
        if self.domains < LEAST_DOMAINS or self.rows < 1_000 or self.days < 1 or self.segments < 2:
            raise SettingsError(
                f"traffic needs at least {LEAST_DOMAINS} domains, 1 000 rows, a day and 2 segments for each node"
            )

    @property
    def start_us(self) -> int:
        """Midnight of the first day, µs since the Unix epoch."""
        midnight = dt.datetime.combine(self.first_day, dt.time(), dt.UTC)
        return int(midnight.timestamp()) * 1_000_000

    @property
    def end_us(self) -> int:
        """Midnight after the last day."""
        return self.start_us + self.days * DAY_US


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A domain publishes a newer stub; factors are those of the newer one against the older."""

    at_us: int
    older: str
    newer: str
    traps: float = 1.0
    latency: float = 1.0
    fuel: float = 1.0


@dataclass(slots=True)
class Domain:
    """One domain and its only node."""

    number: int
    name: str
    offset_us: int
    key: SigningKey
    boot: int
    stub: Upgrade
    addresses: list[str]
    id_base: int
    hash_key: bytes | None = None
    restarts: bool = False

    @property
    def node(self) -> str:
        """Name of the node in record files."""
        return f"mn-1.{self.name}"


@dataclass(slots=True)
class World:
    """All domains, their parts, and who talks to whom."""

    options: SynthOptions
    domains: list[Domain]
    sources: Indexes
    targets: Indexes
    cumulative: Array
    transit_us: Array
    wards: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    wrong_clock: int = -1
    regressed: int = -1
    healthy: frozenset[int] = frozenset()
    """Between these, faults of messages may happen."""

    @property
    def tracked(self) -> frozenset[int]:
        """Domains of whose segments some will be damaged or missing."""
        return frozenset([*self.wards, *self.late])


def make_world(options: SynthOptions) -> World:
    """Draw everybody. Raises SettingsError for options that make no sense."""
    options.check()
    rng = np.random.default_rng([options.seed, 1])
    count = options.domains
    names = [f"d{number:03}.example" for number in range(count)]
    names[1], names[count - 1] = "partner.example", "spam.example"
    # Parts are played by domains of middle popularity: busy enough to have every segment, not the whole story.
    cast = [number for number in range(count) if number not in (1, count - 1)]
    cast = cast[len(cast) // 4 :] + cast[: len(cast) // 4]
    wards, late, wrong_clock = [], [], -1
    if options.has_faults:
        wards = cast[3 : 3 + max(2, min(10, count // 6))]
        late, wrong_clock = [cast[1]], cast[2]
    domains = [_make_domain(number, name, options, rng) for number, name in enumerate(names)]
    if wrong_clock >= 0:
        domains[wrong_clock].offset_us = WRONG_CLOCK_US
    world = World(options, domains, *_make_pairs(count, rng), wards=wards, late=late, wrong_clock=wrong_clock)
    unhealthy = {*wards, *late, wrong_clock, count - 1}
    world.healthy = frozenset(range(count)) - unhealthy
    if options.has_faults:
        world.regressed = cast[0]
        regressed = domains[world.regressed]
        regressed.stub = Upgrade(
            regressed.stub.at_us, regressed.stub.older, _stub_version(regressed.name, 2), 8.0, 1.4, 1.25
        )
    spare = [number for number in world.healthy if number not in (1, world.regressed)]
    if len(spare) >= 2:
        domains[spare[-1]].hash_key = sha256(f"{options.seed} addresses".encode()).digest()
        domains[spare[-2]].restarts = True
    return world


def _make_domain(number: int, name: str, options: SynthOptions, rng: np.random.Generator) -> Domain:
    seed = sha256(f"{options.seed} {name}".encode()).digest()
    is_upgraded = rng.random() < 0.3
    first = _stub_version(name, 1)
    at_us = options.start_us + options.days * DAY_US // 2
    schemes = rng.choice(np.array(_SCHEMES), USERS)
    return Domain(
        number=number,
        name=name,
        offset_us=int(rng.normal(0, CLOCK_SIGMA_US)),
        key=SigningKey.from_seed(f"{name.partition('.')[0]}-2026", seed),
        boot=options.start_us // 1000 - 60_000 + number,
        stub=Upgrade(at_us, first, _stub_version(name, 2) if is_upgraded else first),
        addresses=[f"{scheme}://{name}/{scheme[0]}-{user:03x}" for user, scheme in enumerate(schemes)],
        id_base=int.from_bytes(seed[:8], "big") >> 2,
    )


def _stub_version(name: str, version: int) -> str:
    return sha256(f"stub {version} of {name}".encode()).hexdigest()


def _make_pairs(count: int, rng: np.random.Generator) -> tuple[Indexes, Indexes, Array, Array]:
    """Ordered pairs, the busiest first; volume by Zipf's law. The way there and the way back take the same time."""
    popularity = 1 / np.arange(1, count + 1) ** 0.7
    sources, targets = np.divmod(np.arange(count * count), count)
    is_pair = sources != targets
    sources, targets = sources[is_pair], targets[is_pair]
    liking = popularity[sources] * popularity[targets] * rng.lognormal(0, 0.8, len(sources))
    busiest = np.argsort(-liking, kind="stable")[: count * PAIRS_PER_DOMAIN]
    sources, targets = sources[busiest], targets[busiest]
    weights = 1 / np.arange(1, len(sources) + 1) ** 0.9
    distance = rng.lognormal(np.log(12_000), 0.6, (count, count))
    distance = (distance + distance.T) / 2
    return sources, targets, np.cumsum(weights / weights.sum()), distance[sources, targets]
