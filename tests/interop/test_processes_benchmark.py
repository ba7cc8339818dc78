"""What `python -m benchmarks.processes_of_node` says of its runs, and how it names what it removes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.processes_of_node import MOST_RATIO, names_of, report
from benchmarks.sides import Run

RUN = Run(
    messages_per_second=500.0, p50_ms=0.5, p99_ms=1.0, cpu_us_per_message=100.0, lost=0, duplicated=0, reordered=0,
    refused=0, foreign_cores=0.1,
)  # fmt: skip
DEAR = replace(RUN, cpu_us_per_message=100.0 * MOST_RATIO + 1)


@pytest.mark.parametrize(
    ("flood", "paced", "holds"),
    [(RUN, RUN, True), (DEAR, RUN, False), (RUN, DEAR, False), (replace(RUN, lost=1), RUN, False)],
)
def test_the_bar_holds_if_no_load_costs_much_more_at_four_processes_and_nothing_is_lost(
    flood: Run, paced: Run, holds: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = {(1, "flood"): [RUN], (1, "500/s"): [RUN], (4, "flood"): [flood], (4, "500/s"): [paced]}
    assert report(runs) is holds
    assert "cost of a message, 4 processes : 1, flood" in capsys.readouterr().out


def test_all_processes_are_named_as_the_node_names_them() -> None:
    assert names_of(1) == ["benchmark-1"]
    assert names_of(3) == ["benchmark-3", "benchmark-3-p2", "benchmark-3-p3"]
