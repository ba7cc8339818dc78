"""`trapezoid conformance --matrix`: every pair of nodes, in every scene, with every fault."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trapezoid.output import CANNOT, check_writable, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interop.lab.core.matrix import Cell, Matrix
    from interop.lab.matrix import MatrixReport

SIDE_BY_SIDE: Final = 2
"""How many cells are played at a time: each has two nodes, and is judged by its times."""


@dataclass(frozen=True, kw_only=True)
class MatrixOptions:
    """A matrix, and what is written about it."""

    matrix: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Play every pair of nodes in FILE in every scene with every fault; `makes` comes with the program. "
            "Uses --junit, --json and --list.",
        ),
    ] = ""
    at_a_time: Annotated[int, typer.Option(help="Cells of a matrix to play at the same time.", min=1, max=16)] = (
        SIDE_BY_SIDE
    )
    results: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep each result of a matrix here; a second run goes on from there."),
    ] = None
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the matrix as one HTML page.")] = None
    badge: Annotated[Path | None, typer.Option(metavar="FILE", help="Write its result as a badge in SVG.")] = None


def play(options: MatrixOptions, junit: Path | None, *, lists: bool, as_json: bool) -> bool:
    """List or play a matrix; True if nothing speaks against it. Raises HostError."""
    from interop.lab.matrix import load_matrix

    matrix, cells = load_matrix(options.matrix)
    if lists:
        _list(cells, as_json=as_json)
        return True
    if all(cell.problem for cell in cells):
        raise _nothing_to_play(options.matrix, cells[0].problem)
    check_writable(junit, options.html, options.badge)
    try:
        report = _run(matrix, cells, options, is_quiet=as_json)
    except KeyboardInterrupt:
        more = "" if options.results is None else f"; {options.results} has what was played"
        sys.stderr.write(f"stopped{more}\n")
        raise typer.Exit(CANNOT) from None
    _write(report, options, junit)
    _show(report, as_json=as_json)
    return report.is_good


def _nothing_to_play(source: str, why: str) -> Exception:
    from protofly.errors import SettingsError

    return SettingsError(f"{source}: no cell can be played: {why}")


def _list(cells: Sequence[Cell], *, as_json: bool) -> None:
    rows = [{"cell": one.title, "cannot be played": one.problem} for one in cells]
    if as_json:
        print_json(rows)
        return
    from trapezoid.output import print_rows

    print_rows(rows, as_json=False)


def _run(matrix: Matrix, cells: Sequence[Cell], options: MatrixOptions, *, is_quiet: bool) -> MatrixReport:
    import trio
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from interop.lab.matrix import Result, ResultFile, play_matrix
    from interop.processes import first_error, stop_on_sigterm

    results = None if options.results is None else ResultFile(options.results)

    async def until_stopped() -> MatrixReport:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_on_sigterm, nursery.cancel_scope)
            report = await play_matrix(
                matrix, cells, parallel=options.at_a_time, results=results, on_result=lambda one: advance(one)
            )
            nursery.cancel_scope.cancel()
            return report
        raise KeyboardInterrupt

    def advance(result: Result) -> None:
        done = f"{result.verdict} {result.left} – {result.right}, {result.fault}"
        progress.update(task, advance=1, description=done)

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr, quiet=is_quiet), transient=True) as progress:
        task = progress.add_task("domains are made", total=len(cells))
        with first_error():
            return trio.run(until_stopped)


def _write(report: MatrixReport, options: MatrixOptions, junit: Path | None) -> None:
    from interop.lab import matrix_report

    if junit is not None:
        matrix_report.write_junit(report, junit)
    if options.html is not None:
        matrix_report.write_page(report, options.html)
    if options.badge is not None:
        matrix_report.write_badge(report, options.badge)


def _show(report: MatrixReport, *, as_json: bool) -> None:
    if as_json:
        from interop.lab.matrix import as_json as facts_of

        print_json(facts_of(report))
        return
    from rich.console import Console

    from interop.lab.matrix_report import print_matrix

    print_matrix(report, Console())
