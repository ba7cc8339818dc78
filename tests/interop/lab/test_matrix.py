"""Matrices: which cells there are, that an interrupted run goes on, what the reports say, and one played for real."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from rich.console import Console
from typer.testing import CliRunner

from interop.lab.core.matrix import MOST_CELLS, Cell, Matrix, MatrixFault, MatrixNode, cells, check_matrix
from interop.lab.matrix import (
    SHIPPED,
    MatrixReport,
    Result,
    ResultFile,
    as_json,
    load_matrix,
    play_matrix,
    shipped_matrices,
)
from interop.lab.matrix_report import print_matrix, write_badge, write_junit, write_page
from protofly.errors import SettingsError
from tests.support.browser import browser
from trapezoid.commands import app

MATRIX = """
title = "Two makes & <their> faults"
scene = ["pair"]
node = [{ name = "ours", kind = "ours" }, { name = "Vert.x", kind = "vertx" }]
fault = [{ name = "none" }, { name = "cut", does = "cut" }, { name = "pause", does = "pause" }]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "matrix.toml"
    path.write_text(MATRIX)
    return path


def result(cell: Cell, verdict: str, why: str = "") -> Result:
    return Result(
        left=cell.left,
        right=cell.right,
        scene=cell.scene,
        fault=cell.fault,
        digest=cell.digest,
        verdict=verdict,
        why=why,
        sent=10,
        arrived=10,
    )


def report_of(path: Path, *verdicts: str) -> MatrixReport:
    matrix, cells = load_matrix(str(path))
    results = [result(cell, verdict, "<kept> lost one") for cell, verdict in zip(cells, verdicts, strict=True)]
    return MatrixReport(matrix=matrix, results=tuple(results), reused=0, seconds=1.0)


@pytest.mark.parametrize("name", shipped_matrices())
def test_matrices_that_are_shipped_can_be_played_with_our_node_in_every_fault(name: str) -> None:
    matrix, cells = load_matrix(name)
    played = [cell for cell in cells if not cell.problem]
    assert {one.name for one in matrix.node} == {name for cell in played for name in (cell.left, cell.right)}
    assert all("ours" in {cell.left, cell.right} for cell in played)


def test_every_pair_meets_every_fault_and_what_cannot_be_played_is_named(file: Path) -> None:
    _, cells = load_matrix(str(file))
    assert {(cell.left, cell.right, cell.fault): bool(cell.problem) for cell in cells} == {
        ("ours", "ours", "none"): False,
        ("ours", "ours", "cut"): False,
        ("ours", "ours", "pause"): False,
        ("ours", "Vert.x", "none"): False,
        ("ours", "Vert.x", "cut"): False,
        ("ours", "Vert.x", "pause"): True,
        ("Vert.x", "Vert.x", "none"): True,
        ("Vert.x", "Vert.x", "cut"): True,
        ("Vert.x", "Vert.x", "pause"): True,
    }
    assert len({cell.digest for cell in cells}) == len(cells)
    assert "recovery" not in cells[0].played.promise.tests
    assert "recovery" in cells[1].played.promise.tests


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('["pair"]', '["hostile-third"]', "needs the domains"),
        ('["pair"]', "[]", "there is no scene"),
        ('"cut", does', '"none", does', "fault none is there twice"),
        ('kind = "vertx"', 'kind = "vertex"', "vertex"),
        ('["pair"]', '["nowhere.toml"]', "No such file"),
        ('"pause", does = "pause"', '"p", does = "policy"', "fault p: needs `policy`, a file, and `denies`"),
        ('does = "cut"', 'does = "cut", policy = "p.toml"', "fault cut: `policy` and `denies` are for does policy"),
        (
            '"pause", does = "pause"',
            '"p", does = "policy", policy = "nowhere.toml", denies = [["anna", "bruno"]]',
            "matrix.toml:5: fault p: .*nowhere.toml is no file",
        ),
    ],
)
def test_what_is_wrong_with_a_matrix_is_named(file: Path, old: str, new: str, problem: str) -> None:
    file.write_text(MATRIX.replace(old, new, 1))
    with pytest.raises(SettingsError, match=problem):
        load_matrix(str(file))


POLICY = '"p", does = "policy", policy = "p.toml", denies = [["anna", "bruno"]]'


def test_a_policy_hits_the_second_node_or_the_only_one_that_has_policies(file: Path) -> None:
    file.write_text(MATRIX.replace('"cut", does = "cut"', POLICY))
    (file.parent / "p.toml").write_text("any")
    _, cells = load_matrix(str(file))
    hit = {(one.left, one.right): one.played.fault[-1].domain for one in cells if one.fault == "p" and not one.problem}
    assert hit == {("ours", "ours"): "b.example", ("ours", "Vert.x"): "a.example"}
    assert all(one.problem for one in cells if one.left == "Vert.x")


def test_a_cell_is_another_one_when_its_policy_has_changed_and_the_same_one_in_another_folder(file: Path) -> None:
    def digests(folder: Path, policy: str) -> dict[str, str]:
        folder.mkdir(exist_ok=True)
        (folder / "matrix.toml").write_text(MATRIX.replace('"cut", does = "cut"', POLICY))
        (folder / "p.toml").write_text(policy)
        return {one.title: one.digest for one in load_matrix(str(folder / "matrix.toml"))[1]}

    here, there = digests(file.parent, "one"), digests(file.parent / "there", "one")
    assert here == there
    changed = digests(file.parent, "other")
    with_policy = {title for title in here if title.endswith(" p")}
    assert {title for title in here if here[title] != changed[title]} == with_policy


def matrix_of(nodes: int, faults: int) -> Matrix:
    """So many makes of our kind, and so many times no fault."""
    return Matrix(
        title="sizes",
        node=tuple(MatrixNode(name=f"n{number}", kind="ours") for number in range(nodes)),
        scene=("pair",),
        fault=tuple(MatrixFault(name=f"f{number}") for number in range(faults)),
    )


def test_a_matrix_has_at_most_a_thousand_cells(file: Path) -> None:
    [scene] = {id(cell.played): cell.played for cell in load_matrix(str(file))[1][:1]}.values()
    largest = matrix_of(4, 100)  # ten pairs
    check_matrix(largest, {"pair": scene}, "sizes")
    assert len(cells(largest, {"pair": scene})) == MOST_CELLS == 1_000
    with pytest.raises(SettingsError, match=r"1,010 cells; at most 1,000"):
        check_matrix(matrix_of(4, 101), {"pair": scene}, "sizes")


def test_each_side_plays_its_own_make_with_the_policy_that_the_scene_has_for_it(file: Path) -> None:
    [base, *_] = [cell.played for cell in load_matrix(str(file))[1]]
    domains = tuple(msgspec.structs.replace(one, policy=f"of {one.name}") for one in base.domain)
    scene = msgspec.structs.replace(base, domain=domains)
    matrix, _ = load_matrix(str(file))
    for cell in cells(matrix, {"pair": scene}):
        kinds = {node.name: node.kind for node in matrix.node}
        assert [(one.name, one.kind, one.policy) for one in cell.played.domain] == [
            ("a.example", kinds[cell.left], "of a.example"),
            ("b.example", kinds[cell.right], "of b.example"),
        ]


async def test_a_second_run_takes_results_of_the_first_and_nothing_that_has_changed(file: Path) -> None:
    _, cells = load_matrix(str(file))
    kept = file.with_name("results.jsonl")
    first = ResultFile(kept)
    for cell in cells[:5]:
        first.add(result(cell, "kept"))
    with kept.open("ab") as half:
        half.write(b'{"left": "ou')  # the first run was killed while it wrote
    matrix, _ = load_matrix(str(file))
    seen: list[str] = []
    report = await play_matrix(
        matrix, cells, parallel=1, results=ResultFile(kept), on_result=lambda one: seen.append(one.verdict)
    )
    assert (report.reused, report.count("kept"), report.count("impossible")) == (5, 5, 4)
    assert seen == ["kept"] * 5 + ["impossible"] * 4
    assert report.is_good


def test_what_has_changed_in_the_file_is_played_again(file: Path) -> None:
    results = ResultFile(file.with_name("results.jsonl"))
    for cell in load_matrix(str(file))[1]:
        results.add(result(cell, "kept"))
    file.write_text(MATRIX.replace('does = "cut"', 'does = "cut", at = 3'))
    kept = file.with_name("results.jsonl")
    changed = [cell for cell in load_matrix(str(file))[1] if ResultFile(kept).known(cell) is None]
    assert {cell.fault for cell in changed if not cell.problem} == {"cut"}


def test_a_cell_that_could_not_run_is_tried_again(file: Path) -> None:
    _, cells = load_matrix(str(file))
    results = ResultFile(file.with_name("results.jsonl"))
    results.add(result(cells[0], "failed"))
    assert ResultFile(file.with_name("results.jsonl")).known(cells[0]) is None


@pytest.mark.parametrize(
    "text", ["something else\n", "something else", '{"left":1}\n{"le', "\xe9\n", "[" * 5000 + "\n"]
)
def test_a_file_that_holds_no_results_is_refused_and_stays_as_it_is(file: Path, text: str) -> None:
    file.write_text(text, encoding="latin-1")
    with pytest.raises(SettingsError, match="name a new file"):
        ResultFile(file)
    assert file.read_text(encoding="latin-1") == text


def test_names_of_files_and_titles_are_shown_as_they_are_and_never_obeyed(tmp_path: Path) -> None:
    hostile = "[bold]x[/] \\u001b[2J \\u0001"
    (tmp_path / "x[").mkdir()
    (tmp_path / "x[/red].toml").write_text((SHIPPED.parent / "scenes" / "pair.toml").read_text())
    file = tmp_path / "matrix.toml"
    scene, title = '"x[/red].toml"', f'"{hostile}"'
    file.write_text(MATRIX.replace('"pair"', scene).replace('"Two makes & <their> faults"', title))
    report = report_of(file, *VERDICTS)
    shown = StringIO()
    print_matrix(report, Console(file=shown, width=200))
    assert "scene x[/red].toml" in shown.getvalue()
    write_junit(report, tmp_path / "j.xml")
    assert ET.parse(tmp_path / "j.xml").getroot()[0].get("name") == "[bold]x[/] \ufffd[2J \ufffd"


def test_a_matrix_of_which_nothing_can_be_played_and_one_that_is_missing_are_refused(file: Path) -> None:
    file.write_text(MATRIX.replace('{ name = "ours", kind = "ours" }, ', ""))
    for name, problem in ((str(file), "no cell can be played"), ("nowhere", "makes")):
        done = CliRunner().invoke(app, ["conformance", "--matrix", name])
        assert done.exit_code == 2
        assert problem in done.stderr


def test_the_cells_are_listed_with_what_cannot_be_played(file: Path) -> None:
    done = CliRunner().invoke(app, ["conformance", "--matrix", str(file), "--list", "--json"])
    rows = json.loads(done.stdout)
    assert done.exit_code == 0
    assert [bool(row["cannot be played"]) for row in rows] == [False] * 5 + [True] * 4


VERDICTS = ("kept", "broken", "kept", "kept", "failed", "impossible", "impossible", "impossible", "impossible")


def test_reports_count_each_verdict_and_one_broken_cell_spoils_the_badge(file: Path, tmp_path: Path) -> None:
    report = report_of(file, *VERDICTS)
    assert not report.is_good
    assert as_json(report)["counts"] == {"kept": 3, "broken": 1, "failed": 1, "impossible": 4}
    write_junit(report, tmp_path / "j.xml")
    suite = ET.parse(tmp_path / "j.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("9", "2")
    assert len(suite.findall("testcase/skipped")) == 4
    write_badge(report, tmp_path / "b.svg")
    texts = [one.text for one in ET.parse(tmp_path / "b.svg").getroot().iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["federation", "3 of 5 kept"]


@pytest.mark.long
async def test_the_page_shows_the_table_in_a_browser_which_has_no_complaint(file: Path, tmp_path: Path) -> None:
    write_page(report_of(file, *VERDICTS), tmp_path / "m.html")
    text = (tmp_path / "m.html").read_text()
    assert "&lt;kept&gt; lost one" in text
    assert "Two makes &amp; &lt;their&gt; faults" in text
    async with browser(tmp_path / "profile") as page:
        await page.go((tmp_path / "m.html").as_uri())
        shown = await page.text()
        assert "ours – Vert.x" in shown
        assert "Vert.x – Vert.x" not in shown
        assert page.wrong == []


@pytest.mark.long
async def test_a_matrix_of_a_simulated_node_is_played_and_kept(tmp_path: Path) -> None:
    scene = (Path(__file__).parents[3] / "interop/lab/scenes/pair.toml").read_text()
    (tmp_path / "short.toml").write_text(scene.replace("seconds = 10\n", "seconds = 3\n"))
    (tmp_path / "m.toml").write_text(
        MATRIX.replace('"pair"', '"short.toml"').replace('{ name = "ours", kind = "ours" }, ', "")
        .replace("node = [", 'node = [{ name = "ours", kind = "ours" }, ')
        .replace(', { name = "cut", does = "cut" }, { name = "pause", does = "pause" }', "")
    )  # fmt: skip
    matrix, cells = load_matrix(str(tmp_path / "m.toml"))
    report = await play_matrix(matrix, cells[1:2], parallel=1)
    assert [(one.verdict, one.why) for one in report.results] == [("kept", "")]
    assert msgspec.json.decode(json.dumps(as_json(report)))["ok"]
