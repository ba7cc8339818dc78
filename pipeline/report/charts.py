"""The charts, each a function from facts to one SVG text. The same facts give the same bytes.

Names come from other domains, so nothing in them is markup: matplotlib escapes them, and its mathematical notation is
off. Colours can be distinguished with any colour vision (Okabe and Ito 2008; cividis).
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from matplotlib import dates as mdates
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from pipeline.report.facts import (
    DOMAINS_SHOWN,
    REST,
    Band,
    ClockOffset,
    LatencyHour,
    PairTraffic,
    Reconciled,
    RuleFlips,
    StubVerdict,
    StubVersion,
)

BLUE: Final = "#0072B2"
ORANGE: Final = "#E69F00"
GREEN: Final = "#009E73"
RED: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
GREY: Final = "#8A8F98"
INK: Final = "#1F2430"
_EDGE: Final = "#B8BDC6"
_GRID: Final = "#E6E8EC"
_BY_PAGE: Final = {INK: "ink", _EDGE: "edge", _GRID: "line", BLUE: "blue"}
"""Colours for which the page has others in the dark, and what it calls them."""
_CYCLE: Final = (BLUE, RED, GREEN, ORANGE, PURPLE, GREY)
_NAME_CHARS: Final = 32
_VERSION_CHARS: Final = 10
_LINEAR_MS: Final = 10
_AROUND_ONE_HOUR_DAYS: Final = 3 / 24
_HOUR_US: Final = 3_600_000_000

_STYLE: Final[Any] = {
    "svg.hashsalt": "trapezoid",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": _EDGE,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _GRID,
    "axes.axisbelow": True,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


_ROOMY: Final = 24
"""With more domains on the map, numbers in its cells are smaller."""


def _brief(number: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"


def traffic_map(traffic: Sequence[PairTraffic]) -> str:
    """Map of messages from domain to domain, on a logarithmic scale; a cross marks denials, larger for more."""
    names = _busiest(traffic)
    place = {name: index for index, name in enumerate(names)}
    rest = place.get(REST, -1)
    size = len(names)
    messages, denied = np.zeros((size, size)), np.zeros((size, size))
    for pair in traffic:
        row, column = place.get(pair.src_domain, rest), place.get(pair.dst_domain, rest)
        messages[row, column] += pair.messages
        denied[row, column] += pair.denied + pair.refused
    side = 2.8 + 0.22 * size

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        shown = np.ma.masked_equal(messages, 0)
        top = max(float(messages.max()), 2.0)
        image = axes.pcolormesh(shown, cmap="cividis", norm=LogNorm(1, top))
        axes.set_aspect("equal")
        axes.invert_yaxis()
        points = 7 if size <= _ROOMY else 6
        for row, column in np.argwhere(messages):
            colour = "#FFFFFF" if messages[row, column] < np.sqrt(top) else "#000000"
            text = _brief(float(messages[row, column]))
            axes.text(column + 0.5, row + 0.8, text, ha="center", va="center", fontsize=points, color=colour)
        rows, columns = np.nonzero(denied)
        shares = denied[rows, columns] / np.maximum(messages[rows, columns], 1)
        sizes = 12 + 28 * np.sqrt(shares)
        above = 0.34  # of the number in the cell
        for colour, width in (("#FFFFFF", 2.2), (RED, 1.2)):
            axes.scatter(columns + 0.5, rows + above, marker="x", s=sizes, color=colour, linewidths=width)
        labels = [_short(name) for name in names]
        axes.set_xticks(np.arange(size) + 0.5, labels, rotation=60, ha="right", rotation_mode="anchor")
        axes.set_yticks(np.arange(size) + 0.5, labels)
        axes.set_xlabel("to")
        axes.set_ylabel("from")
        axes.grid(visible=False)
        bar = figure.colorbar(image, ax=axes, fraction=0.035, pad=0.02, format=lambda value, _: f"{value:,.0f}")
        assert bar.solids is not None
        bar.solids.set_rasterized(False)  # an image would be a second resource
        bar.set_label("messages")

    return _svg(draw, width=side + 1.6, height=side)


def latency_bands(hours: Sequence[LatencyHour]) -> str:
    """Median, p95 and p99 of the latency, hour by hour."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        times = _numbers([_moment(hour.hour_us) for hour in hours])
        milliseconds = np.array([[hour.p50_us, hour.p95_us, hour.p99_us] for hour in hours]) / 1e3
        for chosen in _stretches([hour.hour_us for hour in hours]):
            low, middle, high = milliseconds[chosen].T
            axes.fill_between(times[chosen], low, middle, color=BLUE, alpha=0.28, lw=0)
            axes.fill_between(times[chosen], middle, high, color=BLUE, alpha=0.12, lw=0)
            for column, (name, width) in enumerate((("p50", 1.8), ("p95", 1.1), ("p99", 0.9))):
                axes.plot(
                    times[chosen],
                    milliseconds[chosen, column],
                    color=BLUE,
                    lw=width,
                    alpha=1 - 0.25 * column,
                    label=name if chosen.start == 0 else None,
                    **_alone(chosen),
                )
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        _plain(axes.yaxis)
        axes.set_ylabel("milliseconds")
        _time_axis(axes, times)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)

    return _svg(draw)


def waterfall(total: Reconciled) -> str:
    """Waterfall of the reconciliation: on the left to scale, on the right each class by itself."""
    ways = [
        ("on either side", 0, total.known, BLUE),
        ("open", total.matched + total.differing, total.open, GREY),
        ("differing", total.matched, total.differing, RED),
        ("matched", 0, total.matched, GREEN),
    ]
    classes = [
        ("lost", total.lost, RED),
        ("duplicated", total.duplicated, PURPLE),
        ("altered", total.altered, ORANGE),
        ("size", total.size, ORANGE),
        ("outcome", total.outcome, ORANGE),
        ("skewed", total.skewed, ORANGE),
        ("orphan", total.orphan, PURPLE),
    ]

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(4, 5))
        for index, (_, bottom, count, colour) in enumerate(ways):
            left.bar(index, count, bottom=bottom, color=colour, width=0.7)
            left.annotate(
                f"{count:,}",
                (index, bottom + count),
                textcoords="offset points",
                xytext=(0, 3),
                ha="center",
                fontsize=8,
            )
        left.set_xticks(range(len(ways)), [name for name, *_ in ways])
        left.set_ylabel("messages")
        left.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        left.margins(y=0.12)
        left.grid(visible=False, axis="x")
        places = range(len(classes))
        right.barh(places, [count for _, count, _ in classes], color=[colour for *_, colour in classes], height=0.62)
        for index, (_, count, _) in enumerate(classes):
            share = 1e6 * count / total.known if total.known else 0.0
            note = f"{count:,}  ({share:,.0f} per million)" if count else "none"
            right.annotate(note, (count, index), textcoords="offset points", xytext=(4, 0), va="center", fontsize=8)
        right.set_yticks(places, [name for name, *_ in classes])
        right.invert_yaxis()
        right.margins(x=0.45)
        right.set_xlim(left=0, right=None if any(count for _, count, _ in classes) else 1)
        right.grid(visible=False, axis="y")
        right.set_xlabel("messages")
        right.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        right.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")

    return _svg(draw)


def clock_offsets(offsets: Sequence[ClockOffset]) -> str:
    """Chart of the clock offsets with error bars; if one is far off, the scale keeps 20 µs and 2.5 s readable."""
    shown = sorted(offsets, key=lambda one: (-abs(one.offset_us), one.domain))[:DOMAINS_SHOWN]
    shown.sort(key=lambda one: (one.offset_us, one.domain))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        places = range(len(shown))
        values = [one.offset_us / 1e3 for one in shown]
        axes.axvline(0, color=GREY, lw=0.8)
        axes.errorbar(
            values,
            places,
            xerr=[one.error_us / 1e3 for one in shown],
            fmt="o",
            ms=4,
            color=BLUE,
            ecolor=ORANGE,
            elinewidth=1.4,
            capsize=2,
        )
        axes.set_yticks(places, [_short(one.domain) for one in shown])
        if max(abs(one.offset_us) + one.error_us for one in shown) > 1e3 * _LINEAR_MS:
            axes.set_xscale("symlog", linthresh=_LINEAR_MS)
        _plain(axes.xaxis)
        axes.set_xlabel("milliseconds ahead of the reference clock, in the newest hour")

    return _svg(draw, height=1.2 + 0.2 * len(shown))


def flips_by_rule(flips: Sequence[RuleFlips]) -> str:
    """Left: what passed and would be denied. Right: what was denied and would pass."""
    shown = sorted(flips, key=lambda one: (-one.denied_now - one.permitted_now, one.rule_id))[:DOMAINS_SHOWN]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        places = range(len(shown))
        axes.barh(places, [-one.denied_now for one in shown], color=RED, height=0.62, label="would be denied")
        axes.barh(places, [one.permitted_now for one in shown], color=GREEN, height=0.62, label="would be permitted")
        for index, one in enumerate(shown):
            for count, sign in ((one.denied_now, -1), (one.permitted_now, 1)):
                if count:
                    axes.annotate(
                        f"{count:,}",
                        (sign * count, index),
                        textcoords="offset points",
                        xytext=(4 * sign, 0),
                        va="center",
                        ha="left" if sign > 0 else "right",
                        fontsize=8,
                    )
        axes.axvline(0, color=INK, lw=0.8)
        axes.set_yticks(places, [_short(one.rule_id) or "no rule" for one in shown])
        axes.invert_yaxis()
        axes.margins(x=0.2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{abs(value):,.0f}")
        axes.set_xlabel("messages whose decision changes")
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
        axes.grid(visible=False, axis="y")

    return _svg(draw, height=1.4 + 0.3 * len(shown))


def stub_versions(stubs: Sequence[StubVersion], verdicts: Sequence[StubVerdict]) -> str:
    """Distributions of latency and fuel by version, and the ratio of candidate to baseline with its interval."""
    measures = [measure for measure in ("latency", "fuel") if any(one.measure == measure for one in stubs)]
    rated = [
        (f"{_short(one.peer_domain)}: {one.measure}", one.verdict, ratio, one.low or ratio, one.high or ratio)
        for one in verdicts
        if (ratio := one.ratio)
    ][:DOMAINS_SHOWN]
    colours = {"worse": RED, "better": GREEN, "same": BLUE}

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, max(1, len(measures) + bool(rated)), squeeze=False)[0]
        for axes, measure in zip(panels, measures, strict=False):
            for index, one in enumerate(stub for stub in stubs if stub.measure == measure):
                scale = 1e3 if measure == "latency" else 1.0
                axes.plot(
                    [value / scale for value, _ in one.points],
                    [share for _, share in one.points],
                    color=_CYCLE[index % len(_CYCLE)],
                    drawstyle="steps-post",
                    label=f"{_short(one.peer_domain)} {one.stub_ver[:_VERSION_CHARS]} ({one.messages:,})",
                )
            axes.set_xscale("log")
            _plain(axes.xaxis)
            axes.set_xlabel("latency, milliseconds" if measure == "latency" else "fuel per message")
            axes.set_ylabel("share of messages up to")
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=7)  # lines may go anywhere inside
        if rated:
            compare(panels[-1])

    def compare(axes: Axes) -> None:
        for index, (_, verdict, ratio, low, high) in enumerate(rated):
            axes.plot([low, high], [index, index], color=colours.get(verdict, GREY), lw=2)
            axes.plot([ratio], [index], "o", ms=5, color=colours.get(verdict, GREY))
        axes.axvline(1, color=GREY, lw=0.8)
        axes.set_yticks(range(len(rated)), [label for label, *_ in rated], fontsize=7)
        axes.invert_yaxis()
        axes.set_xscale("log", base=2)
        _plain(axes.xaxis, "×")
        axes.set_xlabel("candidate against baseline")

    return _svg(draw, width=11.0, height=max(3.2, 1.2 + 0.22 * len(rated)))


def baseline_band(band: Band) -> str:
    """Chart of the messages of one peer, hour by hour, on the band of its usual traffic; alerts are marked."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        times = _numbers([_moment(hour.hour_us) for hour in band.hours])
        figures = np.array([[hour.expected, hour.threshold, hour.observed] for hour in band.hours])
        expected, threshold, observed = figures.T
        for chosen in _stretches([hour.hour_us for hour in band.hours]):
            usual, seen = ("usual at this hour of the week", "observed") if chosen.start == 0 else (None, None)
            axes.fill_between(times[chosen], expected[chosen], threshold[chosen], color=BLUE, alpha=0.15, lw=0)
            axes.plot(times[chosen], expected[chosen], color=BLUE, lw=1, ls="--", label=usual, **_alone(chosen))
            axes.plot(times[chosen], observed[chosen], color=INK, lw=1.2, label=seen, **_alone(chosen))
        alerts = [(time, hour.observed) for time, hour in zip(times, band.hours, strict=True) if hour.is_alert]
        if alerts:
            axes.plot(*zip(*alerts, strict=True), "o", color=RED, ms=6, label="alert")
        axes.set_ylabel("messages in the hour")
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        _time_axis(axes, times)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)

    return _svg(draw)


def _stretches(hours_us: Sequence[int]) -> list[slice]:
    """Hours, ascending, in stretches without a gap: a line over hours without messages shows what nobody measured."""
    ends = [number for number in range(1, len(hours_us)) if hours_us[number] - hours_us[number - 1] > _HOUR_US]
    return [slice(start, end) for start, end in pairwise([0, *ends, len(hours_us)])]


def _alone(chosen: slice) -> dict[str, Any]:
    """A stretch of one hour has no line, but a point."""
    return {"marker": "o", "ms": 3} if chosen.stop - chosen.start == 1 else {}


def _svg(draw: Callable[[Figure], None], *, width: float = 9.0, height: float = 3.2) -> str:
    """Draw on a figure of `width` by `height` inches and return the bare `<svg>` element."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # Text stays text in the picture, so that the reader's fonts count and not those known here.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    return _scaled(svg[svg.index("<svg") :], width)


def _scaled(svg: str, width_inches: float) -> str:
    """Let the picture shrink with its place, never larger than it was drawn, in the page's colours."""
    head, end, rest = svg.partition(">")
    head = re.sub(r' (?:width|height)="[^"]*"', "", head)
    for colour, name in _BY_PAGE.items():
        rest = rest.replace(colour.lower(), f"var(--{name}, {colour})")
    return f'{head} style="max-width:{width_inches:.1f}in"{end}{rest}'


def _busiest(traffic: Sequence[PairTraffic]) -> list[str]:
    """Domains by traffic, the rest of them as one."""
    totals: dict[str, int] = {}
    for pair in traffic:
        for name in (pair.src_domain, pair.dst_domain):
            totals[name] = totals.get(name, 0) + pair.messages
    names = sorted(totals, key=lambda name: (-totals[name], name))
    return [*sorted(names[: DOMAINS_SHOWN - 1]), REST] if len(names) > DOMAINS_SHOWN else sorted(names)


def _short(name: str) -> str:
    """A name that fits on an axis; what cannot be printed is shown as such."""
    printable = "".join(character if character.isprintable() else "·" for character in name)
    return printable if len(printable) <= _NAME_CHARS else printable[: _NAME_CHARS - 1] + "…"


def _plain(axis: Axis, unit: str = "") -> None:
    """Figures as people write them, on a logarithmic axis too."""
    axis.set_major_formatter(lambda value, _: f"{value:,g}{unit}")
    axis.set_minor_formatter(NullFormatter())


def _moment(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1e6, tz=UTC)


def _numbers(times: Sequence[datetime]) -> NDArray[np.float64]:
    return np.array(mdates.date2num(times), np.float64)  # type: ignore[no-untyped-call]


def _time_axis(axes: Axes, times: NDArray[np.float64]) -> None:
    if len(times) == 1:  # it would be drawn into a span of years
        axes.set_xlim(times[0] - _AROUND_ONE_HOUR_DAYS, times[0] + _AROUND_ONE_HOUR_DAYS)
    locator = mdates.AutoDateLocator(tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.set_xlabel("time, UTC")
    axes.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
