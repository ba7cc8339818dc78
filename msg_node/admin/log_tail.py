"""The last lines of the log, in memory, for operators who ask the node."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from federation.log_allowance import LineAllowance, fields
from protofly.errors import Code, PeerError

LINES_KEPT: Final = 2000
LINE_CHARS: Final = 1024


class LogTail(logging.Handler):
    """Keeps the last lines of a logger. The rate of lines is limited as in the log itself."""

    def __init__(self, most: int = LINES_KEPT) -> None:
        super().__init__()
        self._lines: deque[dict[str, object]] = deque(maxlen=most)
        self.addFilter(LineAllowance())

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
        self._lines.append(
            {
                "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": text[:LINE_CHARS],
                "about": fields(record),
            }
        )

    def lines(self, level: str = "") -> list[dict[str, object]]:
        """Return the lines of a level and above, newest first; "": all.

        Raises:
            PeerError: BAD_BODY for a level that is none.
        """
        least = level_number(level) if level else 0
        return [line for line in reversed(self._lines) if level_number(str(line["level"])) >= least]

    @contextlib.contextmanager
    def following(self, logger: logging.Logger) -> Iterator[None]:
        """Keep the lines of a logger meanwhile."""
        logger.addHandler(self)
        try:
            yield
        finally:
            logger.removeHandler(self)


def level_number(level: str) -> int:
    """Return the number of a level of the log.

    Raises:
        PeerError: BAD_BODY.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise PeerError(Code.BAD_BODY, f"{level[:32]!r} is no level of the log: debug, info, warning, error, critical")
    return number
