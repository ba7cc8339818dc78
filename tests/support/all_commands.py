"""All commands of the program that do something, by the words that name them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from trapezoid.commands import app

Words = tuple[str, ...]


def all_commands() -> list[tuple[Words, Any]]:
    """Words and command, in the order of `--help`."""
    return list(_below(typer.main.get_command(app), ()))


def all_groups() -> list[Words]:
    """Words of the groups, the program itself first."""
    return [(), *dict.fromkeys(words[:count] for words, _ in all_commands() for count in range(1, len(words)))]


def _below(command: Any, words: Words) -> Iterator[tuple[Words, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    for name, one in inner.items():
        yield from _below(one, (*words, name))
