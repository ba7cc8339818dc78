"""`trapezoid demo --pipeline`: what both nodes of the demo wrote down, held against each other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCENE_FILE = Path(__file__).parents[2] / "examples" / "two_domains" / "group_chat.toml"


@pytest.mark.endurance
def test_the_records_of_the_demos_nodes_agree(tmp_path: Path) -> None:
    scene = tmp_path / "short.toml"
    scene.write_text(SCENE_FILE.read_text().replace("messages_each = 1000", "messages_each = 20"))
    # A folder of its own, so that no records of other runs are in it; a process of its own, because it ends its Spark.
    command = [sys.executable, "-m", "trapezoid", "demo", "--pipeline", "--json", "--scene", "short.toml"]
    done = subprocess.run([*command, "--state", "state"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    decoder = json.JSONDecoder()
    demo, end = decoder.raw_decode(done.stdout)
    facts = json.loads(done.stdout[end:])
    jobs = {job["job"]: job for job in facts["pipeline"]}
    assert all(job["findings"] == 0 and job["exit_code"] == 0 and not job["warnings"] for job in jobs.values())
    details = jobs["reconcile"]["details"]
    assert details["matched"] == details["sent"] > 0
    assert (details["lost"], details["orphan"], details["pending"]) == (0, 0, 0)
    assert demo["denied"] == 2
    silver = jobs["refine"]["rows"]["silver_mdr"]
    assert silver == details["sent"] + details["received"] + details["undelivered"]
    assert Path(facts["report"]).read_text(encoding="utf-8").count("<svg") > 1
    assert Path(facts["report"]).is_absolute()
