"""What every trio task of this process waits for, as text: for watchdogs of tests that look for stalls."""

from __future__ import annotations

from pathlib import Path

import trio
import trio.lowlevel

FRAMES = 4


def dump_tasks() -> str:
    """All tasks below the root, indented by nursery, each with the innermost frames in which it waits."""
    root = trio.lowlevel.current_root_task()
    lines: list[str] = []
    if root is not None:
        _dump(root, 0, lines)
    return "\n".join(lines)


def _dump(task: trio.lowlevel.Task, depth: int, lines: list[str]) -> None:
    indent = "  " * depth
    lines.append(f"{indent}{task.name}")
    frames = list(task.iter_await_frames())[-FRAMES:]
    lines += [
        f"{indent}  at {Path(frame.f_code.co_filename).name}:{line} {frame.f_code.co_name}" for frame, line in frames
    ]
    for nursery in task.child_nurseries:
        for child in sorted(nursery.child_tasks, key=lambda one: one.name):
            _dump(child, depth + 1, lines)
