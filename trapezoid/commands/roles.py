"""The option for roles, alike in all commands that give some."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, TypeAlias

import typer

Roles: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--roles", "--role", metavar="ROLES", help="Roles of its sessions, with commas; may be repeated."),
]


def role_names(given: Iterable[str] | None) -> tuple[str, ...]:
    """The roles that were named, in their order, each once."""
    words = (word.strip() for text in given or () for word in text.split(","))
    return tuple(dict.fromkeys(word for word in words if word))


def roles_text(given: Iterable[str] | None) -> str:
    """The same as a node is asked for them."""
    return ",".join(role_names(given))
