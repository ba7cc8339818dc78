"""Levels of loggers that operators set for a time."""

from __future__ import annotations

import logging


class LogLevels:
    """Sets levels of loggers, and puts back what was there before."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, float]] = {}

    def loggers(self) -> list[str]:
        """The names of all loggers that something writes to; "" is the root of all."""
        found = logging.Logger.manager.loggerDict.items()
        return ["", *sorted(name for name, one in found if isinstance(one, logging.Logger))]

    def level_of(self, logger: str) -> str:
        """Return the level in force of a logger; "" is the root of all."""
        return logging.getLevelName(logging.getLogger(logger).getEffectiveLevel()).lower()

    def set(self, logger: str, level: str, until: float) -> None:
        """Set the level of a logger until a time (seconds since the Unix epoch)."""
        found = logging.getLogger(logger)
        before, _ = self._before.get(logger, (found.level, 0.0))
        self._before[logger] = before, until
        found.setLevel(level.upper())

    def settle(self, level: str) -> None:
        """Take over the level of the settings; while another one holds for a time, it comes after that."""
        if "" in self._before:
            self._before[""] = logging.getLevelNamesMapping()[level.upper()], self._before[""][1]
        else:
            logging.getLogger().setLevel(level.upper())

    def end(self, now: float) -> list[str]:
        """Put back the levels whose time is over; returns the names of their loggers."""
        ended = [name for name, (_, until) in self._before.items() if until <= now]
        for name in ended:
            before, _ = self._before.pop(name)
            logging.getLogger(name).setLevel(before)
        return ended
