"""Reports for programs: one JSON object, and JUnit XML as continuous integration reads it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from interop.conformance.model import Case
from interop.conformance.outcome import CaseVerdict, Outcome
from interop.conformance.run import Report

NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold (section 2.2); a node may send any of them."""


def as_json(report: Report) -> dict[str, object]:
    """The whole report: what was tested, counts, and every run with its differences and, for findings, conversation."""
    node = report.discovery.node
    return {
        "url": node.target.url,
        "domain": node.domain,
        "profile": report.profile.value,
        "dialects": [dialect.value for dialect in report.discovery.offered],
        "not_offered": {dialect.value: reason for dialect, reason in report.discovery.missing.items()},
        "seconds": round(report.seconds, 3),
        "counts": {verdict.value: report.count(verdict) for verdict in CaseVerdict},
        "runs": [_run(outcome) for outcome in report.outcomes],
    }


def _run(outcome: Outcome) -> dict[str, object]:
    facts: dict[str, object] = {
        "case": outcome.case.id,
        "dialect": outcome.dialect.value,
        "section": outcome.case.section,
        "says": outcome.case.says,
        "verdict": outcome.verdict.value,
        "seconds": round(outcome.seconds, 4),
    }
    if outcome.problem:
        facts["problem"] = outcome.problem
    if outcome.is_finding:
        facts["step"] = outcome.step
        facts["differences"] = [
            {"path": entry.path, "expected": entry.expected, "got": entry.got} for entry in outcome.differences
        ]
        facts["conversation"] = outcome.transcript
    return facts


def cases_as_json(cases: list[Case]) -> list[dict[str, object]]:
    """The list of cases."""
    return [
        {
            "case": case.id,
            "section": case.section,
            "says": case.says,
            "dialects": sorted(dialect.value for dialect in case.dialects),
            "profiles": sorted(profile.value for profile in case.profiles),
        }
        for case in cases
    ]


def write_junit(report: Report, file: Path) -> None:
    """Write JUnit XML: one suite for each dialect, one test case for each run; no answer is an error."""
    root = ET.Element("testsuites", name="trapezoid conformance", time=f"{report.seconds:.3f}")
    for dialect in report.discovery.offered:
        outcomes = [outcome for outcome in report.outcomes if outcome.dialect is dialect]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=f"dialect {dialect.value}",
            tests=str(len(outcomes)),
            failures=str(sum(outcome.verdict is CaseVerdict.FAILED for outcome in outcomes)),
            errors=str(sum(outcome.verdict is CaseVerdict.NO_ANSWER for outcome in outcomes)),
            skipped=str(sum(outcome.verdict is CaseVerdict.NOT_APPLICABLE for outcome in outcomes)),
            time=f"{sum(outcome.seconds for outcome in outcomes):.3f}",
        )
        for outcome in outcomes:
            _add_test_case(suite, outcome)
    ET.indent(root)
    ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)


def _add_test_case(suite: ET.Element, outcome: Outcome) -> None:
    test = ET.SubElement(
        suite,
        "testcase",
        name=outcome.name,
        classname=f"conformance.{outcome.case.group}",
        time=f"{outcome.seconds:.3f}",
    )
    element = {CaseVerdict.FAILED: "failure", CaseVerdict.NO_ANSWER: "error", CaseVerdict.NOT_APPLICABLE: "skipped"}
    if outcome.verdict is not CaseVerdict.PASSED:
        kind = ET.SubElement(test, element[outcome.verdict], message=NOT_XML.sub("\ufffd", outcome.problem))
        if outcome.is_finding:
            kind.text = NOT_XML.sub("\ufffd", outcome.explain())
