"""What a worker process of Spark pays for with every task, or once, although nobody asked for it."""

from __future__ import annotations

import gc
import sys

from pyspark import TaskContext

_settled_modules = 0


def settle_in() -> None:
    """Make what this process does beside its tasks cheap; before each task, in a worker only.

    * Spark's worker collects garbage after every task. Looking at what three hundred modules have made takes it 20 to
      40 ms, with tasks of a tenth of a second; what is there before a task will be there after it, so nobody looks.
      Only after more modules came: what a task itself leaves behind in circles is still collected.
    * PyArrow looks for pandas whenever it is given Python's own lists, and what is there gets imported: 0.3 s for
      something that no task uses.
    """
    global _settled_modules  # noqa: PLW0603 - it is about this process
    if TaskContext.get() is None:
        return
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type] # the documented way to say that there is none
    if len(sys.modules) != _settled_modules:
        _settled_modules = len(sys.modules)
        gc.freeze()
