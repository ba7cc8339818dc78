"""No module imports itself through others, neither when it runs nor for its types only.

Modules in a circle can only be read and changed together. An import inside a function or below `TYPE_CHECKING` hides
such a circle from Python, not from readers, so both count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests")


def module_name(path: Path) -> str:
    """Dotted name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str, modules: frozenset[str]) -> Iterator[str]:
    """The modules that a source imports, wherever in it; other names of a package stand for the package."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """One circle of the graph, empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as exc:
        found = exc.args[1]
        assert isinstance(found, list)
        return found
    return []


def test_no_module_of_the_product_imports_itself_through_others() -> None:
    sources = {module_name(path): path.read_text() for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    modules = frozenset(sources)
    graph = {name: set(imported(source, modules)) - {name} for name, source in sources.items()}
    assert circle(graph) == []


@pytest.mark.parametrize(
    "source",
    [
        "import p.b",
        "from p import b",
        "from p.b import thing",
        "if TYPE_CHECKING:\n    from p.b import Thing",
        "def late():\n    from p.b import thing",
    ],
)
def test_a_circle_is_found_however_the_import_is_written(source: str) -> None:
    modules = frozenset({"p", "p.a", "p.b"})
    graph = {"p.a": set(imported(source, modules)), "p.b": set(imported("from p.a import x", modules))}
    assert sorted(set(circle(graph))) == ["p.a", "p.b"]
