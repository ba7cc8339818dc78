"""Output of commands: facts as tables or as one JSON object, and errors with their exit code, one of `EXIT_CODES`."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from protofly.errors import HostError, SettingsError
from protofly.plain_words import without_types
from protofly.printable import escaped, escaped_json

if TYPE_CHECKING:
    from pathlib import Path

    from interop.domain_folders import Preparation

FOUND_WANTING = 1
CANNOT = 2
LOST_MESSAGES = 3

NOT_RECORDED: Final = "no: no node runs, and only it writes audit records (admin_event)"
"""What commands say of the audit records about a change that they made in files by themselves."""

EXIT_CODES: Final = {
    0: "Done, without findings.",
    FOUND_WANTING: "Done, with a finding: a problem, a denial, a broken promise, no match, or a confirmation "
    "that was not given.",
    CANNOT: "Failed: the command line is wrong, the request was refused, or a file, node or domain could not be used. "
    "The last line on standard error says why, with a code.",
    LOST_MESSAGES: "Not complete: the node stopped and messages were lost or changes were not stored, or records that "
    "the pipeline needs are missing.",
}
"""What the exit code of every command means; docs/operating.md and the manual pages show it."""


def print_json(facts: object) -> None:
    """One JSON object on standard output."""
    try:
        text = msgspec.json.format(msgspec.json.encode(facts), indent=2).decode()
    except (UnicodeEncodeError, OverflowError):  # a file name that is not UTF-8, or a number beyond 64 bits
        text = json.dumps(msgspec.to_builtins(facts), indent=2)
    sys.stdout.write(escaped_json(text) + "\n")


def print_facts(facts: Mapping[str, object], *, as_json: bool) -> None:
    """Print names and values, as columns or as one JSON object."""
    if as_json:
        print_json(facts)
        return
    lines: list[list[str]] = []
    for name, value in facts.items():
        first, *others = _lines(value) or [""]
        lines += [[name.replace("_", " "), first], *(["", text] for text in others)]
    _print_columns(lines, bold_column=0)


def print_rows(rows: Sequence[Mapping[str, object]], *, as_json: bool) -> None:
    """Print a list of objects that have the same members, as a table or as JSON; `none` in place of an empty table."""
    if as_json:
        print_json(rows)
        return
    if not rows:
        sys.stdout.write("none\n")
        return
    head = [name.replace("_", " ") for name in rows[0]]
    _print_columns([head, *([" ".join(_lines(value)) for value in row.values()] for row in rows)], bold_row=0)


def _print_columns(
    lines: Sequence[Sequence[str]], *, bold_column: int | None = None, bold_row: int | None = None
) -> None:
    """Print aligned columns. Values are never wrapped, so that digests and file names can be copied."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    console = Console()
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for number, line in enumerate(lines):
        text = Text()
        for column, (value, width) in enumerate(zip(line, widths, strict=True)):
            is_bold = column == bold_column or number == bold_row
            text.append(value, "bold" if is_bold else "")
            text.append(" " * (width - cell_len(value) + 2))
        text.rstrip()
        console.print(text, soft_wrap=True)


def _lines(value: object) -> list[str]:
    """The lines of a value for people; a list has one for each entry, a mapping one for each name."""
    if isinstance(value, Mapping):
        texts = [f"{name}: {', '.join(_lines(one))}" for name, one in value.items()]
    else:
        texts = [_word(one) for one in value] if isinstance(value, list | tuple) else [_word(value)]
    return [line for text in texts or ["none"] for line in escaped(text, keep="\n").split("\n")]


def _word(value: object) -> str:
    """A single value as people write it."""
    match value:
        case bool():
            return "yes" if value else "no"
        case None:
            return "none"
        case Mapping() | list() | tuple():
            return ", ".join(_lines(value))
    return str(value)


@contextlib.contextmanager
def errors_reported(*, as_json: bool = False) -> Iterator[None]:
    """Print a HostError, or what a file system says about a file, and exit with 2.

    Any other exception is a bug and keeps its traceback.
    """
    try:
        with _files_named():
            yield
    except HostError as exc:
        plain = without_types(exc.detail)
        if as_json:
            print_json({"error": {"code": exc.code.word, "detail": plain}})
        detail = escaped(plain, keep="\n" if isinstance(exc, SettingsError) else "")
        sys.stderr.write(f"error: {detail or exc.code.description} [{exc.code.word}]\n")
        raise SystemExit(CANNOT) from exc


@contextlib.contextmanager
def _files_named() -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.filename is None:
            raise
        raise SettingsError(f"{exc.filename}: {exc.strerror}") from exc


def check_writable(*files: Path | None) -> None:
    """Fail before something runs if a report cannot be written after it. Raises SettingsError."""
    for file in filter(None, files):
        try:
            file.touch()
        except OSError as exc:
            raise SettingsError(f"{file}: {exc.strerror}") from exc


def prepared(*, is_quiet: bool) -> Callable[[Preparation], None]:
    """Print on standard error what has been prepared, and how long it took."""

    def show(preparation: Preparation) -> None:
        if not is_quiet:
            sys.stderr.write(f"{escaped(f'{preparation.taken_ms:8.0f} ms  {preparation.title}')}\n")

    return show
