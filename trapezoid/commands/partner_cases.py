"""`trapezoid conformance --partner`: test the side of a node that other domains see."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from protofly.errors import Code, HostError
from trapezoid.output import print_facts, print_json

if TYPE_CHECKING:
    from interop.partner.model import PartnerCase
    from interop.partner.run import PartnerReport


def chosen_cases(wanted: Sequence[str]) -> list[PartnerCase]:
    """Cases by id, by the first words of an id, or by chapter; all of them without words. Raises HostError."""
    from interop.partner.cases import CASES

    found = [case for case in CASES if not wanted or any(_is_wanted(case, word) for word in wanted)]
    if not found:
        raise HostError(Code.SETTINGS, f"no case of a partner matches {' or '.join(wanted)}; --list shows all")
    return found


def _is_wanted(case: PartnerCase, word: str) -> bool:
    return case.group == word or case.id == word or case.id.startswith(f"{word}-")


def list_cases(cases: Sequence[PartnerCase], *, as_json: bool) -> None:
    """Print the cases."""
    from interop.partner import report

    if as_json:
        print_json(report.cases_as_json(cases))
    else:
        report.print_cases(cases)


def run_cases(folder: Path, cases: Sequence[PartnerCase], parallel: int, *, is_quiet: bool) -> PartnerReport:
    """Play cases against the node that the folder names. Raises HostError."""
    import trio
    from rich.console import Console
    from rich.progress import Progress

    from interop.partner.run import play_all, running_partner
    from interop.processes import first_error

    async def run() -> PartnerReport:
        async with running_partner(folder) as partner:
            with Progress(console=Console(file=sys.stderr, quiet=is_quiet), transient=True) as progress:
                task = progress.add_task("testing", total=len(cases))
                return await play_all(partner, cases, parallel=parallel, on_outcome=lambda _: progress.advance(task))

    with first_error():
        return trio.run(run)


def show(report: PartnerReport, *, as_json: bool, verbose: bool) -> None:
    """Print a report."""
    from interop.partner import report as reports

    if as_json:
        print_json(reports.as_json(report))
    else:
        reports.print_report(report, verbose=verbose)


def write_documents(folder: Path, *, as_json: bool) -> None:
    """Write the document scenarios into a folder. Raises HostError."""
    from interop.partner.document_files import write

    try:
        count = write(folder)
    except OSError as exc:
        raise HostError(Code.SETTINGS, f"{exc.filename}: {exc.strerror}") from exc
    print_facts({"folder": str(folder), "cases": count, "index": str(folder / "index.json")}, as_json=as_json)
