"""A node loads what it runs, and not what only commands need."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Everything that `trapezoid serve` imports, in its order; then the packages that are loaded.
PROGRAM = """
import sys
import trapezoid.serving, msg_node.settings.load, trapezoid.checking, trapezoid.process_environment
import msg_node.app, msg_node.running, trapezoid.peer_check.beside, trapezoid.record_search, trapezoid.renewal
print(*sorted({name.partition('.')[0] for name in sys.modules}))
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


@pytest.mark.parametrize("package", ["typer", "rich", "pyspark", "pyarrow", "interop", "pipeline", "benchmarks"])
def test_a_node_does_not_load(package: str, loaded: set[str]) -> None:
    assert "msg_node" in loaded
    assert package not in loaded
