"""The page of a verdict: what it says of runs that kept, broke, or did not test their promises."""

from __future__ import annotations

import json
import re
from pathlib import Path

from interop.lab.core.scene import Domain, LabScene
from interop.lab.core.seen import Seen
from interop.lab.core.verdict import Evidence, Judged, State
from interop.lab.report import write_page
from interop.lab.run import LabReport

SCENE = LabScene(title="t", domain=(Domain(name="a.example"),), runtime=())
KEPT = Judged(promise="once", state=State.KEPT, cases=1, broken=0, excused=0)
BROKEN = Judged(promise="order", state=State.BROKEN, cases=1, broken=1, excused=0, evidence=(Evidence(what="late"),))
UNTESTED = Judged(promise="kept", state=State.NOT_TESTED, cases=0, broken=0, excused=0, figure="no event was sent")


def remarks(folder: Path, *judged: Judged) -> list[list[str]]:
    """What the page says beside the evidence."""
    report = LabReport(scene=SCENE, source="s", judged=judged, recoveries=(), seen=Seen(), seconds=1.0)
    write_page(report, folder / "page.html")
    found = re.search(r'id="data">(.*?)</script>', (folder / "page.html").read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])["remarks"]  # type: ignore[no-any-return]


def test_nothing_speaks_against_promises_that_were_all_kept(tmp_path: Path) -> None:
    assert remarks(tmp_path, KEPT) == [["Nothing speaks against a promise.", "kept"]]


def test_a_promise_that_nothing_tested_speaks_against_a_run(tmp_path: Path) -> None:
    assert remarks(tmp_path, KEPT, UNTESTED) == [["kept was not tested: no event was sent.", "not tested"]]


def test_beside_evidence_only_what_was_not_tested_is_said(tmp_path: Path) -> None:
    assert remarks(tmp_path, KEPT, BROKEN) == []
    assert remarks(tmp_path, BROKEN, UNTESTED) == [["kept was not tested: no event was sent.", "not tested"]]
