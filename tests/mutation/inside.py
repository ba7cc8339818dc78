"""What happens inside a process that runs tests for one purpose and then ends: bounds, a changed module, observers.

The changed module lives in memory only: a finder that stands before all others compiles it instead of the file. No
file of the checkout is ever written, so an interrupted run leaves nothing behind. A program that a test starts gets
the module unchanged.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

import hypothesis
import pytest

from tests.mutation.targets import ROOT

MEMORY_BYTES: Final = 3 << 30
FILE_BYTES: Final = 256 << 20
_PR_SET_PDEATHSIG: Final = 1
ARGUMENTS: Final = (
    *("-x", "-q", "--no-header", "--tb=no", "-p", "no:xdist"),
    *("-W", "ignore::ResourceWarning"),  # of what an earlier test left
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # plugins that were imported before the fork
)


class ChangedModule(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module another source than its file has."""

    def __init__(self, name: str, path: Path, source: bytes) -> None:
        self._name = name
        self._path = path
        self._source = source

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See `MetaPathFinder`."""
        if fullname != self._name:
            return None
        spec = importlib.util.spec_from_loader(fullname, self, origin=str(self._path))
        assert spec is not None
        spec.has_location = True
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """See `Loader`."""
        exec(compile(self._source, str(self._path), "exec"), module.__dict__)


class Selection:
    """Runs some tests of the collected ones, the quickest first, and remembers the first that fails."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self._seconds = seconds
        self.failed = ""
        self.ran = 0

    def pytest_collection(self) -> None:
        """Every run draws the same examples, and a failure is not made smaller."""
        hypothesis.settings.register_profile(
            "mutation",
            deadline=None,
            derandomize=True,
            database=None,
            phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        )
        hypothesis.settings.load_profile("mutation")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Choose and order."""
        if self._seconds:
            items[:] = [item for item in items if item.nodeid in self._seconds]
            items.sort(key=lambda item: self._seconds[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember the first failure."""
        self.ran += report.when == "call"
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported has noticed the change as well."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


def _cpu_seconds() -> float:
    """CPU that this process has taken by now, with that of the programs it started and that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


class Calls(Selection):
    """Notes for each test which functions of some files it called, how much CPU it took, and whether it passed.

    CPU and not time: on a busy machine a test takes longer, and fewer would fit into the budget of a change.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__({})
        self._paths = {str(path): str(path.relative_to(ROOT)) for path in paths}
        self._called: set[tuple[str, str]] = set()
        self._began = 0.0
        self.tests: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Watch one test with its fixtures."""
        self._called = set()
        self._began = _cpu_seconds()
        sys.settrace(self._trace)
        threading.settrace(self._trace)  # threads outlive tests: each notes for the test that runs
        try:
            result = yield
        finally:
            sys.settrace(None)
        called: dict[str, list[str]] = {}
        for path, name in sorted(self._called):
            called.setdefault(path, []).append(name)
        self.tests[item.nodeid] = {"seconds": round(_cpu_seconds() - self._began, 4), "called": called}
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails or is skipped without any change says nothing."""
        if not report.passed:
            self.tests.setdefault(report.nodeid, {})["is_useless"] = True
        super().pytest_runtest_logreport(report)

    def _trace(self, frame: FrameType, _event: str, _argument: object) -> None:
        path = self._paths.get(frame.f_code.co_filename)
        if path is not None:
            self._called.add((path, frame.f_code.co_qualname))


def confine(*, cpu_seconds: float) -> None:
    """Begin a session of our own, bounded in CPU, memory and files, that says nothing."""
    os.setsid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # prctl(2): ends with the process that forked it
    seconds = int(cpu_seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    sys.dont_write_bytecode = True


def run_tests(files: Sequence[str], plugin: Selection, folder: Path) -> int:
    """Run tests of some files in this process; pytest's exit code."""
    os.chdir(ROOT)
    arguments = [*ARGUMENTS, f"--basetemp={folder}", "-m", "not spark and not long and not endurance"]
    if isinstance(plugin, Calls):
        arguments[0] = "--continue-on-collection-errors"
    return int(pytest.main([*arguments, *files], plugins=[plugin]))
