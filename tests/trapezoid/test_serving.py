from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Literal

import httpx
import pytest

from msg_node.settings.tables.node import LogSettings
from trapezoid.log_output import set_up_log


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trapezoid", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_serve_with_broken_settings_says_why_and_exits_with_2(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('[node]\ndomain = "a.example"\ndata_dirr = "x"\n')
    done = serve("--config", str(config))
    assert done.returncode == 2
    assert "node.toml:3: node.data_dirr: unknown setting; did you mean `data_dir`?" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_what_fails_while_services_start_is_one_plain_reason(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config.write_text(
            '[node]\ndomain = "a.example"\ndata_dir = "data"\n[listen]\nport = 0\ninsecure_plaintext = true\n'
            f"[site]\nport = {taken.getsockname()[1]}\ninsecure_plaintext = true\n"
        )
        done = serve("--config", str(config))
    assert done.returncode == 2
    assert "cannot be bound: Address already in use; stop the program that listens there" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_says_ready_answers_and_stops_when_asked(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text(
        '[node]\ndomain = "a.example"\ndata_dir = "data"\n[listen]\nport = 0\ninsecure_plaintext = true\n'
        "[site]\nport = 0\ninsecure_plaintext = true\n"
    )
    command = [sys.executable, "-m", "trapezoid", "serve", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        word, _, facts = child.stdout.readline().partition(" ")
        ready = json.loads(facts)
        alive = httpx.get(f"{ready['site']}/livez", trust_env=False)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=30)
    assert word == "ready"
    assert alive.text == "ok\n"
    assert child.returncode == 0
    assert not list((tmp_path / "data" / "records").glob("*.open"))


@pytest.mark.parametrize("format_", ["text", "json"])
def test_the_log_has_the_chosen_format(format_: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        set_up_log(LogSettings(format="json" if format_ == "json" else "text"))
        logging.getLogger("msg_node.test").warning("something %s", "happened")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    line = capsys.readouterr().err.strip()
    assert "something happened" in line
    if format_ == "json":
        assert json.loads(line)["level"] == "warning"
        assert "process" not in json.loads(line)


@pytest.mark.parametrize("format_", ["text", "json"])
def test_the_log_says_which_of_several_processes_wrote_a_line(
    format_: Literal["text", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        set_up_log(LogSettings(format=format_), process=2)
        logging.getLogger("msg_node.test").warning("something happened")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    line = capsys.readouterr().err.strip()
    if format_ == "json":
        assert json.loads(line)["process"] == 2
    else:
        assert line.endswith("WARNING msg_node.test [2]: something happened")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("2", "--processes: more than one process needs `storage.engine`"),
        ("65", "--processes: Expected a whole number <= 64"),
        ("two", "argument --processes: give a number, or auto for one per core"),
        ("-1", "argument --processes"),
    ],
)
def test_a_number_of_processes_that_cannot_be_is_refused_by_the_name_of_the_option(
    tmp_path: Path, asked: str, words: str
) -> None:
    config = tmp_path / "node.toml"
    config.write_text('[node]\ndomain = "a.example"\ndata_dir = "data"\n')
    ended = serve("--config", str(config), "--processes", asked)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert "TRAPEZOID__" not in ended.stderr
