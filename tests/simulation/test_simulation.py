"""Whole nodes in simulated time. Values here; the nodes run in processes of their own, whose clocks are replaced."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from federation.core.outbound_queue import OutboundQueue
from interop.lab.core.scene import LabScene, problems_of
from tests.interop.lab.mutant_node import MUTANTS, SIMULATION_MUTANTS
from tests.simulation.invariants import broken
from tests.simulation.play import Outcome
from tests.simulation.seeds import scene_of
from tests.simulation.shrink import as_toml, shrunk

LIMIT_SECONDS = 280.0
SEEDS_SECONDS = 1_800.0
FOUND_BY = {
    "under-way-forgotten-with-the-line": (18, "defect"),
    "seen-numbers-forgotten": (15, "once"),
    "newest-first-after-a-wait": (2, "order"),
    "content-changed": (2, "genuine"),
    "every-fifth-reply-is-for-another-request": (2, "answered"),
    "messages-of-flows-lost": (2, "kept"),
}
"""The seed that finds a mistake, and by what."""
SLOW_LINES, POLICIES_CHANGE = (Path(__file__).with_name(f"{name}.toml") for name in ("slow_lines", "policies_change"))
FOUND_BY_SCENE = {
    "acknowledged-too-early": (SLOW_LINES, "kept"),
    "one-number-too-many-seen": (SLOW_LINES, "kept"),
    "what-goes-again-bears-new-numbers": (SLOW_LINES, "once"),
    "flows-outlive-a-change": (POLICIES_CHANGE, "genuine"),
}
"""The scene that finds a mistake, and by what."""

Simulate = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def simulate(tmp_path_factory: pytest.TempPathFactory) -> Simulate:
    """Runs the command; all its runs share one template."""
    template = tmp_path_factory.mktemp("simulation") / "template"

    def run(*arguments: str, limit_seconds: float = LIMIT_SECONDS) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tests.simulation", "--template", str(template), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_seconds)

    return run


def test_a_seed_is_always_the_same_scene_and_one_that_can_run() -> None:
    for seed in range(100):
        assert scene_of(seed) == scene_of(seed)
        assert not list(problems_of(scene_of(seed)))


def test_seeds_have_messages_with_a_trace_and_flows() -> None:
    traced = [load.trace for seed in range(50) for load in scene_of(seed).load]
    assert 0.3 < sum(traced) / len(traced) < 0.5


def test_a_scene_that_was_shrunk_can_be_played_from_its_file() -> None:
    scene = scene_of(7)
    assert msgspec.toml.decode(as_toml(scene), type=LabScene) == scene


def test_only_the_fault_and_the_load_that_fail_are_left_of_a_scene() -> None:
    def play(scene: LabScene) -> Outcome:
        fails = any(one.does == "kill" for one in scene.fault) and any(one.per_second >= 2.0 for one in scene.load)
        return Outcome(seed=14, findings=("kept: never arrived: anna→bruno #1",) if fails else ())

    scene, outcome = shrunk(scene_of(14), play(scene_of(14)), play)
    assert [one.does for one in scene.fault] == ["kill"]
    assert len(scene.load) == 1
    assert not scene.action
    assert outcome.findings


def test_a_queue_that_lost_a_message_is_in_no_promised_state() -> None:
    queue = OutboundQueue("0" * 32)
    assert not broken(queue, is_carried=False)
    queue._waiting_bytes = 1
    assert "bytes" in broken(queue, is_carried=False)


@pytest.mark.long
def test_whole_nodes_keep_their_promises_in_simulated_time_and_play_a_seed_the_same_way_twice(
    simulate: Simulate,
) -> None:
    done = simulate("--seed", "1", "--twice")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 seeds, 0 failed" in done.stdout


@pytest.mark.long
def test_what_a_node_answered_when_it_stopped_is_not_answered_again_after_its_start(simulate: Simulate) -> None:
    done = simulate("--seed", "1", "--scene", str(Path(__file__).with_name("late_replies.toml")))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.endurance
@pytest.mark.parametrize("mutant", FOUND_BY)
def test_a_mistake_in_the_protocol_is_found_by_a_seed(simulate: Simulate, mutant: str) -> None:
    seed, finding = FOUND_BY[mutant]
    assert mutant in MUTANTS | SIMULATION_MUTANTS
    done = simulate("--seed", str(seed), "--mutant", mutant, "--no-shrink")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"  {finding}: " in done.stdout


@pytest.mark.endurance
@pytest.mark.parametrize("mutant", FOUND_BY_SCENE)
def test_a_mistake_that_seeds_do_not_show_is_found_by_a_scene_of_its_own(simulate: Simulate, mutant: str) -> None:
    assert set(FOUND_BY_SCENE) | set(FOUND_BY) >= set(SIMULATION_MUTANTS)
    scene, finding = FOUND_BY_SCENE[mutant]
    done = simulate("--seed", "1", "--scene", str(scene), "--mutant", mutant, "--no-shrink")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"  {finding}: " in done.stdout


@pytest.mark.endurance
@pytest.mark.parametrize("scene", [SLOW_LINES, POLICIES_CHANGE], ids=lambda scene: scene.stem)
def test_no_mistake_is_seen_in_a_scene_where_there_is_none(simulate: Simulate, scene: Path) -> None:
    done = simulate("--seed", "1", "--scene", str(scene))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.endurance
def test_forty_seeds_find_nothing(simulate: Simulate) -> None:
    done = simulate("--seeds", "40", limit_seconds=SEEDS_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
