"""A stub needs no kit: the contract is a page, and any compiler that makes a core module without imports will do."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from sandbox.core.module_check import inspect_module
from stubkit.check import check

ROOT = Path(__file__).parents[2]
COMPILER = ".venv/bin/python -m ziglang "


def test_stub_in_zig_is_built_by_the_command_of_the_page_and_keeps_the_contract(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "writing-a-stub.md").read_text(encoding="utf-8")
    [command] = [line.removeprefix(COMPILER) for line in page.splitlines() if line.startswith(COMPILER)]
    shutil.copy(ROOT / "examples" / "stubs" / "silent" / "silent.zig", tmp_path)
    subprocess.run(
        [sys.executable, "-m", "ziglang", *shlex.split(command)],
        cwd=tmp_path,
        env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(tmp_path / "cache")},
        check=True,
        timeout=200,
    )
    module = tmp_path / "silent.wasm"
    assert inspect_module(module.read_bytes()).name == "silent"
    report = check(module)
    assert report.is_good, report
    assert report.is_live_unproved
