"""A value of a policy file together with the place where it stands; every complaint about it names file and line."""

from __future__ import annotations

import datetime as dt
import difflib
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping
from typing import Final, Literal, NoReturn, TypeVar

from policy.core.line_map import LineMap, Path
from policy.core.model import Scalar
from protofly.errors import SettingsError
from protofly.limits import POLICY_FILE_BYTES

Syntax = Literal["toml", "json"]
_Choice = TypeVar("_Choice")
_SHOWN_CHARS: Final = 60


class Node:
    """One value of a file."""

    __slots__ = ("_file", "_lines", "path", "value")

    def __init__(self, value: object, path: Path, file: str, lines: LineMap) -> None:
        self.value = value
        self.path = path
        self._file = file
        self._lines = lines

    def fail(self, message: str) -> NoReturn:
        """Refuse this value.

        Raises:
            SettingsError: Always; `file:line: message`.
        """
        line = self._lines.line_of(self.path)
        raise SettingsError(f"{self._file}:{line}: {message}" if line else f"{self._file}: {message}")

    def at(self, key: str | int, value: object) -> Node:
        """A value inside this one."""
        return Node(value, (*self.path, key), self._file, self._lines)

    def with_value(self, value: object) -> Node:
        """Another value for the same place."""
        return Node(value, self.path, self._file, self._lines)

    def members(self, known: Mapping[str, str] | None = None) -> dict[str, Node]:
        """Members of a table; with `known` (spelling -> name) by their names, and unknown ones are refused."""
        if not isinstance(self.value, dict):
            self.fail(f"expected a table, not {self.shown()}")
        nodes: dict[str, Node] = {}
        for key, value in self.value.items():
            node = self.at(key, value)
            name = key if known is None else known.get(key) or node.refuse_word(key, "key", known)
            if name in nodes:
                node.fail(f'"{name}" is given twice, under two names')
            nodes[name] = node
        return nodes

    def entries(self) -> list[Node]:
        """Entries of a list."""
        if not isinstance(self.value, list):
            self.fail(f"expected a list, not {self.shown()}")
        return [self.at(number, value) for number, value in enumerate(self.value)]

    def text(self) -> str:
        """A text; a number counts as its digits."""
        if isinstance(self.value, bool) or not isinstance(self.value, str | int):
            self.fail(f"expected a text, not {self.shown()}")
        return str(self.value)

    def whole_number(self) -> int:
        """A whole number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            self.fail(f"expected a whole number, not {self.shown()}")
        return self.value

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            self.fail(f"expected true or false, not {self.shown()}")
        return self.value

    def scalar(self) -> Scalar:
        """A text, number or flag; dates and times of TOML as their text."""
        if isinstance(self.value, str | bool | int | float):
            return self.value
        if not isinstance(self.value, dt.date | dt.time):
            self.fail(f"expected a text, a number, true or false, not {self.shown()}")
        return self.value.isoformat()

    def choose(self, choices: Mapping[str, _Choice], what: str) -> _Choice:
        """One of several words."""
        word = self.text()
        if word not in choices:
            self.refuse_word(word, what, choices)
        return choices[word]

    def refuse_word(self, word: str, what: str, known: Collection[str]) -> NoReturn:
        """Refuse a word and say which one was probably meant.

        Raises:
            SettingsError: Always.
        """
        near = difflib.get_close_matches(word[:_SHOWN_CHARS], known, 1)
        hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(sorted(known))}"
        self.fail(f'unknown {what} "{word[:_SHOWN_CHARS]}"; {hint}')

    def shown(self) -> str:
        """The value for a message: short, and never the whole file."""
        text = repr(self.value)
        return text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"


def read_document(text: str, *, name: str, syntax: Syntax) -> Node:
    """Parse a whole file.

    Raises:
        SettingsError: Not TOML or JSON, members given twice, too large, nested too deep.
    """
    if len(text) > POLICY_FILE_BYTES:
        raise SettingsError(f"{name}: larger than {POLICY_FILE_BYTES} bytes; split it")
    if not text.strip():
        raise SettingsError(f"{name}: the file is empty; to deny everything, write a rule that does")
    try:
        value: object = tomllib.loads(text) if syntax == "toml" else _read_json(text)
    except tomllib.TOMLDecodeError as exc:
        raise SettingsError(f"{name}: {exc}") from exc
    except json.JSONDecodeError as exc:
        raise SettingsError(f"{name}:{exc.lineno}: {exc.msg}") from exc
    except (ValueError, RecursionError) as exc:  # NaN, doubled members, huge integers; bottomless nesting
        raise SettingsError(f"{name}: {exc}") from exc
    return Node(value, (), name, LineMap(text, is_toml=syntax == "toml"))


def _read_json(text: str) -> object:
    value: object = json.loads(text, object_pairs_hook=_unique_members, parse_constant=_refuse_constant)
    return value


def _unique_members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f'the member "{key[:_SHOWN_CHARS]}" is given twice')
        members[key] = value
    return members


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def walk_texts(node: Node) -> Iterator[Node]:
    """A text, or the texts of a list."""
    if isinstance(node.value, list):
        yield from node.entries()
    else:
        yield node
