"""Settings from environment variables: `TRAPEZOID__LISTEN__PORT=8443` is `port` in `[listen]`, over what files say.

`TRAPEZOID__SITE__STATUS_TOKEN_SHA256_FILE=/run/secrets/status` reads the value from a file, without the end of its
last line; a setting whose own name ends with `_file` is meant itself. Texts and paths are given as they are, everything
else as in TOML: `true`, `20`, `["a", "b"]`. Entries of `[[…]]` cannot be given: write a file into `conf.d` for them.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from msgspec import inspect

from msg_node.settings.model import Settings
from msg_node.settings.retired import retired_hint

PREFIX: Final = "TRAPEZOID__"
_FROM_FILE: Final = "_file"
_FILE_BYTES: Final = 1 << 16


class Variable(NamedTuple):
    """The place of a setting that the environment gives."""

    name: str

    def __str__(self) -> str:
        return self.name


class Given(NamedTuple):
    """One setting of the environment: where it belongs, its value, and what is wrong with it, "" for nothing."""

    place: tuple[str, ...]
    value: object
    variable: Variable
    problem: str = ""


def settings_of(environment: Mapping[str, str]) -> Iterator[Given]:
    """The settings among the variables, in order of their names. Reads the files that they name; blocking."""
    for name in sorted(environment):
        if name.startswith(PREFIX):
            place = tuple(name.removeprefix(PREFIX).lower().split("__"))
            yield _given(place, environment[name], Variable(name))


@cache
def type_of_settings() -> inspect.Type:
    """The type of all settings. Finding it out takes 30 ms of Python, which a reload would take from messages."""
    return inspect.type_info(Settings)


def struct_of(info: inspect.Type) -> inspect.StructType | None:
    """The table type behind optional, annotated and repeated ones."""
    match info:
        case inspect.StructType():
            return info
        case inspect.Metadata(type=inner):
            return struct_of(inner)
        case inspect.VarTupleType(item_type=inner):
            return struct_of(inner)
        case inspect.UnionType(types=types):
            return next((found for found in map(struct_of, types) if found is not None), None)
    return None


def _given(place: tuple[str, ...], text: str, variable: Variable) -> Given:
    kind = _kind_at(place)
    if isinstance(kind, str) and place[-1].endswith(_FROM_FILE):
        shorter = (*place[:-1], place[-1].removesuffix(_FROM_FILE))
        other = _kind_at(shorter)
        if not isinstance(other, str):
            return _read(shorter, other, Path(text), variable)
    if isinstance(kind, str):
        return Given(place, None, variable, kind)
    return _parsed(place, kind, text, variable)


def _kind_at(place: tuple[str, ...]) -> inspect.Type | str:
    """Type of the setting at a place; a text that says why none can be given there."""
    kind = type_of_settings()
    for depth, key in enumerate(place):
        if _is_repeated(kind):
            return f"[[{'.'.join(place[:depth])}]] has several entries: write a file into conf.d"
        struct = struct_of(kind)
        known = {} if struct is None else {member.encode_name: member.type for member in struct.fields}
        if key not in known:
            if hint := retired_hint(place[: depth + 1]):
                return hint
            close = difflib.get_close_matches(key, list(known), n=1)
            return f"unknown setting{f'; did you mean `{close[0]}`?' if close else ''}"
        kind = known[key]
    if struct_of(kind) is not None:
        return "a table, not a setting: add `__` and the name of a setting in it"
    return kind


def _is_repeated(kind: inspect.Type) -> bool:
    match kind:
        case inspect.VarTupleType():
            return True
        case inspect.Metadata(type=inner):
            return _is_repeated(inner)
        case inspect.UnionType(types=types):
            return any(map(_is_repeated, types))
    return False


def _read(place: tuple[str, ...], kind: inspect.Type, path: Path, variable: Variable) -> Given:
    try:
        content = path.read_bytes()
        text = content.decode()
    except OSError as exc:
        return Given(place, None, variable, f"{path}: {exc.strerror}")
    except UnicodeDecodeError:
        return Given(place, None, variable, f"{path}: not UTF-8 text")
    if len(content) > _FILE_BYTES:
        return Given(place, None, variable, f"{path}: longer than {_FILE_BYTES} bytes")
    return _parsed(place, kind, text.removesuffix("\n").removesuffix("\r"), variable)


def _parsed(place: tuple[str, ...], kind: inspect.Type, text: str, variable: Variable) -> Given:
    if _takes_text(kind):
        return Given(place, text, variable)
    try:
        read = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, RecursionError):
        read = {}
    if list(read) != ["value"]:
        return Given(place, None, variable, 'write the value as in TOML, for example true, 20 or ["a", "b"]')
    return Given(place, read["value"], variable)


def _takes_text(kind: inspect.Type) -> bool:
    match kind:
        case inspect.StrType():
            return True
        case inspect.CustomType(cls=cls):
            return cls is Path
        case inspect.LiteralType(values=values):
            return all(isinstance(value, str) for value in values)
        case inspect.EnumType():
            return True
        case inspect.Metadata(type=inner):
            return _takes_text(inner)
        case inspect.UnionType(types=types):
            return any(map(_takes_text, types))
    return False
