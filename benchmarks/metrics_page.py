"""CPU time of one `/metrics` in the worst case: 256 links, each of whose counters is above 0.

`python -m benchmarks.metrics_page`: no node and no link, only the writing of their figures.
"""

from __future__ import annotations

import sys
import time
from statistics import median
from typing import Final

from federation.core.link_counts import LinkCount
from msg_node.admin.metrics import DomainTotal, Figures, Gauge, Timing, exposition
from msg_node.kernel.counts import NodeCount, SiteCount
from msg_node.kernel.histograms import Histogram

LINKS: Final = 256
ROUNDS: Final = 40
_GAUGES: Final = [gauge for gauge in Gauge if gauge.label == "domain"]


def worst_figures(number: int) -> Figures:
    """Figures that are all above 0, and others for each number."""
    domains = [f"partner-{place}.example" for place in range(LINKS)]
    counts = {name: 1_000_000 + number for one in (*NodeCount, *SiteCount) for name in one.names}
    of_link = {one.value: 1_000_000 + number for one in LinkCount}
    figures = Figures(counts, counts, dict.fromkeys(domains, of_link))
    for place, domain in enumerate(domains):
        figures.put_totals(domain, dict.fromkeys(DomainTotal, 1_000_000.25 + place + number))
        for gauge in _GAUGES:
            figures.put(gauge, 17 + number, domain)
    times = Histogram()
    times.counts = [1_000 + number] * len(times.counts)
    for timing in Timing:
        figures.timings[timing] = {"node": times}
    return figures


def measured_ms() -> list[float]:
    """CPU milliseconds of each round, the shortest first."""
    spent = []
    for figures in map(worst_figures, range(ROUNDS)):
        began = time.process_time()
        exposition(figures)
        spent.append((time.process_time() - began) * 1e3)
    return sorted(spent)


if __name__ == "__main__":
    rounds = measured_ms()
    lines = exposition(worst_figures(0)).count(b"\n")
    sys.stdout.write(f"{lines} lines: median {median(rounds):.1f} ms, longest {rounds[-1]:.1f} ms\n")
