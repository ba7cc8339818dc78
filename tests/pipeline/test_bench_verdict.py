"""What the pipeline's benchmark says about its figures, to people and to machines."""

from __future__ import annotations

import pytest
from rich.console import Console

from benchmarks.pipeline.__main__ import AnswersVerdict, judge, show
from benchmarks.pipeline.shapes import Figures
from benchmarks.pipeline.traffic import Planted

ROWS = 10_000_000


def figures(shape: str, engine: str, cpu_s: float = 1.0, **answer: int) -> Figures:
    return Figures(shape=shape, engine=engine, rows=ROWS, cpu_s=cpu_s, wall_s=12.3, peak_mib=2048, answer=answer)


@pytest.mark.parametrize(
    ("rows", "cpu_s", "missed"),
    [
        (ROWS, 15.0, []),
        (ROWS, 15.1, ["settle-hourly: 15.1 CPU s, bar 15"]),
        (ROWS // 5, 3.1, ["settle-hourly: 3.1 CPU s, bar 3"]),
        (ROWS * 4, 59.0, []),
    ],
)
def test_a_bar_is_held_against_the_figure_in_proportion(rows: int, cpu_s: float, missed: list[str]) -> None:
    measured = [figures("settle-hourly", "duckdb"), figures("settle-hourly", "spark", cpu_s)]
    assert judge(measured, Planted(), rows=rows) == AnswersVerdict([], missed)


def test_engines_that_disagree_are_wrong() -> None:
    measured = [figures("settle", "duckdb", hourly=2), figures("settle", "spark", hourly=3)]
    assert judge(measured, Planted(), rows=ROWS).wrong == ["settle: Spark says {'hourly': 3}, DuckDB {'hourly': 2}"]


def test_a_planted_fault_that_was_not_found_is_wrong_though_the_engines_agree() -> None:
    planted = Planted()
    planted.cases["lost"] = 2
    measured = [figures("reconcile", engine, lost=1) for engine in ("duckdb", "spark")]
    [line] = judge(measured, planted, rows=ROWS).wrong
    assert line.startswith("reconcile: planted")


def test_the_table_fits_into_80_columns_with_its_bars() -> None:
    console = Console(width=80)
    measured = [figures("settle-hourly", "duckdb", 8.5), figures("settle-hourly", "spark", 112.4)]
    with console.capture() as capture:
        show(console, measured, judge(measured, Planted(), rows=ROWS), rows=ROWS)
    [row] = [line for line in capture.get().splitlines() if line.strip().startswith("settle-hourly ")]
    assert row.split() == ["settle-hourly", "15", "112.4", "8.5", "13.2×", "12.3", "12.3", "2048"]
