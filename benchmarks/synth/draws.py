"""The messages of one slot of ten minutes, drawn by numpy: who, when, what, how large and fast, what goes wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.synth.world import SLOT_US, USERS, Array, Indexes, SynthOptions, World

TYPES: Final = ("create", "update", "response", "read", "subscribe", "delete", "execute", "unsubscribe")
_TYPE_SHARES: Final = np.cumsum([0.24, 0.27, 0.28, 0.12, 0.04, 0.02, 0.015, 0.015])
_TRANSIT_MOST_US: Final = 5_000_000
_LAST_FAULT_US: Final = 3_600 * 1_000_000
"""Faults are planted up to this long before the end, so that both sides prove what is missing."""

FAULTS: Final = ("lost", "orphan", "duplicated", "altered", "size", "outcome", "skewed")
_FAULT_RATES: Final = {
    "lost": 5e-4,
    "orphan": 1e-4,
    "duplicated": 3e-4,
    "altered": 1e-4,
    "size": 1e-4,
    "outcome": 1e-4,
    "skewed": 1e-4,
}
_LEAST_FAULTS: Final = 40
NO_FAULT: Final = -1


@dataclass(frozen=True, slots=True)
class Draws:
    """Messages of one slot in the order of time; plain lists, because they are walked in Python."""

    at_us: list[int]
    pair: list[int]
    msg_type: list[int]
    from_user: list[int]
    to_user: list[int]
    size: list[int]
    transit_us: list[int]
    stub_us: list[int]
    fuel: list[int]
    policy_us: list[int]
    hops: list[int]
    resource: list[int]
    """0 none, 1 an ordinary one, 2 a private one."""
    chance: list[float]
    """Decides how the message ends."""
    fault: list[int]
    """Index into `FAULTS`, or `NO_FAULT`."""
    digest: str
    """32 hex digits for each message, one after the other."""


def messages_per_slot(options: SynthOptions) -> Indexes:
    """Draw the number of messages in each slot of ten minutes: quiet nights, less at weekends."""
    slots = options.days * 144
    hours = np.arange(slots) / 6
    load = 1 + 0.75 * np.sin(2 * np.pi * (hours % 24 - 8.5) / 24)
    weekday = (options.first_day.weekday() + hours // 24) % 7
    load *= np.where(weekday >= 5, 0.55, 1.0)
    rng = np.random.default_rng([options.seed, 3])
    messages = round(options.rows / 1.93)  # a message makes a record on either side, unless it ends on the way
    return rng.multinomial(messages, load / load.sum())


def fault_shares(options: SynthOptions) -> Array:
    """Upper ends of the stretches of chance that belong to each fault; all zero without faults."""
    if not options.has_faults:
        return np.zeros(len(FAULTS))
    least = _LEAST_FAULTS / (options.rows / 2)
    return np.cumsum([max(_FAULT_RATES[name], least) for name in FAULTS])


def draw_slot(world: World, slot: int, count: int, shares: Array) -> Draws:
    """Draw the messages of one slot; the same for the same seed, whatever was drawn before."""
    options = world.options
    rng = np.random.default_rng([options.seed, 4, slot])
    start_us = options.start_us + slot * SLOT_US
    at_us = np.sort(start_us + rng.integers(0, SLOT_US, count))
    pair = np.searchsorted(world.cumulative, rng.random(count)).clip(max=len(world.sources) - 1)
    size = np.exp(rng.normal(np.log(430), 1.05, count)).clip(120, 240_000).astype(np.int64)
    transit = (world.transit_us[pair] * rng.lognormal(0, 0.35, count)).clip(200, _TRANSIT_MOST_US)
    fault = np.searchsorted(shares, rng.random(count), side="right")
    fault[(fault >= len(FAULTS)) | (at_us > options.end_us - _LAST_FAULT_US)] = NO_FAULT
    return Draws(
        at_us=at_us.tolist(),
        pair=pair.tolist(),
        msg_type=np.searchsorted(_TYPE_SHARES, rng.random(count)).clip(max=len(TYPES) - 1).tolist(),
        from_user=_draw_users(rng, count),
        to_user=_draw_users(rng, count),
        size=size.tolist(),
        transit_us=transit.astype(np.int64).tolist(),
        stub_us=rng.lognormal(np.log(160), 0.5, count).astype(np.int64).tolist(),
        fuel=(9_000 + size * rng.normal(11, 0.6, count).clip(8)).astype(np.int64).tolist(),
        policy_us=rng.poisson(5, count).tolist(),
        hops=rng.choice((0, 2, 8), count, p=(0.965, 0.0345, 0.0005)).tolist(),
        resource=rng.choice((0, 1, 2), count, p=(0.96, 0.039, 0.001)).tolist(),
        chance=rng.random(count).tolist(),
        fault=fault.tolist(),
        digest=rng.bytes(16 * count).hex(),
    )


def _draw_users(rng: np.random.Generator, count: int) -> list[int]:
    users: list[int] = (USERS * rng.random(count) ** 2.2).astype(np.int64).tolist()
    return users
