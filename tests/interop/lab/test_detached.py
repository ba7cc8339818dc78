from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from interop.free_ports import reserve
from interop.lab.detached import DetachedProcess, Mark
from interop.lab.kept import KeptLab
from protofly.errors import SettingsError, TransportError
from trapezoid.commands import app


@pytest.fixture
def names(tmp_path: Path) -> Iterator[DetachedProcess]:
    records = tmp_path / "names.json"
    records.write_text('{"a.example": ["A 127.0.0.1"]}')
    process = DetachedProcess(tmp_path, "names", ["interop.lab.name_service", str(records), "0"])
    yield process
    process.end(seconds=5)


async def test_a_process_outlives_its_object_and_is_ended_by_another(names: DetachedProcess, tmp_path: Path) -> None:
    assert names.pid == 0
    facts = await names.start()
    assert isinstance(facts["port"], int)
    again = DetachedProcess(tmp_path, "names", [])
    assert again.pid == names.pid != 0
    assert again.ready_facts() == facts
    assert again.end(seconds=5) == "ended"
    assert (again.pid, again.end(seconds=5)) == (0, "did not run")


@pytest.mark.parametrize("differs", ["started_ticks", "boot_id"])
async def test_a_process_that_got_the_number_of_ours_is_left_alone(
    names: DetachedProcess, tmp_path: Path, differs: str
) -> None:
    await names.start()
    file = tmp_path / "names.pid"
    mark = msgspec.json.decode(file.read_bytes(), type=Mark)
    other: dict[str, object] = {"started_ticks": mark.started_ticks - 1, "boot_id": "another"}
    forged = msgspec.structs.replace(mark, **{differs: other[differs]})
    file.write_bytes(msgspec.json.encode(forged))
    assert (names.pid, names.end(seconds=1)) == (0, "did not run")
    os.kill(mark.pid, 0)
    file.write_bytes(msgspec.json.encode(mark))
    assert names.end(seconds=5) == "ended"


@pytest.mark.parametrize("content", [b"", b"17", b'{"pid": -1, "started_ticks": 1, "boot_id": "x"}', b"[" * 2000])
def test_a_damaged_pid_file_ends_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "names.pid").write_bytes(content)
    process = DetachedProcess(tmp_path, "names", [])
    assert (process.pid, process.end(seconds=1)) == (0, "did not run")


async def test_a_process_that_ends_before_it_is_ready_is_reported_with_its_log(tmp_path: Path) -> None:
    process = DetachedProcess(tmp_path, "names", ["no_such_module_at_all"])
    with pytest.raises(TransportError, match=r"ended with 1(.|\n)*No module named no_such_module_at_all"):
        await process.start()
    assert process.pid == 0


async def test_what_a_program_reports_as_its_error_stands_alone(tmp_path: Path) -> None:
    process = DetachedProcess(tmp_path, "node", ["trapezoid", "serve", "--config", str(tmp_path / "none.toml")])
    with pytest.raises(TransportError) as caught:
        await process.start()
    assert caught.value.detail.startswith("node ended with 2: ")
    assert "none.toml" in caught.value.detail
    assert "\n" not in caught.value.detail


def lab(*arguments: str) -> tuple[int, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "trapezoid", "lab", *arguments, "--json"], capture_output=True, timeout=600, check=False
    )
    facts = msgspec.json.decode(done.stdout)
    return done.returncode, facts if isinstance(facts, dict) else {"rows": facts}


def hold_ports(folder: Path) -> None:
    """Keep other tests from choosing the ports of a laboratory while it is down."""
    chosen = msgspec.json.decode((folder / "ports.json").read_bytes(), type=dict[str, dict[str, int]])
    assert reserve(port for ports in chosen.values() for port in ports.values())


def test_a_laboratory_that_is_interrupted_while_it_is_made_ends_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: object, **__: object) -> None:
        raise BaseExceptionGroup("of a nursery", [KeyboardInterrupt()])

    monkeypatch.setattr("interop.lab.kept.make_lab", interrupted)
    done = CliRunner().invoke(app, ["lab", "init", str(tmp_path / "lab")])
    assert done.exit_code == 130
    assert "Traceback" not in done.output


@pytest.mark.long
def test_one_command_makes_domains_that_talk_and_leaves_those_that_run(tmp_path: Path) -> None:
    folder, pids = tmp_path / "lab", list[object]()
    try:
        for _ in range(2):
            code, facts = lab(str(folder))
            assert code == 0, facts
            assert [one["code"] for one in facts["exchanges"]] == [200, 200]  # type: ignore[attr-defined]
            pids.append([one["pid"] for one in facts["domains"]])  # type: ignore[attr-defined]
    finally:
        lab("down", str(folder))
    assert pids[0] == pids[1]


@pytest.mark.parametrize("word", ["upp", "stauts", "inits"])
def test_a_command_of_the_laboratory_that_is_misspelt_makes_no_folder(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["lab", word])
    assert done.exit_code == 2
    assert "No such command" in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_two_commands_make_domains_that_talk_and_a_killed_one_comes_back_alone(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    assert lab("init", str(folder))[0] == 0
    hold_ports(folder)
    code, refused = lab("init", str(folder))
    assert (code, refused["error"]["code"]) == (2, "settings")  # type: ignore[index]
    try:
        code, facts = lab("up", str(folder))
        assert code == 0, facts
        assert [(one["source"], one["code"]) for one in facts["exchanges"]] == [  # type: ignore[attr-defined]
            ("a.example", 200),
            ("b.example", 200),
        ]
        pids = {one["domain"]: one["pid"] for one in facts["domains"]}  # type: ignore[attr-defined]
        os.kill(pids["a.example"], 9)
        code, _ = lab("status", str(folder))
        assert code == 1
        code, facts = lab("up", str(folder))
        again = {one["domain"]: one["pid"] for one in facts["domains"]}  # type: ignore[attr-defined]
        assert code == 0, facts
        assert again["b.example"] == pids["b.example"]
        assert again["a.example"] != pids["a.example"]
    finally:
        _, ended = lab("down", str(folder))
    assert ended == {"a.example": "ended", "b.example": "ended", "name-server": "ended"}
    assert lab("status", str(folder))[0] == 1


def test_a_folder_without_a_laboratory_names_the_command_that_makes_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="trapezoid lab init"):
        KeptLab(tmp_path)
