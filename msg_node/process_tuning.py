"""Settings of the process of a node: its limit of descriptors, its garbage collector, and how its threads share."""

from __future__ import annotations

import contextlib
import gc
import resource
import sys
from typing import Final

SWITCH_SECONDS: Final = 0.001
"""How long a thread that computes may keep the interpreter while messages wait."""
BESIDE_NICE: Final = 5
"""So much lower is the priority of processes beside the node, below that of partners' stubs: a check, a search or a
log-in waits, messages do not."""


def settle_memory() -> None:
    """Freeze the objects that exist now, and have the garbage collector run less often.

    Measured: 2 % of a node's CPU in a flood on the way out, 6 % on the way in. Messages themselves are not tracked, nor
    is what the great tables hold: looking through a million young objects at once would hold everybody up. Nothing is
    collected first: a start leaves 1 MiB of garbage, and finding it takes a tenth of a start.
    """
    gc.freeze()
    gc.set_threshold(50_000, 5, 50)
    gc.enable()


def raise_descriptor_limit() -> None:
    """Every runtime is a descriptor; the usual soft limit of 1,024 would be the bound of the node."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def share_interpreter() -> None:
    """Have threads that compute give way to messages sooner than by default.

    Settings, policies, stored rows and documents are read in threads. By default such a thread keeps the interpreter
    for five milliseconds, and the loop that moves messages waits as long each time it has to have it
    back. Measured beside one thread that computes, on a busy machine: a third less time in pauses of 1 ms and more.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
