"""Clock offsets of many domains out of the delays between pairs of them: weighted least squares.

Every pair with traffic both ways gives one equation, offset(b) − offset(a) = half the difference of its two delays,
with an error of at most half their sum. They weigh as much as messages stand behind them, and the less the larger that
error is: where few messages went, one that came late or was timed by a clock that jumped would else move everybody. All
equations of a connected component are solved together. No clock is the right one, so offsets are relative to one domain
of the component, which stays the same from hour to hour, so that offsets in a row show how a clock goes
(`pipeline.columns.clock_course`). Two delays with a negative sum cannot be: a clock was set in between, and the pair
says nothing.

Drifts are solved in the same way, with the same weights. Who drifts is said against the median of all clocks, not
against the reference, which may be the one that drifts (`pipeline.columns.clock_findings`).

The solution is a weighted sum of the equations, so its error is at most the same sum of their errors, each counted
positive: a bound, not an estimate, as far as delays are truly those of the line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_CHUNK: Final = 1024
_LEAST_ERROR_US: Final = 1_000
"""No pair is believed to know better, however short its line is."""
_MOST_EQUATIONS: Final = 300
"""Of so many, some 25 domains that all talk to each other, those that contradict are looked for: a square matrix."""
_ROUNDED_US: Final = 2
"""Delays are whole microseconds."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The least difference of the records' times of one ordered pair, in µs, and how many messages show it."""

    src_domain: str
    dst_domain: str
    low_us: int
    messages: int
    drift_ppb: int = 0
    """How much faster the receiver's clock goes than the sender's, in parts per billion."""


@dataclass(frozen=True, slots=True)
class Offset:
    """Offset of a domain's clock from that of `reference`, in µs (positive: ahead), and its drift."""

    domain: str
    offset_us: int
    error_us: int
    pairs: int
    messages: int
    component: int
    drift_ppb: int = 0
    reference: str = ""


class _Equation(NamedTuple):
    low: str
    high: str
    difference_us: float
    error_us: float
    weight: float
    messages: int
    drift_ppb: float


class ClockGraph:
    """Domains that have traffic both ways with another one, in components of those that are connected.

    Args:
        delays: Of ordered pairs, each at most once.
    """

    def __init__(self, delays: Iterable[Delay]) -> None:
        self._equations = _that_agree(_equations({(delay.src_domain, delay.dst_domain): delay for delay in delays}))
        self.components = _components(self._equations)
        """Sets of domains, by their first one."""

    def offsets(self, references: Collection[str] = ()) -> list[Offset]:
        """Offsets of all domains; by component, then by domain.

        Components are numbered from 0 in the order of their first domain. The reference of each is the first of those
        named that it has, or else its first domain.
        """
        component_of = {domain: number for number, domains in enumerate(self.components) for domain in domains}
        members: list[list[_Equation]] = [[] for _ in self.components]
        for one in self._equations:
            members[component_of[one.low]].append(one)
        return [
            offset
            for number, domains in enumerate(self.components)
            for offset in _solve(number, sorted(domains), members[number], references)
        ]


def _equations(delays: Mapping[tuple[str, str], Delay]) -> list[_Equation]:
    equations = []
    for (src, dst), there in sorted(delays.items()):
        back = delays.get((dst, src))
        if src >= dst or back is None or there.low_us + back.low_us < 0:
            continue
        error_us = (there.low_us + back.low_us) / 2
        equations.append(
            _Equation(
                low=src,
                high=dst,
                difference_us=(there.low_us - back.low_us) / 2,
                error_us=error_us,
                weight=there.messages
                * back.messages
                / (there.messages + back.messages)
                / (max(error_us, _LEAST_ERROR_US) / _LEAST_ERROR_US) ** 2,
                messages=there.messages + back.messages,
                drift_ppb=(there.drift_ppb - back.drift_ppb) / 2,
            )
        )
    return equations


def _that_agree(equations: list[_Equation]) -> list[_Equation]:
    """Equations that may all be true at once; of those that may not, all of the domain that contradicts most.

    Where few messages go, a pair may have been measured before a clock was set, and another one of that clock after.
    What is left over of an equation is a sum of all errors, so it is at most the same sum of their bounds.
    """
    while 2 < len(equations) <= _MOST_EQUATIONS:
        design, weight = _design(equations)
        error = np.array([one.error_us for one in equations])
        solved = design @ np.linalg.pinv(design.T @ (weight[:, None] * design), hermitian=True) @ (design.T * weight)
        rest = np.eye(len(equations)) - solved
        left_us = np.abs(rest @ np.array([one.difference_us for one in equations]))
        beyond_us = np.maximum(left_us - np.abs(rest) @ error - _ROUNDED_US, 0)
        if not beyond_us.any():
            break
        worst = sorted({domain for one in equations for domain in one[:2]})[
            int(np.argmax(np.abs(design.T) @ beyond_us))
        ]
        equations = [one for one in equations if worst not in one[:2]]
    return equations


def _design(equations: list[_Equation]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The matrix of equations, by domain in the order of their names, and their weights."""
    place_of = {domain: place for place, domain in enumerate(sorted({name for one in equations for name in one[:2]}))}
    design = np.zeros((len(equations), len(place_of)))
    rows = np.arange(len(equations))
    design[rows, [place_of[one.low] for one in equations]] = -1
    design[rows, [place_of[one.high] for one in equations]] = 1
    return design, np.array([one.weight for one in equations])


def _components(equations: Iterable[_Equation]) -> list[set[str]]:
    """Sets of domains that are connected, ordered by their first domain."""
    parent: dict[str, str] = {}

    def root(domain: str) -> str:
        parent.setdefault(domain, domain)
        while parent[domain] != domain:
            parent[domain] = parent[parent[domain]]
            domain = parent[domain]
        return domain

    for one in equations:
        first, second = sorted((root(one.low), root(one.high)))
        parent[second] = first
    groups: dict[str, set[str]] = {}
    for domain in sorted(parent):
        groups.setdefault(root(domain), set()).add(domain)
    return sorted(groups.values(), key=min)


def _solve(component: int, domains: list[str], equations: list[_Equation], references: Collection[str]) -> list[Offset]:
    reference = next((domain for domain in domains if domain in references), domains[0])
    place_of = {domain: number for number, domain in enumerate(domains)}
    low = np.array([place_of[one.low] for one in equations])
    high = np.array([place_of[one.high] for one in equations])
    weight = np.array([one.weight for one in equations])
    difference = np.array([one.difference_us for one in equations])
    normal = np.zeros((len(domains), len(domains)))
    np.add.at(normal, (low, low), weight)
    np.add.at(normal, (high, high), weight)
    np.add.at(normal, (low, high), -weight)
    np.add.at(normal, (high, low), -weight)
    drift = np.array([one.drift_ppb for one in equations])
    right = np.zeros((len(domains), 2))
    for place, values in enumerate((difference, drift)):
        np.add.at(right[:, place], high, weight * values)
        np.add.at(right[:, place], low, -weight * values)
    inverse = np.linalg.pinv(normal, hermitian=True)
    inverse = inverse - inverse[place_of[reference]]  # which then is exactly at 0 and has no error
    solution = inverse @ right
    errors = _error_bounds(inverse, low, high, weight, equations)
    both = np.concatenate([low, high])
    pairs = np.bincount(both, minlength=len(domains))
    messages = np.bincount(both, np.tile([one.messages for one in equations], 2), minlength=len(domains))
    return [
        Offset(
            domain=domain,
            offset_us=round(float(solution[number, 0])),
            error_us=int(np.ceil(round(float(errors[number]), 3))),
            pairs=int(pairs[number]),
            messages=int(messages[number]),
            component=component,
            drift_ppb=round(float(solution[number, 1])),
            reference=reference,
        )
        for domain, number in place_of.items()
    ]


def _error_bounds(
    inverse: NDArray[np.float64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    weight: NDArray[np.float64],
    equations: list[_Equation],
) -> NDArray[np.float64]:
    """Worst case of each offset; pair by pair in chunks, because domains × pairs may not fit into memory."""
    error = np.array([one.error_us for one in equations])
    bounds = np.zeros(inverse.shape[0])
    for start in range(0, len(equations), _CHUNK):
        part = slice(start, start + _CHUNK)
        share = (inverse[:, high[part]] - inverse[:, low[part]]) * weight[part]
        bounds += np.abs(share) @ error[part]
    return bounds
