"""The commands. Bodies import late, so that `trapezoid --help` loads little more than this module and typer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline.cli.option_groups import grouped
from pipeline.cli.program import app as pipeline_app
from trapezoid.commands import (
    conformance,
    guid,
    keys,
    lab,
    node,
    peer,
    policy,
    publish,
    records,
    state,
    status,
    stub,
    user,
)
from trapezoid.output import FOUND_WANTING, errors_reported, print_facts

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Configuration file, for example node.toml.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

if TYPE_CHECKING:
    from msg_node.settings.model import Settings

app = typer.Typer(
    name="trapezoid",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(guid.app, name="guid")
app.add_typer(keys.app, name="keys")
app.add_typer(lab.app, name="lab")
app.add_typer(node.app, name="node")
app.add_typer(peer.app, name="peer")
app.add_typer(policy.app, name="policy")
app.add_typer(records.app, name="records")
app.add_typer(state.app, name="state")
app.add_typer(user.app, name="user")
app.add_typer(stub.app, name="stub")
app.add_typer(pipeline_app, name="pipeline")
config_app = typer.Typer(help="Print the configuration, and its reference.", no_args_is_help=True)
app.add_typer(config_app, name="config")


_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, kw_only=True)
class _ServicePlace:
    """Options that say where runtimes find the node."""

    name: Annotated[str, typer.Option(help="Name of the node in lists. Default: the domain.")] = ""
    host: Annotated[str, typer.Option(help="Host. Default: that of publish.endpoint_url, else the domain.")] = ""
    port: Annotated[int, typer.Option(help="Port. Default: that of publish.endpoint_url, else listen.port.")] = 0


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
    """Run and administer a messaging node that federates with other domains through verified, sandboxed protostubs."""


@app.command()
def serve(
    config: Config,
    processes: Annotated[
        str | None,
        typer.Option(metavar="N", help="Processes that serve together, or auto for one per core; over node.processes."),
    ] = None,
) -> None:
    """Run a node until SIGINT or SIGTERM."""
    from trapezoid import serving

    serving.main(["--config", str(config), *([] if processes is None else ["--processes", processes])])


@app.command()
def check(
    config: Config,
    online: Annotated[
        bool,
        typer.Option(
            "--online", help="Instead, check what other domains find of ours: records, site, documents, stub."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Validate the configuration and the files it references. Exits with 1 if `serve` would refuse to start."""
    with errors_reported(as_json=json):
        from msg_node.settings.load import load_settings
        from protofly.printable import escaped
        from trapezoid.checking import check_node

        settings = load_settings(config)
        if online:
            raise typer.Exit(_check_online(settings, as_json=json))
        findings = check_node(settings)
    is_good = all(finding.is_good for finding in findings)
    if json:
        print_facts({"ok": is_good, "checks": findings}, as_json=True)
    else:
        for finding in findings:
            typer.echo(f"{finding.level:7}  {escaped(finding.line)}")
    raise typer.Exit(0 if is_good else FOUND_WANTING)


def _check_online(settings: Settings, *, as_json: bool) -> int:
    import trio

    from trapezoid.peer_check import check_ourselves
    from trapezoid.peer_check.output import print_report

    return print_report(trio.run(check_ourselves, settings), as_json=as_json)


@config_app.command("reference")
def config_reference(
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write to. Default: standard output.")
    ] = None,
    operations: Annotated[
        bool, typer.Option("--operations", help="Of the admin operations (docs/admin-operations.md) instead.")
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Of the members of /status (docs/status.md) instead.")
    ] = False,
    openapi: Annotated[
        bool, typer.Option("--openapi", help="Of the admin site as OpenAPI (docs/admin-openapi.json) instead.")
    ] = False,
) -> None:
    """Print the reference of all settings as Markdown (docs/configuration.md)."""
    from msg_node.admin.core.openapi import openapi_text
    from msg_node.admin.core.operations_reference import operations_reference
    from msg_node.admin.core.status_reference import status_reference
    from msg_node.settings.reference import configuration_reference

    pages = {
        operations_reference: operations,
        status_reference: status,
        openapi_text: openapi,
    }
    wanted = [page for page, is_wanted in pages.items() if is_wanted] or [configuration_reference]
    if len(wanted) > 1:
        raise typer.BadParameter("one page at a time", param_hint="'--operations' / '--status' / '--openapi'")
    page = wanted[0]()
    if output is None:
        typer.echo(page, nl=False)
        return
    with errors_reported():
        output.write_text(page, encoding="utf-8")


@config_app.command("man")
def config_man(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the pages, for example deploy/man.")],
) -> None:
    """Write the manual pages of all commands, as the wheel installs them."""
    from trapezoid.man_pages import manual_pages

    with errors_reported():
        folder.mkdir(parents=True, exist_ok=True)
        for name, page in manual_pages(app).items():
            (folder / name).write_text(page, encoding="ascii")


@config_app.command("dns-sd")
@grouped
def config_dns_sd(
    config: Config,
    place: _ServicePlace,
    form: Annotated[
        Literal["zone", "avahi", "systemd"],
        typer.Option(help="Records for the zone of the domain, or a file for a responder in the network."),
    ] = "zone",
    *,
    json: Json = False,
) -> None:
    """Print the DNS-SD records by which runtimes find this node: for a zone, or as a file for a responder."""
    with errors_reported(as_json=json):
        from msg_node.settings.load import load_settings
        from protofly.printable import escaped
        from trapezoid.service_records import SERVICE_TYPE, service_of, text_of

        settings = load_settings(config)
        service = service_of(settings, instance=place.name, host=place.host, port=place.port)
        if settings.listen.host in _LOOPBACK:
            typer.echo("note: the host of [listen] is a loopback address: only this machine reaches the node", err=True)
    if json:
        print_facts({"type": SERVICE_TYPE, **service._asdict()}, as_json=True)
    else:
        for line in text_of(service, form).splitlines():
            typer.echo(escaped(line))


@config_app.command("show")
def config_show(
    config: Config,
    source: Annotated[bool, typer.Option("--source", help="Print where each setting that is given stands.")] = False,
) -> None:
    """Print the effective configuration, including defaults and variables of the environment, as JSON."""
    with errors_reported(as_json=True):
        from msg_node.settings.load import load_settings, places_of_settings, settings_as_json
        from msg_node.storage.policy_store import PolicyStore
        from trapezoid.output import print_json

        settings = load_settings(config)
        text = settings_as_json(settings)
        if source:
            store = PolicyStore(settings.node.data_dir)
            bundle = store.active().bundle
            over = {"policies in force": f"bundle {bundle}: {store.active_file}"} if bundle else {}
            print_json({**places_of_settings(config), **over})
        else:
            typer.echo(text)


@app.command()
def demo(
    json: Json = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the nodes running and print how to connect.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Delete the state of earlier runs, for a first contact.")
    ] = False,
    state: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder for the files of both domains.")] = None,
    scene: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the conversation to play instead of the default.")
    ] = None,
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="Reconcile the records of both nodes afterwards, with Spark.")
    ] = False,
) -> None:
    """Run two domains on this machine and exchange messages between them."""
    with errors_reported(as_json=json):
        from interop.demo import default_state_dir, run

        status = run(json_output=json, keep=keep, fresh=fresh, state_dir=state, scene_file=scene)
        if pipeline and status == 0:
            from trapezoid.demo_records import reconcile_demo

            status = reconcile_demo(state or default_state_dir(), as_json=json)
    raise typer.Exit(status)


app.command()(conformance.conformance)
app.add_typer(publish.app, name="publish")
app.command()(status.status)
app.command()(guid.serve_global_registry)
