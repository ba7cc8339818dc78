"""A pipeline that serves, as operators run it: records come, an alert goes out, and nothing is done twice."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from pipeline.lake.lake_files import LakeFiles
from pipeline.schemas import ALERT, SEGMENTS, SILVER_MDR, TRAFFIC_HOURLY
from tests.pipeline.receivers import receiver
from tests.pipeline.spools import SegmentWriter, message

_Seen = TypeVar("_Seen")
SENDER = "hyperty:" + "e" * 24
PATIENCE_S = 240.0


@contextmanager
def serving(folder: Path, hook: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, once it serves metrics, and where."""
    (folder / "pipeline.toml").write_text(
        f'lake = "lake"\nspools = ["spool"]\n[listen]\nport = 0\n[alerts]\nwebhook = ["{hook}/in"]\n'
        '[schedule]\ningest = "1s"\nsettle = "2s"\nstubs = "never"\n'
    )
    command = [sys.executable, "-m", "pipeline", "serve", "--settings", "pipeline.toml", "--memory", "1g"]
    errors = folder / "stderr"
    with (
        errors.open("a") as log,
        subprocess.Popen(command, cwd=folder, stderr=log, text=True) as done,
    ):
        try:
            lines = until(lambda: re.findall(r"serving .*; (http://\S+)/metrics", errors.read_text()), done)
            yield done, lines[-1]
        finally:
            done.kill()


def until(look: Callable[[], _Seen], process: subprocess.Popen[str]) -> _Seen:
    """Look until there is something."""
    end = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        assert process.poll() is None, "the pipeline has ended"
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.2)
    return seen


@pytest.mark.spark
def test_a_sender_to_many_is_an_alert_within_two_minutes_and_a_new_start_goes_on(tmp_path: Path) -> None:
    now_us = time.time_ns() // 1000 - 60_000_000
    writer = SegmentWriter(tmp_path / "spool")
    with receiver([200]) as (hook, posted):
        with serving(tmp_path, hook) as (process, url):
            begun = time.monotonic()
            names = {
                "role": "in",
                "src_domain": "b.example",
                "dst_domain": "a.example",
                "src_key": "hyperty:" + "e" * 24,
            }
            writer.seal([message(n, ts_us=now_us + n, dst_key=f"hyperty:{n:024x}", **names) for n in range(150)])
            [(path, body), *_] = until(lambda: posted, process)
            seconds = time.monotonic() - begun
            text = until(lambda: _with(url, 'trapezoid_pipeline_node_lag_seconds{node="mn-1.a.example"}'), process)
            assert httpx.get(f"{url}/healthz", trust_env=False).text == "ok\n"
            process.kill()  # in the middle of whatever it does
            process.wait()
        assert path == "/in"
        assert [(one["pattern"], one["subject"]) for one in body["alerts"]] == [("fan-out", SENDER)]
        assert "trapezoid_pipeline_leader 1.0" in text
        assert seconds <= 120, "message to alert"
        (tmp_path / "lake" / "lease").rename(tmp_path / "lease")  # its holder is gone: let us not wait for its end
        sent = len(posted)
        with serving(tmp_path, hook) as (process, url):
            writer.seal([message(999, ts_us=now_us + 5000, dst_key="hyperty:new", **names)])
            lake = LakeFiles.of(tmp_path / "lake")
            until(lambda: sum(file.rows for file in lake.files(SILVER_MDR)) == 151, process)
            until(lambda: _messages(lake) == 151, process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=PATIENCE_S) == 0
        assert len(posted) == sent
        assert len(lake.read_small(ALERT)) == 1
        assert len(lake.read_small(SEGMENTS)) == 2


def _with(url: str, words: str) -> str:
    text = httpx.get(f"{url}/metrics", trust_env=False).text
    return text if words in text else ""


def _messages(lake: LakeFiles) -> int:
    return sum(lake.read_small(TRAFFIC_HOURLY, ("messages",)).column("messages").to_pylist())
