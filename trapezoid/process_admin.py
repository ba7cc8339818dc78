"""Asks all processes of a node on this machine, and puts their answers together.

Lists have the rows of all, each with its `process`; a page has as many of each as one process gives. Changes are made
at all: at least one has to know what is named. Facts are those of the first, and with `processes` those of each.
Users and clients are those of the domain: the first process that runs is asked, and the others follow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msg_node.admin.admin_socket import SOCKET_NAME
from msg_node.admin.core.operations import find_operation
from protofly.errors import Code, HostError, PeerError, SettingsError
from trapezoid.admin_client import ask_node
from trapezoid.process_environment import folder_of, process_folders

_OF_EACH: Final = frozenset({"status", "summary"})
_OTHERS_SECONDS: Final = 2.0
_OF_DOMAIN: Final = frozenset({"users", "user", "clients", "client"})
"""First words of operations that any process does for all."""
_LISTS_OF_DOMAIN: Final = frozenset({"policy proposals"})
"""Lists of which any process has all rows."""
_UNKNOWN_THERE: Final = frozenset({Code.NOT_REGISTERED})
"""What a process may answer to a change that concerns another one."""


def ask_processes(data_dir: Path, operation: str, arguments: dict[str, Any], *, dry_run: bool = False) -> Any:
    """Perform one operation of the admin service at all processes; returns its result.

    Args:
        data_dir: Of the node.
        operation: Its name.
        arguments: Of the operation.
        dry_run: Only try a change.

    Raises:
        HostError: As `ask_node`: no process answers, or a change was refused by one, which is named.
    """
    others = {number: one for number, one in process_folders(data_dir).items() if (one / SOCKET_NAME).exists()}
    if others.keys() <= {1}:
        return ask_node(data_dir, operation, arguments, dry_run=dry_run)
    if operation.partition(" ")[0] in _OF_DOMAIN or operation in _LISTS_OF_DOMAIN:
        return ask_node(others[min(others)], operation, arguments, dry_run=dry_run)
    answers: dict[int, Any] = {}
    errors: dict[int, HostError] = {}
    for number, folder in others.items():
        try:
            answers[number] = ask_node(folder, operation, arguments, dry_run=dry_run)
        except HostError as exc:
            errors[number] = exc
    is_change = find_operation(operation).changes
    for number, error in errors.items():
        if not answers:
            raise error
        if is_change and error.code not in _UNKNOWN_THERE and not isinstance(error, SettingsError):
            raise PeerError(error.code, f"process {number}: {error.detail}; done at {', '.join(map(str, answers))}")
    return together(operation, answers, is_change=is_change)


def ask_others(data_dir: Path, number: int, count: int, operation: str) -> dict[int, Any]:
    """Ask the other processes of a node at once; returns their answers by number, without those that did not answer.

    Args:
        data_dir: Of the node.
        number: Of the process that asks.
        count: Of the processes.
        operation: One without arguments that changes nothing.
    """
    answers = {}
    for other in range(1, count + 1):
        if other != number:
            with contextlib.suppress(HostError):
                answers[other] = ask_node(folder_of(data_dir, other), operation, {}, seconds=_OTHERS_SECONDS)
    return answers


def together(operation: str, answers: Mapping[int, Any], *, is_change: bool) -> Any:
    """The answers of several processes, by their numbers, as one; see the head of this file."""
    numbers = sorted(answers)
    first = answers[numbers[0]]
    if isinstance(first, dict) and "rows" in first:
        return {
            **first,
            "rows": [{**row, "process": number} for number in numbers for row in answers[number]["rows"]],
            "total": sum(answers[number]["total"] for number in numbers),
            "next": next((answers[number]["next"] for number in numbers if answers[number]["next"]), None),
        }
    if is_change or operation in _OF_EACH:
        return {**first, "processes": {str(number): answers[number] for number in numbers}}
    return first
