"""What holds for every test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import hypothesis
import pytest
import trio
import typer.main

from sandbox.host import Sandbox
from tests.support.commands import command_here
from tests.support.node_starter import NodeStarter
from tests.support.postgres import postgres, shared_database

hypothesis.settings.register_profile("project", deadline=None)  # how long an example takes is not what a test is about
hypothesis.settings.load_profile("project")

__all__ = ["postgres", "shared_database"]

_LONGEST = ("test_interpreter.py",)
"""Files of which one test takes more than a minute: the other processes would wait for them at the end."""
_LONG_FILES_END = 0.85
"""Part of a run by which all files with long tests have begun."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files, and spread those with long tests among the others.

    Long tests mostly wait for processes and the others compute: side by side they use the cores, and the last files
    of a run are short ones.
    """
    long_files = {item.path for item in items if item.get_closest_marker("long")}
    files = sorted(dict.fromkeys(item.path for item in items), key=lambda path: path.name not in _LONGEST)
    places: dict[Path, float] = {}
    for some, end in (
        ([path for path in files if path in long_files], _LONG_FILES_END),
        ([path for path in files if path not in long_files], 1.0),
    ):
        places |= {path: end * index / len(some) for index, path in enumerate(some)}
    items.sort(key=lambda item: places[item.path])


@pytest.fixture(autouse=True, scope="session")
def commands_here() -> Iterator[None]:
    """Commands cost little: `CliRunner` makes those of a program once, and laboratories run theirs in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interop.domain_folders.command", command_here)
        patch.setattr("typer.testing._get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True, scope="session")
def nodes_started_fast() -> Iterator[None]:
    """Nodes are forked from a process that has imported all they need: that takes a second of a processor."""
    with pytest.MonkeyPatch.context() as patch, closing(NodeStarter()) as starter:
        patch.setattr("interop.processes.open_process", starter.open_process)
        yield


@pytest.fixture
async def sandbox(nursery: trio.Nursery) -> Sandbox:
    """A running sandbox."""
    service = Sandbox()
    await nursery.start(service.run)
    return service
