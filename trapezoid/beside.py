"""Commands in processes of their own beside a running node: with a lower priority, so no message waits for them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from subprocess import CompletedProcess
from typing import Final

import trio

from msg_node.process_tuning import BESIDE_NICE

_PROGRAM: Final = f"import os; os.nice({BESIDE_NICE}); from trapezoid.cli import main; main()"


async def run_beside(words: Sequence[str]) -> CompletedProcess[bytes]:
    """Run a command of ours to its end; its output is captured, and its exit code is not judged."""
    program = [sys.executable, "-P", "-c", _PROGRAM, *words]
    return await trio.run_process(program, capture_stdout=True, capture_stderr=True, check=False)
