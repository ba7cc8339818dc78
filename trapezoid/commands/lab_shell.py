"""`trapezoid lab shell`: be the runtimes of a laboratory, line by line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from protofly.printable import escaped
from trapezoid.output import FOUND_WANTING, errors_reported


def shell(folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the laboratory.")]) -> None:
    """Open runtimes in a laboratory, write with them, end and start its nodes; `help` shows the words.

    Lines may come from a file or a pipe as well; then it exits with 1 if one of them could not be done.
    """
    import trio

    with errors_reported():
        from interop.lab.kept import KeptLab
        from interop.lab.shell import run_shell
        from interop.processes import first_error

        lab = KeptLab(folder)
        is_terminal = sys.stdin.isatty()
        with first_error():
            failed = trio.run(run_shell, lab, _asked if is_terminal else sys.stdin.readline, _show)
    raise typer.Exit(FOUND_WANTING if failed and not is_terminal else 0)


def _asked() -> str:
    import readline  # noqa: F401 - gives `input` a history, and keys to edit lines

    try:
        return input("lab> ") + "\n"
    except EOFError:
        return ""


def _show(line: str) -> None:
    sys.stdout.write(escaped(line) + "\n")
    sys.stdout.flush()
