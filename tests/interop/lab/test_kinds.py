"""Scenes with nodes of other makes, another program as a node, a bare link speaker, and several nodes of one domain."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trio

from interop.lab.core.scene import LabScene, check_scene
from interop.lab.core.verdict import State
from interop.lab.kept import KeptLab, make_lab
from interop.lab.line_proxy import Line
from interop.lab.run import LabReport, run_scene
from interop.lab.scene_nodes import filled
from interop.lab.world import WorldPlan
from protofly.errors import SettingsError, TransportError
from tests.support.postgres import needs_postgres

LIMIT_SECONDS = 150.0
MAKES = """
title = "Other makes"
domain = [
    { name = "a.example" },
    { name = "v.example", kind = "vertx" },
    { name = "j.example", kind = "nodejs" },
    { name = "m.example", kind = "nomatrix" },
    { name = "l.example", kind = "link" },
    { name = "o.example", kind = "other", command = ["PYTHON", "-m", "trapezoid", "serve", "--config", "{settings}"] },
]
runtime = [
    { name = "anna", domain = "a.example" },
    { name = "vera", domain = "v.example" },
    { name = "jonas", domain = "j.example" },
    { name = "mara", domain = "m.example" },
    { name = "luis", domain = "l.example" },
    { name = "olga", domain = "o.example" },
]
load = [
    { from = "anna", to = "vera", seconds = 2 },
    { from = "vera", to = "anna", seconds = 2, kind = "request" },
    { from = "anna", to = "jonas", seconds = 2, kind = "request" },
    { from = "jonas", to = "anna", seconds = 2 },
    { from = "anna", to = "mara", seconds = 2 },
    { from = "mara", to = "anna", seconds = 2, kind = "request" },
    { from = "anna", to = "luis", seconds = 4, kind = "request" },
    { from = "luis", to = "anna", seconds = 4 },
    { from = "anna", to = "olga", seconds = 2, kind = "request" },
    { from = "olga", to = "luis", seconds = 2 },
]
action = [
    { at = 0.5, runtime = "vera", does = "register" },
    { at = 0.5, runtime = "olga", does = "register" },
    { at = 1.5, runtime = "anna", does = "find", whom = "vera" },
    { at = 1.5, runtime = "anna", does = "find", whom = "olga" },
]

[[fault]]
does = "cut"
between = ["a.example", "l.example"]
at = 1
lasts = 0.5

[promise]
tests = ["once", "order", "kept", "answered", "genuine", "recovery", "history"]
recovery_seconds = 15
"""
NODES = """
title = "Two nodes"
domain = [{ name = "a.example", nodes = 2 }, { name = "b.example" }]
runtime = [{ name = "anna", domain = "a.example", count = 2 }, { name = "bruno", domain = "b.example" }]
load = [
    { from = "anna", to = "bruno", kind = "request", seconds = 9 },
    { from = "bruno", to = "anna", seconds = 9 },
    { from = "anna", to = "anna", kind = "request", seconds = 9 },
]
fault = [
    { does = "partition", domain = "a.example", at = 1, lasts = 0.5 },
    { does = "kill", domain = "a.example", node = 2, at = 4, lasts = 0.5 },
]

[promise]
tests = ["once", "order", "kept", "answered", "genuine"]
recovery_seconds = 15
"""


SPEAKER = """
title = "A bare link speaker"
domain = [{ name = "a.example" }, { name = "l.example", kind = "link" }]
runtime = [{ name = "anna", domain = "a.example" }, { name = "luis", domain = "l.example" }]
load = [{ from = "luis", to = "anna", seconds = 8 }]

[promise]
tests = ["once", "order", "kept", "genuine"]
"""


async def report_of(text: str, folder: Path) -> LabReport:
    scene = msgspec.toml.decode(text, type=LabScene)
    check_scene(scene, "kinds")
    with trio.fail_after(LIMIT_SECONDS):
        return await run_scene(scene, WorldPlan(folder=folder))


def broken(report: LabReport) -> dict[str, object]:
    return {one.promise: one.evidence[:1] or one.state for one in report.judged if one.state is not State.KEPT}


@pytest.mark.long
async def test_nodes_of_six_makes_keep_the_promises_among_each_other(tmp_path: Path) -> None:
    report = await report_of(MAKES.replace("PYTHON", sys.executable), tmp_path)
    assert broken(report) == {}
    heard = {(one.key[0], one.runtime) for one in report.seen.arrived if one.key is not None}
    assert heard == {(load.from_, load.to) for load in report.scene.load}


@pytest.mark.long
async def test_lines_that_end_while_documents_are_fetched_cost_seconds_and_no_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our node asks for documents when a partner connects; without them it refuses the link, and asks after 5 s."""
    pass_on = Line._pass_on
    ended: list[str] = []

    async def end_first(line: Line, near: trio.SocketStream, port: int) -> None:
        if line.address == "127.42.1.2" and not ended:
            ended.append(line.address)
            await near.receive_some()
        else:
            await pass_on(line, near, port)

    monkeypatch.setattr(Line, "_pass_on", end_first)
    report = await report_of(SPEAKER, tmp_path)
    assert ended
    assert broken(report) == {}


@pytest.mark.long
async def test_a_domain_of_two_nodes_keeps_the_promises_without_its_bus_and_without_one_node(tmp_path: Path) -> None:
    needs_postgres()
    report = await report_of(NODES, tmp_path)
    assert broken(report) == {}
    assert not [one.problem for one in report.seen.faults if one.problem]
    assert (tmp_path / "a.example" / "mn-2" / "data" / "records").is_dir()


async def test_a_command_that_does_not_exist_is_named(tmp_path: Path) -> None:
    text = MAKES.replace('"PYTHON", "-m", "trapezoid", "serve", "--config"', '"/nowhere/node"')
    with pytest.raises(BaseExceptionGroup) as caught:
        await report_of(text, tmp_path)
    assert caught.group_contains(SettingsError, match=r"domain o\.example: /nowhere/node: No such file")


async def test_a_program_that_ends_at_once_is_named_with_its_domain_and_the_place_where_it_should_listen(
    tmp_path: Path,
) -> None:
    text = MAKES.replace('"PYTHON", "-m", "trapezoid", "serve", "--config"', '"/bin/false", "now"')
    with pytest.raises(BaseExceptionGroup) as caught:
        await report_of(text, tmp_path)
    place = r"domain o\.example: nothing accepts connections at wss://127\.0\.0\.1:\d+/ws: "
    assert caught.group_contains(TransportError, match=place + "/bin/false now .* ended with 1; its log is empty")


def test_an_unknown_placeholder_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SettingsError, match=r"there is no \{port\}; there are listen, site"):
        filled("--port {port}", {"listen": "1", "site": "2"}, "domain b.example")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that the user of PostgreSQL can reach, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="trapezoid-lab-test-"))
    folder.chmod(0o711)
    yield folder / "lab"
    shutil.rmtree(folder)


@pytest.mark.long
async def test_a_kept_laboratory_of_two_nodes_each_answers_and_comes_back(open_folder: Path) -> None:
    needs_postgres()
    await make_lab(open_folder, 2, nodes=2)
    lab = KeptLab(open_folder)
    try:
        for _ in range(2):
            started = await lab.up()
            assert started == ["a.example", "b.example"]
            assert [(one.domain, one.state) for one in await lab.states()] == [
                ("a.example", "running"),
                ("a.example mn-2", "running"),
                ("b.example", "running"),
                ("b.example mn-2", "running"),
            ]
            assert [one.code for one in await lab.exchange(started)] == [200, 200]
            assert set(lab.down().values()) == {"ended"}
    finally:
        lab.down()


async def test_a_laboratory_of_no_nodes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="1 to 4 nodes"):
        await make_lab(tmp_path / "lab", 2, nodes=0)
