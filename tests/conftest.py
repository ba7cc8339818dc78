"""What holds for every test."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import hypothesis
import pytest
import trio
import typer.main

from sandbox.host import Sandbox
from tests.support.commands import command_here
from tests.support.postgres import postgres, shared_database

hypothesis.settings.register_profile("project", deadline=None)  # how long an example takes is not what a test is about
hypothesis.settings.load_profile("project")

__all__ = ["postgres", "shared_database"]

_LONGEST = ("test_interpreter.py",)
"""Files of which one test takes more than a minute: the other processes would wait for them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest files."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)


@pytest.fixture(autouse=True, scope="session")
def commands_here() -> Iterator[None]:
    """Commands cost little: `CliRunner` makes those of a program once, and laboratories run theirs in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("interop.domain_folders.command", command_here)
        patch.setattr("typer.testing._get_command", cache(typer.main.get_command))
        yield


@pytest.fixture
async def sandbox(nursery: trio.Nursery) -> Sandbox:
    """A running sandbox."""
    service = Sandbox()
    await nursery.start(service.run)
    return service
