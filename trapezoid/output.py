"""What commands print: facts as tables or as one JSON object; errors in one place, with an exit code to go by.

Exit codes: 0 done, 1 checked and found wanting, 2 could not be done.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from protofly.errors import HostError

FOUND_WANTING = 1
CANNOT = 2


def print_json(facts: object) -> None:
    """One JSON object on standard output."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(facts), indent=2).decode() + "\n")


def print_facts(facts: Mapping[str, object], *, as_json: bool) -> None:
    """Names and values, for people or for programs."""
    if as_json:
        print_json(facts)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(f"[bold]{name.replace('_', ' ')}[/]", _text(value))
    Console().print(table)


def print_rows(rows: Sequence[Mapping[str, object]], *, as_json: bool) -> None:
    """A list of equal objects."""
    if as_json or not rows:
        print_json(rows)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*(_text(value) for value in row.values()))
    Console().print(table)


def _text(value: object) -> str:
    from rich.markup import escape

    if isinstance(value, list | tuple):
        return escape("\n".join(_harmless(str(entry)) for entry in value))
    return escape(_harmless(str(value)))


def _harmless(text: str) -> str:
    """A text that strangers may have written, without what drives a terminal."""
    return "".join(char if char.isprintable() or char == "\n" else "·" for char in text)


@contextlib.contextmanager
def errors_reported(*, as_json: bool = False) -> Iterator[None]:
    """Turn our errors into a message and exit code 2; anything else is a bug and keeps its traceback."""
    try:
        yield
    except HostError as exc:
        if as_json:
            print_json({"error": {"code": exc.code.word, "detail": exc.detail}})
        sys.stderr.write(f"error: {_harmless(exc.detail) or exc.code.description} [{exc.code.word}]\n")
        raise SystemExit(CANNOT) from exc
