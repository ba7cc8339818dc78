"""From a number to a scene: who talks to whom, and what goes wrong meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import msgspec

from interop.lab.core.scene import (
    ANY_FAULT,
    FAULT_MEMBERS,
    UNJUDGED,
    Action,
    ActionKind,
    Bars,
    Domain,
    Fault,
    FaultKind,
    LabScene,
    Load,
    LoadKind,
    PromiseName,
    Runtime,
    Shared,
)
from tests.simulation.world import DOMAINS

_KINDS: Final[tuple[FaultKind, ...]] = (
    "kill",
    "restart",
    "full-disk",
    "cut",
    "drop",
    "drop",
    "half-open",
    "delay",
    "throttle",
)
_FURTHER_KINDS: Final[tuple[FaultKind, ...]] = ("clock-step", "clock-drift", "reorder")
_DEEDS: Final[tuple[ActionKind, ...]] = (
    "claim",
    "claim",
    "release",
    "subscribe",
    "unsubscribe",
    "publish",
    "park",
)
_TRACED_SHARE: Final = 0.4
"""The others are flows to the nodes."""
_NODE_FAULTS: Final = frozenset({"kill", "restart", "full-disk"})
_NAMES: Final = ("anna", "bruno", "carla", "dora", "emil")
_SECONDS: Final = 40.0
_APART_SECONDS: Final = 5.0
"""A node that was asked to stop takes a while."""
_RECOVERY_SECONDS: Final = 45.0
_SETTLE_SECONDS: Final = 120.0


def scene_of(seed: int) -> LabScene:
    """The scene of a seed; the same one whenever and wherever it is asked for."""
    draw = random.Random(f"scene {seed}")
    runtimes = tuple(
        Runtime(name=name, domain=DOMAINS[index % len(DOMAINS)])
        for index, name in enumerate(_NAMES[: draw.randint(3, len(_NAMES))])
    )
    faults = _apart([_fault(draw) for _ in range(draw.randint(1, 8))])
    faults += tuple(_beside(faults, _further_fault(random.Random(f"further faults {seed}"))))
    things = tuple(Shared(name=name, domain=draw.choice(DOMAINS)) for name in ("lamp", "lock")[: draw.randint(0, 2)])
    tests: tuple[PromiseName, ...] = ("once", "order", "kept", "answered", "genuine", "recovery")
    actions = _actions(draw, runtimes, things)
    scene = LabScene(
        title=f"seed {seed}",
        domain=tuple(Domain(name=name) for name in DOMAINS),
        runtime=runtimes,
        load=_loads(draw, runtimes),
        object=things,
        action=actions,
        fault=faults,
        promise=Bars(
            tests=(*tests, "history"),
            recovery_seconds=_RECOVERY_SECONDS,
            settle_seconds=_SETTLE_SECONDS,
        ),
    )
    return with_what_can_break(scene)


def _loads(draw: random.Random, runtimes: tuple[Runtime, ...]) -> tuple[Load, ...]:
    loads = []
    kinds: tuple[LoadKind, ...] = ("event", "request")
    for index, runtime in enumerate(runtimes):
        others = [one for one in runtimes if one.domain != runtime.domain]
        load = Load(
            from_=runtime.name,
            to=draw.choice(others).name,
            kind=kinds[(index + draw.randint(0, 1)) % 2],
            per_second=draw.choice((1.0, 2.0, 5.0, 20.0)),
            bytes=draw.choice((0, 100, 100, 3_000, 60_000)),
            start=round(draw.uniform(0.0, 5.0), 2),
            seconds=round(draw.uniform(_SECONDS / 4, _SECONDS), 2),
        )
        loads.append(load)
    traces = random.Random(f"traces of {len(loads)} loads, {loads[0].start}")  # beside: other loads stay as they are
    return tuple(msgspec.structs.replace(load, trace=traces.random() < _TRACED_SHARE) for load in loads)


def _fault(draw: random.Random) -> Fault:
    does = draw.choice(_KINDS)
    is_of_node = does in _NODE_FAULTS
    one, other, *_ = draw.sample(DOMAINS, 3)
    return _without_what_it_has_not(
        Fault(
            does=does,
            at=round(draw.uniform(0.5, _SECONDS * 0.8), 2),
            lasts=round(draw.choice((0.05, 0.5, 2.0, 8.0, 20.0)) * draw.uniform(0.5, 1.5), 2),
            domain=one if is_of_node else None,
            between=None if is_of_node else (one, other),
            milliseconds=draw.choice((20, 200, 2_000)),
            bytes_per_second=draw.choice((1_000, 20_000)),
        )
    )


def _without_what_it_has_not(fault: Fault) -> Fault:
    """The fault without numbers of other kinds. They are drawn all the same, so that a seed stays the same scene."""
    others = [name for name, kinds in FAULT_MEMBERS.items() if fault.does not in kinds]
    return msgspec.structs.replace(fault, **{name: getattr(ANY_FAULT, name) for name in others})


def _further_fault(draw: random.Random) -> Fault:
    """A wrong clock, or a line whose end arrives late: drawn beside all else, so that other faults stay as they are."""
    does = draw.choice(_FURTHER_KINDS)
    one, other, *_ = draw.sample(DOMAINS, 3)
    is_of_node = does != "reorder"
    return _without_what_it_has_not(
        Fault(
            does=does,
            at=round(draw.uniform(0.5, _SECONDS * 0.8), 2),
            lasts=round(draw.uniform(0.5, 15.0), 2),
            domain=one if is_of_node else None,
            between=None if is_of_node else (one, other),
            milliseconds=draw.choice((500, 2_000, 5_000)),
            clock_seconds=draw.choice((-86_400.0, -3_600.0, -20.0, 20.0, 3_600.0, 86_400.0)),
        )
    )


def _beside(faults: tuple[Fault, ...], further: Fault) -> Iterator[Fault]:
    """The further one, unless it would hit what another one hits at the same time."""
    at, end = further.at or 0.0, (further.at or 0.0) + further.seconds + _APART_SECONDS
    if all(end < (one.at or 0.0) or _end_of(one) + _APART_SECONDS < at for one in faults):
        yield further


def _apart(faults: list[Fault]) -> tuple[Fault, ...]:
    """Those that do not hit what another one of them hits already: each is to end as it began."""
    chosen: list[Fault] = []
    for fault in sorted(faults, key=lambda one: one.at or 0.0):
        before = [one for one in chosen if set(one.domains) == set(fault.domains)]
        if not before or (fault.at or 0.0) > _end_of(before[-1]) + _APART_SECONDS:
            chosen.append(fault)
    return tuple(chosen)


def _end_of(fault: Fault) -> float:
    return (fault.at or 0.0) + fault.lasts


def _actions(draw: random.Random, runtimes: tuple[Runtime, ...], things: tuple[Shared, ...]) -> tuple[Action, ...]:
    actions = []
    for thing in things:
        near = [one.name for one in runtimes if one.domain == thing.domain]
        for _ in range(draw.randint(2, 8)):
            does = draw.choice(_DEEDS)
            name = draw.choice([one.name for one in runtimes] if does == "park" else near)
            actions.append(Action(at=_moment(draw), runtime=name, does=does, object=thing.name))
    for runtime in draw.sample(runtimes, draw.randint(0, 1)):
        gone = _moment(draw)
        actions.append(Action(at=gone, runtime=runtime.name, does="leave"))
        actions.append(Action(at=round(gone + draw.uniform(0.1, 10.0), 2), runtime=runtime.name, does="return"))
    return tuple(actions)


def _moment(draw: random.Random) -> float:
    return round(draw.uniform(0.5, _SECONDS), 2)


def with_what_can_break(scene: LabScene) -> LabScene:
    """The scene without promises that nothing in it could break."""
    tests = [
        one
        for one in scene.promise.tests
        if not (one == "recovery" and not scene.fault)
        and not (one == "history" and all(action.does in UNJUDGED for action in scene.action))
        and not (one == "answered" and all(load.kind != "request" for load in scene.load))
    ]
    return msgspec.structs.replace(scene, promise=msgspec.structs.replace(scene.promise, tests=tuple(tests)))
