"""Levels of loggers for a time, and what they are afterwards."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from msg_node.admin.log_levels import LogLevels


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    names = ("", "federation")
    before = [logging.getLogger(name).level for name in names]
    yield
    for name, level in zip(names, before, strict=True):
        logging.getLogger(name).setLevel(level)


def test_a_level_ends_at_its_time_and_the_one_before_the_first_change_comes_back() -> None:
    logging.getLogger("federation").setLevel("ERROR")
    levels = LogLevels()
    levels.set("federation", "debug", 10.0)
    levels.set("federation", "info", 20.0)
    assert (levels.end(19.9), levels.level_of("federation")) == ([], "info")
    assert (levels.end(20.0), levels.level_of("federation")) == (["federation"], "error")


def test_a_level_of_the_settings_that_changes_meanwhile_holds_afterwards() -> None:
    levels = LogLevels()
    levels.settle("info")
    levels.set("", "debug", 10.0)
    levels.settle("warning")
    assert levels.level_of("") == "debug"
    assert (levels.end(10.0), levels.level_of("")) == ([""], "warning")
    levels.settle("error")
    assert levels.level_of("") == "error"
