"""The wheel works by itself: installed into an empty environment, far from any checkout, it runs the demo."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
SHIPPED = ("deploy", "examples", "LICENSE", "README.md", "pyproject.toml")
LIMIT_SECONDS = 200


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def make_wheel(folder: Path) -> Path:
    """Build it from a copy, since a build leaves files behind."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    for name in SHIPPED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        else:
            source.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, source)
    for package in ROOT.glob("*/py.typed"):
        shutil.copytree(package.parent, source / package.parent.name, ignore=ignored)
    shutil.copytree(ROOT / "tests" / "project", source / "tests" / "project", ignore=ignored)
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, source, folder=folder)
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.mark.long
def test_wheel_runs_the_demo_in_an_empty_environment_and_carries_no_tests(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path)
    with ZipFile(wheel) as archive:
        contained = {name.partition("/")[0] for name in archive.namelist()}
    assert not {"tests", "benchmarks", "docs"} & contained
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment, folder=tmp_path)
    python = environment / "bin" / "python"
    run(sys.executable, "-m", "pip", "-q", "--python", python, "install", "--no-deps", wheel, folder=tmp_path)
    # The libraries are those of this environment. A path file is not read for others, so that our packages are not.
    packages = environment / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run(python, "-c", "import trapezoid; print(trapezoid.__file__)", folder=tmp_path)
    assert where.startswith(str(packages))
    pages = {page.name for page in (environment / "share" / "man" / "man1").iterdir()}
    assert pages == {page.name for page in (ROOT / "deploy" / "man").iterdir()}
    said = run(environment / "bin" / "trapezoid", "demo", "--json", "--state", tmp_path / "state", folder=tmp_path)
    assert json.loads(said)["ok"] is True
