"""Rules of the project that no type checker knows: who imports whom, what is pure, what has a docstring."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "protofly",
    "policy",
    "wire",
    "catalogue_client",
    "stubs_cache",
    "sandbox",
    "federation",
    "msg_node",
    "stubkit",
    "interop",
    "pipeline",
    "trapezoid",
    "benchmarks",
)
PURE = (
    "protofly",
    *(
        f"{package}/core"
        for package in (
            "policy",
            "wire",
            "catalogue_client",
            "stubs_cache",
            "sandbox",
            "federation",
            "pipeline",
        )
    ),
    "interop/hostile/core",
    "interop/lab/core",
    "interop/partner/core",
    "msg_node/kernel",
    "pipeline/columns",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "msg_node").glob("*/core")),
)
EFFECTS = frozenset(
    {
        "asyncio",
        "httpx",
        "logging",
        "multiprocessing",
        "os",
        "pathlib",
        "random",
        "secrets",
        "select",
        "signal",
        "socket",
        "ssl",
        "subprocess",
        "threading",
        "time",
        "trio",
        "wasmtime",
    }
)
"""Modules that do I/O, read a clock, draw randomness, log, or wait."""


def modules(*folders: str) -> list[Path]:
    """All modules below these folders, by name."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    """One module, parsed."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def imported_by(path: Path) -> set[str]:
    """First parts of all module names that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def place(path: Path, node: ast.AST | None = None) -> str:
    """Where something is, as an editor wants it."""
    line = getattr(node, "lineno", 1)
    return f"{path.relative_to(ROOT)}:{line}"


def test_import_contracts_are_kept() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_every_package_is_under_the_contracts() -> None:
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    [line] = re.findall(r"^root_packages = (\[.*\])$", settings, re.MULTILINE)
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    assert set(ast.literal_eval(line)) == packages == set(PACKAGES)


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    drawers = re.compile(r"(.*_)?(utils?|helpers?|common|misc)")
    assert [place(path) for path in modules(*PACKAGES, "tests") if drawers.fullmatch(path.stem)] == []


@pytest.mark.parametrize("folder", PURE)
def test_pure_packages_import_nothing_with_effects(folder: str) -> None:
    paths = modules(folder)
    assert paths
    assert {place(path): found for path in paths if (found := imported_by(path) & EFFECTS)} == {}


def test_every_core_is_listed_as_pure() -> None:
    cores = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("core")
        if path.is_dir()
    }
    assert cores <= set(PURE)


def test_pure_packages_read_no_clock_under_another_name() -> None:
    clocks = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today"), ("uuid", "uuid4")}
    asked = [
        place(path, node)
        for path in modules(*PURE)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and (node.value.id, node.attr) in clocks
    ]
    assert asked == []


def test_only_the_engine_imports_the_engine() -> None:
    named = [path for path in modules(*PACKAGES) if "wasmtime" in path.read_text(encoding="utf-8")]
    assert [place(path) for path in named if "wasmtime" in imported_by(path)] == ["sandbox/engine.py:1"]


@pytest.mark.parametrize("part", ["Sandbox", "StubsCache"])
def test_only_the_application_makes_the_parts_of_the_node(part: str) -> None:
    calls = [
        (path, node)
        for path in modules("msg_node")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == part
    ]
    assert {path.relative_to(ROOT).as_posix() for path, _ in calls} == {"msg_node/app.py"}


def test_the_product_prints_only_where_people_look() -> None:
    printing = [
        place(path, node)
        for path in modules(*PACKAGES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []


def public_definitions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Public functions, classes and methods; not what only repeats an explained one."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
        if decorators & {"overload", "override"} or any(name.endswith(".setter") for name in decorators):
            continue
        yield node
        if isinstance(node, ast.ClassDef):
            yield from public_definitions(node.body)


def test_everything_public_says_what_it_is_for() -> None:
    silent = [
        f"{place(path, node)} {node.name}"
        for path in modules(*PACKAGES)
        for node in public_definitions(tree_of(path).body)
        if not ast.get_docstring(node)
    ]
    assert silent == []


def test_no_docstring_only_asks_a_question() -> None:
    question = re.compile(r"(What|Whether) [^.;:]*\.")  # says neither what is returned nor what happens
    asked = [
        place(path, node)
        for path in modules(*PACKAGES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and question.fullmatch(ast.get_docstring(node) or "")
    ]
    assert asked == []


def test_no_public_docstring_begins_with_a_question_word() -> None:
    asked = [
        f"{place(path, node)} {node.name}"
        for path in modules(*PACKAGES)
        for node in public_definitions(tree_of(path).body)
        if re.match(r"(What|Whether|Who|Whom|Whose|How|Where|When|Which|Why)\b", ast.get_docstring(node) or "")
    ]
    assert asked == []


def test_no_test_replaces_the_clock_of_the_process() -> None:
    clock = re.compile(r"""setattr\([^\n]*(?:"time"|\btime, "|time\.(?:time|monotonic)(?:_ns)?")""")
    shifted = ROOT / "tests" / "interop" / "lab" / "test_impostors.py"  # its subject is a shifted clock
    found = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("*.py")
        if path not in (shifted, Path(__file__)) and clock.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_every_module_says_what_it_holds() -> None:
    assert [place(path) for path in modules(*PACKAGES) if not ast.get_docstring(tree_of(path))] == []


def test_nothing_is_left_for_later() -> None:
    left = re.compile(r"\b(TODO|FIXME|XXX)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in modules(*PACKAGES)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if left.search(line)
    ]
    assert found == []


def test_tests_of_spark_stand_where_the_test_command_looks_for_them() -> None:
    mark = "mark." + "spark"
    files = [path for path in (ROOT / "tests").rglob("*.py") if mark in path.read_text(encoding="utf-8")]
    assert files
    assert [path for path in files if path.parent != ROOT / "tests" / "pipeline"] == []
