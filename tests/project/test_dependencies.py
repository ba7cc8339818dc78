"""Libraries are imported where `docs/dependencies.md` says, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = sorted(path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests")
IMPORTED_AS = {
    "dnspython": "dns",
    "jsonschema-rs": "jsonschema_rs",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
    "opentelemetry-sdk": "opentelemetry",
    "paho-mqtt": "paho",
    "prometheus-client": "prometheus_client",
    "trio-websocket": "trio_websocket",
}
"""Other libraries are imported under their own names."""
PATH = re.compile(r"`([a-z_0-9/]+(?:/|\.py))`")


def rows() -> dict[str, set[str]]:
    """By library, the files and folders (with a `/` behind them) that may import it; not those of any file."""
    found = {}
    for line in (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").splitlines():
        first = re.match(r"\| ((?:`[a-z0-9-]+`(?:, )?)+) \|", line)
        if first is None or "| everywhere" in line:
            continue
        for name in re.findall(r"`([a-z0-9-]+)`", first[1]):
            found[IMPORTED_AS.get(name, name)] = set(PATH.findall(line))
    return found


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


@cache
def importers() -> dict[str, set[str]]:
    """By library, the files of the product and its benchmarks that import it, in functions too."""
    found: dict[str, set[str]] = {}
    for path in (file for package in PACKAGES for file in package.rglob("*.py")):
        for name in _imported(path):
            found.setdefault(name, set()).add(path.relative_to(ROOT).as_posix())
    return found


@pytest.mark.parametrize("library", sorted(rows()))
def test_only_files_that_the_page_names_import_a_library_and_each_of_them_does(library: str) -> None:
    named, importing = rows()[library], importers().get(library, set())
    folders = tuple(one for one in named if one.endswith("/"))
    assert {one for one in importing if one not in named and not one.startswith(folders)} == set()
    files = {one for one in named if one.endswith(".py") and (ROOT / one).is_file() and not one.startswith("tests/")}
    assert files <= importing


def test_the_rows_and_the_imports_are_found() -> None:
    assert {"sandbox/engine.py"} == rows()["wasmtime"] == importers()["wasmtime"]
    assert len(rows()) > 20
