"""The pages about the lake and about settling say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from pipeline.core.findings import Finding
from pipeline.jobs.result import ExitCode
from pipeline.partners.extract_file import ExtractFault
from pipeline.schemas import TABLES
from pipeline.segments.quality import reasons
from protofly.records import RecordKind

PAGE_FOLDER = Path(__file__).parents[2] / "docs"
PAGE = (PAGE_FOLDER / "pipeline-tables.md").read_text(encoding="utf-8")


def test_every_finding_has_its_row_with_severity_meaning_and_advice() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (fine|warning|severe|fatal) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert rows == [(one.code, one.severity.word, one.meaning, one.advice) for one in Finding]


def test_every_reason_to_refuse_an_extract_has_its_row_with_advice() -> None:
    page = (PAGE_FOLDER / "settlement.md").read_text(encoding="utf-8")
    section = page[page.index("| Verdict | Meaning |") :]
    rows = re.findall(r"^\| (`[a-z-]+`(?:, `[a-z-]+`)*) \| .* \| (.*) \|$", section, re.MULTILINE)
    shown = [(code, advice) for codes, advice in rows for code in re.findall(r"`([a-z-]+)`", codes)]
    assert sorted(shown) == sorted((one.code, one.advice) for one in ExtractFault)


def test_every_table_has_its_row_with_partitions_and_key() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (.*) \| (.*) \| .+ \|$", PAGE, re.MULTILINE)
    named = [(table.name, _words(table.partition), _words(table.key)) for table in TABLES.values()]
    assert [row for row in rows if row[0] in TABLES] == named


def _words(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "–"


def test_every_quality_rule_is_explained() -> None:
    shown = set(re.findall(r"^\| `([a-z-]+)(?::<member>)?` \| ", PAGE, re.MULTILINE))
    assert {name.partition(":")[0] for kind in RecordKind for name in reasons(kind)} <= shown


def test_records_that_changed_since_they_were_signed_off_end_with_a_finding_wherever_that_is_documented() -> None:
    text = (PAGE_FOLDER / "settlement.md").read_text(encoding="utf-8")
    codes = re.findall(r"^\| (\d) \| .*records .*have changed since.*$", text, re.MULTILINE)
    assert len(codes) >= 2
    assert {int(code) for code in codes} == {ExitCode.FINDINGS}
