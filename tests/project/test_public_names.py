"""What packages offer to others: sorted, importable on first use, explained, and nothing that is private."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests")
LIBRARIES = [package for package in PACKAGES if package != "benchmarks"]


def listed(package: str) -> list[str]:
    """`__all__` of a package."""
    names: list[str] = importlib.import_module(package).__all__
    return names


def imported_for_type_checkers(package: str) -> dict[str, str]:
    """Names that type checkers see in a package, and the modules that these names come from."""
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    blocks = [node.body for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_sorted_and_named_once(package: str) -> None:
    names = listed(package)
    assert names == sorted(set(names))
    assert not [name for name in names if name.startswith("_")]
    assert bool(names) is (package in LIBRARIES)


@pytest.mark.parametrize("package", LIBRARIES)
def test_a_public_name_is_what_type_checkers_see(package: str) -> None:
    module = importlib.import_module(package)
    seen = imported_for_type_checkers(package)
    assert sorted(seen) == listed(package)
    for name, home in seen.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name), name
        assert home.startswith(f"{package}."), name


@pytest.mark.parametrize("package", LIBRARIES)
def test_public_classes_and_functions_are_defined_where_they_are_imported_from_and_explained(package: str) -> None:
    module = importlib.import_module(package)
    for name, home in imported_for_type_checkers(package).items():
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert value.__module__ == home, name
            assert vars(value).get("__doc__") or inspect.getdoc(value), name


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_is_hidden_by_a_module_of_the_package(package: str) -> None:
    modules = {module.name for module in pkgutil.iter_modules([str(ROOT / package)])}
    assert modules.isdisjoint(listed(package))


@pytest.mark.parametrize("package", LIBRARIES)
def test_other_names_are_refused_like_those_of_any_module(package: str) -> None:
    module = importlib.import_module(package)
    with pytest.raises(AttributeError, match=rf"module '{package}' has no attribute 'nobody'"):
        _ = module.nobody


def test_importing_all_packages_loads_none_of_their_modules() -> None:
    code = f"import sys, {', '.join(PACKAGES)}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    loaded = {name for name in done.stdout.split() if name.partition(".")[0] in PACKAGES}
    assert loaded == {*PACKAGES, "protofly.public_names"}
