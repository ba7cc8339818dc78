"""The report of a replay as files: what is answered otherwise is in them, and foreign text stays text."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from interop.lab.replay import Difference, ReplayReport
from interop.lab.replay_report import write_junit, write_page

SAME = ReplayReport(
    node="runtime://own.example/mn-1",
    is_whole=True,
    domains={"own.example": "a.example"},
    runtimes=2,
    requests=3,
    differences=(),
    open=0,
    events=1,
    heard=1,
    skipped={},
    recorded_ms=(1.0, 2.0),
    here_ms=(),
)
OTHER = msgspec.structs.replace(
    SAME,
    is_whole=False,
    differences=(Difference(at=1.5, what="create x → <b>y</b>", lines=("- code: 200", "+ reason: \x07 & <i>")),),
    skipped={"a secret in it was left out": 2},
)


def test_junit_has_a_case_for_each_difference_and_one_for_what_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    write_junit(OTHER, file)
    [suite] = ET.parse(file).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    different, same = suite
    assert different.get("name") == "1.500 s: create x → <b>y</b>"
    assert different.findtext("failure") == "- code: 200\n+ reason: \ufffd & <i>"
    assert same.get("name") == "2 requests are answered as recorded"
    write_junit(SAME, file)
    [suite] = ET.parse(file).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("1", "0")


def test_the_page_shows_what_is_different_allows_its_own_style_only_and_takes_text_for_text(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    write_page(OTHER, file)
    page = file.read_text(encoding="utf-8")
    assert "1 of 3 requests are answered otherwise" in page
    assert "&lt;b&gt;y&lt;/b&gt;" in page
    assert "<b>" not in page
    assert "2 since a secret in it was left out" in page
    [style] = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert f"style-src 'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'" in page
    write_page(SAME, file)
    assert "All 3 requests are answered as recorded" in file.read_text(encoding="utf-8")
