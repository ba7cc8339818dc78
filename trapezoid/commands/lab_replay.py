"""`trapezoid lab replay`: a recorded conversation, played against a laboratory."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.option_groups import grouped
from protofly.printable import escaped
from trapezoid.output import FOUND_WANTING, check_writable, errors_reported, prepared, print_facts, print_json

if TYPE_CHECKING:
    from interop.lab.replay import ReplayReport

Recording = Annotated[Path, typer.Argument(metavar="FILE", help="A recording of `trapezoid node recording`.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """Options of `lab replay`: key, target, speed and reports."""

    key: Annotated[Path, typer.Option(metavar="FILE", help="The `recording.key_file` of the node that recorded it.")]
    lab: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Play against this laboratory, which runs, with its policies and settings."),
    ] = None
    speed: Annotated[
        str, typer.Option(help="1 is that of the recording, 10 ten times that, `max` as fast as it goes.")
    ] = "1"
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the comparison as JUnit XML.")] = None
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the comparison as one HTML page.")] = None

    def factor(self) -> float:
        """The speed. Raises SettingsError."""
        from protofly.errors import SettingsError

        try:
            factor = float("inf") if self.speed == "max" else float(self.speed)
        except ValueError:
            factor = 0.0
        if not factor > 0:
            raise SettingsError(f"--speed {self.speed}: a number above 0, or max")
        return factor

    def write(self, report: ReplayReport) -> None:
        """Write the files that were asked for."""
        from interop.lab.replay_report import write_junit, write_page

        if self.junit is not None:
            write_junit(report, self.junit)
        if self.html is not None:
            write_page(report, self.html)


@grouped
def replay(recording: Recording, options: ReplayOptions, *, json: Json = False) -> None:
    """Play a recording of `trapezoid node recording` against a laboratory. Exits with 1 if an answer is different.

    Without --lab, a fresh laboratory is made and thrown away.
    """
    with errors_reported(as_json=json):
        from interop.lab.kept import KeptLab
        from interop.lab.replay_run import replay_in_fresh, replay_in_kept
        from interop.processes import first_error
        from msg_node.storage.sealing import read_state_keys
        from trapezoid.recordings import open_recording

        conversation = open_recording(recording, read_state_keys(options.key).secrets)
        speed = options.factor()
        check_writable(options.junit, options.html)
        with first_error():
            if options.lab is None:
                report = replay_in_fresh(conversation, speed, prepared(is_quiet=json))
            else:
                report = replay_in_kept(conversation, speed, KeptLab(options.lab))
        options.write(report)
    if json:
        print_json(report)
    else:
        _print_replay(report)
    raise typer.Exit(FOUND_WANTING if report.differences else 0)


def _print_replay(report: ReplayReport) -> None:
    for one in report.differences:
        sys.stdout.write(escaped(f"{one.at:9.3f} s  {one.what}") + "\n")
        sys.stdout.writelines(f"             {escaped(line)}\n" for line in one.lines)
    from interop.lab.replay_report import facts_of

    print_facts(facts_of(report), as_json=False)
