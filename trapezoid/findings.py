"""Results of checks: level, file and advice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """The severity of a finding."""

    OK = "ok"
    WARNING = "warning"
    FAILING = "failing"
    """The node starts, and is not ready."""
    PROBLEM = "problem"
    """The node does not start."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `text` is complete; `code`, `file` and `action` repeat parts of it for programs."""

    part: str
    is_good: bool
    text: str
    level: Level = Level.OK
    code: str = "ok"
    file: str = ""
    action: str = ""

    @property
    def line(self) -> str:
        """One line of text: part, text, and the code unless the level is OK."""
        return f"{self.part}: {self.text}{'' if self.level is Level.OK else f' [{self.code}]'}"


def remark(level: Level, code: str, text: str, *, file: str = "", action: str = "", part: str = "") -> Finding:
    """Make a finding that is not OK. File and action are added to its text unless it has them already."""
    named = f"{file}: {text}" if file and file not in text else text
    advised = f"{named}; {action}" if action and action not in text else named
    return Finding(part, level is Level.WARNING, advised, level, code, file, action)
