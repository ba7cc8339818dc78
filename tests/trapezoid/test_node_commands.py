"""`trapezoid node`: every operation of the admin service has its command, and people can read what it prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from msg_node.admin.core.operations import AFTER, LIMIT, OPERATIONS, WHERE, Operation
from trapezoid.commands import app, node, node_changes

ELSEWHERE = {
    "metrics": "/metrics, and the socket",
    "peer check": "trapezoid peer check",
    "erase": "trapezoid state erase",
    "records": "trapezoid records find, which needs no node",
}
"""Operations that have no command of `trapezoid node`."""
OTHERWISE = {
    "users": "user list",
    "clients": "client list",
    "recordings": "recording list",
    "quarantine": "quarantine list",
    "policy bundle": "policy show",
}
"""Commands with other words than their operation."""


def commands(found: Any, path: str = "") -> Iterator[tuple[str, set[str]]]:
    """All commands with the options that they have."""
    for name, command in found.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", {word for one in command.params for word in one.opts if word.startswith("--")}


COMMANDS = dict(commands(typer.main.get_command(node.app)))


def command_of(operation: Operation) -> str:
    name = OTHERWISE.get(operation.name, operation.name)
    return name if name in COMMANDS else name.replace(" ", "-")


@pytest.mark.parametrize("operation", [one for one in OPERATIONS.values() if one.name not in ELSEWHERE])
def test_every_operation_has_a_command_that_can_page_and_filter_lists_and_try_changes(operation: Operation) -> None:
    options = COMMANDS[command_of(operation)]
    assert {"--config", "--json"} <= options
    if operation.changes:
        assert "--dry-run" in options
    if LIMIT in operation.arguments:
        assert {f"--{one.name}" for one in (WHERE, LIMIT, AFTER)} <= options


FACTS = {
    "domain": "a.example",
    "sessions": {"live": 2, "parked": 0},
    "policies": {"revision": "r1", "bundle": "", "since": None, "files": []},
    "stub": {"state": "live", "states": [[1.0, "live", ""]]},
    "alarms": [],
}


def test_facts_for_people_have_the_counts_inside_them_and_nothing_that_is_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(node_changes, "ask_running", lambda *_given, **_more: FACTS)
    done = CliRunner().invoke(app, ["node", "summary", "--config", str(tmp_path / "node.toml")])
    assert done.exit_code == 0
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["domain", "a.example"],
        ["sessions", "live:", "2"],
        ["parked:", "0"],
        ["policies", "revision:", "r1"],
        ["stub", "state:", "live"],
        ["alarms", "none"],
    ]


def test_changes_for_people_have_moments_as_text_and_nothing_that_is_empty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    restriction = {"subject": "b.example", "reason": "", "since": 0.5, "until": None, "aliases": []}
    result = {
        "operation": "peer block",
        "before": {**restriction, "until": 60},
        "after": {"restriction": restriction, "links": ["b.example"], "queues": []},
        "dry_run": True,
    }
    monkeypatch.setattr(node_changes, "ask_running", lambda *_given, **_more: result)
    done = CliRunner().invoke(app, ["node", "peer", "block", "b.example", "--config", str(tmp_path / "node.toml")])
    assert done.exit_code == 0
    assert [" ".join(line.split()) for line in done.stdout.splitlines()] == [
        "operation peer block",
        "before subject: b.example",
        "since: 1970-01-01T00:00:00Z",
        "until: 1970-01-01T00:01:00Z",
        "after restriction: subject: b.example, since: 1970-01-01T00:00:00Z",
        "links: b.example",
        "dry run nothing was changed",
    ]


def test_settings_that_differ_are_lines_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changes = [
        {"name": "log.level", "before": "info", "after": "debug"},
        {"name": "peer[b.example].rate", "before": None, "after": [1, 2]},
    ]
    result = {"operation": "reload", "before": {}, "after": {"changes": changes, "policies": "r2"}, "dry_run": False}
    monkeypatch.setattr(node_changes, "ask_running", lambda *_given, **_more: result)
    done = CliRunner().invoke(app, ["node", "reload", "--config", str(tmp_path / "node.toml")])
    assert [" ".join(line.split()) for line in done.stdout.splitlines()] == [
        "operation reload",
        "before nothing",
        "after policies: r2",
        "changes log.level: info → debug",
        "peer[b.example].rate: null → [1, 2]",
    ]
