"""The interpreter of JavaScript stubs is built from named sources, and from no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from protofly.errors import SettingsError
from sandbox.core.module_check import inspect_module
from stubkit.interpreter import INTERPRETER, SOURCES, SOURCES_SHA256, build_interpreter

DOWNLOAD_SECONDS = 120


def test_committed_interpreter_keeps_the_contract() -> None:
    facts = inspect_module(INTERPRETER.read_bytes())
    assert (facts.name, facts.version, facts.script_bytes, facts.has_initialize) == ("quickjs", "0.17.0", 0, True)


def test_another_archive_is_refused_before_anything_of_it_is_read(tmp_path: Path) -> None:
    archive = tmp_path / "quickjs_ng-0.17.0.2.tar.gz"
    archive.write_bytes(b"something else")
    with pytest.raises(SettingsError, match=r"is not the source distribution of quickjs-ng==0\.17\.0\.2"):
        build_interpreter(archive, tmp_path / "out.wasm")
    assert not (tmp_path / "out.wasm").exists()


@pytest.mark.long
@pytest.mark.timeout(1_200)  # half a minute of processor time, most of it for the C library
def test_committed_interpreter_is_rebuilt_bit_for_bit_from_its_sources(tmp_path: Path) -> None:
    wanted = tmp_path / "sources.txt"
    wanted.write_text(f"{SOURCES} --hash=sha256:{SOURCES_SHA256}\n")
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    try:
        done = subprocess.run(
            [*download, "--dest", str(tmp_path), "--requirement", str(wanted)],
            capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip("pip does not reach the sources of QuickJS")
    archives = list(tmp_path.glob("*.tar.gz"))
    if done.returncode != 0 or not archives:
        pytest.skip(f"pip does not get the sources of QuickJS: {done.stderr.strip()[-200:]}")
    output = tmp_path / "rebuilt.wasm"
    build_interpreter(archives[0], output)
    assert output.read_bytes() == INTERPRETER.read_bytes()
