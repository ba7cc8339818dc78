"""The commands of `trapezoid node` for local users and clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipeline.cli.option_groups import grouped
from trapezoid.commands.node_changes import change_node
from trapezoid.commands.roles import Roles, roles_text
from trapezoid.output import errors_reported

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Configuration file, for example node.toml.")]
Name = Annotated[str, typer.Argument(help="Its name: lower-case letters, digits, and . _ - inside.")]
Piped = Annotated[bool, typer.Option("--stdin", help="Read the password from standard input, one line.")]
Kind = Annotated[
    Literal["agent", "consumer", "service", "device"],
    typer.Option("--kind", help="What the client is; a role of its sessions, too."),
]
Allowed = Annotated[
    str,
    typer.Option("--runtime", metavar="ADDRESS", help="What it may open; a final * for any rest. Default: its name."),
]
Life = Annotated[str, typer.Option("--for", metavar="TIME", help="How long its token counts, for example 90d.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, and change nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

user_app = typer.Typer(help="Local users who log in with a password, at a running node.", no_args_is_help=True)
client_app = typer.Typer(help="Clients with tokens: agents, consumers, services, devices.", no_args_is_help=True)


@user_app.command("add")
def user_add(
    name: Name, config: Config, roles: Roles = None, stdin: Piped = False, dry_run: DryRun = False, json: Json = False
) -> None:
    """Add a user; asks for the password."""
    given = {
        "name": name,
        "password": _password(config, is_piped=stdin, as_json=json),
        "roles": roles_text(roles),
    }
    change_node(config, "user add", given, dry_run=dry_run, as_json=json)


@user_app.command("change")
def user_change(name: Name, config: Config, roles: Roles = None, dry_run: DryRun = False, json: Json = False) -> None:
    """Give a user other roles, from the next log-in on."""
    change_node(config, "user change", {"name": name, "roles": roles_text(roles)}, dry_run=dry_run, as_json=json)


@user_app.command("password")
def user_password(
    name: Name, config: Config, stdin: Piped = False, dry_run: DryRun = False, json: Json = False
) -> None:
    """Change the password of a user, and end all log-ins."""
    given = {"name": name, "password": _password(config, is_piped=stdin, as_json=json)}
    change_node(config, "user password", given, dry_run=dry_run, as_json=json)


@user_app.command("disable")
def user_disable(name: Name, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Forbid a user to log in, and end all log-ins."""
    change_node(config, "user disable", {"name": name}, dry_run=dry_run, as_json=json)


@user_app.command("enable")
def user_enable(name: Name, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Let a disabled user log in again."""
    change_node(config, "user enable", {"name": name}, dry_run=dry_run, as_json=json)


@user_app.command("remove")
def user_remove(name: Name, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Remove a user, and end all log-ins."""
    change_node(config, "user remove", {"name": name}, dry_run=dry_run, as_json=json)


@dataclass(frozen=True, kw_only=True)
class NewClient:
    """The properties of a client that is added."""

    kind: Kind
    runtime: Allowed = ""
    roles: Roles = None
    for_: Life = ""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Options of a change of accounts: a dry run, and the form of the output."""

    dry_run: DryRun = False
    json: Json = False


@client_app.command("add")
@grouped
def client_add(name: Name, config: Config, client: NewClient, asked: Asked) -> None:
    """Add a client, and print its token once; only its hash is stored."""
    change_node(config, "client add", _arguments(name, client), dry_run=asked.dry_run, as_json=asked.json)


@client_app.command("enrol")
@grouped
def client_enrol(
    name: Name,
    config: Config,
    client: NewClient,
    asked: Asked,
    within: Annotated[str, typer.Option("--within", metavar="TIME", help="How long the code counts.")] = "",
) -> None:
    """Add a client that fetches its own token, and print the code for that, valid once."""
    given = {**_arguments(name, client), "within": within}
    change_node(config, "client enrol", given, dry_run=asked.dry_run, as_json=asked.json)


def _arguments(name: str, client: NewClient) -> dict[str, str]:
    return {
        "name": name,
        "kind": client.kind,
        "runtime": client.runtime,
        "roles": roles_text(client.roles),
        "for": client.for_,
    }


@client_app.command("change")
def client_change(
    name: Name, config: Config, runtime: Allowed = "", roles: Roles = None, dry_run: DryRun = False, json: Json = False
) -> None:
    """Give a client other roles or runtimes, at once."""
    given = {"name": name, "runtime": runtime, "roles": roles_text(roles)}
    change_node(config, "client change", given, dry_run=dry_run, as_json=json)


@client_app.command("token")
def client_token(name: Name, config: Config, for_: Life = "", dry_run: DryRun = False, json: Json = False) -> None:
    """Give a client another token, and print it; sessions with the old one end."""
    change_node(config, "client token", {"name": name, "for": for_}, dry_run=dry_run, as_json=json)


@client_app.command("disable")
def client_disable(name: Name, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Forbid a client to open sessions, and end those that it has."""
    change_node(config, "client disable", {"name": name}, dry_run=dry_run, as_json=json)


@client_app.command("enable")
def client_enable(name: Name, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Let a disabled client open sessions again."""
    change_node(config, "client enable", {"name": name}, dry_run=dry_run, as_json=json)


@client_app.command("remove")
def client_remove(name: Name, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Remove a client, and end its sessions."""
    change_node(config, "client remove", {"name": name}, dry_run=dry_run, as_json=json)


def _password(config: Path, *, is_piped: bool, as_json: bool) -> str:
    """Ask for a new password, once the settings are known to be good."""
    with errors_reported(as_json=as_json):
        from msg_node.settings.load import load_settings
        from trapezoid.commands.user import read_new_password

        load_settings(config)
        return read_new_password(is_piped=is_piped)
    raise AssertionError("errors_reported ends the command")
