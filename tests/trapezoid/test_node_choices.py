"""Commands of `trapezoid node` name the choices of an argument, as the operations behind them do."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from msg_node.admin.core.operations import find_operation
from trapezoid.commands import app

GATE = ["a.example", "b.example"]


@pytest.mark.parametrize(
    ("operation", "argument", "words"),
    [
        ("client add", "kind", ["client", "add", "x"]),
        ("client add", "kind", ["client", "add", "x", "--kind", "none"]),
        ("client enrol", "kind", ["client", "enrol", "x", "--kind", "none"]),
        ("gate set", "effect", ["gate", "set", *GATE, "--for", "1h", "--effect", "none"]),
        ("log level", "level", ["log-level", "none"]),
        ("log level", "level", ["log-level"]),
    ],
)
def test_who_leaves_out_an_argument_or_gives_a_wrong_one_learns_its_choices(
    operation: str, argument: str, words: list[str]
) -> None:
    said = CliRunner().invoke(app, ["node", *words, "--config", "node.toml"])
    assert said.exit_code == 2
    choices = next(one.choices for one in find_operation(operation).arguments if one.name == argument)
    assert [one for one in choices if one not in said.output] == []
