"""The figures of a node in the text format of Prometheus: counters of the closed tables, and gauges of what is so now.

Names come from the tables of counters: `refused {}` of a node is `trapezoid_refused_by_code_total{code="…"}`. Labels
are bounded: codes are those of the table, domains those that the settings name in full, and `other` for the rest.

`prometheus_client` writes the histograms and, once in a process, the head of every family. It takes four times longer
for samples with one label or none, most of it for labels that are the same in each family: these are written here,
and a test compares with what the library would write.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from federation.core.link_counts import LinkCount
from msg_node.kernel.counts import NodeCount, SiteCount
from msg_node.kernel.histograms import Histogram
from msg_node.kernel.node_figures import NodeFigures
from protofly.counters import CODES, Counted

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NO_NAME: Final = re.compile(r"[^a-z0-9]+")
_CODES: Final = frozenset(CODES)

_DOMAIN: Final = "domain"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

Counts = Mapping[str, int]
_Ends = dict[tuple[str, str], str]
"""What stands between the name of a sample and its value, by name and value of its label."""


class Gauge(Enum):
    """Metrics with a current value: one, or one for each value of a label.

    Attributes:
        metric: Its name, without that of the program.
        meaning: One sentence.
        label: Name of the label; "" for a single value.
    """

    INFO = "info", "The program; the value is 1.", "version"
    UPTIME = "uptime_seconds", "Seconds since the start."
    MEMORY = "memory_bytes", "Memory of the process that is in RAM."
    DRAINING = "draining", "1 while the node stops."
    SESSIONS = "sessions", "Sessions of runtimes, by state: live or parked.", "state"
    RUNTIME_QUEUED = "runtime_queued_messages", "Messages that wait for slow runtimes."
    STORED_REQUESTS = "stored_requests", "Requests that are stored until they are done."
    LINKS = "links", "Links to other domains, by state.", "state"
    LINK_UP = "link_up", "Links that are up, by domain.", "domain"
    LINK_PROBLEM = "link_problem", "1 while a domain cannot be reached, or refuses us.", "domain"
    LINK_WAITING = "link_waiting_messages", "Messages that no carrier has taken yet, by domain.", "domain"
    LINK_UNDER_WAY = "link_under_way_messages", "Messages without an acknowledgement, by domain.", "domain"
    RECORDS_WAITING = "records_waiting", "Audit records that are not written yet."
    RECORDS_LOST = "records_lost", "Audit records that were lost since the start."
    SPANS = (
        "spans",
        "Spans since the start, by result; `left_out` counts messages.",
        "result",
    )
    STATE_FAILURES = "state_failures", "Commits of the state that failed since the start."
    EXPIRY = "expiry_seconds", "Seconds until a document or certificate expires.", "what"
    ALARMS = "alarms", "Alarms that are raised, by their name.", "alarm"
    RESTRICTIONS = (
        "restrictions",
        "What operators have forbidden, and gates for a time.",
        "what",
    )
    CONNECTED = "cluster_connected", "1 while this node is connected with that other one of its domain.", "node"

    def __init__(self, metric: str, meaning: str, label: str = "") -> None:
        self.metric, self.meaning, self.label = metric, meaning, label


class OfNodes(Enum):
    """Figures of each node of a domain, as any of them shows them: a second old, by what each says of itself.

    Attributes:
        member: Of `NodeFigures`.
        meaning: One sentence.
        is_counter: It counts since the start of that node.
    """

    UPTIME = "uptime_seconds", "Seconds since the start of a node of the domain; no sample for one that is not alive."
    MEMORY = "memory_bytes", "Memory of a node of the domain that is in RAM."
    LIVE = "live_sessions", "Sessions with a connection, by node of the domain."
    PARKED = "parked_sessions", "Sessions that have lost their connection, by node of the domain."
    LINKS = "links_up", "Links to other domains that are up, by node of the domain."
    STORED = "stored_requests", "Requests that are stored until they are done, by node of the domain."
    PROBLEMS = "problems", "What keeps a node of the domain from doing all its work, as a number."
    DELIVERED = "delivered", "Messages that went to at least one listener, runtime or link, by node.", True
    REFUSED = "refused", "Messages that were refused, by node of the domain.", True

    def __init__(self, member: str, meaning: str, is_counter: bool = False) -> None:
        self.member, self.meaning, self.is_counter = member, meaning, is_counter


class DomainTotal(Enum):
    """Totals per foreign domain since the node started.

    Attributes:
        metric: Its name, without that of the program and the `_total` of the format.
        meaning: One sentence.
    """

    ARRIVED = "traffic_arrived", "Messages to a domain that it acknowledged, by the audit records."
    FAILED = "traffic_failed", "Messages to a domain that failed: expired, refused there, lost with its stub."
    STUB_MESSAGES = "stub_messages", "Messages that went into the stub of a domain."
    FUEL = "stub_fuel", "Fuel that the stub of a domain has used."
    CPU = "stub_cpu_seconds", "CPU time that the stub of a domain has used."
    TRAPS = "stub_traps", "Faults of the stub of a domain that ended its instance."

    def __init__(self, metric: str, meaning: str) -> None:
        self.metric, self.meaning = metric, meaning


class Timing(Enum):
    """Histograms of times since the start.

    Attributes:
        metric: Its name, without that of the program.
        meaning: One sentence.
        label: Name of the label; "" for a single histogram.
    """

    QUEUE = "link_queue_seconds", "Time of delivered messages from the gate until a carrier took them.", "class"
    STUB = "link_stub_seconds", "Time of the exchanges with stubs that delivered messages were part of.", "class"
    ACKNOWLEDGEMENT = "link_acknowledgement_seconds", "Time from a carrier until the far end acknowledged.", "class"
    COMMIT = "state_commit_seconds", "Time of the commits of the state.", ""
    RECORDS = "records_write_seconds", "Time of the rounds in which audit records were written.", ""

    def __init__(self, metric: str, meaning: str, label: str) -> None:
        self.metric, self.meaning, self.label = metric, meaning, label


_ALWAYS: Final = frozenset({LinkCount.SENT, LinkCount.ACCEPTED, LinkCount.RECEIVED, DomainTotal.ARRIVED})
"""Figures of domains that are shown from the start; the others appear when they are first counted."""


@dataclass(slots=True)
class Figures:
    """The figures of one moment.

    Attributes:
        node: Counts of `NodeCount`.
        site: Counts of `SiteCount`.
        links: Counts of `LinkCount` by label of their domain.
        gauges: Values by gauge and label, "" where it has none.
        totals: Values by total and label of their domain.
        timings: Histograms by label, "" where they have none.
        nodes: Figures of the nodes of the domain by name; none where a node serves alone.
    """

    node: Counts
    site: Counts
    links: Mapping[str, Counts]
    gauges: defaultdict[Gauge, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    totals: defaultdict[DomainTotal, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    timings: defaultdict[Timing, dict[str, Histogram]] = field(default_factory=lambda: defaultdict(dict))
    nodes: Mapping[str, NodeFigures] = field(default_factory=dict)

    def put(self, gauge: Gauge, value: float, label: str = "") -> None:
        """Add a value to a gauge; values of the same label add up."""
        values = self.gauges[gauge]
        values[label] = values.get(label, 0.0) + value

    def put_totals(self, domain: str, totals: Mapping[DomainTotal, float]) -> None:
        """Add totals of a domain."""
        for total, value in totals.items():
            values = self.totals[total]
            values[domain] = values.get(domain, 0.0) + value


def exposition(figures: Figures) -> bytes:
    """Write figures in the text format."""
    ends: _Ends = {}
    texts = [_text(*one, ends) for one in (*_families(figures), *_by_domain(figures))]
    return "".join(texts).encode() + _written(_timings(figures))


Family = tuple[bool, str, str, str, Mapping[str, float]]
"""Whether it is a counter and no gauge, name, meaning, name of the label ("" without one), and values by label."""


def _text(is_counter: bool, name: str, meaning: str, label: str, values: Mapping[str, float], ends: _Ends) -> str:
    """One family; `ends` keeps what stands between name and value, for the next families."""
    head, sample = _head(is_counter, name, meaning)
    lines = [head]
    for label_value, value in sorted(values.items()):
        end = ends.get((label, label_value))
        if end is None:
            end = ends[label, label_value] = f'{{{label}="{label_value.translate(_ESCAPES)}"}} ' if label else " "
        is_plain = value.__class__ is int
        lines.append(f"{sample}{end}{value if is_plain else int(value) if value == value // 1 else repr(value)}\n")
    return "".join(lines)


@cache
def _head(is_counter: bool, name: str, meaning: str) -> tuple[str, str]:
    """The lines above the samples of a family, and the name of its samples."""
    if is_counter:
        return _written([CounterMetricFamily(name, meaning)]).decode(), f"{name}_total"
    return _written([GaugeMetricFamily(name, meaning)]).decode(), name


def _written(metrics: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(list(metrics)))
    return generate_latest(registry)


class _Once(Collector):
    """Gives the registry metrics that were made for one exposition."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """See `Collector`."""
        return self._metrics


def _families(figures: Figures) -> Iterator[Family]:
    """Everything but histograms and what has a label for domains."""
    for gauge in [one for one in Gauge if one.label != _DOMAIN]:
        yield False, f"trapezoid_{gauge.metric}", gauge.meaning, gauge.label, figures.gauges[gauge]
    yield from _counters("trapezoid", NodeCount, figures.node)
    yield from _counters("trapezoid_site", SiteCount, figures.site)
    for one in OfNodes:
        values = {node: getattr(of_node, one.member) for node, of_node in figures.nodes.items()}
        yield one.is_counter, f"trapezoid_cluster_{one.member}", one.meaning, "node", values


def _timings(figures: Figures) -> Iterator[Metric]:
    for timing in Timing:
        times = HistogramMetricFamily(
            f"trapezoid_{timing.metric}", timing.meaning, labels=[timing.label] if timing.label else []
        )
        for label, histogram in sorted(figures.timings[timing].items()):
            buckets, seconds = histogram.cumulative(), histogram.sum_us / 1e6
            times.add_metric([label] if timing.label else [], buckets, seconds)
        yield times


def _by_domain(figures: Figures) -> Iterator[Family]:
    for gauge in [one for one in Gauge if one.label == _DOMAIN]:
        yield False, f"trapezoid_{gauge.metric}", gauge.meaning, _DOMAIN, figures.gauges[gauge]
    links = list(figures.links.items())
    for one in LinkCount:
        name, is_always = one.value, one in _ALWAYS
        values = {domain: count for domain, counts in links if (count := counts.get(name, 0)) or is_always}
        yield True, counter_name("trapezoid_link", one), _meaning(one), _DOMAIN, values
    for total in DomainTotal:
        used = figures.totals[total]
        shown = used if total in _ALWAYS else {domain: value for domain, value in used.items() if value}
        yield True, f"trapezoid_{total.metric}", total.meaning, _DOMAIN, shown


def _counters(prefix: str, table: type[Counted], counts: Counts) -> Iterator[Family]:
    for one in table:
        label = label_of(one)
        if label:
            values = {value: count for value in one.labels if (count := counts.get(one.of(value), 0))}
        else:
            values = {"": counts.get(one.value, 0)}
        yield True, counter_name(prefix, one), _meaning(one), label, values


@cache
def counter_name(prefix: str, one: Counted) -> str:
    """Return the name of a counter, without the `_total` of the format."""
    slug = _NO_NAME.sub("_", one.value.lower().replace("{}", "")).strip("_")
    label = label_of(one)
    return f"{prefix}_{slug}_by_{label}" if label else f"{prefix}_{slug}"


@cache
def label_of(one: Counted) -> str:
    """Return the name of the label of a counter, "" if it has none."""
    if not one.labels:
        return ""
    return "code" if set(one.labels) <= _CODES else "kind"


def _meaning(one: Counted) -> str:
    return f"{one.meaning[0].upper()}{one.meaning[1:]}."
