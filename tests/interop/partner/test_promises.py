"""Every promise of the documents has its row in docs/partner.md, and what a row names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from interop.lab.core.scene import PROMISES
from interop.lab.scene_file import shipped_scenes
from interop.partner.cases import CASES

DOCS = Path(__file__).parents[3] / "docs"
PROMISE = re.compile(r"^\| \*\*(.+?)\*\*", re.MULTILINE)
KNOWN = {case.id for case in CASES} | set(shipped_scenes()) | set(PROMISES)


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next one of its level."""
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0]


def tables() -> tuple[list[list[str]], list[list[str]]]:
    """The rows of both tables, without their heads."""
    text = section(page("partner.md"), "What is promised, and what tests it from outside")
    both = [
        [
            [cell.strip() for cell in line.strip("| ").split(" | ")]
            for line in part.splitlines()
            if line.startswith("| ")
        ]
        for part in text.split("Those of [delivery.md]")
    ]
    return both[0][1:], both[1][1:]


def test_each_promise_of_the_security_page_has_its_row_in_its_order() -> None:
    promises = PROMISE.findall(section(page("security.md"), "What we promise"))
    assert len(promises) > 30
    assert [row[0] for row in tables()[0]] == promises


def test_each_promise_about_delivery_stands_in_its_page() -> None:
    text = " ".join(page("delivery.md").split())
    assert [row[0] for row in tables()[1] if row[0] not in text] == []


@pytest.mark.parametrize("row", [*tables()[0], *tables()[1]], ids=lambda row: row[0][:40])
def test_cases_scenes_and_promises_that_a_row_names_exist(row: list[str]) -> None:
    named = re.findall(r"`([^`]+)`", row[1])
    assert bool(named) or row[1] == "–" or "chapter" in row[1]
    assert [name for name in named if name not in KNOWN] == []
