"""The harness against real nodes: what `trapezoid demo` does, with few messages, and with a worker that is killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import msgspec
import pytest
import trio

from interop.demo import run as run_demo
from interop.group_chat import ChatStep, GroupChat
from interop.laboratory import Laboratory, LaboratoryPlan
from interop.ledger import Ledger
from interop.scene import Scene

from .conftest import SCENE_FILE

LIMIT_SECONDS = 50


def short_scene(tmp_path: Path) -> Path:
    text = SCENE_FILE.read_text().replace("messages_each = 1000", "messages_each = 50")
    path = tmp_path / "short.toml"
    path.write_text(text)
    return path


@pytest.mark.long
def test_the_demo_is_faultless_and_its_second_run_uses_the_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scene, state = short_scene(tmp_path), tmp_path / "state"
    assert run_demo(json_output=True, state_dir=state, scene_file=scene) == 0, capsys.readouterr().err
    first = json.loads(capsys.readouterr().out)
    assert run_demo(json_output=True, state_dir=state, scene_file=scene) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    second = json.loads(shown.out)
    for summary in (first, second):
        assert summary["sent"] == summary["delivered"] + summary["denied"]
        assert (summary["lost"], summary["denied"], summary["faults"]) == (0, 2, [])
        assert summary["worker_pids"]
    assert (first["cache"], second["cache"]) == ("miss", "hit")
    names = [step["name"] for step in first["steps"]]
    assert names == [
        "resolve",
        "live_document",
        "root",
        "manifest",
        "module",
        "verify",
        "compile",
        "start",
        "authenticate",
    ]
    assert "used its stubs cache" in shown.err
    records = [path for path in state.glob("*/data/records/*") if path.suffix == ".zst"]
    assert {path.parts[len(state.parts)] for path in records} == {"a.example", "b.example"}


@pytest.mark.long
async def test_nothing_is_lost_or_doubled_when_the_worker_is_killed_amid_the_chat(scene: Scene, tmp_path: Path) -> None:
    chatty = msgspec.structs.replace(
        scene, chat=msgspec.structs.replace(scene.chat, messages_each=400, messages_per_second=200.0)
    )
    steps: list[ChatStep] = []
    laboratory = Laboratory(LaboratoryPlan(state_dir=tmp_path))
    with trio.fail_after(LIMIT_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(laboratory.run)
            chat = GroupChat(chatty, laboratory.access_points, trace="t", on_step=steps.append)
            nursery.start_soon(_kill_worker_amid, chat.ledger, laboratory)
            await chat.run()
            after = await laboratory.nodes["a.example"].status()
            nursery.cancel_scope.cancel()
    assert chat.is_faultless, (chat.ledger.totals(), chat.uncalled_for)
    link = after.link_to("b.example")
    assert link is not None
    assert link.state == "live"


async def _kill_worker_amid(ledger: Ledger, laboratory: Laboratory) -> None:
    while ledger.totals().delivered < 300:  # noqa: ASYNC110 - the ledger is pure and wakes nobody
        await trio.sleep(0.01)
    link = (await laboratory.nodes["a.example"].status()).link_to("b.example")
    assert link is not None
    assert link.worker_pid
    os.kill(link.worker_pid, signal.SIGKILL)


def test_a_missing_scene_is_status_2_and_starts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_demo(state_dir=tmp_path / "state", scene_file=tmp_path / "none.toml") == 2
    assert "none.toml" in capsys.readouterr().out
    assert not (tmp_path / "state").exists()


def test_fresh_never_deletes_a_folder_that_is_not_the_demos(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    precious = tmp_path / "thesis.txt"
    precious.write_text("years of work")
    assert run_demo(fresh=True, state_dir=tmp_path) == 2
    assert "it is not deleted" in capsys.readouterr().out
    assert precious.exists()
