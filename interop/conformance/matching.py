"""Comparing a whole reply with what the specification foresees: nothing missing, nothing else, JSON types included.

A pattern is plain JSON (it has to be equal) with placeholders at places whose value nobody can know beforehand.
Comparing gives differences, never an exception: they are what the report shows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from interop.conformance.jsontext import Json, shorten, write

UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


@dataclass(frozen=True, slots=True)
class Difference:
    """One place in which a reply is not what was foreseen."""

    path: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.path or 'message'}: expected {self.expected}, got {self.got}"


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A place in a pattern that is not one plain value."""


@dataclass(frozen=True, slots=True)
class Text(Placeholder):
    """A text that matches `pattern` as a whole."""

    pattern: str = r"(?s).+"
    name: str = "text"


@dataclass(frozen=True, slots=True)
class Number(Placeholder):
    """A number within bounds; `whole` demands an integer."""

    least: float = 0
    most: float = float("inf")
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Anything(Placeholder):
    """Whatever it is."""


@dataclass(frozen=True, slots=True)
class Maybe(Placeholder):
    """A member that may be missing."""

    pattern: Json


@dataclass(frozen=True, slots=True)
class OneOf(Placeholder):
    """Any of several patterns."""

    patterns: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Keep(Placeholder):
    """A value that later steps call `{name}`."""

    name: str
    pattern: Json


@dataclass(frozen=True, slots=True)
class Including(Placeholder):
    """A list that has at least these entries, in any order."""

    entries: tuple[Json, ...]


@dataclass(frozen=True, slots=True)
class Open(Placeholder):
    """An object that has at least these members."""

    members: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Verbatim(Placeholder):
    """Equal in meaning and in the order of members."""

    value: Json


@dataclass(slots=True)
class Comparison:
    """One comparison: differences found, and values that were kept by name."""

    differences: list[Difference] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)

    def compare(self, pattern: Json, got: Json, path: str = "") -> None:
        """Hold `got` against `pattern`."""
        match pattern:
            case Placeholder():
                self._compare_placeholder(pattern, got, path)
            case dict():
                self._compare_members(pattern, got, path, is_open=False)
            case list() | tuple():
                self._compare_list(list(pattern), got, path)
            case _:
                if type(pattern) is not type(got) or pattern != got:
                    self._differ(path, pattern, got)

    def _compare_placeholder(self, pattern: Placeholder, got: Json, path: str) -> None:
        match pattern:
            case Anything():
                pass
            case Maybe(inner):
                self.compare(inner, got, path)
            case Keep(name, inner):
                self.compare(inner, got, path)
                self.kept[name] = got if isinstance(got, str) else write(got)
            case Open(members):
                self._compare_members(members, got, path, is_open=True)
            case Including(entries):
                self._compare_unordered(pattern, entries, got, path)
            case OneOf(patterns):
                self._compare_any(pattern, patterns, got, path)
            case _:
                if not _fits(pattern, got):
                    self._differ(path, pattern, got)

    def _compare_any(self, pattern: OneOf, patterns: tuple[Json, ...], got: Json, path: str) -> None:
        trials = [Comparison() for _ in patterns]
        for trial, inner in zip(trials, patterns, strict=True):
            trial.compare(inner, got, path)
        best = min(trials, key=lambda trial: len(trial.differences))
        if best.differences and isinstance(got, dict):
            self.differences += best.differences  # of the alternative that comes closest
        elif best.differences:
            self._differ(path, pattern, got)
        self.kept.update(best.kept)

    def _compare_members(self, pattern: Mapping[str, Json], got: Json, path: str, *, is_open: bool) -> None:
        if not isinstance(got, dict):
            self._differ(path, dict(pattern), got)
            return
        for name, inner in pattern.items():
            if name in got:
                self.compare(inner, got[name], _below(path, name))
            elif not isinstance(inner, Maybe):
                self.differences.append(Difference(_below(path, name), describe(inner), "nothing"))
        if not is_open:
            self.differences += [
                Difference(_below(path, name), "nothing", shorten(write(got[name])))
                for name in got
                if name not in pattern
            ]

    def _compare_list(self, pattern: list[Json], got: Json, path: str) -> None:
        if not isinstance(got, list) or len(got) != len(pattern):
            self._differ(path, pattern, got)
            return
        for index, (inner, entry) in enumerate(zip(pattern, got, strict=True)):
            self.compare(inner, entry, f"{path}[{index}]")

    def _compare_unordered(self, pattern: Including, entries: tuple[Json, ...], got: Json, path: str) -> None:
        left = list(got) if isinstance(got, list) else []
        for inner in entries:
            found = next((entry for entry in left if _is_match(inner, entry)), None)
            if found is None:
                self._differ(path, pattern, got)
                return
            left.remove(found)

    def _differ(self, path: str, pattern: Json, got: Json) -> None:
        self.differences.append(Difference(path, describe(pattern), shorten(write(got))))


def _is_match(pattern: Json, got: Json) -> bool:
    trial = Comparison()
    trial.compare(pattern, got)
    return not trial.differences


def _fits(pattern: Placeholder, got: Json) -> bool:
    match pattern:
        case Text(expression):
            return isinstance(got, str) and re.fullmatch(expression, got) is not None
        case Number(least, most, whole):
            if isinstance(got, bool) or not isinstance(got, int | Decimal):
                return False
            return least <= float(got) <= most and (not whole or isinstance(got, int))
        case Verbatim(value):
            return write(value) == write(got)
        case _:
            raise TypeError(f"unknown placeholder {pattern!r}")


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def describe(pattern: Json) -> str:
    """A pattern for people: JSON with words in angle brackets."""
    match pattern:
        case Placeholder():
            return _describe_placeholder(pattern)
        case dict():
            members = (
                f"{write(name)}{'?' if isinstance(inner, Maybe) else ''}:{describe(inner)}"
                for name, inner in pattern.items()
            )
            return "{" + ",".join(members) + "}"
        case list() | tuple():
            return "[" + ",".join(describe(entry) for entry in pattern) + "]"
        case _:
            return write(pattern)


def _describe_placeholder(pattern: Placeholder) -> str:
    match pattern:
        case Text(_, name):
            return f"<{name}>"
        case Number(least, most, whole):
            kind = "integer" if whole else "number"
            return f"<{kind} ≥ {least:g}>" if most == float("inf") else f"<{kind} {least:g}…{most:g}>"
        case Maybe(inner) | Keep(_, inner):
            return describe(inner)
        case OneOf(patterns):
            return " or ".join(describe(inner) for inner in patterns)
        case Including(entries):
            return f"<list with {', '.join(describe(entry) for entry in entries)}>"
        case Open(members):
            return describe(dict(members))[:-1] + (",…}" if members else "…}")
        case Verbatim(value):
            return write(value)
        case _:
            return "<anything>"
