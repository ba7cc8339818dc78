"""A picture of how costs grow: one line for each command, its cost in proportion to that on the first day."""

from __future__ import annotations

from collections.abc import Mapping
from math import log2
from typing import Final

_WIDTH, _HEIGHT = 720, 400
_LEFT, _TOP, _RIGHT, _BOTTOM = 56, 32, 130, 40
_COLOURS: Final = ("#1b6ca8", "#c2410c", "#15803d", "#7c3aed", "#b45309", "#0f766e", "#be185d", "#4d7c0f", "#475569")
_LABEL_STEP: Final = 15


def draw(points: Mapping[int, Mapping[str, float]], *, bar: float) -> str:
    """An SVG.

    Args:
        points: By day, what each command costs.
        bar: How many times the first cost is allowed; a line marks it.
    """
    days = sorted(points)
    ratios = {name: [points[day][name] / max(first, 0.01) for day in days] for name, first in points[days[0]].items()}
    highest = max(bar * 2, *(max(line) for line in ratios.values()))
    low, high = log2(min(0.5, *(min(line) for line in ratios.values()))), log2(highest)

    def x(day: int) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (day - days[0]) / max(1, days[-1] - days[0])

    def y(ratio: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - log2(ratio)) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{_LEFT}" y="18">CPU time of each command with the start of Python, in proportion to that of the '
        "first night</text>",
    ]
    for step in range(int(low) - 1, int(high) + 1):
        if low <= step <= high:
            at = y(2.0**step)
            parts.append(f'<path d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}" stroke="#e5e7eb"/>')
            parts.append(f'<text x="{_LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{2.0**step:g}×</text>')
    parts.append(f'<path d="M{_LEFT} {y(bar):.1f}H{_WIDTH - _RIGHT}" stroke="#dc2626" stroke-dasharray="6 4"/>')
    parts += [f'<text x="{x(day):.1f}" y="{_HEIGHT - 14}" text-anchor="middle">day {day}</text>' for day in days]
    labels = _apart({name: y(line[-1]) + 4 for name, line in ratios.items()})
    for place, (name, line) in enumerate(ratios.items()):
        colour = _COLOURS[place % len(_COLOURS)]
        corners = " ".join(f"{x(day):.1f},{y(ratio):.1f}" for day, ratio in zip(days, line, strict=True))
        parts.append(f'<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{_WIDTH - _RIGHT + 8}" y="{labels[name]:.1f}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _apart(wanted: Mapping[str, float]) -> dict[str, float]:
    """Heights of labels that do not overlap, as near to the wanted ones as that goes."""
    found: dict[str, float] = {}
    free = 0.0
    for name in sorted(wanted, key=wanted.__getitem__):
        found[name] = free = max(wanted[name], free + _LABEL_STEP)
    return found
