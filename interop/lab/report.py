"""The verdict of a scene: for people on a terminal, for programs as JSON and JUnit XML, and as one HTML page."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from interop.conformance.report_files import NOT_XML
from interop.lab.core.seen import Key
from interop.lab.core.verdict import Evidence, Judged, State
from interop.lab.run import LabReport
from protofly.printable import escaped

_STYLES: Final = {State.KEPT: "green", State.BROKEN: "bold red", State.NOT_TESTED: "yellow"}
_PAGE: Final = Path(__file__).parent / "page.html"
_DATA_MARK: Final = "@DATA@"
_BLOCK: Final = re.compile(r"<(script|style)>(.*?)</", re.DOTALL)
_MOST_DRAWN: Final = 20_000
"""Messages on the page; beyond, those without evidence are thinned out."""
MEANINGS: Final = {
    "once": "no message arrived twice",
    "order": "messages of each pair arrived in the order of sending",
    "kept": "nothing was lost that was accepted or answered",
    "answered": "every request got exactly one answer",
    "genuine": "whatever arrived was sent by its sender, unchanged",
    "recovery": "traffic returned in time after each fault",
    "neighbours": "pairs without a fault stayed fast meanwhile",
    "history": "some order of single steps explains all operations",
    "stubs": "nodes run the stub that works, after an update, a broken one, or a revocation",
}


def print_report(report: LabReport, console: Console) -> None:
    """Print promises, evidence against them, and recovery after each fault."""
    table = Table(box=None, pad_edge=False, title=Text(escaped(report.scene.title), style="bold"), title_justify="left")
    for name, side in (("promise", "left"), ("", "left"), ("cases", "right"), ("explained", "right"), ("", "left")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for one in report.judged:
        state = Text(one.state.value, style=_STYLES[one.state])
        about = f"{MEANINGS[one.promise]}; {one.figure}" if one.figure else MEANINGS[one.promise]
        table.add_row(one.promise, state, f"{one.cases:,}", f"{one.excused:,}", Text(about, style="dim"))
    console.print(table)
    for one in report.judged:
        if one.broken:
            console.print(Text(f"\n{one.promise}: {one.broken:,} of {one.cases:,} cases", style="bold red"))
        for case in one.evidence[:3]:
            console.print(Text(_case_text(case)), soft_wrap=True)
    for fault in report.seen.faults:
        times = [one for one in report.recoveries if one.number == fault.number]
        longest = max((math.inf if one.seconds is None else one.seconds for one in times), default=None)
        after = "not judged" if longest is None else f"traffic again after {longest:.2f} s"
        if longest == math.inf:
            after = "no traffic since then"
        what = fault.problem or f"{fault.began:6.2f}–{fault.ended:.2f} s, {after}"
        console.print(Text(f"fault {fault.title}: {escaped(what)}", style="dim"), soft_wrap=True)
    seen = report.seen
    verdict = "kept" if report.is_good else "NOT kept"
    line = f"{len(seen.sent):,} sent, {len(seen.arrived):,} arrived; promises {verdict}; {report.seconds:.1f} s"
    console.print(Text(line, style="bold green" if report.is_good else "bold red"))


def _case_text(case: Evidence) -> str:
    sent = "" if case.sent_at is None else f", sent at {case.sent_at:.3f} s"
    lines = [f"  {case.message or 'scene'}: {case.what}{sent}"]
    lines += [f"    {hop.at:9.4f} s  {hop.node}: {hop.place}" for hop in case.hops]
    lines += [f"    arrived at {at:.4f} s" for at in case.arrived_at]
    lines += [f"    record of {one.node} ({one.role}): {one.outcome} {one.code}".rstrip() for one in case.records]
    return escaped("\n".join(lines), keep="\n")


def as_json(report: LabReport) -> dict[str, object]:
    """The whole report for programs, with all evidence."""
    seen = report.seen
    return {
        "scene": report.source,
        "title": report.scene.title,
        "ok": report.is_good,
        "seconds": round(report.seconds, 3),
        "sent": len(seen.sent),
        "arrived": len(seen.arrived),
        "forged": seen.forged,
        "misdeeds": seen.misdeeds,
        "promises": [_promise(one) for one in report.judged],
        "faults": [
            {
                "number": one.number,
                "fault": one.title,
                "began": round(one.began, 3),
                "ended": round(one.ended, 3),
                "problem": one.problem,
            }
            for one in seen.faults
        ],
        "recoveries": [msgspec.to_builtins(one) for one in report.recoveries],
        "away": [msgspec.to_builtins(one) for one in seen.away],
        "log": {} if report.is_good else seen.log_lines,
    }


def _promise(one: Judged) -> dict[str, object]:
    return {
        "promise": one.promise,
        "means": MEANINGS[one.promise],
        "state": one.state.value,
        "cases": one.cases,
        "broken": one.broken,
        "explained": one.excused,
        "figure": one.figure,
        "evidence": [msgspec.to_builtins(case) for case in one.evidence],
    }


def write_junit(report: LabReport, file: Path) -> None:
    """Write JUnit XML: one test case for each promise. A promise without a case is a failure as well."""
    judged = report.judged
    root = ET.Element("testsuites", name="trapezoid lab", time=f"{report.seconds:.3f}")
    failures = sum(one.state is not State.KEPT for one in judged)
    suite = ET.SubElement(
        root,
        "testsuite",
        name=report.source,
        tests=str(len(judged)),
        failures=str(failures),
        time=f"{report.seconds:.3f}",
    )
    for one in judged:
        test = ET.SubElement(suite, "testcase", name=one.promise, classname=f"lab.{Path(report.source).stem}", time="0")
        if one.state is not State.KEPT:
            message = f"{one.broken} of {one.cases} cases" if one.cases else "nothing was seen that could break it"
            failure = ET.SubElement(test, "failure", message=message)
            failure.text = NOT_XML.sub("\ufffd", "\n".join(map(_case_text, one.evidence)))
    ET.indent(root)
    ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)


def write_page(report: LabReport, file: Path) -> None:
    """Write one HTML page with a picture of the domains and a timeline.

    It needs nothing else: its policy allows its own script and style, by their digests, and no request at all.
    """
    data = msgspec.json.encode({**as_json(report), **_drawing(report)}).decode()
    text = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    page = _PAGE.read_text(encoding="utf-8")
    for kind, content in _BLOCK.findall(page):
        digest = b64encode(sha256(content.encode()).digest()).decode()
        page = page.replace(f"@{kind.upper()}@", f"'sha256-{digest}'")
    file.write_text(page.replace(_DATA_MARK, text), encoding="utf-8")


def _remarks(report: LabReport) -> list[tuple[str, str]]:
    """What the page says beside the evidence, each with a state: a promise that nothing tested speaks against a run."""
    untested = [one for one in report.judged if one.state is State.NOT_TESTED]
    if report.is_good:
        return [("Nothing speaks against a promise.", State.KEPT.value)]
    return [(f"{one.promise} was not tested: {one.figure}.", one.state.value) for one in untested]


def _drawing(report: LabReport) -> dict[str, object]:
    """What the page draws: runtimes in lanes, messages as lines, faults as areas."""
    seen = report.seen
    first: dict[Key, float] = {}
    for one in seen.arrived:
        if one.key is not None:
            first.setdefault(one.key, one.at)
    flawed = {case.message for one in report.judged for case in one.evidence}
    step = max(1, math.ceil(len(seen.sent) / _MOST_DRAWN))
    messages = []
    for index, sent in enumerate(seen.sent):
        source, target, number = sent.key
        is_flawed = f"{source}→{target} #{number}" in flawed
        if is_flawed or index % step == 0:
            at = first.get(sent.key)
            arrived = None if at is None else round(at, 4)
            messages.append([source, target, number, round(sent.at, 4), arrived, is_flawed])
    traffic = Counter((seen.domains[one.key[0]], seen.domains[one.key[1]]) for one in seen.sent)
    return {
        "remarks": _remarks(report),
        "ended": round(seen.ended, 3),
        "domains": [{"name": one.name, "kind": one.kind} for one in report.scene.domain],
        "runtimes": [{"name": name, "domain": domain} for name, domain in seen.domains.items()],
        "messages": messages,
        "drawn_of": len(seen.sent),
        "traffic": [[source, target, count] for (source, target), count in traffic.items()],
        "hit": [
            {"title": one.title, "domains": one.domains, "began": one.began, "ended": one.ended} for one in seen.faults
        ],
    }
