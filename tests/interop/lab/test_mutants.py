"""The harness judges itself: each node with a mistake in its protocol is found, and an honest one is not.

A table of mistakes and findings is in docs/lab.md.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import trio

from interop.lab.core.scene import LabScene, check_scene
from interop.lab.core.verdict import State
from interop.lab.run import LabReport, run_scene
from interop.lab.scene_file import load_scene, scene_path
from interop.lab.world import WorldPlan

from .mutant_node import BORDER_MUTANTS, MUTANTS, SCENE_MUTANTS, SIMULATION_MUTANTS

LIMIT_SECONDS = 200.0
SCENES = Path(__file__).with_name("scenes")
MUTANT_NODE = ("tests.interop.lab.mutant_node",)
SCENE = """
title = "All that a mistake can show in"
domain = [
    { name = "a.example" },
    { name = "b.example" },
    { name = "c.example", kind = "hostile", does = ["forge-ours", "forge-third"], per_second = 20 },
]
runtime = [
    { name = "anna", domain = "a.example" },
    { name = "bruno", domain = "b.example" },
    { name = "carla", domain = "a.example" },
]
load = [
    { from = "anna", to = "bruno", per_second = 50, start = 1, seconds = 6 },
    { from = "bruno", to = "anna", kind = "request", start = 1, seconds = 6 },
    { from = "anna", to = "carla", per_second = 40, start = 1, seconds = 6 },
]
object = [{ name = "lamp", domain = "a.example" }]
action = [
    { at = 1.2, runtime = "anna", does = "claim", object = "lamp" },
    { at = 2.0, runtime = "carla", does = "claim", object = "lamp" },
    { at = 2.2, runtime = "bruno", does = "park", object = "lamp" },
]
fault = [
    { does = "delay", between = ["a.example", "b.example"], at = 2, lasts = 1, milliseconds = 300 },
    { does = "drop", between = ["a.example", "b.example"], at = 2.8, lasts = 0 },
    { does = "cut", between = ["a.example", "b.example"], at = 4, lasts = 1 },
]

[promise]
tests = ["once", "order", "kept", "answered", "genuine", "recovery", "neighbours", "history"]
recovery_seconds = 30
neighbours_p99_ms = 3500
"""
FOUND_BY = {
    "wrong-sender-believed": "genuine",
    "under-way-forgotten-with-the-line": "kept",
    "seen-numbers-forgotten": "once",
    "newest-first-after-a-wait": "order",
    "content-changed": "genuine",
    "everybody-waits-for-a-lost-line": "neighbours",
    "every-fifth-reply-is-for-another-request": "answered",
    "things-claimed-by-all": "history",
    "nobody-proves-itself-twice": "recovery",
}


FOUND_IN_SCENES = {
    "older-documents-believed": ("false-documents", "genuine"),
    "unsigned-documents-believed": ("false-documents", "genuine"),
    "expired-documents-believed": ("false-documents", "genuine"),
    "certificates-of-strangers-accepted": ("false-documents", "genuine"),
    "updates-not-taken": ("releases", "stubs"),
    "broken-updates-stay": ("releases", "stubs"),
    "revoked-stubs-go-on": ("releases", "stubs"),
    "links-timed-by-the-clock-on-the-wall": ("clocks", "answered"),
    "flows-outlive-a-change": ("policies-change", "genuine"),
}
"""The scene that comes with the program and finds a mistake, and by which promise."""
FOUND_IN_SCENES_HERE = {
    "policy-asked-after-delivery": ("denied", "genuine"),
}
"""The scene in the folder `scenes` beside this file that finds a mistake, and by which promise."""


async def report_of(folder: Path, *serve: str) -> LabReport:
    scene = msgspec.toml.decode(SCENE, type=LabScene)
    check_scene(scene, "mutants")
    return await report_of_scene(scene, folder, *serve)


async def report_of_scene(scene: LabScene, folder: Path, *serve: str) -> LabReport:
    with trio.fail_after(LIMIT_SECONDS):
        return await run_scene(scene, WorldPlan(folder=folder, serve=serve))


def broken(report: LabReport) -> dict[str, object]:
    return {one.promise: one.evidence[:1] for one in report.judged if one.state is not State.KEPT}


@pytest.mark.endurance
@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_mistake_in_the_protocol_is_found_by_the_promise_that_it_breaks(tmp_path: Path, mutant: str) -> None:
    report = await report_of(tmp_path, *MUTANT_NODE, mutant, "serve")
    assert FOUND_BY[mutant] in broken(report)


@pytest.mark.endurance
@pytest.mark.parametrize("mutant", FOUND_IN_SCENES)
async def test_a_mistake_with_documents_releases_clocks_or_policies_is_found_by_a_shipped_scene(
    tmp_path: Path, mutant: str
) -> None:
    name, promise = FOUND_IN_SCENES[mutant]
    assert mutant in SCENE_MUTANTS | SIMULATION_MUTANTS | BORDER_MUTANTS
    report = await report_of_scene(load_scene(scene_path(name)), tmp_path, *MUTANT_NODE, mutant, "serve")
    assert promise in broken(report)


@pytest.mark.endurance
@pytest.mark.parametrize("mutant", FOUND_IN_SCENES_HERE)
async def test_a_mistake_with_policies_is_found_by_a_scene_and_an_honest_node_raises_no_alarm(
    tmp_path: Path, mutant: str
) -> None:
    name, promise = FOUND_IN_SCENES_HERE[mutant]
    scene = load_scene(SCENES / f"{name}.toml")
    assert mutant in SCENE_MUTANTS
    assert promise in broken(await report_of_scene(scene, tmp_path / "mutant", *MUTANT_NODE, mutant, "serve"))
    assert broken(await report_of_scene(scene, tmp_path / "honest", "trapezoid", "serve")) == {}


@pytest.mark.endurance
@pytest.mark.parametrize("name", sorted({scene for scene, _ in FOUND_IN_SCENES.values()}))
async def test_an_honest_node_raises_no_alarm_in_the_scenes_that_find_mistakes(tmp_path: Path, name: str) -> None:
    report = await report_of_scene(load_scene(scene_path(name)), tmp_path, "trapezoid", "serve")
    assert broken(report) == {}


@pytest.mark.endurance
async def test_a_node_without_a_mistake_raises_no_alarm(tmp_path: Path) -> None:
    assert broken(await report_of(tmp_path, "trapezoid", "serve")) == {}
