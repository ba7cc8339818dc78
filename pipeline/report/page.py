"""The page: facts and charts as one HTML file with everything in it. It fetches nothing.

Whatever a foreign domain could have written is escaped by the template engine, and the page forbids itself all
sources, so that even a mistake of ours would load nothing. One script of ours sorts and filters tables; the page allows
this one by its hash, and no other.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pipeline.core.harmless import harmless
from pipeline.report import charts
from pipeline.report.facts import AlertLine, ReportFacts

_TEMPLATE: Final = "page.html.j2"
_SCRIPT: Final = "page.js.j2"
_MEASURED: Final = {
    "fan-out": "recipients in five minutes",
    "flood": "messages in the hour",
    "scanning": "of the messages to nobody",
    "spoofing": "messages with senders of others",
}
"""What an alert of each pattern counts; see `pipeline.core.alerts`."""
_SHARES: Final = frozenset({"scanning"})


def render(facts: ReportFacts) -> str:
    """The whole page. The same facts give the same text."""
    environment = Environment(
        loader=PackageLoader("pipeline.report", "."),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=lambda number: f"{number:,}",
        moment=_moment,
        hour=lambda us: f"{_moment(us)[:16]} UTC",
        measured=_measured,
        milliseconds=lambda us: "–" if us is None else f"{us / 1e3:,.2f}",
        short=lambda text: text[:10],
        name=_name,
        shown_of=lambda rows, count, which: f", the {len(rows)} {which} shown" if count > len(rows) else "",
        size=_size,
    )
    script = files("pipeline.report").joinpath(_SCRIPT).read_text(encoding="utf-8")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    return environment.get_template(_TEMPLATE).render(
        facts=facts,
        charts=_charts(facts),
        script=Markup(script),  # noqa: S704 - a file of this package
        script_hash=digest,
    )


def _shown(value: object) -> object:
    """Text of records without what would make it look like another one; what was drawn here stays."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return "\n".join(map(harmless, value.split("\n")))


def _name(name: str) -> Markup:
    """A name that may go on in the next line after a dot."""
    return Markup(".<wbr>").join(harmless(name).split("."))


def _charts(facts: ReportFacts) -> dict[str, Markup | None]:
    """Each chart, or None when there is nothing to draw. Their text was escaped when they were drawn."""
    total, band = facts.reconciled, facts.band
    drawn = {
        "traffic": charts.traffic_map(facts.traffic) if facts.traffic else None,
        "latency": charts.latency_bands(facts.latency) if facts.latency else None,
        "waterfall": charts.waterfall(total) if total is not None and total.pairs else None,
        "offsets": charts.clock_offsets(facts.offsets) if facts.offsets else None,
        "flips": charts.flips_by_rule(facts.flips) if facts.flips else None,
        "stubs": charts.stub_versions(facts.stubs, facts.verdicts) if facts.stubs or facts.verdicts else None,
        "band": charts.baseline_band(band) if band is not None and band.hours else None,
    }
    return {name: None if svg is None else Markup(svg) for name, svg in drawn.items()}  # noqa: S704


def _moment(us: int | None) -> str:
    return "unknown" if us is None else f"{datetime.fromtimestamp(us / 1e6, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"


def _measured(alert: AlertLine) -> str:
    """The counted value, in its unit, and from where on it is an alert."""
    observed, threshold = (
        f"{100 * number:.0f} %"
        if alert.pattern in _SHARES
        else f"{number:,.{0 if number >= 10 or number == int(number) else 2}f}"
        for number in (alert.observed, alert.threshold)
    )
    return f"{observed} {_MEASURED.get(alert.pattern, '')}".rstrip() + f", threshold {threshold}"


def _size(number_bytes: int) -> str:
    size = float(number_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"
