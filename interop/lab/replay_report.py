"""A recording that was played: what came of it in words, as one HTML page, and as JUnit XML."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from jinja2 import Environment

from interop.conformance.report_files import NOT_XML
from interop.lab.replay import ReplayReport

_PAGE: Final = Path(__file__).parent / "replay_page.html"
_STYLE_BLOCK: Final = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def facts_of(report: ReplayReport) -> dict[str, object]:
    """The facts about a replay: its acts and their results."""
    return {
        "recorded at": report.node + ("" if report.is_whole else ", and cut short: its node was killed"),
        "domains here": [f"{there} is {here}" for there, here in report.domains.items()],
        "runtimes": report.runtimes,
        "requests": report.requests,
        "answered otherwise": len(report.differences),
        "without recorded end": report.open,
        "events": f"{report.events} sent, {report.heard} arrived",
        "not played": [f"{count} since {reason}" for reason, count in report.skipped.items()] or "nothing",
        "times recorded": _times(report.recorded_ms),
        "times here": _times(report.here_ms),
    }


def _times(percentiles: tuple[float, ...]) -> str:
    return " ".join(f"{name} {one:g} ms" for name, one in zip(("p50", "p99"), percentiles, strict=False)) or "none"


def write_page(report: ReplayReport, file: Path) -> None:
    """Write one HTML page. It needs nothing else, has no script, and its policy allows its own style alone."""
    text = _PAGE.read_text(encoding="utf-8")
    [style] = _STYLE_BLOCK.findall(text)
    template = Environment(autoescape=True, trim_blocks=True).from_string(text)
    page = template.render(
        style_digest=b64encode(sha256(style.encode()).digest()).decode(),
        report=report,
        facts={name: value if isinstance(value, list) else [value] for name, value in facts_of(report).items()},
    )
    file.write_text(page, encoding="utf-8")


def write_junit(report: ReplayReport, file: Path) -> None:
    """Write JUnit XML: one test case for each request that is answered otherwise, one for all others together."""
    same = report.requests - len(report.differences)
    root = ET.Element("testsuites", name="trapezoid lab replay")
    tests, failures = str(len(report.differences) + bool(same)), str(len(report.differences))
    suite = ET.SubElement(root, "testsuite", name=report.node, tests=tests, failures=failures)
    for one in report.differences:
        name = NOT_XML.sub("\ufffd", f"{one.at:.3f} s: {one.what}")
        test = ET.SubElement(suite, "testcase", name=name, classname="replay")
        failure = ET.SubElement(test, "failure", message="is answered otherwise")
        failure.text = NOT_XML.sub("\ufffd", "\n".join(one.lines))
    if same:
        ET.SubElement(suite, "testcase", name=f"{same} requests are answered as recorded", classname="replay")
    ET.indent(root)
    ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
