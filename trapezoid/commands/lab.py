"""`trapezoid lab`: domains of your own on loopback, to try federation and to test it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from pipeline.cli.option_groups import grouped
from trapezoid.commands import lab_replay, lab_shell
from trapezoid.output import (
    CANNOT,
    FOUND_WANTING,
    check_writable,
    errors_reported,
    prepared,
    print_facts,
    print_json,
    print_rows,
)

if TYPE_CHECKING:
    from interop.lab.core.scene import LabScene
    from interop.lab.kept import DomainState, Exchange, KeptLab
    from interop.lab.run import LabReport

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the laboratory.")]
Scene = Annotated[str, typer.Argument(metavar="SCENE", help="A scene file, or the name of one from `lab scenes`.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, kw_only=True)
class ReportFiles:
    """Files that a run writes besides what it prints."""

    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the verdict as JUnit XML.")] = None
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one HTML page with a timeline.")] = None

    def check(self) -> None:
        """Fail before the scene runs if a report cannot be written after it. Raises SettingsError."""
        check_writable(self.junit, self.html)

    def write(self, report: LabReport) -> None:
        """Write the files that were asked for."""
        from interop.lab.report import write_junit, write_page

        if self.junit is not None:
            write_junit(report, self.junit)
        if self.html is not None:
            write_page(report, self.html)


class _LabGroup(TyperGroup):
    """`lab DIR` makes a laboratory there, if there is none, and starts it; what looks like a command is one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """See `click.Group`."""
        first = args[0] if args else "--help"
        is_folder = os.sep in first or Path(first).is_dir() or not get_close_matches(first, self.commands)
        if not first.startswith("-") and first not in self.commands and is_folder:
            args = ["start", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_LabGroup,
    help="Run your own domains on loopback, and test how they federate. `lab DIR` creates and starts two.",
    no_args_is_help=True,
)


@app.command()
def init(
    folder: Folder,
    domains: Annotated[int, typer.Option(help="Number of domains, 2 to 5.")] = 2,
    nodes: Annotated[int, typer.Option(help="Nodes of each domain, 1 to 4; several share a PostgreSQL.")] = 1,
    *,
    partner: Annotated[
        bool, typer.Option("--partner", help="Make one domain, and what `conformance --partner DIR` needs to test it.")
    ] = False,
    json: Json = False,
) -> None:
    """Make domains that trust and may talk to each other: keys, certificates, DNS, settings, policies, free ports."""
    import trio

    from interop.processes import first_error

    with errors_reported(as_json=json), first_error():
        if partner:
            from interop.partner.prepare import make_partner_folder

            made = trio.run(make_partner_folder, folder, prepared(is_quiet=json))
            follows = f"trapezoid conformance --partner {folder}"
            print_facts({"folder": str(made), "terms": str(made / "partner.toml"), "next": follows}, as_json=json)
            return
        from interop.lab.kept import make_lab

        shown = prepared(is_quiet=json)
        lab = trio.run(partial(make_lab, folder, domains, shown, nodes=nodes))
    print_facts(
        {"folder": str(lab.path), "domains": list(lab.domains), "next": f"trapezoid lab up {folder}"}, as_json=json
    )


@app.command()
def up(folder: Folder, *, json: Json = False) -> None:
    """Start the stopped parts, then send a request between each two domains. Exits with 1 if one is not answered."""
    import trio

    async def start_and_ask() -> tuple[list[DomainState], list[Exchange]]:
        exchanges = await lab.exchange(await lab.up(prepared(is_quiet=json)))
        return await lab.states(), exchanges

    with errors_reported(as_json=json):
        from interop.processes import first_error

        lab = _lab(folder)
        with first_error():
            states, exchanges = trio.run(start_and_ask)
    if json:
        print_json({"domains": states, "exchanges": exchanges})
    else:
        _print_states(lab, states)
        sys.stdout.write("\n")
        print_rows(
            [
                {
                    "from": one.source,
                    "to": one.target,
                    "answer": f"{one.code} {one.problem}".rstrip(),
                    "there and back": f"{one.taken_ms:.1f} ms",
                }
                for one in exchanges
            ],
            as_json=False,
        )
    raise typer.Exit(0 if all(200 <= one.code < 300 for one in exchanges) else FOUND_WANTING)


@app.command()
def start(folder: Folder, *, json: Json = False) -> None:
    """Make two domains in a folder if there are none, and start what does not run: `init` and `up` in one.

    Exits with 1 if a request between them is not answered.
    """
    if not folder.exists() or not any(folder.iterdir()):
        import trio

        from interop.lab.kept import make_lab
        from interop.processes import first_error

        with errors_reported(as_json=json), first_error():
            trio.run(partial(make_lab, folder, 2, prepared(is_quiet=json), nodes=1))
    up(folder, json=json)


@app.command()
def down(folder: Folder, *, json: Json = False) -> None:
    """Stop all processes of a laboratory, and no others. Its data stay; `lab up` starts it again."""
    with errors_reported(as_json=json):
        ended = _lab(folder).down()
    print_facts(ended, as_json=json)


@app.command()
def status(folder: Folder, *, json: Json = False) -> None:
    """Show the domains of a laboratory. Exits with 1 if one does not run."""
    import trio

    with errors_reported(as_json=json):
        lab = _lab(folder)
        states = trio.run(lab.states)
    if json:
        print_json(states)
    else:
        _print_states(lab, states)
    raise typer.Exit(0 if all(one.state == "running" for one in states) else FOUND_WANTING)


def _lab(folder: Path) -> KeptLab:
    from interop.lab.kept import KeptLab

    return KeptLab(folder)


def _print_states(lab: KeptLab, states: list[DomainState]) -> None:
    print_rows(
        [
            {
                "domain": one.domain,
                "state": one.state,
                "pid": one.pid or "",
                "runtimes connect to": one.runtimes,
                "links": ", ".join(f"{domain} {state}" for domain, state in one.links.items()),
            }
            for one in states
        ],
        as_json=False,
    )
    first = states[0]
    sys.stdout.write(
        f"\ncertificate authority: {lab.ca_file}\nsettings: {first.settings}, and so on\n"
        f"one node in detail: trapezoid status {first.site} --ca {lab.ca_file}\n"
    )


app.command()(lab_shell.shell)
app.command()(lab_replay.replay)


@app.command()
def scenes(
    name: Annotated[str, typer.Argument(help="Print this scene, as a beginning for your own.")] = "",
    *,
    json: Json = False,
) -> None:
    """List the scenes that come with the program, or print one of them."""
    with errors_reported(as_json=json):
        from interop.lab.scene_file import load_scene, scene_path, shipped_scenes
        from protofly.errors import SettingsError

        names = shipped_scenes()
        if name and name not in names:
            raise SettingsError(f"{name}: no such scene; there are {', '.join(names)}")
        rows = [{"scene": one, "title": load_scene(scene_path(one)).title} for one in names]
    if name:
        sys.stdout.write(scene_path(name).read_text(encoding="utf-8"))
    else:
        print_rows(rows, as_json=json)


@app.command()
def misdeeds(*, json: Json = False) -> None:
    """List what a hostile domain can do, in scenes and by `lab misbehave`, and the stubs of the zoo."""
    from interop.hostile.core.misdeeds import MISDEEDS
    from interop.hostile.zoo import zoo

    if json:
        print_json({"misdeeds": list(MISDEEDS.values()), "stubs": list(zoo().values())})
        return
    rows = [{"misdeed": one.name, "the domain": one.does, "rule": one.rule} for one in MISDEEDS.values()]
    print_rows(rows, as_json=False)
    sys.stdout.write("\n")
    stubs = [{"stub": one.name, "the stub": one.does, "answer": f"502 {one.code}"} for one in zoo().values()]
    print_rows(stubs, as_json=False)


@app.command()
def misbehave(
    folder: Folder,
    domain: Annotated[str, typer.Argument(help="The domain that misbehaves, beside its honest node.")],
    names: Annotated[list[str], typer.Argument(metavar="MISDEED…", help="What it does; `lab misdeeds` lists them.")],
    *,
    seconds: Annotated[float, typer.Option(min=1.0, max=3600.0, help="How long.")] = 10.0,
    per_second: Annotated[float, typer.Option(min=0.1, max=1000.0, help="How often, to each other domain.")] = 5.0,
    json: Json = False,
) -> None:
    """Let a domain of a running laboratory misbehave. Exits with 1 if a forgery is believed, or a node suffers.

    Lines on standard input switch misdeeds while it runs: `+garbage`, `-forge-ours`.
    """
    import trio

    with errors_reported(as_json=json):
        from interop.hostile.trial import misbehave as try_it
        from interop.processes import first_error

        lab = _lab(folder)
        with first_error():
            trial = trio.run(partial(try_it, lab, domain, names, seconds=seconds, per_second=per_second))
    print_facts(
        {
            "done": {name: count for name, count in trial.done.items() if count},
            "welcomed": trial.welcomed,
            "forged": trial.forged,
            "believed": trial.believed,
            "unanswered afterwards": trial.unanswered,
        },
        as_json=json,
    )
    raise typer.Exit(FOUND_WANTING if trial.believed or trial.unanswered else 0)


@app.command()
def check(scene: Scene, *, json: Json = False) -> None:
    """Validate a scene without running it."""
    with errors_reported(as_json=json):
        from interop.lab.scene_file import load_scene, scene_path

        loaded = load_scene(scene_path(scene))
    facts = {
        "title": loaded.title,
        "domains": [f"{one.name} ({one.kind})" for one in loaded.domain],
        "runtimes": len(loaded.runtimes),
        "faults": [one.title for one in loaded.fault] or "none",
        "promises": list(loaded.promise.tests),
        "seconds": loaded.seconds,
    }
    print_facts(facts, as_json=json)


@app.command()
@grouped
def run(
    scene: Scene,
    reports: ReportFiles,
    *,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep settings, data and logs of all nodes in this new folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Run a scene in new domains and judge it. Exits with 1 if a promise is broken or was not tested."""
    with errors_reported(as_json=json):
        from interop.lab.report import as_json, print_report
        from interop.lab.scene_file import load_scene, scene_path

        path = scene_path(scene)
        loaded = load_scene(path)
        reports.check()
        try:
            report = _run(loaded, path, keep, is_quiet=json)
        except KeyboardInterrupt:
            sys.stderr.write("stopped\n")
            raise typer.Exit(CANNOT) from None
        reports.write(report)
    if json:
        print_json(as_json(report))
    else:
        from rich.console import Console

        print_report(report, Console())
    raise typer.Exit(0 if report.is_good else FOUND_WANTING)


def _run(scene: LabScene, path: Path, keep: Path | None, *, is_quiet: bool) -> LabReport:
    import tempfile

    import trio
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from interop.lab.run import run_scene
    from interop.lab.world import WorldPlan
    from interop.processes import first_error, stop_on_sigterm
    from protofly.errors import SettingsError

    async def until_stopped() -> LabReport:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop_on_sigterm, nursery.cancel_scope)
            report = await run_scene(
                scene,
                plan,
                source=path.stem,
                on_prepared=lambda done: progress.update(task, description=done.title),
                on_stage=lambda what, share: progress.update(task, description=what, completed=share),
            )
            nursery.cancel_scope.cancel()
            return report
        raise KeyboardInterrupt

    if keep is not None and keep.exists():
        raise SettingsError(f"{keep} exists; name a new folder")
    console = Console(file=sys.stderr, quiet=is_quiet)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="trapezoid-lab-") as scratch, first_error():
        plan = WorldPlan(folder=keep or Path(scratch))
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("domains are made", total=1.0)
            return trio.run(until_stopped)
