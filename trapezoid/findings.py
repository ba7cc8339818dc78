"""What a check found: how bad it is, about which file, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"
    FAILING = "failing"
    """A node starts with it and is not ready."""
    PROBLEM = "problem"
    """A node does not start with it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check and what came out of it. `text` says all of it; `code`, `file` and `action` are for programs."""

    part: str
    is_good: bool
    text: str
    level: Level = Level.OK
    code: str = "ok"
    file: str = ""
    action: str = ""

    @property
    def line(self) -> str:
        """For people: part, text, and the code unless all is well."""
        return f"{self.part}: {self.text}{'' if self.level is Level.OK else f' [{self.code}]'}"


def remark(level: Level, code: str, text: str, *, file: str = "", action: str = "", part: str = "") -> Finding:
    """A finding that is not simply good. Its text gets the file and what to do; the list of checks adds the part."""
    named = f"{file}: {text}" if file and file not in text else text
    advised = f"{named}; {action}" if action and action not in text else named
    return Finding(part, level is Level.WARNING, advised, level, code, file, action)
