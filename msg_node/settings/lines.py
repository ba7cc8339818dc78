"""Where the keys of a TOML text stand: the standard library's reader does not say. Best effort, for messages only."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*([A-Za-z0-9_."'-][A-Za-z0-9_."' -]*?)\s*=\s*(.*)$""")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'')


class Position(NamedTuple):
    """A line of a file, counted from 1."""

    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


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
