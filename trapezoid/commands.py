"""The commands. Bodies import late: `trapezoid --help` loads this page and the library that it is written with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli import app as pipeline_app
from trapezoid import (
    commands_conformance,
    commands_guid,
    commands_keys,
    commands_peer,
    commands_policy,
    commands_publish,
    commands_records,
    commands_status,
    commands_stub,
)
from trapezoid.output import FOUND_WANTING, errors_reported, print_facts

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Settings, for example node.toml.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(
    name="trapezoid",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(commands_guid.app, name="guid")
app.add_typer(commands_keys.app, name="keys")
app.add_typer(commands_peer.app, name="peer")
app.add_typer(commands_policy.app, name="policy")
app.add_typer(commands_records.app, name="records")
app.add_typer(commands_stub.app, name="stub")
app.add_typer(pipeline_app, name="pipeline")
config_app = typer.Typer(help="About settings.", no_args_is_help=True)
app.add_typer(config_app, name="config")


def _print_version(*, is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        from sandbox.engine_version import engine_version

        typer.echo(f"trapezoid {version('trapezoid')}, engine {engine_version()}")
        raise typer.Exit


@app.callback()
def program(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=lambda value: _print_version(is_asked=value),
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    """A messaging node that federates with foreign domains through their own verified, sandboxed protostubs."""


@app.command()
def serve(config: Config) -> None:
    """Run one node until it is told to stop."""
    from trapezoid import serving

    serving.serve(config)


@app.command()
def check(config: Config, json: Json = False) -> None:
    """Validate the settings and the files that they name, as `serve` does before it starts."""
    with errors_reported(as_json=json):
        from msg_node.settings.load import load_settings
        from protofly.printable import escaped
        from trapezoid.checking import check_node

        findings = check_node(load_settings(config))
    is_good = all(finding.is_good for finding in findings)
    if json:
        print_facts({"ok": is_good, "checks": findings}, as_json=True)
    else:
        for finding in findings:
            typer.echo(f"{finding.level:7}  {escaped(finding.line)}")
    raise typer.Exit(0 if is_good else FOUND_WANTING)


@config_app.command("reference")
def config_reference(
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Write there; absent: standard output.")] = None,
) -> None:
    """Print all settings as Markdown: this is docs/configuration.md."""
    from msg_node.settings.reference import configuration_reference

    if output is None:
        typer.echo(configuration_reference(), nl=False)
    else:
        output.write_text(configuration_reference(), encoding="utf-8")


@config_app.command("show")
def config_show(config: Config) -> None:
    """Print the settings in force, defaults included, as JSON."""
    with errors_reported(as_json=True):
        from msg_node.settings.load import load_settings, settings_as_json

        typer.echo(settings_as_json(load_settings(config)))


@app.command()
def demo(
    json: Json = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the nodes running and print how to connect.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what earlier runs left: first contact again.")] = False,
    state: Annotated[Path | None, typer.Option(metavar="DIR", help="Where both domains keep their files.")] = None,
    scene: Annotated[Path | None, typer.Option(metavar="FILE", help="Another conversation than the usual one.")] = None,
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="Then reconcile what both nodes wrote down, with Spark.")
    ] = False,
) -> None:
    """Start two domains on this machine and let them talk."""
    with errors_reported(as_json=json):
        from interop.demo import default_state_dir, run

        status = run(json_output=json, keep=keep, fresh=fresh, state_dir=state, scene_file=scene)
        if pipeline and status == 0:
            from trapezoid.demo_books import reconcile_demo

            status = reconcile_demo(state or default_state_dir(), as_json=json)
    raise typer.Exit(status)


app.command()(commands_conformance.conformance)
app.command()(commands_publish.publish)
app.command()(commands_status.status)
app.command()(commands_guid.serve_global_registry)


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Short runs, a few minutes at most.")] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows as JSON; - for stdout.")] = None,
    state: Annotated[Path | None, typer.Option(metavar="DIR", help="Where keys and caches are kept.")] = None,
    only: Annotated[str, typer.Option(metavar="PART", help="One of the tables: trapezoid or domain.")] = "",
) -> None:
    """Measure the whole trapezoid beside its parts, and what goes on inside one domain."""
    with errors_reported():
        from benchmarks.suite import Part, run
        from protofly.errors import SettingsError

        if only not in ("", *Part):
            raise SettingsError(f"--only {only}: there are the parts {' and '.join(Part)}")
        status = run(quick=quick, json_file=json, state_dir=state, parts=frozenset([Part(only)] if only else Part))
    raise typer.Exit(status)
