"""Changes that change nothing that anybody can see, listed by hand with a reason: `equivalents/<group>.toml`.

An entry names module, function, the line as it is and the line as it would be, so it holds until somebody touches
that line; then it is *stale*, and to be looked at anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Final

import msgspec

from tests.mutation.mutations import Mutation, mutations_of
from tests.mutation.targets import Group, module_name

_FOLDER: Final = Path(__file__).with_name("equivalents")

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class Equivalent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line with the changes that do nothing, and why. `function` is "" outside of functions and classes."""

    module: _Text
    before: _Text
    after: Annotated[list[_Text], msgspec.Meta(min_length=1)]
    reason: Annotated[str, msgspec.Meta(min_length=20)]
    function: str = ""

    def names(self) -> list[tuple[str, str, str, str]]:
        """See `Mutation.key`."""
        return [(self.module, self.function, self.before, after) for after in self.after]


class _File(msgspec.Struct, forbid_unknown_fields=True):
    equivalent: list[Equivalent] = []


@cache
def equivalents_of(group: Group) -> tuple[Equivalent, ...]:
    """What is listed for a group."""
    path = _FOLDER / f"{group.name.replace('/', '-')}.toml"
    return tuple(msgspec.toml.decode(path.read_bytes(), type=_File).equivalent) if path.exists() else ()


def reasons(listed: Iterable[Equivalent]) -> Mapping[tuple[str, str, str, str], str]:
    """Reason by the name of a change."""
    return {key: one.reason for one in listed for key in one.names()}


def stale(group: Group) -> list[str]:
    """Entries that name no change of the modules as they are."""
    there = {one.key for path in group.paths() for one in changes_of(path)}
    return [
        f"{module} {function}: {before}  ->  {after}"
        for module, function, before, after in reasons(equivalents_of(group))
        if (module, function, before, after) not in there
    ]


@cache
def changes_of(path: Path) -> tuple[Mutation, ...]:
    """All changes of a module of ours."""
    return tuple(mutations_of(source_of(path), module_name(path)))


@cache
def source_of(path: Path) -> bytes:
    """A module as it was when it was first asked for: places of changes stay true when somebody edits it meanwhile."""
    return path.read_bytes()
