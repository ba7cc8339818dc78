"""Run a module that ends when the process that started it has ended, however that ended, SIGKILL included.

Use: `python -m interop.ends_with_parent PID MODULE [ARGUMENT…]`, where PID is the process that starts it. It is asked
to end by SIGTERM, as if by its parent. A thread waits for the end of the parent; PR_SET_PDEATHSIG would do for a parent
with one thread only, since it fires when the thread ends that started the process.
"""

from __future__ import annotations

import os
import runpy
import select
import signal
import sys
import threading


def _end_with(parent: int) -> None:
    """Send SIGTERM to this process when `parent` has ended."""
    try:
        watched = os.pidfd_open(parent)
    except ProcessLookupError:
        watched = -1
    if watched >= 0 and os.getppid() == parent:
        select.select([watched], [], [])
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run the module."""
    parent = int(sys.argv[1])
    sys.argv = sys.argv[2:]
    threading.Thread(target=_end_with, args=(parent,), name="parent", daemon=True).start()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
