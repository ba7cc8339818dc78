"""License, typing marks, changelog, hooks of commits and the workflow of a forge fit the project."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from msg_node.services import VERSION

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(sys.executable).parent
CHANGELOG_COLUMNS = 175
TERMS_SHA256 = "0d542e0c8804e39aa7f37eb00da5a762149dc682d7829451287e11b938e94594"
"""Digest of the Apache License 2.0, up to and with the line that ends its terms."""


@cache
def settings() -> dict[str, Any]:
    """`pyproject.toml`."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def text_of(name: str) -> str:
    """A file of the project."""
    return (ROOT / name).read_text(encoding="utf-8")


# License and typing.


def test_the_license_is_the_unchanged_one_that_the_project_names() -> None:
    terms, end, rest = text_of("LICENSE").partition("END OF TERMS AND CONDITIONS\n")
    assert hashlib.sha256((terms + end).encode()).hexdigest() == TERMS_SHA256
    assert re.search(r"^ +Copyright \d{4} the Trapezoid maintainers$", rest, re.MULTILINE)
    project = settings()["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])


def test_every_package_is_marked_as_typed_and_its_mark_is_installed() -> None:
    packages = [path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests"]
    assert packages
    assert [package.name for package in packages if not (package / "py.typed").is_file()] == []
    assert settings()["tool"]["setuptools"]["package-data"]["*"] == ["py.typed"]


# Changelog.


def kinds() -> dict[str, str]:
    """Kinds of news fragments, and the heading of each."""
    return {kind["directory"]: kind["name"] for kind in settings()["tool"]["towncrier"]["type"]}


def test_news_fragments_become_one_version_of_the_changelog() -> None:
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.8.7", "--date", "2001-02-03"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("## ")] == ["## 9.8.7 – 2001-02-03"]
    assert [line for line in lines if len(line) > CHANGELOG_COLUMNS] == []
    sections = dict(re.findall(r"^### (.*)\n\n((?:(?!###).*\n)*)", done.stdout, re.MULTILINE))
    for path in (ROOT / "newsfragments").glob("[0-9]*.md"):
        entry = "- " + path.read_text(encoding="utf-8").strip().replace("\n", "\n  ")
        assert entry in sections[kinds()[path.name.split(".")[-2]]], path.name


def test_the_changelog_has_the_version_of_the_project_as_its_newest() -> None:
    text = text_of("CHANGELOG.md")
    found = re.findall(r"^## (\d+)\.(\d+)\.(\d+) – \d{4}-\d\d-\d\d$", text, re.MULTILINE)
    versions = [tuple(int(number) for number in version) for version in found]
    assert len(versions) == text.count("\n## ")
    assert versions == sorted(set(versions), reverse=True)
    assert ".".join(map(str, versions[0])) == settings()["project"]["version"]
    assert text.count(settings()["tool"]["towncrier"]["start_string"]) == 1
    assert set(re.findall(r"^### (.*)$", text, re.MULTILINE)) <= set(kinds().values())


def test_the_node_and_the_pages_name_the_version_of_the_project() -> None:
    version = settings()["project"]["version"]
    minor = version.rpartition(".")[0]
    assert version == VERSION
    assert f"\nVersion {minor}. " in text_of("README.md")
    assert f"(now {minor})" in text_of("SECURITY.md")


# Hooks of commits.


def hooks() -> str:
    """`.pre-commit-config.yaml`."""
    return text_of(".pre-commit-config.yaml")


def test_hooks_of_commits_are_local_and_call_programs_that_exist() -> None:
    assert re.findall(r"repo: *(.*)", hooks()) == ["local"]
    assert set(re.findall(r"language: *(.*)", hooks())) == {"system", "pygrep"}
    called = re.findall(r"entry: \.venv/bin/(\S+)", hooks())
    assert len(called) >= 4
    assert [name for name in called if not (PROGRAMS / name).exists()] == []
    assert [path for path in re.findall(r"tests/[\w/]+\.py", hooks()) if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize(("length", "is_refused"), [(72, False), (73, True)])
def test_only_a_long_subject_is_refused(length: int, *, is_refused: bool) -> None:
    [pattern] = re.findall(r"entry: (\\A.*)", hooks())
    message = "x" * length + "\n\n" + "y" * 200 + "\n"
    assert bool(re.search(pattern, message, re.MULTILINE)) is is_refused


# Workflow.


def test_the_workflow_runs_lint_and_tests_on_every_supported_python() -> None:
    workflow = text_of(".github/workflows/test.yml")
    project = settings()["project"]
    supported = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert project["requires-python"] == f">={supported[0]}"
    matrices = re.findall(r"python: \[(.*)\]", workflow)
    assert [re.findall(r'"(.*?)"', matrix) for matrix in matrices] == [supported, supported]
    assert re.findall(r"run: (\./run .*)", workflow) == ["./run lint", "./run test"]
    assert workflow.count("PYTHON: python${{ matrix.python }}") == len(matrices)


def test_types_are_checked_for_the_python_that_runs_the_check() -> None:
    assert "python_version" not in settings()["tool"]["mypy"]
