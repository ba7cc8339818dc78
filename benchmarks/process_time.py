"""CPU time and memory of processes, from the kernel's own counters. Linux."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICK_NS: Final = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def process_tree(pid: int) -> set[int]:
    """A process and everything below it."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    tree, waiting = set[int](), [pid]
    while waiting:
        one = waiting.pop()
        tree.add(one)
        waiting += children.get(one, [])
    return tree


def cpu_ns(pids: set[int]) -> int:
    """Time on a processor of all threads of these processes so far, in nanoseconds; processes that ended count 0."""
    total = 0
    for pid in pids:
        for task in _tasks(pid):
            with suppress(OSError, ValueError, IndexError):
                total += int((task / "schedstat").read_text().split()[0])
    return total


def _tasks(pid: int) -> list[Path]:
    try:
        return list((_PROC / str(pid) / "task").iterdir())
    except OSError:
        return []


def machine_busy_ns() -> int:
    """Time that all processors together spent on anything, in nanoseconds, to the tick.

    With what the host of a virtual machine took from it: a bench is as slow then as beside any other work.
    """
    fields = [int(field) for field in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) * _TICK_NS


def resident_kib(pid: int) -> int:
    """Resident memory of one process."""
    return _status(pid, "status", "VmRSS:")


def private_kib(pid: int) -> int:
    """Memory that no other process shares."""
    return _status(pid, "smaps_rollup", "Private_Clean:") + _status(pid, "smaps_rollup", "Private_Dirty:")


def _status(pid: int, file: str, name: str) -> int:
    for line in (_PROC / str(pid) / file).read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    return 0
