"""How large a class or a function may be.

The limits measure ideas instead of lines. A class with more than 20 methods or 15 attributes holds two ideas. A
function with more than 6 parameters misses a name for some of them, and one that is longer than 60 lines or nested
deeper than 3 has a part that deserves a name. A module may be as long as its subject.

Two things do not count, because a reader does not have to keep them in mind together:

* The fields of a data row, which is a class whose methods change nothing: a record with 32 fields is 32 facts. Fields
  count as soon as one method assigns to `self`.
* In tests, the parameters of functions, because pytest passes fixtures as parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
METHODS = 20
ATTRIBUTES = 15
LINES = 60
PARAMETERS = 6
NESTING = 3

Function = ast.FunctionDef | ast.AsyncFunctionDef
STATEMENTS = (ast.stmt, ast.excepthandler, ast.match_case)
BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.TryStar, ast.AsyncFor, ast.AsyncWith, ast.Match)


def definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.ClassDef | Function]]:
    """All classes and functions below a node, with their qualified names."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, STATEMENTS):
            continue
        if isinstance(child, ast.ClassDef | Function):
            name = f"{prefix}{child.name}"
            yield name, child
            yield from definitions(child, f"{name}.")
        else:
            yield from definitions(child, prefix)


def attributes_of(definition: ast.ClassDef) -> set[str]:
    """Names that a class assigns to `self`, with its annotated fields; nothing for a data row."""
    assigned = {
        node.attr
        for node in ast.walk(definition)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value)
    }
    fields = {
        node.target.id
        for node in definition.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    return assigned | fields if assigned else set()


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def parameters_of(definition: Function) -> int:
    """Number of parameters, without `self` and `cls`."""
    arguments = definition.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    return len(names) + len(arguments.kwonlyargs) - (names[:1] in (["self"], ["cls"]))


def nesting_of(node: ast.AST, depth: int = 0) -> int:
    """Depth of the deepest block inside a function; `elif` is as deep as its `if`, and inner functions count alone."""
    deepest = depth
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, STATEMENTS) or isinstance(child, ast.ClassDef | Function):
                continue
            is_elif = isinstance(node, ast.If) and field == "orelse" and isinstance(child, ast.If)
            deepest = max(deepest, nesting_of(child, depth + (isinstance(child, BLOCKS) and not is_elif)))
    return deepest


def excesses(definition: ast.ClassDef | Function, *, in_tests: bool) -> Iterator[str]:
    """What is too large about a class or function."""
    if isinstance(definition, ast.ClassDef):
        methods = sum(isinstance(node, Function) for node in definition.body)
        if methods > METHODS:
            yield f"{methods} methods"
        if len(attributes := attributes_of(definition)) > ATTRIBUTES:
            yield f"{len(attributes)} attributes"
        return
    assert definition.end_lineno is not None
    if (lines := definition.end_lineno - definition.lineno + 1) > LINES:
        yield f"{lines} lines"
    if not in_tests and (parameters := parameters_of(definition)) > PARAMETERS:
        yield f"{parameters} parameters"
    if (nesting := nesting_of(definition)) > NESTING:
        yield f"nested {nesting} deep"


def too_large(package: str) -> dict[str, list[str]]:
    """Classes and functions of a package that are above a limit, by place, with what is too large about them."""
    return {
        f"{path.relative_to(ROOT)} {name}": found
        for path in sorted((ROOT / package).rglob("*.py"))
        for name, definition in definitions(ast.parse(path.read_text(encoding="utf-8")))
        if (found := list(excesses(definition, in_tests=package == "tests")))
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_no_class_or_function_is_too_large(package: str) -> None:
    assert too_large(package) == {}


def measured(source: str) -> list[str]:
    """What is too large in a piece of source."""
    return [one for _, node in definitions(ast.parse(source)) for one in excesses(node, in_tests=False)]


def test_what_is_as_large_as_its_limit_passes_and_one_more_does_not() -> None:
    def class_of(methods: int, attributes: int) -> str:
        assigned = "".join(f"        self.a{number} = 0\n" for number in range(attributes))
        return f"class C:\n    def m0(self):\n        pass\n{assigned}" + "".join(
            f"    def m{number}(self): ...\n" for number in range(1, methods)
        )

    def function_of(parameters: int, lines: int) -> str:
        names = ", ".join(f"p{number}" for number in range(parameters))
        return f"def f({names}):\n" + "    pass\n" * (lines - 1)

    assert measured(class_of(20, 15) + function_of(6, 60)) == []
    assert measured(class_of(21, 16)) == ["21 methods", "16 attributes"]
    assert measured(function_of(7, 61)) == ["61 lines", "7 parameters"]


def test_a_row_of_facts_may_have_many_fields_but_not_when_it_changes_itself() -> None:
    row = "class Row:\n" + "".join(f"    f{number}: int\n" for number in range(16))
    assert measured(row + "    def total(self): return self.f0 + self.f1\n") == []
    assert measured(row + "    def count(self): self.f0 += 1\n") == ["16 attributes"]


def test_nesting_counts_blocks_and_neither_elif_nor_inner_functions() -> None:
    three = "def f(a):\n for b in a:\n  while b:\n   if b:\n    pass\n   elif a: pass\n   else:\n    pass\n"
    assert measured(three) == []
    assert measured(three + "    with b: pass\n") == ["nested 4 deep"]
    assert measured(three + "    def g():\n     if a: pass\n") == []
