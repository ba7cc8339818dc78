"""Bad behaviour, planted: which sender does what to whom in which hour, and the messages that it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from benchmarks.synth.truth import Abuse
from benchmarks.synth.world import USERS, World

_HOUR_US: Final = 3_600 * 1_000_000
_FIVE_MINUTES_US: Final = 300 * 1_000_000
_FAN_OUT, _SCANNING, _FLOOD, _SPOOFING = 220, 160, 600, 25
_PART_OF_ROWS: Final = 12
"""All abuse together is at most this part of the traffic."""
READ: Final = "read"


@dataclass(frozen=True, slots=True)
class Extra:
    """One planted message. A `to_user` below zero is an address that nobody has."""

    at_us: int
    source: int
    target: int
    to_user: int
    sender: str
    msg_type: str


@dataclass(frozen=True, slots=True)
class Spoof:
    """One message that a linked domain sent in the name of somebody else."""

    at_us: int
    observer: int
    linked: int
    claimed: str


@dataclass(slots=True)
class AbusePlan:
    """Everything that is planted."""

    extras: list[Extra] = field(default_factory=list)
    spoofs: list[Spoof] = field(default_factory=list)
    truth: list[Abuse] = field(default_factory=list)


def plan_abuse(world: World) -> AbusePlan:
    """Draw who misbehaves; nobody does in traffic without faults."""
    plan = AbusePlan()
    if not world.options.has_faults:
        return plan
    rng = np.random.default_rng([world.options.seed, 2])
    # Only between domains that write addresses as they are: the truth names the sender as the records do.
    cast = [number for number in sorted(world.healthy) if number != 1 and world.domains[number].hash_key is None]
    share = min(1.0, world.options.rows / _PART_OF_ROWS / (_FAN_OUT + _SCANNING + _FLOOD))
    hours = world.options.days * 24
    plots = (("fan-out", _FAN_OUT), ("scanning", _SCANNING), ("flood", _FLOOD), ("spoofing", _SPOOFING))
    for number, (pattern, size) in enumerate(plots):
        source, target = (int(one) for one in rng.choice(cast, 2, replace=False))
        messages = max(20, int(size * (1.0 if pattern == "spoofing" else share)))
        # In the second half, so that there is a baseline before it, and well before the end of the records.
        hour_us = world.options.start_us + int(rng.integers(hours // 2, hours - 4)) * _HOUR_US
        sender = f"hyperty://{world.domains[source].name}/h-plot-{number}"
        _plant(plan, world, rng, _Plot(pattern, source, target, messages, hour_us, sender))
    return plan


class _Plot(NamedTuple):
    """Who misbehaves towards whom, how, in which hour and with how many messages; domains by number."""

    pattern: str
    source: int
    target: int
    messages: int
    hour_us: int
    sender: str


def _plant(plan: AbusePlan, world: World, rng: np.random.Generator, plot: _Plot) -> None:
    pattern, source, target, messages, hour_us, sender = plot
    our, peer = world.domains[target], world.domains[source]
    span_us = _FIVE_MINUTES_US if pattern == "fan-out" else _HOUR_US - 60_000_000
    # The receiver's clock decides in which hour a record is: keep off the full hour.
    times = hour_us + 30_000_000 + np.sort(rng.integers(0, span_us - 30_000_000, messages))
    if pattern == "spoofing":
        claimed = f"hyperty://d{(source + 1) % world.options.domains:03}.example/h-somebody"
        plan.spoofs += [Spoof(int(at_us), target, source, claimed) for at_us in times]
        sender = peer.name
    elif pattern == "fan-out":
        users = rng.permutation(USERS)[:messages]
        plan.extras += [
            Extra(int(at_us), source, target, int(user), sender, READ)
            for at_us, user in zip(times, users, strict=False)
        ]
        messages = len(users)
    elif pattern == "scanning":
        plan.extras += [
            Extra(int(at_us), source, target, -1 - number, sender, READ) for number, at_us in enumerate(times)
        ]
    else:
        plan.extras += [Extra(int(at_us), source, target, 7, sender, "update") for at_us in times]
    plan.truth.append(Abuse(pattern, our.name, peer.name, hour_us, sender, messages))
