"""Figures in the text format of Prometheus: every counter and gauge once, with bounded labels, and their page."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from federation.core.link_counts import LinkCount
from msg_node.admin.metrics import (
    DomainTotal,
    Figures,
    Gauge,
    OfNodes,
    Timing,
    _Once,
    counter_name,
    exposition,
    label_of,
)
from msg_node.kernel.counts import NodeCount, SiteCount
from msg_node.kernel.histograms import Histogram
from msg_node.kernel.node_figures import NodeFigures
from protofly.counters import Counted
from protofly.errors import Code

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def samples(figures: Figures) -> dict[str, float]:
    """Every sample by name and labels."""
    found = {}
    for family in text_string_to_metric_families(exposition(figures).decode()):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
            key = f"{sample.name}{{{labels}}}"
            assert key not in found
            found[key] = sample.value
    return found


def test_counts_and_gauges_are_shown_with_their_labels() -> None:
    counts = {NodeCount.FRAMES_IN.value: 7, NodeCount.REFUSED.of(Code.POLICY.word): 2}
    figures = Figures(counts, {SiteCount.TOO_MANY.value: 3}, {"b.example": {LinkCount.SENT.value: 5}, "other": {}})
    figures.put(Gauge.LINKS, 1, "live")
    figures.put(Gauge.LINKS, 1, "live")
    figures.put(Gauge.UPTIME, 1.5)
    figures.put_totals("b.example", {DomainTotal.FUEL: 70, DomainTotal.TRAPS: 1})
    figures.put_totals("b.example", {DomainTotal.FUEL: 7})
    times = figures.timings[Timing.QUEUE]["node"] = Histogram()
    for time_us in (400, 700, 60_000_000):
        times.observe(time_us)
    found = samples(figures)
    assert found["trapezoid_frames_in_total{}"] == 7
    assert found["trapezoid_refused_by_code_total{code=policy}"] == 2
    assert found["trapezoid_site_too_many_connections_total{}"] == 3
    assert found["trapezoid_link_sent_total{domain=b.example}"] == 5
    assert found["trapezoid_link_sent_total{domain=other}"] == 0
    assert "trapezoid_link_stalls_total{domain=b.example}" not in found
    assert found["trapezoid_links{state=live}"] == 2
    assert found["trapezoid_stub_fuel_total{domain=b.example}"] == 77
    bucket = "trapezoid_link_queue_seconds_bucket{{class=node,le={}}}"
    assert [found[bucket.format(bound)] for bound in ("0.0005", "0.001", "30.0", "+Inf")] == [1, 2, 2, 3]
    assert found["trapezoid_link_queue_seconds_sum{class=node}"] == pytest.approx(60.0011)
    assert found["trapezoid_uptime_seconds{}"] == 1.5


def test_every_figure_of_the_nodes_of_a_domain_is_shown_by_node_and_none_of_a_node_alone() -> None:
    assert not [name for name in samples(Figures({}, {}, {})) if name.startswith("trapezoid_cluster")]
    nodes = {"n1": NodeFigures(live_sessions=3, refused=2), "n2": NodeFigures(live_sessions=4)}
    found = samples(Figures({}, {}, {}, nodes=nodes))
    assert found["trapezoid_cluster_live_sessions{node=n1}"] == 3
    assert found["trapezoid_cluster_live_sessions{node=n2}"] == 4
    assert found["trapezoid_cluster_refused_total{node=n1}"] == 2
    assert {one.member for one in OfNodes} == set(NodeFigures.__struct_fields__)


def test_a_label_with_quotes_and_line_feeds_stays_one_sample() -> None:
    figures = Figures({}, {}, {})
    figures.put(Gauge.EXPIRY, 3.0, 'manifest "x"\\\nevil 1')
    [(name, value)] = [one for one in samples(figures).items() if one[0].startswith("trapezoid_expiry")]
    assert ('manifest "x"\\\nevil 1' in name, value) == (True, 3.0)


DOMAINS = st.dictionaries(
    st.text(st.sampled_from('ab.\\"\n{}=, é#'), max_size=6), st.floats() | st.integers(0, 10**18), max_size=5
)


@given(DOMAINS)
def test_samples_are_read_as_those_that_the_library_writes(values: dict[str, float]) -> None:
    figures = Figures({NodeCount.REFUSED.of(word): 7 for word in ("policy", "rate")}, {}, {})
    figures.gauges[Gauge.LINK_WAITING] = dict(values)
    figures.gauges[Gauge.EXPIRY] = dict(values)
    figures.totals[DomainTotal.ARRIVED] = dict(values)
    figures.put(Gauge.UPTIME, 1.5)
    gauge = GaugeMetricFamily("trapezoid_link_waiting_messages", Gauge.LINK_WAITING.meaning, labels=["domain"])
    expiry = GaugeMetricFamily("trapezoid_expiry_seconds", Gauge.EXPIRY.meaning, labels=["what"])
    total = CounterMetricFamily("trapezoid_traffic_arrived", DomainTotal.ARRIVED.meaning, labels=["domain"])
    for label in sorted(values):
        for family in (gauge, expiry, total):
            family.add_metric([label], values[label])
    refused = CounterMetricFamily("trapezoid_refused_by_code", _sentence(NodeCount.REFUSED), labels=["code"])
    for word in ("policy", "rate"):
        refused.add_metric([word], 7)
    uptime = GaugeMetricFamily("trapezoid_uptime_seconds", Gauge.UPTIME.meaning, value=1.5)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once([gauge, expiry, total, refused, uptime]))
    wanted = {family.name: family for family in text_string_to_metric_families(generate_latest(registry).decode())}
    found = {family.name: family for family in text_string_to_metric_families(exposition(figures).decode())}
    assert len(wanted) == 5
    for name, one_wanted in wanted.items():
        assert (found[name].type, found[name].documentation) == (one_wanted.type, one_wanted.documentation)
        for one, other in zip(found[name].samples, one_wanted.samples, strict=True):
            assert (one.name, one.labels) == (other.name, other.labels)
            value, wanted_value = float(one.value), float(other.value)  # as Prometheus keeps them
            assert value == wanted_value or (isnan(value) and isnan(wanted_value))


def test_each_figure_of_256_links_is_written_once() -> None:
    domains = [f"d{number}.example" for number in range(256)]
    figures = Figures({}, {}, {domain: dict.fromkeys(list(LinkCount)[:6], 7) for domain in domains})
    for domain in domains:
        figures.put_totals(domain, dict.fromkeys(list(DomainTotal)[:4], 3.5))
        for gauge in (Gauge.LINK_UP, Gauge.LINK_WAITING, Gauge.LINK_UNDER_WAY):
            figures.put(gauge, 1, domain)
    lines = exposition(figures).decode().splitlines()
    of_links = [line for line in lines if not line.startswith("#") and '.example"' in line]
    assert len(of_links) == len({line.rpartition(" ")[0] for line in of_links}) == 256 * (6 + 4 + 3)


def rows() -> Iterator[str]:
    """The table of the page."""
    for gauge in Gauge:
        label = f"`{gauge.label}`" if gauge.label else "–"
        yield f"| `trapezoid_{gauge.metric}` | gauge | {label} | {gauge.meaning} |"
    tables: list[tuple[str, type[Counted]]] = [("trapezoid", NodeCount), ("trapezoid_site", SiteCount)]
    for prefix, table in tables:
        for one in table:
            label = f"`{label_of(one)}`" if label_of(one) else "–"
            yield f"| `{counter_name(prefix, one)}_total` | counter | {label} | {_sentence(one)} |"
    for one in LinkCount:
        yield f"| `{counter_name('trapezoid_link', one)}_total` | counter | `domain` | {_sentence(one)} |"
    for total in DomainTotal:
        yield f"| `trapezoid_{total.metric}_total` | counter | `domain` | {total.meaning} |"
    for of_node in OfNodes:
        name, kind = f"trapezoid_cluster_{of_node.member}", "counter" if of_node.is_counter else "gauge"
        yield f"| `{name}{'_total' if of_node.is_counter else ''}` | {kind} | `node` | {of_node.meaning} |"
    for timing in Timing:
        label = f"`{timing.label}`" if timing.label else "–"
        yield f"| `trapezoid_{timing.metric}` | histogram | {label} | {timing.meaning} |"


def _sentence(one: Counted) -> str:
    return f"{one.meaning[0].upper()}{one.meaning[1:]}."


def test_the_page_has_every_metric_and_no_other() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if line.startswith("| `trapezoid_")] == list(rows())


def test_every_name_stands_for_one_metric() -> None:
    names = [row.split("`")[1] for row in rows()]
    assert len(set(names)) == len(names)
