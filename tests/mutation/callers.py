"""Which tests call which functions of a group, and how long they take: found by running them once, and kept.

What is kept of a test file holds as long as the file, what it shares with other tests, and the names of the group's
functions stay the same; `.mutation/` in the checkout has it.
"""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Final

import msgspec

from tests.mutation.imports import imported_by, imported_directly
from tests.mutation.inside import Calls, run_tests
from tests.mutation.processes import Task, run_all
from tests.mutation.targets import ELSEWHERE, ROOT, Group, module_name

KEPT: Final = ROOT / ".mutation"
_FILE_SECONDS: Final = 240.0
_FILES_AT_ONCE: Final = 8


class TestCalls(msgspec.Struct, frozen=True):
    """One test: its seconds, and the functions that it called by file. `is_useless`: it does not pass as it is."""

    __test__ = False

    seconds: float = 0.0
    called: dict[str, list[str]] = {}
    is_useless: bool = False


class KeptFile(msgspec.Struct, frozen=True):
    """What is kept of one test file; its digest says of which version."""

    digest: str
    tests: dict[str, TestCalls]


class Callers:
    """The tests of one group.

    Attributes:
        useless: Tests that fail or are skipped without any change, and files that did not end in time.
    """

    def __init__(self, group: Group, kept: dict[str, KeptFile]) -> None:
        self._by_function: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        self._by_module: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._seconds: dict[str, float] = {}
        self._paths = {module_name(path): str(path.relative_to(ROOT)) for path in group.paths()}
        self.useless: list[str] = []
        for name, file in kept.items():
            if not file.tests:
                self.useless.append(name)
            for nodeid, test in file.tests.items():
                self._add(nodeid, test)

    def _add(self, nodeid: str, test: TestCalls) -> None:
        if test.is_useless:
            self.useless.append(nodeid)
            return
        self._seconds[nodeid] = test.seconds
        for path, functions in test.called.items():
            self._by_module[path][nodeid] = test.seconds
            for function in functions:
                self._by_function[path, _outermost(function)][nodeid] = test.seconds

    def of(self, module: str, function: str) -> dict[str, float]:
        """Seconds of the tests that may notice a change: those that call the function.

        What runs when the module is imported, as the body of a class does, is called by no test. It is noticed by any
        test that calls the module, or whose file imports it itself.
        """
        path = self._paths[module]
        called = self._by_function.get((path, function), {})
        if called and function in _functions_of(ROOT / path):
            return called
        importers = {name for name in files_of(list(self._seconds)) if module in imported_directly(ROOT / name)}
        others = {nodeid: took for nodeid, took in self._seconds.items() if nodeid.partition("::")[0] in importers}
        return self._by_module.get(path, {}) | others


def callers_of(group: Group, paths: Sequence[Path], workers: int, on_progress: Callable[[int, int], None]) -> Callers:
    """Find out, or remember, which tests of some test files of a group call what."""
    store = KEPT / f"{group.name.replace('/', '-')}.json"
    kept = msgspec.json.decode(store.read_bytes(), type=dict[str, KeptFile]) if store.exists() else {}
    names = _digest(*(" ".join(sorted(_functions_of(path))).encode() for path in group.paths()))
    current: dict[str, KeptFile] = {}
    KEPT.mkdir(exist_ok=True)
    digests: dict[str, str] = {}
    for path in paths:
        name, digest = str(path.relative_to(ROOT)), _digest(names.encode(), *_shared_sources(path))
        found = kept.get(name)
        if found is not None and found.digest == digest:
            current[name] = found
        else:
            digests[name] = digest
    for tests in _watched_all(group, list(digests), workers):
        for name, found_tests in tests.items():
            current[name] = KeptFile(digests[name], found_tests)
        store.write_bytes(msgspec.json.encode({**kept, **current}))  # an interrupted run loses nothing
        on_progress(sum(name in current for name in digests), len(digests))
    return Callers(group, current)


def _watched_all(group: Group, names: list[str], workers: int) -> Iterator[dict[str, dict[str, TestCalls]]]:
    """Calls of the tests of some files. Several files share a process; if it does not end, each gets its own."""
    alone: list[str] = []
    together = [names[start : start + _FILES_AT_ONCE] for start in range(0, len(names), _FILES_AT_ONCE)]
    for is_first in (True, False):
        some = together if is_first else [[name] for name in alone]
        tasks = [Task(partial(_watched, group, part), _FILE_SECONDS * len(part)) for part in some]
        for number, ended in run_all(tasks, workers):
            part = some[number]
            if not ended.answer and len(part) > 1:
                alone += part
                continue
            tests = msgspec.json.decode(ended.answer or b"{}", type=dict[str, TestCalls])
            yield {name: {key: one for key, one in tests.items() if key.partition("::")[0] == name} for name in part}


def _watched(group: Group, names: list[str], folder: Path) -> object:
    """In a process of its own: run some test files and say what their tests call."""
    plugin = Calls(group.paths())
    run_tests(names, plugin, folder)
    return plugin.tests


def files_that_may_notice(group: Group) -> list[Path]:
    """All test files of a group."""
    modules, tests = {module_name(path) for path in group.paths()}, ROOT / "tests"
    found = {path for home in group.homes for path in tests.glob(home) if modules & imported_by(path)}
    if group.asks_importers:
        others = (path for path in tests.glob("*/**/test_*.py") if path.relative_to(tests).parts[0] not in ELSEWHERE)
        found |= {path for path in others if modules & imported_directly(path)}
    return sorted(found)


def is_beside(path: Path, modules: Collection[str]) -> bool:
    """True for a test file in the folder of the same name: those of `msg_node.bus.core.router` are in `msg_node/bus`.

    Where there is no such folder, it is the next one above.
    """
    return any(_folder_of(ROOT.joinpath("tests", *name.split(".")[:-1])) in path.parents for name in modules)


def imports_one(path: Path, modules: Collection[str]) -> bool:
    """True for a test file that imports one of these modules itself."""
    return not imported_directly(path).isdisjoint(modules)


def _folder_of(path: Path) -> Path:
    return path if path.is_dir() else _folder_of(path.parent)


@cache
def _functions_of(path: Path) -> frozenset[str]:
    """Qualified names of the functions of a module that tests can call."""
    found: set[str] = set()

    def walk(node: ast.AST, names: tuple[str, ...]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                found.add(".".join((*names, child.name)))
            elif isinstance(child, ast.ClassDef):
                walk(child, (*names, child.name))
            else:
                walk(child, names)

    walk(ast.parse(path.read_bytes()), ())
    return frozenset(found)


def _outermost(function: str) -> str:
    """The function of a module or class in which an inner one stands."""
    return function.partition(".<locals>")[0]


def _shared_sources(path: Path) -> list[bytes]:
    names = sorted(name for name in imported_by(path) if name.startswith("tests."))
    files = [ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in names]
    return [path.read_bytes(), *(file.read_bytes() for file in files if file.is_file())]


def _digest(*parts: bytes) -> str:
    return hashlib.blake2b(b"\0".join(parts), digest_size=16).hexdigest()


def chosen_within(tests: dict[str, float], budget_seconds: float) -> dict[str, float]:
    """The quickest of some tests that fit into so many seconds; at least one."""
    found: dict[str, float] = {}
    total = 0.0
    for nodeid, seconds in sorted(tests.items(), key=lambda one: (one[1], one[0])):
        total += seconds
        if found and total > budget_seconds:
            break
        found[nodeid] = seconds
    return found


def files_of(tests: Sequence[str]) -> list[str]:
    """Files of some tests, each once."""
    return sorted({nodeid.partition("::")[0] for nodeid in tests})
