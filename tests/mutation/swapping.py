"""Trying changes of functions in a process that has collected the tests already: the code of one function is swapped.

Theory of operation. Most of what a trial costs is to start pytest, to import and to collect. A *host* does that once
for many changes, and forks a process for each; there the changed function gets its new code, and the tests
run at once. What a test notices then is noticed. A function that was called before, while tests were imported and
collected, may have left results that are kept: what no test notices of it is tried again in the slow way, with the
whole module changed from its import on.
"""

from __future__ import annotations

import gc
import inspect
import signal
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Final

import pytest

from tests.mutation.inside import Selection
from tests.mutation.mutations import Mutation

_TEST_SECONDS: Final = 3.0
_TEST_PATIENCE: Final = 10.0
"""CPU that one test may take, beside so many times what it took: nothing is imported any more, so what takes longer
runs for ever."""


class Host(Selection):
    """Collects some tests; in place of running them, calls `work` with this plugin, and keeps what it returns."""

    def __init__(self, seconds: Mapping[str, float], modules: Collection[Path], work: Callable[[Host], object]) -> None:
        super().__init__(seconds)
        self._called: dict[str, set[str]] = {str(path): set() for path in modules}
        self._work = work
        self._items: dict[str, pytest.Item] = {}
        self._functions: dict[str, list[FunctionType]] = {}
        self.result: object = []
        sys.settrace(self._trace)  # what `conftest.py` imports is imported before the collection begins

    def _trace(self, frame: FrameType, _event: str, _argument: object) -> None:
        code = frame.f_code
        called = self._called.get(code.co_filename)
        if called is not None and code.co_flags & inspect.CO_OPTIMIZED:  # not the body of a class
            called.add(code.co_qualname)

    def was_called(self, module: Path, function: str) -> bool:
        """Whether a function, or one inside of it, was called while tests were imported and collected."""
        called = {name.replace(".<locals>", "") for name in self._called[str(module)]}
        return any(f"{name}.".startswith(f"{function}.") or f"{function}.".startswith(f"{name}.") for name in called)

    def functions_of(self, module: Path) -> Sequence[FunctionType]:
        """The functions of a module that were loaded when the tests were collected."""
        return self._functions.get(str(module), ())

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Nothing is run here: see `run`."""
        sys.settrace(None)
        self._items = {item.nodeid: item for item in session.items}
        self._functions = loaded_functions(self._called)
        gc.freeze()  # what a fork does not look at, it does not copy
        self.result = self._work(self)
        return True

    def run(self, nodeids: Sequence[str]) -> None:
        """Run collected tests in this order until one fails; in a process of its own."""
        items = [self._items[nodeid] for nodeid in nodeids if nodeid in self._items]
        for item, following in zip(items, [*items[1:], None], strict=True):
            seconds = _TEST_SECONDS + _TEST_PATIENCE * self._seconds[item.nodeid]
            signal.setitimer(signal.ITIMER_PROF, seconds)  # the signal ends this process
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                break
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def loaded_functions(modules: Collection[str]) -> dict[str, list[FunctionType]]:
    """All functions there are now of some modules, by the path of the module."""
    found: defaultdict[str, list[FunctionType]] = defaultdict(list)
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename in modules:
            found[one.__code__.co_filename].append(one)
    return found


def swap(mutation: Mutation, functions: Sequence[FunctionType], source: bytes) -> bool:
    """Give the loaded function that a change is in the code that it has with the change, and so its inner functions.

    Args:
        mutation: The change.
        functions: The loaded functions of its module.
        source: Of its module, without the change.

    Returns:
        False when nothing was swapped: the change is in no function, or in what is evaluated when it is defined.
    """
    if not functions:
        return False
    found = _changed_function(mutation, functions[0].__code__.co_filename, source)
    if found is None:
        return False
    before, after = ([code, *_inside(code)] for code in found)
    if [one.co_qualname for one in before] != [one.co_qualname for one in after]:
        return False  # the change takes an inner function away
    pairs = list(zip(before, after, strict=True))
    changed = [(function, new) for function in functions for old, new in pairs if function.__code__ == old]
    if any(len(function.__code__.co_freevars) != len(new.co_freevars) for function, new in changed):
        return False  # the change takes the last use of an outer variable away
    for function, new in changed:
        function.__code__ = new
    return bool(changed)


def _changed_function(mutation: Mutation, path: str, source: bytes) -> tuple[CodeType, CodeType] | None:
    """Code of the outermost function around a change, as it is and with the change."""
    before = list(_functions_in(compile(source, path, "exec")))
    after = list(_functions_in(compile(mutation.applied_to(source), path, "exec")))
    if [one.co_qualname for one in before] != [one.co_qualname for one in after]:
        return None
    for old, new in zip(before, after, strict=True):
        is_around = f"{mutation.function}.".startswith(f"{old.co_qualname}.")
        if is_around and old != new:  # the first one; those behind it may only have moved by a line
            return old, new
    return None


def _functions_in(code: CodeType) -> Iterator[CodeType]:
    """Functions of a module and of its classes, without what is inside of them."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            if one.co_flags & inspect.CO_OPTIMIZED:
                yield one
            else:
                yield from _functions_in(one)


def _inside(code: CodeType) -> list[CodeType]:
    """All code that stands in a function, at any depth: inner functions, of which some may have been made already."""
    found: list[CodeType] = []
    for one in code.co_consts:
        if isinstance(one, CodeType):
            found += [one, *_inside(one)]
    return found
