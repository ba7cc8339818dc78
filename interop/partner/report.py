"""What a partner found, for people (terminal) and for programs (JSON, JUnit)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree as ET

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from interop.conformance.outcome import CaseVerdict
from interop.conformance.report import STYLES
from interop.conformance.report_files import NOT_XML
from interop.partner.cases import GROUPS
from interop.partner.model import PartnerCase
from interop.partner.run import PartnerOutcome, PartnerReport
from protofly.printable import escaped


def print_report(report: PartnerReport, *, console: Console | None = None, verbose: bool = False) -> None:
    """Print the whole report; `verbose` adds what was exchanged in each finding."""
    console = console or Console()
    for outcome in report.findings:
        console.print(_finding(outcome, verbose=verbose), soft_wrap=True)
        console.print()
    console.print(f"[bold]{escape(report.domain)} at {escape(report.link)}, beside a partner[/]")
    console.print(_summary(report))
    counts = [f"[{STYLES[one]}]{report.count(one)} {one.value}[/]" for one in CaseVerdict if report.count(one)]
    console.print(f"{', '.join(counts)} in {report.seconds:.1f} s")


def _finding(outcome: PartnerOutcome, *, verbose: bool) -> Group:
    case = outcome.case
    head = Text.assemble(
        (outcome.verdict.value, f"bold {STYLES[outcome.verdict]}"),
        " ",
        (case.id, "bold"),
        (f"  step {outcome.step} of {len(case.steps)}: {_word(outcome)}", "dim"),
    )
    rule = Text(f"  {case.section} says: {case.says}", style="cyan")
    lines = [head, rule, Text(f"  {escaped(outcome.problem)}", style="red")]
    if verbose:
        lines += [Text(f"    {escaped(line)}", style="dim") for line in outcome.transcript]
    return Group(*lines)


def _word(outcome: PartnerOutcome) -> str:
    return type(outcome.case.steps[outcome.step - 1]).__name__ if outcome.step else ""


def _summary(report: PartnerReport) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("cases of")
    table.add_column("passed", justify="right")
    for group, title in GROUPS.items():
        inside = [one for one in report.outcomes if one.case.group == group]
        passed = sum(one.verdict is CaseVerdict.PASSED for one in inside)
        if inside:
            table.add_row(title, f"[{'green' if passed == len(inside) else 'red'}]{passed}/{len(inside)}[/]")
    return table


def as_json(report: PartnerReport) -> dict[str, object]:
    """The whole report."""
    return {
        "domain": report.domain,
        "link": report.link,
        "seconds": round(report.seconds, 3),
        "counts": {verdict.value: report.count(verdict) for verdict in CaseVerdict},
        "runs": [_run(outcome) for outcome in report.outcomes],
    }


def _run(outcome: PartnerOutcome) -> dict[str, object]:
    facts: dict[str, object] = {
        **_described(outcome.case),
        "verdict": outcome.verdict.value,
        "seconds": round(outcome.seconds, 3),
    }
    if outcome.is_finding:
        facts |= {"step": outcome.step, "problem": outcome.problem, "conversation": list(outcome.transcript)}
    return facts


def _described(case: PartnerCase) -> dict[str, object]:
    return {"case": case.id, "group": case.group, "section": case.section, "says": case.says}


def cases_as_json(cases: Sequence[PartnerCase]) -> list[dict[str, object]]:
    """The list of cases."""
    return [_described(case) for case in cases]


def print_cases(cases: Sequence[PartnerCase], *, console: Console | None = None) -> None:
    """The list of cases, by chapter."""
    console = console or Console()
    width = max(len(case.id) for case in cases)
    for group, inside in groupby(cases, key=lambda case: case.group):
        console.print(Text(GROUPS[group], style="bold"))
        for case in inside:
            console.print(Text(f"{case.id.ljust(width)}  {case.section}: {case.says}"), soft_wrap=True)


def write_junit(report: PartnerReport, file: Path) -> None:
    """Write JUnit XML: one suite for each chapter; no answer is an error. Raises OSError."""
    root = ET.Element("testsuites", name="trapezoid conformance --partner", time=f"{report.seconds:.3f}")
    for group in GROUPS:
        outcomes = [one for one in report.outcomes if one.case.group == group]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=group,
            tests=str(len(outcomes)),
            failures=str(sum(one.verdict is CaseVerdict.FAILED for one in outcomes)),
            errors=str(sum(one.verdict is CaseVerdict.NO_ANSWER for one in outcomes)),
            time=f"{sum(one.seconds for one in outcomes):.3f}",
        )
        for outcome in outcomes:
            _add(suite, outcome)
    ET.indent(root)
    ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)


def _add(suite: ET.Element, outcome: PartnerOutcome) -> None:
    name = f"partner.{outcome.case.group}"
    test = ET.SubElement(suite, "testcase", name=outcome.case.id, classname=name, time=f"{outcome.seconds:.3f}")
    if outcome.is_finding:
        tag = "failure" if outcome.verdict is CaseVerdict.FAILED else "error"
        problem = f"{outcome.case.section} says: {outcome.case.says}\n{outcome.problem}"
        finding = ET.SubElement(test, tag, message=NOT_XML.sub("\ufffd", outcome.problem))
        finding.text = NOT_XML.sub("\ufffd", "\n".join([problem, *outcome.transcript]))
