"""`./run` works from where somebody stands: paths are theirs, and nothing that is private becomes part of a commit."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """#!/bin/sh
echo "program=${0##*/}"
echo "cwd=$PWD"
for word in "$@"; do echo "word=$word"; done
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose virtual environment holds programs that print how they were called."""
    folder = tmp_path / "a checkout"
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("run", "pyproject.toml"):
        shutil.copy2(ROOT / name, folder / name)
    for name in ("python", "trapezoid"):
        (programs / name).write_text(PROGRAM)
        (programs / name).chmod(0o755)
    stamp = subprocess.run(["cksum", "pyproject.toml"], cwd=folder, capture_output=True, text=True, check=True).stdout
    (folder / ".venv" / ".trapezoid").write_text(f"{stamp}test\nfuzz\n")
    return folder


def called(script: Path, *words: str, cwd: Path) -> tuple[Path, list[str]]:
    """The working directory and the words that the program got."""
    environment = {name: value for name, value in os.environ.items() if name != "TRAPEZOID_VENV"}
    done = subprocess.run([script, *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    [folder] = [line.removeprefix("cwd=") for line in lines if line.startswith("cwd=")]
    return Path(folder), [line.removeprefix("word=") for line in lines if line.startswith("word=")]


@pytest.mark.parametrize(
    "words",
    [
        ["trapezoid", "keys", "init", "a.example", "--keys", "my keys"],
        ["trapezoid", "publish", "a.example", "--keys", "keys", "--site", "../site"],
        ["trapezoid", "stub", "check", "a.wasm"],
        ["trapezoid", "pipeline", "ingest", "spool"],
        ["demo", "--state", "state"],
        ["bench", "--json", "rows.json"],
        ["fuzz", "--seconds", "1"],
    ],
    ids=lambda words: "-".join(words[:3]),
)
def test_relative_paths_are_relative_to_where_the_user_stands(checkout: Path, tmp_path: Path, words: list[str]) -> None:
    stand = tmp_path / "stand"
    stand.mkdir()
    folder, got = called(checkout / "run", *words, cwd=stand)
    assert folder == stand
    assert got[-len(words) + 1 :] == words[1:]


def test_the_script_finds_its_checkout_through_a_link(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "run").symlink_to(checkout / "run")
    assert called(tmp_path / "bin" / "run", "trapezoid", "--help", cwd=tmp_path)[0] == tmp_path


def test_test_files_are_named_from_where_the_user_stands_and_run_in_the_checkout(checkout: Path) -> None:
    stand = checkout / "tests" / "project"
    stand.mkdir(parents=True)
    (stand / "test_docs.py").touch()
    folder, got = called(checkout / "run", "endurance", "-x", "test_docs.py::test_one", "not_there.py", cwd=stand)
    assert folder == checkout
    assert got[-3:] == ["-x", f"{stand}/test_docs.py::test_one", "not_there.py"]


def test_the_settings_of_the_virtual_environment_may_be_relative_too(checkout: Path, tmp_path: Path) -> None:
    shutil.move(checkout / ".venv", tmp_path / "venv")
    done = subprocess.run(
        [checkout / "run", "trapezoid", "--version"],
        cwd=tmp_path,
        env={**os.environ, "TRAPEZOID_VENV": "venv"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "program=trapezoid" in done.stdout, done.stderr


@pytest.mark.parametrize(
    "path",
    [
        "keys/root-0123456789ab.pem",
        "b-keys/live-0123456789ab.pem",
        "somewhere/else/node-0123456789ab.pem",
        "key.pem",
        "data/secret",
        "data/state.sqlite-wal",
        "a-data/trust.sqlite",
        "site/publication.json",
        "sites/a/root/1.json",
        "node.toml",
        "status-token",
    ],
)
def test_what_the_commands_of_the_readme_make_is_ignored(path: str) -> None:
    done = subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT, check=False, timeout=30)
    if done.returncode == 128:
        pytest.skip("not a git checkout")
    assert done.returncode == 0


def test_no_file_of_the_project_is_ignored() -> None:
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    if done.returncode == 128:
        pytest.skip("not a git checkout")
    assert done.stdout == ""
