"""A report for people: every finding with its rule and difference, then a table of chapters and dialects."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from interop.conformance.cases import GROUPS
from interop.conformance.model import ALL, Case, Dialect
from interop.conformance.outcome import CaseVerdict, Outcome
from interop.conformance.run import Report
from protofly.printable import escaped

STYLES: Final = {
    CaseVerdict.PASSED: "green",
    CaseVerdict.FAILED: "red",
    CaseVerdict.NO_ANSWER: "yellow",
    CaseVerdict.NOT_APPLICABLE: "dim",
}


def print_report(report: Report, *, console: Console | None = None, verbose: bool = False) -> None:
    """Print the whole report; `verbose` adds the conversation of every finding."""
    console = console or Console()
    for alike in group_findings(report.findings):
        console.print(finding(alike, verbose=verbose), soft_wrap=True)
        console.print()
    node = report.discovery.node
    console.print(f"[bold]{escape(node.domain)} at {escape(node.target.url)}, profile {report.profile.value}[/]")
    console.print(summary(report))
    console.print(verdict_line(report))


def group_findings(findings: Sequence[Outcome]) -> list[list[Outcome]]:
    """Runs of one case that ended alike in several dialects, together: one fault is shown once."""
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for outcome in findings:
        paths = tuple(difference.path for difference in outcome.differences)
        groups.setdefault((outcome.case.id, outcome.verdict, outcome.step, paths), []).append(outcome)
    return list(groups.values())


def finding(alike: Sequence[Outcome], *, verbose: bool) -> RenderableType:
    """One finding: what was to come, what came in the first dialect, and what the specification says about it."""
    outcome = alike[0]
    dialects = " ".join(entry.dialect.value for entry in alike)
    head = Text.assemble(
        (outcome.verdict.value, f"bold {STYLES[outcome.verdict]}"),
        " ",
        (f"{outcome.case.id}[{dialects}]", "bold"),
        (f"  step {outcome.step} of {len(outcome.case.steps)}", "dim"),
    )
    lines: list[RenderableType] = [
        head,
        Text(f"  section {outcome.case.section} says: {outcome.case.says}", style="cyan"),
    ]
    if not outcome.differences or verbose:
        lines.append(Text(f"  {escaped(outcome.problem)}"))
    lines += [Text(f"  {escaped(str(difference))}", style="red") for difference in outcome.differences]
    if verbose:
        lines += [Text(f"    {escaped(str(line))}", style="dim") for line in outcome.transcript]
    return Group(*lines)


def summary(report: Report) -> Table:
    """Passed of played, by chapter and dialect."""
    table = Table(box=None, pad_edge=False)
    table.add_column("cases of")
    dialects = [*report.discovery.offered, *report.discovery.missing]
    for dialect in dialects:
        table.add_column(dialect.value, justify="right")
    for group, title in GROUPS.items():
        inside = [outcome for outcome in report.outcomes if outcome.case.group == group]
        if inside:
            table.add_row(title, *(_cell(report, dialect, inside) for dialect in dialects))
    table.add_section()
    table.add_row("all", *(_cell(report, dialect, report.outcomes) for dialect in dialects), style="bold")
    return table


def _cell(report: Report, dialect: Dialect, outcomes: Sequence[Outcome]) -> str:
    if dialect in report.discovery.missing:
        return "[dim]not offered[/]"
    here = [outcome for outcome in outcomes if outcome.dialect is dialect]
    played = [outcome for outcome in here if outcome.verdict is not CaseVerdict.NOT_APPLICABLE]
    if not played:
        return "[dim]–[/]"
    passed = sum(outcome.verdict is CaseVerdict.PASSED for outcome in played)
    return f"[{'green' if passed == len(played) else 'red'}]{passed}/{len(played)}[/]"


def verdict_line(report: Report) -> str:
    """One line: how many of what, in how long; and which dialects were not offered."""
    counts = ", ".join(
        f"[{STYLES[verdict]}]{report.count(verdict)} {verdict.value}[/]"
        for verdict in CaseVerdict
        if report.count(verdict)
    )
    missing = "".join(
        f"\n[yellow]{dialect.value} is not offered:[/] {escape(escaped(reason))}"
        for dialect, reason in report.discovery.missing.items()
    )
    return f"{counts} in {report.seconds:.1f} s{missing}"


def print_cases(cases: Sequence[Case], *, console: Console | None = None) -> None:
    """The list of cases, by chapter."""
    console = console or Console()
    rows = [_describe(case) for case in cases]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for group, inside in groupby(zip(cases, rows, strict=True), key=lambda entry: entry[0].group):
        console.print(Text(f"{GROUPS[group]}", style="bold"))
        for _, row in inside:
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            console.print(Text("  ".join(cells).rstrip()), soft_wrap=True)


def _describe(case: Case) -> tuple[str, ...]:
    dialects = "all" if case.dialects == ALL else " ".join(entry.value for entry in Dialect if entry in case.dialects)
    return case.id, case.section, dialects, case.says
