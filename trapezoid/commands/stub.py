"""`trapezoid stub`: begin, build, run, check, certify and pack protostubs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipeline.cli.option_groups import grouped
from protofly.errors import SettingsError
from trapezoid.commands import stub_recordings, stub_run, stub_tests
from trapezoid.output import FOUND_WANTING, errors_reported, print_facts, print_rows

if TYPE_CHECKING:
    from stubkit.check import CheckReport

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_UNPROVED = "it reports `live` before the peer is verified: publish it with --no-auth, or --range if it interworks"

app = typer.Typer(help="Create, build, run, check, certify and pack protostubs.", no_args_is_help=True)
app.command()(stub_run.run)
app.command()(stub_tests.certify)
app.command()(stub_tests.bench)
app.command()(stub_tests.fuzz)
app.command()(stub_recordings.record)
app.command()(stub_recordings.replay)


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the stub, and of the folder that is made.")],
    lang: Annotated[str, typer.Option(help="Language: c, zig, assemblyscript, rust or js.")] = "c",
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Where the folder is made.")] = Path(),
    json: Json = False,
) -> None:
    """Create a stub project: a working source, cases for `stub run --script`, and the next commands."""
    with errors_reported(as_json=json):
        from stubkit.new import new_stub

        files = [str(path) for path in new_stub(name, lang, folder)]
        print_facts({"source": files[0], "files": files, "next": f"trapezoid stub build {files[0]}"}, as_json=json)


@app.command()
def build(
    source: Annotated[
        Path, typer.Argument(help="Source in C (.c), Zig (.zig), AssemblyScript (.ts), Rust (.rs) or JavaScript (.js).")
    ],
    output: Annotated[Path | None, typer.Argument(help="Module to write. Default: next to the source.")] = None,
    names: Annotated[
        bool, typer.Option("--names", help="Keep the names of functions, for traps of `stub run` and `stub replay`.")
    ] = False,
    json: Json = False,
) -> None:
    """Compile a stub. The module is the same, byte for byte, on every machine."""
    with errors_reported(as_json=json):
        from stubkit.build import build as build_module

        module = output or source.with_suffix(".wasm")
        print_facts({"module": str(module), "bytes": build_module(source, module, has_names=names)}, as_json=json)


@app.command()
def check(
    module: Annotated[Path, typer.Argument(help="WebAssembly module of the stub.")],
    endpoint: Annotated[
        list[str] | None, typer.Option(help="Name of an endpoint that the stub may open. Repeatable.")
    ] = None,
    json: Json = False,
) -> None:
    """Test a stub against the stub contract in a real sandbox, and measure its cost. Exits with 1 if it fails."""
    with errors_reported(as_json=json):
        import msgspec

        from stubkit.check import check as check_module

        report = check_module(module, endpoints=tuple(endpoint or ("mn",)))
        if json:
            print_facts({"good": report.is_good, **msgspec.to_builtins(report)}, as_json=True)
        else:
            _print_report(report)
    raise typer.Exit(0 if report.is_good else FOUND_WANTING)


@dataclass(frozen=True, kw_only=True)
class ScriptOptions:
    """Options of packing a script. Expanded on the command line by `pipeline/cli/option_groups.py`."""

    name: Annotated[str, typer.Option(help="Name of the stub. Default: that of the file.")] = ""
    version: Annotated[str, typer.Option(help="Version of the stub.")] = "1.0.0"
    configuration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Configuration of the script, JSON; operators may change it.")
    ] = None
    endpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--endpoint", metavar="NAME=URL", help="URLs of the script that begin so are this endpoint. Repeatable."
        ),
    ] = None
    http: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Endpoint that is requested over HTTP. Repeatable.")
    ] = None
    connector: Annotated[
        bool, typer.Option("--connector", help="It answers a service address of the domain that runs it.")
    ] = False


@app.command()
@grouped
def adapt(
    script: Annotated[
        Path, typer.Argument(metavar="FILE", help="JavaScript protostub, or a catalogue entry with it (JSON).")
    ],
    options: ScriptOptions,
    *,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write to.")] = Path(),
    json: Json = False,
) -> None:
    """Make a stub of a published JavaScript protostub, without a change to it."""
    with errors_reported(as_json=json):
        from sandbox.core.script_package import Script
        from stubkit.adapt import adapt, name_of, read_json_object, read_published

        published = read_published(script)
        given = {} if options.configuration is None else read_json_object(options.configuration)
        made = Script(
            text=published.text,
            file=script.name,
            name=options.name or name_of(script.name),
            version=options.version,
            configuration={**published.configuration, **given},
            endpoints=_by_url(options.endpoints or []),
            http=options.http or (),
            kind="connector" if options.connector else "protostub",
        )
        print_facts(adapt(made, output), as_json=json)


def _by_url(options: list[str]) -> dict[str, str]:
    """Endpoints by the beginning of their URLs."""
    endpoints: dict[str, str] = {}
    for option in options:
        name, separator, url = option.partition("=")
        if not separator or not name or not url:
            raise SettingsError(f"--endpoint {option!r}: expected NAME=URL")
        endpoints[url] = name
    return endpoints


@app.command()
def interpreter(
    sources: Annotated[Path, typer.Argument(help="Source distribution of the PyPI package that the kit names.")],
    output: Annotated[Path, typer.Argument(help="Module to write.")],
    json: Json = False,
) -> None:
    """Build the interpreter of JavaScript stubs. The module is the one of the kit, byte for byte."""
    with errors_reported(as_json=json):
        from stubkit.interpreter import SOURCES, build_interpreter

        size = build_interpreter(sources, output)
        print_facts({"module": str(output), "bytes": size, "sources": SOURCES}, as_json=json)


@app.command()
def pack(
    module: Annotated[Path, typer.Argument(help="WebAssembly module of the stub.")],
    folder: Annotated[Path, typer.Argument(help="Folder to write to.")],
    authority: Annotated[str, typer.Option(help="Host of the catalogue that will serve it, with the port unless 443.")],
    description: Annotated[str, typer.Option(help="Describe the stub in one line.")] = "",
    manifest: Annotated[Path | None, typer.Option(metavar="FILE", help="Signed manifest to include.")] = None,
    json: Json = False,
) -> None:
    """Write descriptor and source package for an original reTHINK catalogue."""
    with errors_reported(as_json=json):
        from stubkit.pack import pack_stub

        packed = pack_stub(module, folder, authority=authority, description=description, manifest=manifest)
        facts = {"descriptor": str(packed.descriptor), "source_package": str(packed.source_package)}
        print_facts(facts, as_json=json)


def _print_report(report: CheckReport) -> None:
    """Print the module, a line for each step, and the verdict."""
    facts = report.facts
    about = {"module": report.path, "bytes": report.module_bytes}
    if facts is not None:
        about |= {
            "stub": f"{facts.name} {facts.version}, contract {facts.abi}",
            "memory": f"{facts.memory_minimum_bytes >> 10} to {facts.memory_maximum_bytes >> 10} KiB",
        }
    print_facts(about, as_json=False)
    if report.steps:
        rows = [
            {
                "step": step.name,
                "events": step.events,
                "actions": step.actions,
                "fuel": f"{step.fuel:,}",
                "share": f"{step.fuel_share:.1%}",
                "CPU": f"{step.cpu_us:,} µs",
                "memory": f"{step.memory_bytes >> 10} KiB",
                "state": step.state or "-",
                "complaint": step.complaint or "-",
            }
            for step in report.steps
        ]
        typer.echo()
        print_rows(rows, as_json=False)
    typer.echo()
    verdict = (
        "good"
        if report.is_good
        else report.refusal or "not good; docs/troubleshooting.md says what each complaint means"
    )
    notes = {"note": _UNPROVED} if report.is_live_unproved else {}
    print_facts({"verdict": verdict, **notes}, as_json=False)
