"""Whole scenes, from nothing to the verdict: by the command, with all its reports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import trio

SCENE = """
title = "Two honest domains and a hostile one"
domain = [
    { name = "a.example" },
    { name = "b.example" },
    { name = "c.example", kind = "hostile", does = ["forge-ours", "forge-third", "garbage"], per_second = 20 },
]
runtime = [
    { name = "anna", domain = "a.example" },
    { name = "bruno", domain = "b.example" },
    { name = "carla", domain = "a.example" },
]
load = [
    { from = "anna", to = "bruno", kind = "request", seconds = 5 },
    { from = "bruno", to = "anna", seconds = 5 },
]
object = [{ name = "lamp", domain = "a.example" }]
action = [
    { at = 0.5, runtime = "anna", does = "claim", object = "lamp" },
    { at = 1.0, runtime = "bruno", does = "park", object = "lamp" },
    { at = 2.5, runtime = "anna", does = "release", object = "lamp" },
    { at = 3.5, runtime = "carla", does = "claim", object = "lamp" },
]

[[fault]]
does = "cut"
between = ["a.example", "b.example"]
after = { runtime = "bruno", messages = 3 }
lasts = 0.5

[promise]
tests = ["once", "order", "kept", "answered", "genuine", "recovery", "history"]
"""


@pytest.mark.long
def test_a_scene_with_a_hostile_domain_and_a_fault_ends_in_a_verdict_with_all_reports(tmp_path: Path) -> None:
    scene, junit, page = tmp_path / "mine.toml", tmp_path / "junit.xml", tmp_path / "page.html"
    scene.write_text(SCENE)
    command = [sys.executable, "-m", "trapezoid", "lab", "run", str(scene), "--json"]
    files = ["--junit", str(junit), "--html", str(page), "--keep", str(tmp_path / "kept")]
    done = subprocess.run([*command, *files], capture_output=True, timeout=150, check=False)
    report = json.loads(done.stdout)
    assert done.returncode == 0, report
    assert report["ok"]
    assert [one["state"] for one in report["promises"]] == ["kept"] * 7
    assert report["forged"] > 0
    assert report["faults"][0]["ended"] >= report["faults"][0]["began"] + 0.5
    assert all(one["seconds"] is not None for one in report["recoveries"])
    suite = ET.parse(junit).getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("7", "0")
    text = page.read_text()
    assert "@DATA@" not in text
    assert "script-src 'sha256-" in text
    assert (tmp_path / "kept" / "a.example" / "node.log").exists()


@pytest.mark.long
async def test_a_run_that_is_asked_to_end_leaves_no_node_behind(tmp_path: Path) -> None:
    scene, kept = tmp_path / "mine.toml", tmp_path / "kept"
    scene.write_text(SCENE)
    command = [sys.executable, "-m", "trapezoid", "lab", "run", str(scene), "--keep", str(kept)]
    logs = [kept / name / "node.log" for name in ("a.example", "b.example", "c.example")]
    with trio.fail_after(150):
        process = await trio.lowlevel.open_process(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not all(log.exists() for log in logs):  # noqa: ASYNC110 - another process makes them
                await trio.sleep(0.05)
            process.terminate()
            assert await process.wait() == 2
        finally:
            if process.poll() is None:
                process.kill()
    assert not [line for line in command_lines() if str(kept).encode() in line]


def command_lines() -> Iterator[bytes]:
    """Command lines of all processes that run now."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()
