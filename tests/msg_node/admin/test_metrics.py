"""Figures in the text format of Prometheus: every counter and gauge once, with bounded labels, and their page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from federation.core.link_counts import LinkCount
from msg_node.admin.metrics import Figures, Gauge, counter_name, exposition, label_of
from msg_node.kernel.counts import NodeCount, SiteCount
from protofly.counters import Counted
from protofly.errors import Code

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"
MOST_SECONDS = 0.5
"""Twenty milliseconds are the promise; the machine of a test may be busy."""


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
    found = samples(figures)
    assert found["trapezoid_frames_in_total{}"] == 7
    assert found["trapezoid_refused_by_code_total{code=policy}"] == 2
    assert found["trapezoid_site_too_many_connections_total{}"] == 3
    assert found["trapezoid_link_sent_total{domain=b.example}"] == 5
    assert found["trapezoid_link_sent_total{domain=other}"] == 0
    assert found["trapezoid_links{state=live}"] == 2
    assert found["trapezoid_uptime_seconds{}"] == 1.5


def test_a_label_with_quotes_and_line_feeds_stays_one_sample() -> None:
    figures = Figures({}, {}, {})
    figures.put(Gauge.EXPIRY, 3.0, 'manifest "x"\\\nevil 1')
    [(name, value)] = [one for one in samples(figures).items() if one[0].startswith("trapezoid_expiry")]
    assert ('manifest "x"\\\nevil 1' in name, value) == (True, 3.0)


def test_256_links_are_written_in_time() -> None:
    figures = Figures({}, {}, {f"d{number}.example": dict.fromkeys(LinkCount, 7) for number in range(256)})
    began = time.perf_counter()
    exposition(figures)
    assert time.perf_counter() - began < MOST_SECONDS


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


def _sentence(one: Counted) -> str:
    return f"{one.meaning[0].upper()}{one.meaning[1:]}."


def test_the_page_has_every_metric_and_no_other() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if line.startswith("| `trapezoid_")] == list(rows())


def test_every_name_stands_for_one_metric() -> None:
    names = [row.split("`")[1] for row in rows()]
    assert len(set(names)) == len(names)
