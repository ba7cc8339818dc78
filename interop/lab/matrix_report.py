"""A matrix that was played: a table on a terminal, one HTML page, a badge, and JUnit XML."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from jinja2 import Environment
from rich.console import Console
from rich.table import Table
from rich.text import Text

from interop.conformance.report_files import NOT_XML
from interop.lab.matrix import MatrixReport, Result
from protofly.printable import escaped

_PAGE: Final = Path(__file__).parent / "matrix_page.html"
_STYLE_BLOCK: Final = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_STYLES: Final = {"kept": "green", "broken": "bold red", "failed": "bold yellow", "impossible": "dim"}
_BADGE: Final = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img">
<title>{label}: {text}</title>
<rect width="{width}" height="20" rx="3" fill="#555"/>
<rect x="{split}" width="{rest}" height="20" rx="3" fill="{colour}"/>
<rect x="{split}" width="4" height="20" fill="{colour}"/>
<g fill="#fff" font-family="Verdana,Geneva,sans-serif" font-size="11">
<text x="6" y="14">{label}</text><text x="{start}" y="14">{text}</text>
</g>
</svg>
"""
IMPOSSIBLE: Final = "impossible"
_LABEL: Final = "federation"
_CHAR_PIXELS: Final = 7


def print_matrix(report: MatrixReport, console: Console) -> None:
    """Print one table for each scene, then what speaks against each cell."""
    faults = [one.name for one in report.matrix.fault]
    for scene, rows in _scenes(report):
        table = Table(box=None, pad_edge=False, title=Text(escaped(f"scene {scene}")), title_justify="left")
        for name in ("pair", *faults):
            table.add_column(name)
        for row in rows:
            cells = [
                Text(one.verdict if one.verdict != "impossible" else "–", style=_STYLES[one.verdict]) for one in row
            ]
            table.add_row(f"{row[0].left} – {row[0].right}", *cells)
        console.print(table)
    for one in _problems(report):
        line = f"{one.verdict} {one.left} – {one.right}, {one.scene}, {one.fault}: {one.why}"
        console.print(Text(escaped(line), style=_STYLES[one.verdict]), soft_wrap=True)
    console.print(Text(f"{_summary(report)}; {report.seconds:.0f} s", style="bold"))


def _summary(report: MatrixReport) -> str:
    counts = {verdict: report.count(verdict) for verdict in ("kept", "broken", "failed")}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count or verdict == "kept")


def _scenes(report: MatrixReport) -> list[tuple[str, list[list[Result]]]]:
    """For each scene its rows: the results of one pair, by fault. Pairs that can play nothing are left out."""
    width, scenes = len(report.matrix.fault), []
    for scene, group in groupby(report.results, key=lambda one: one.scene):
        found = list(group)
        rows = [found[start : start + width] for start in range(0, len(found), width)]
        scenes.append((scene, [row for row in rows if any(one.verdict != IMPOSSIBLE for one in row)]))
    return scenes


def _problems(report: MatrixReport) -> list[Result]:
    return [one for one in report.results if one.verdict in {"broken", "failed"}]


def write_page(report: MatrixReport, file: Path) -> None:
    """Write one HTML page. It needs nothing else, has no script, and its policy allows its own style alone."""
    text = _PAGE.read_text(encoding="utf-8")
    [style] = _STYLE_BLOCK.findall(text)
    template = Environment(autoescape=True, trim_blocks=True).from_string(text)
    page = template.render(
        title=report.matrix.title,
        style_digest=b64encode(sha256(style.encode()).digest()).decode(),
        counts={verdict: report.count(verdict) for verdict in _STYLES},
        seconds=f"{report.seconds:.0f}",
        reused=report.reused,
        faults=[one.name for one in report.matrix.fault],
        scenes=[
            {"name": name, "rows": [{"left": row[0].left, "right": row[0].right, "cells": row} for row in rows]}
            for name, rows in _scenes(report)
        ],
        problems=_problems(report),
    )
    file.write_text(page, encoding="utf-8")


def write_badge(report: MatrixReport, file: Path) -> None:
    """Write a badge as SVG: how many cells kept their promises, of those that were played."""
    played = len(report.results) - report.count("impossible")
    text = f"{report.count('kept')} of {played} kept"
    split, rest = len(_LABEL) * _CHAR_PIXELS + 8, len(text) * _CHAR_PIXELS + 10
    colour = "#1a7f37" if report.is_good else "#c8242c"
    places = {"width": split + rest, "split": split, "rest": rest, "start": split + 6}
    file.write_text(_BADGE.format(label=_LABEL, text=text, colour=colour, **places), encoding="utf-8")


def write_junit(report: MatrixReport, file: Path) -> None:
    """Write JUnit XML: one test case for each cell; those that cannot be played are skipped."""
    failures = len(_problems(report))
    tests = str(len(report.results))
    root = ET.Element("testsuites", name="trapezoid matrix", time=f"{report.seconds:.3f}")
    title = NOT_XML.sub("\ufffd", report.matrix.title)
    suite = ET.SubElement(root, "testsuite", name=title, tests=tests, failures=str(failures))
    for one in report.results:
        name = f"{one.left} – {one.right}, {one.fault}"
        test = ET.SubElement(suite, "testcase", name=name, classname=f"matrix.{one.scene}", time=f"{one.seconds:.3f}")
        if one.verdict == "impossible":
            ET.SubElement(test, "skipped", message=NOT_XML.sub("\ufffd", one.why))
        elif one.verdict != "kept":
            ET.SubElement(test, "failure", message=one.verdict).text = NOT_XML.sub("\ufffd", one.why)
    ET.indent(root)
    ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
