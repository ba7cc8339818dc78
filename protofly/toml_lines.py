"""TOML files to values, and where each key stands: what is wrong is said with its line, and what is possible there.

The standard library's reader does not say where keys stand; this is best effort, for messages only.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import inspect

from protofly.errors import SettingsError
from protofly.plain_words import without_types

_ERROR_PATH = re.compile(r" - at `\$(?P<path>[^`]*)`$")
_PATH_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]")
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*)`")
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*([A-Za-z0-9_."'-][A-Za-z0-9_."' -]*?)\s*=\s*(.*)$""")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')


KeyPath: TypeAlias = tuple[str | int, ...]
Value = TypeVar("Value")


def read_toml(text: bytes, kind: type[Value], source: str) -> tuple[Value, dict[KeyPath, int]]:
    """The content of a TOML file, and the line of each key.

    Args:
        text: The file.
        kind: What it has to hold.
        source: Its name, for messages.

    Raises:
        SettingsError: It is no TOML, or holds something else; the text has the line and what is possible there.
    """
    try:
        content = text.decode()
        values = tomllib.loads(content)
    except UnicodeDecodeError as exc:
        raise SettingsError(f"{source}: not UTF-8 text") from exc
    except tomllib.TOMLDecodeError as exc:
        raise SettingsError(f"{source}: {exc}") from exc
    except RecursionError as exc:
        raise SettingsError(f"{source}: lists or tables are nested too deep") from exc
    lines = locate_keys(content)
    try:
        return msgspec.convert(values, kind), lines
    except msgspec.ValidationError as exc:
        place, problem = complaint(str(exc), msgspec.inspect.type_info(kind))
        raise SettingsError(f"{placed(source, lines, place)}: {named(place)}{problem}") from exc


def complaint(text: str, info: inspect.Type) -> tuple[KeyPath, str]:
    """The place that msgspec complains about, and the complaint with what is possible there."""
    found = _ERROR_PATH.search(text)
    place: KeyPath = ()
    if found is not None:
        text = text[: found.start()]
        place = tuple(name or int(index) for name, index in _PATH_STEP.findall(found["path"]))
    there = _type_at(info, place)
    if unknown := _UNKNOWN_FIELD.fullmatch(text):
        return (*place, unknown[1]), f"unknown{_suggestion(unknown[1], _members(there))}"
    possible = [str(value) for value in there.values] if isinstance(there, inspect.LiteralType) else []
    if possible:
        return place, f"{text.removeprefix('Invalid enum value ')}: expected one of {', '.join(possible)}"
    return place, without_types(text)


def placed(source: str, lines: Mapping[KeyPath, int], place: KeyPath) -> str:
    """The name of a file with the line of a key, or of the nearest one above it that has a line."""
    known = (lines[place[:length]] for length in range(len(place), 0, -1) if place[:length] in lines)
    line = next(known, None)
    return source if line is None else f"{source}:{line}"


def named(place: KeyPath) -> str:
    """A place as people write it, and a colon: `load[0].bytes: `; nothing for the file as a whole."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).removeprefix(".")
    return f"{text}: " if text else ""


def _type_at(info: inspect.Type, place: KeyPath) -> inspect.Type:
    """The type of what stands at a place; of the nearest above it where the place leads into something else."""
    for key in place:
        if isinstance(info, inspect.UnionType):
            info = next((one for one in info.types if not isinstance(one, inspect.NoneType)), info)
        if isinstance(key, int):
            info = getattr(info, "item_type", info)
        else:
            info = next((one.type for one in getattr(info, "fields", ()) if one.encode_name == key), info)
    return info


def _members(info: inspect.Type) -> list[str]:
    return [one.encode_name for one in getattr(info, "fields", ())]


def _suggestion(key: str, known: list[str]) -> str:
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
    return f"; did you mean `{close[0]}`?" if close else f"; known here: {', '.join(sorted(known))}"


def locate_keys(text: str) -> dict[tuple[str | int, ...], int]:
    """Line number of every table and key, by path; entries of `[[…]]` are counted from 0. `text` is valid TOML."""
    found: dict[tuple[str | int, ...], int] = {}
    repeated: Counter[str] = Counter()
    table: tuple[str | int, ...] = ()
    open_quotes = ""
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        if open_quotes:
            if open_quotes in line:
                open_quotes = ""
            continue
        if depth == 0 and (header := _HEADER.match(line)):
            table = _table(header[2], repeated, is_entry=header[1] == "[[")
            found.setdefault(table, number)
        else:
            if depth == 0 and (key := _KEY.match(line)):
                found.setdefault((*table, *_parts(key[1])), number)
            open_quotes = next((quotes for quotes in ('"""', "'''") if line.count(quotes) == 1), "")
            bare = _STRING.sub("", line).partition("#")[0]
            depth = max(0, depth + bare.count("[") - bare.count("]"))
    return found


def _parts(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]


def _table(dotted: str, repeated: Counter[str], *, is_entry: bool) -> tuple[str | int, ...]:
    path: list[str | int] = []
    name = ""
    for part in _parts(dotted):
        path.append(part)
        name = f"{name}.{part}"
        is_last = name == "." + ".".join(_parts(dotted))
        if is_last and is_entry:
            repeated[name] += 1
        if repeated[name]:
            path.append(repeated[name] - 1)
    return tuple(path)
