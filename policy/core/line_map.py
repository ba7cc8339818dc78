"""Where in a file each value stands, so that an error can name the line.

Neither standard parser keeps positions. This one knows nothing but positions: it walks over text that the real parser
has already accepted, TOML or JSON, and notes the line of every key and list entry. When in doubt it stops and what it
has not seen is reported without a line.
"""

from __future__ import annotations

import re
from typing import Final

Path = tuple[str | int, ...]

_STRING: Final = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', re.DOTALL)
_SKIP: Final = re.compile(r"(?:[ \t\r\n,]+|#[^\n]*)*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR: Final = re.compile(r"[^,\]}#\n]+")
_ESCAPE: Final = re.compile(r"\\(.)")


class _LostError(Exception):
    """The walk does not understand the text."""


class _Walk:
    def __init__(self, text: str) -> None:
        self.lines: dict[Path, int] = {}
        self._text = text
        self._at = 0
        self._line = 1
        self._counted = 0
        self._entries: dict[Path, int] = {}  # arrays of tables: how many so far

    def walk_json(self) -> None:
        self._skip()
        self._value(())

    def walk_toml(self) -> None:
        base: Path = ()
        while self._peek():
            if self._peek() == "[":
                base = self._header()
            else:
                self._assignment(base)

    def _header(self) -> Path:
        is_array = self._text.startswith("[[", self._at)
        self._at += 2 if is_array else 1
        line = self._here()
        *parents, last = self._key()
        path: Path = ()
        for part in parents:
            path = self._latest((*path, part))
        path = (*path, last)
        self._at += 2 if is_array else 1
        if is_array:
            self._entries[path] = self._entries.get(path, -1) + 1
        path = self._latest(path)
        self.lines.setdefault(path, line)
        return path

    def _latest(self, path: Path) -> Path:
        return (*path, self._entries[path]) if path in self._entries else path

    def _assignment(self, base: Path) -> None:
        self._skip()
        line = self._here()
        path: Path = (*base, *self._key())
        if self._peek() not in ("=", ":"):
            raise _LostError
        self._at += 1
        self.lines[path] = line
        self._skip()
        self._value(path)

    def _key(self) -> list[str]:
        parts: list[str] = []
        while True:
            first = self._peek()
            if first in ('"', "'"):
                parts.append(_ESCAPE.sub(r"\1", self._match(_STRING)[1:-1]))
            else:
                parts.append(self._match(_BARE))
            if self._peek() != ".":
                return parts
            self._at += 1

    def _value(self, path: Path) -> None:
        self.lines.setdefault(path, self._here())
        opening = self._peek()
        if opening == "{":
            self._at += 1
            while self._peek() != "}":
                self._assignment(path)
            self._at += 1
        elif opening == "[":
            self._at += 1
            number = 0
            while self._peek() != "]":
                self._value((*path, number))
                number += 1
            self._at += 1
        else:
            self._match(_STRING if opening in ('"', "'") else _SCALAR)

    def _peek(self) -> str:
        self._skip()
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        found = _SKIP.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _LostError
        self._at = found.end()
        return found.group()

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line


class LineMap:
    """Lines by the path to a value: keys and list positions from the top."""

    def __init__(self, text: str, *, is_toml: bool) -> None:
        walk = _Walk(text)
        try:
            if is_toml:
                walk.walk_toml()
            else:
                walk.walk_json()
        except (_LostError, RecursionError):
            pass  # a line number less is no reason to refuse a file
        self._lines = walk.lines

    def line_of(self, path: Path) -> int | None:
        """Line of a value, else of the nearest value around it; None when nothing around it was seen."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return None
