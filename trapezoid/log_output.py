"""The log on standard error: one line of text or one JSON object per event, safe to show on a terminal.

Logs contain text from untrusted peers. Characters that are not printable are escaped, tracebacks are indented so that
none of their lines looks like an event, and the rate of lines is limited: see `federation.log_allowance`.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final

import msgspec

from federation.log_allowance import LineAllowance, fields
from protofly.printable import escaped, escaped_json

if TYPE_CHECKING:
    from msg_node.settings.tables.node import LogSettings

TEXT_CHARS: Final = 4 << 10
"""Maximum length of the message of an event, without its traceback."""
_INDENT: Final = "    "


def set_up_log(settings: LogSettings, *, process: int = 0) -> None:
    """Log to standard error as the settings say; `process`: which of several this is, 0 for the only one."""
    from msg_node.bus.middleware import MESSAGE_LOG

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(process) if settings.format == "json" else _TextFormatter(process))
    handler.addFilter(LineAllowance(exempt=(MESSAGE_LOG,)))
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    for chatty in ("httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def escape_without_set_up() -> None:
    """Format and limit warnings and errors of commands that call no `set_up_log`."""
    handler = logging.lastResort
    if handler is not None:
        handler.setFormatter(_TextFormatter())
        handler.addFilter(LineAllowance())


def _text_of(record: logging.LogRecord) -> str:
    text = record.getMessage()
    return text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]}… ({len(text):,} characters)"


class _TextFormatter(logging.Formatter):
    def __init__(self, process: int = 0) -> None:
        super().__init__()
        self._process = f" [{process}]" if process else ""

    def format(self, record: logging.LogRecord) -> str:
        place = f"{record.levelname} {record.name}{self._process}"
        line = f"{self.formatTime(record)} {place}: {escaped(_text_of(record))}"
        if not record.exc_info:
            return line
        traceback = escaped(self.formatException(record.exc_info), keep="\n")
        return "\n".join([line, *(f"{_INDENT}{one}" for one in traceback.split("\n"))])


class _JsonFormatter(logging.Formatter):
    def __init__(self, process: int) -> None:
        super().__init__()
        self._process = {"process": process} if process else {}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str | int] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _text_of(record),
            **self._process,
            **fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        whole = {name: value if isinstance(value, int) else _encodable(value) for name, value in line.items()}
        return escaped_json(msgspec.json.encode(whole).decode())


def _encodable(text: str) -> str:
    """Without lone surrogates, which UTF-8 has no bytes for."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
