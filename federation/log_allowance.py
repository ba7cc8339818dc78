"""How many lines of one kind may stand in the log in a minute: nobody outside, and no full disk, fills it.

`LineAllowance` bounds every line that is logged, wherever it comes from, so that no call has to think of it. A kind is
one place in the code. A line about a subject (a domain, a stub, a session; see `fields`) counts for its subject first:
one noisy domain leaves room for what is to be said of the others. While the engine of a domain is away, each part of a
node finds that out for itself, again and again: of these lines, few of a kind are written.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from protofly.errors import Code, HostError

FIELDS: Final = ("domain", "code", "session", "stub", "msg_id", "id")
"""Fields of a line besides its text: members of `extra` of the call, and of a line in JSON. `msg_id` is that of
records, equal in both domains; `id` is the one that the sender of a message has given it."""
LINES_PER_MINUTE: Final = 60
LINES_PER_MINUTE_AND_SUBJECT: Final = 30
LINES_PER_MINUTE_WITHOUT_STATE: Final = 5
"""Of a kind, while the state cannot be used."""

logger = logging.getLogger("trapezoid.log")


def fields(record: logging.LogRecord) -> dict[str, str | int]:
    """Return the fields of a line: those of its call, and those of the first of our errors in it."""
    found: dict[str, str | int] = {}
    error = next((one for one in record.args or () if isinstance(one, HostError)), None)
    if error is not None:
        found = {"domain": getattr(error, "domain", ""), "code": error.code.word}
    for name in FIELDS:
        value = getattr(record, name, "")
        if value not in ("", None):
            found[name] = value if isinstance(value, int) else str(value)
    return {name: value for name, value in found.items() if value != ""}


class LogAllowance:
    """Counts lines by kind, for what is decided where it is logged; the kinds are few, and ours."""

    def __init__(self, lines_per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = lines_per_minute
        self._clock = clock
        self._lines: Counter[str] = Counter()
        self._minute = 0

    def takes(self, kind: str) -> bool:
        """True when one more line of that kind may be written in this minute; then it counts."""
        minute = int(self._clock() // 60)
        if minute != self._minute:
            self._lines.clear()
            self._minute = minute
        self._lines[kind] += 1
        return self._lines[kind] <= self._most


class LineAllowance(logging.Filter):
    """A filter for the handler of the log. How many lines it left out of a kind is a line of the minutes after.

    Args:
        per_minute: Lines of one kind.
        per_subject: Of these, lines about one subject.
        exempt: Loggers whose lines the operator asked for one by one.
        clock: Seconds.
    """

    def __init__(
        self,
        *,
        per_minute: int = LINES_PER_MINUTE,
        per_subject: int = LINES_PER_MINUTE_AND_SUBJECT,
        exempt: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._per_minute = per_minute
        self._per_subject = per_subject
        self._exempt = frozenset(exempt)
        self._clock = clock
        self._minute = 0
        self._lines: Counter[tuple[str, int]] = Counter()
        self._of_subject: Counter[tuple[str, int, str | int]] = Counter()
        self._left_out: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()  # some lines come from threads

    def filter(self, record: logging.LogRecord) -> bool:
        """True when a line is written."""
        if record.name in self._exempt or record.name == logger.name:
            return True
        with self._lock:
            left_out = self._begin_minute(int(self._clock() // 60))
            takes = self._takes(record)
        for (path, line), count in left_out.items():
            place = f"{path.rpartition('/')[2]}:{line}"
            logger.warning("%d lines of one kind (%s) were left out of the log within a minute", count, place)
        return takes

    def _begin_minute(self, minute: int) -> Counter[tuple[str, int]]:
        """Begin a new minute if it is time; returns how many lines of each kind the last one left out."""
        left_out: Counter[tuple[str, int]] = Counter()
        if minute != self._minute:
            self._minute = minute
            left_out, self._left_out = self._left_out, left_out
            self._lines.clear()
            self._of_subject.clear()
        return left_out

    def _takes(self, record: logging.LogRecord) -> bool:
        kind = (record.pathname, record.lineno)
        about = fields(record)
        subject = about.get("domain") or about.get("stub") or about.get("session") or ""
        is_without_state = about.get("code") == Code.STATE_UNAVAILABLE.word
        takes = self._lines[kind] < (LINES_PER_MINUTE_WITHOUT_STATE if is_without_state else self._per_minute)
        if takes and subject != "":
            takes = self._of_subject[*kind, subject] < self._per_subject
            self._of_subject[*kind, subject] += takes  # only as many subjects as lines are remembered
        self._lines[kind] += takes
        if not takes:
            self._left_out[kind] += 1
        return takes
