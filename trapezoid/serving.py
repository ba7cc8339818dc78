"""`trapezoid serve`: kept apart from other commands, so that a node carries no command-line library in its memory."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from msg_node.config import LogSettings, Settings
from protofly.errors import SettingsError
from trapezoid.output import errors_reported

BENCH_VARIABLE = "TRAPEZOID_BENCH"
"""Has to be "1" for settings that only a benchmark may use."""


def main(arguments: Sequence[str]) -> None:
    """Run a node until it is told to stop."""
    parser = argparse.ArgumentParser(prog="trapezoid serve", description="Run one node.")
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="settings, for example node.toml")
    serve(parser.parse_args(arguments).config)


def serve(config: Path) -> None:
    """Read the settings and run the node. Prints `ready {…}` on standard output once everything is up."""
    with errors_reported():
        from msg_node.config_load import load_settings

        settings = load_settings(config)
        set_up_log(settings.log)
        check_sandbox_mode(settings)
        _run(settings)


def _run(settings: Settings) -> None:
    import trio

    from msg_node.app import serve as serve_node

    try:
        trio.run(partial(serve_node, settings, on_ready=_tell_ready))
    except* SettingsError as group:
        # Services run in nurseries; the operator gets the first plain reason.
        raise _first(group) from None


def _first(group: BaseExceptionGroup[SettingsError]) -> SettingsError:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, SettingsError)
    return error


def _tell_ready(facts: dict[str, object]) -> None:
    sys.stdout.write(f"ready {msgspec.json.encode(facts).decode()}\n")
    sys.stdout.flush()


def check_sandbox_mode(settings: Settings) -> None:
    """Nobody runs foreign code unconfined by a line in a file. Raises SettingsError."""
    if settings.sandbox.mode == "none" and os.environ.get(BENCH_VARIABLE) != "1":
        raise SettingsError(f"sandbox.mode = 'none' is for the benchmark, which sets {BENCH_VARIABLE}=1")


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def set_up_log(settings: LogSettings) -> None:
    """Log to standard error as the settings say."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_JsonFormatter() if settings.format == "json" else text)
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    for chatty in ("httpx", "httpcore", "hypercorn"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
