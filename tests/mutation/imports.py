"""Which test files import which modules, themselves or by what they share with other tests."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.mutation.targets import ROOT

_SHARED = "tests."


@cache
def imported_by(path: Path) -> frozenset[str]:
    """Dotted names of what a file imports, and what the modules of `tests` do that it imports.

    `from a.b import c` counts as `a.b` and as `a.b.c`: one of them is a module.
    """
    found: set[str] = set()
    waiting, seen = [path], {path}
    while waiting:
        for name in _names(waiting.pop()):
            found.add(name)
            inner = ROOT.joinpath(*name.split(".")).with_suffix(".py")
            if name.startswith(_SHARED) and inner not in seen and inner.is_file():
                seen.add(inner)
                waiting.append(inner)
    return frozenset(found)


@cache
def imported_directly(path: Path) -> frozenset[str]:
    """The same without what comes by other modules."""
    return frozenset(_names(path))


def _names(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    return found
