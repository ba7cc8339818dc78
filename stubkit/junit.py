"""Results as JUnit XML, which continuous integration reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree as ET

from protofly.printable import escaped


@dataclass(frozen=True, slots=True, kw_only=True)
class JunitCase:
    """One result; `problem` is "" for a good one, `output` what else there is to read."""

    name: str
    seconds: float = 0.0
    problem: str = ""
    output: str = ""


def junit_xml(suite: str, cases: Sequence[JunitCase]) -> bytes:
    """One suite. What the format cannot hold is shown by its number."""
    failures = sum(bool(case.problem) for case in cases)
    root = ET.Element(
        "testsuite",
        name=escaped(suite),
        tests=str(len(cases)),
        failures=str(failures),
        errors="0",
        time=f"{sum(case.seconds for case in cases):.3f}",
    )
    for case in cases:
        element = ET.SubElement(
            root, "testcase", classname=escaped(suite), name=escaped(case.name), time=f"{case.seconds:.3f}"
        )
        if case.problem:
            failure = ET.SubElement(element, "failure", message=escaped(case.problem))
            failure.text = escaped(case.problem)
        if case.output:
            ET.SubElement(element, "system-out").text = escaped(case.output, keep="\n")
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"
