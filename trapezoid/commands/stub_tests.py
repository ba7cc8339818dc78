"""`trapezoid stub certify`, `bench` and `fuzz`: test a stub against the published requirements, and measure it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.option_groups import grouped
from trapezoid.output import FOUND_WANTING, errors_reported, print_facts

if TYPE_CHECKING:
    from stubkit.certification import RequirementVerdict

Module = Annotated[Path, typer.Argument(help="WebAssembly module of the stub.")]
Script = Annotated[Path, typer.Option(metavar="FILE", help="Cases of the stub; `live` in it says how it becomes live.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True, kw_only=True)
class ReportFiles:
    """Options of the report of a certification: further files, and the keys that sign it."""

    keys: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of your domain's keys: sign the report with its pkg keys."),
    ] = None
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as JUnit, too.")] = None
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as a page, too.")] = None


@grouped
def certify(module: Module, files: ReportFiles, script: Script = Path("cases.json"), json: Json = False) -> None:
    """Test a stub against docs/stub-requirements.md. The report is written beside the module; `publish` adds it.

    Exits with 1 if a requirement is not met, or could not be tested.
    """
    with errors_reported(as_json=json):
        from datetime import UTC, datetime
        from importlib.metadata import version

        import msgspec

        from stubkit.cases import load_script
        from stubkit.certification import as_html, as_junit, encoded, report_path
        from stubkit.certify import certify as certify_module
        from stubkit.files import replace_file
        from stubkit.keys import load_keys

        keys = load_keys(files.keys).pkg if files.keys is not None else ()
        made = datetime.now(UTC).isoformat(timespec="seconds")
        report = certify_module(
            module,
            load_script(script),
            kit=version("trapezoid"),
            made=made,
            progress=_ignore if json else _print_verdict,
        )
        replace_file(report_path(module), encoded(report, keys))
        for file, content in ((files.junit, as_junit), (files.html, as_html)):
            if file is not None:
                replace_file(file, content(report))
        if json:
            print_facts({"good": report.is_good, **msgspec.to_builtins(report)}, as_json=True)
        else:
            typer.echo()
            facts: dict[str, object] = {"module": str(module), "sha256": report.sha256}
            if report.is_good:
                facts["per message"] = f"{report.fuel_per_message:,.0f} fuel, {report.cpu_us_per_message:.2f} µs CPU"
            signed = "signed by " + ", ".join(key.key_id for key in keys) if keys else "not signed (--keys)"
            print_facts(
                facts | {"report": f"{report_path(module)}, {signed}", "verdict": report.summary}, as_json=False
            )
    raise typer.Exit(0 if report.is_good else FOUND_WANTING)


def _print_verdict(verdict: RequirementVerdict) -> None:
    from protofly.printable import escaped

    typer.echo(f"{verdict.number}  {verdict.result:10}  {verdict.title}: {escaped(verdict.detail)}")


def _ignore(_verdict: RequirementVerdict) -> None:
    pass


def bench(
    module: Module,
    script: Script = Path("cases.json"),
    messages: Annotated[int, typer.Option(help="Messages to send.", min=1)] = 20_000,
    batch: Annotated[int, typer.Option(help="Messages in one exchange with the worker.", min=1, max=1024)] = 16,
    json: Json = False,
) -> None:
    """Measure what a message of 547 bytes costs in a live stub, and whether its memory grows.

    The hop is the way from the host to the worker and back, for one message: on a processor, and by the wall clock.
    """
    with errors_reported(as_json=json):
        import dataclasses

        from stubkit.cases import load_script
        from stubkit.certify import bench as measure

        rate = measure(module, load_script(script), messages=messages, batch=batch)
        if json:
            print_facts(dataclasses.asdict(rate), as_json=True)
            return
        print_facts(
            {
                "module": str(module),
                "messages": f"{rate.messages:,} in batches of {rate.batch}",
                "hop": f"{rate.hop_cpu_us:.1f} µs CPU, {rate.hop_us:.1f} µs a message",
                "guest": f"{rate.cpu_us:.2f} µs CPU, {rate.fuel:,.0f} fuel a message",
                "memory": f"{rate.first_memory_bytes >> 10:,} KiB after a tenth, then {rate.memory_bytes >> 10:,} KiB",
            },
            as_json=False,
        )


def fuzz(
    module: Module,
    script: Script = Path("cases.json"),
    calls: Annotated[int, typer.Option(help="Calls of the stub.", min=1)] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed: the same one gives the same events.")] = 1,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the events of a finding, for `stub run --script`.")
    ] = None,
    json: Json = False,
) -> None:
    """Give random events to a stub. Exits with 1 if they lead to a fault or to an action that breaks the contract."""
    with errors_reported(as_json=json):
        import msgspec

        from stubkit.cases import load_script
        from stubkit.certify import fuzz_module
        from stubkit.files import replace_file

        author = load_script(script)
        result = fuzz_module(module, author, calls=calls, seed=seed)
        if result.problem and save is not None:
            case = {"name": f"seed {seed}: {result.problem}", "steps": result.steps, "after": result.after}
            cases = [*(msgspec.to_builtins(one) for one in author.cases), case] if result.after else [case]
            found = {"endpoints": author.endpoints, "start": author.start, "cases": cases}
            replace_file(save, msgspec.json.format(msgspec.json.encode(found), indent=1))
        facts = {"module": str(module), "seed": seed, "calls": result.calls, "problem": result.problem or "none"}
        print_facts(facts | ({"script": str(save)} if result.problem and save else {}), as_json=json)
    raise typer.Exit(FOUND_WANTING if result.problem else 0)
