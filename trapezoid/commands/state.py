"""`trapezoid state`: what a node has stored, a clean start, a copy of it in one file, and one person erased."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trapezoid.output import errors_reported, print_facts

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Configuration file, for example node.toml.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation. Required with --json and in scripts.")]
Copy = Annotated[Path, typer.Argument(metavar="FILE", help="The copy.")]

Person = Annotated[
    str, typer.Argument(help="An address, an account (ana@a.example), or '<issuer> <user>' as tokens have it.")
]

app = typer.Typer(
    help="Show, copy, restore and clear the state of a stopped node; erase one person.", no_args_is_help=True
)


@app.command()
def show(config: Config, json: Json = False) -> None:
    """Show how many rows each table of the state has."""
    with errors_reported(as_json=json):
        from msg_node.settings.load import load_settings
        from trapezoid.node_state import rows_by_table, stopped

        settings = load_settings(config)
        with stopped(settings) as data_dir:
            print_facts(rows_by_table(settings, data_dir), as_json=json)


@app.command()
def reset(config: Config, yes: Yes = False, json: Json = False) -> None:
    """Start clean: forget sessions, addresses, registrations, requests and values.

    Kept: blocks and other restrictions, expulsions from objects, revoked tokens, GUIDs, the trust in other domains,
    policies, keys and records.
    """
    with errors_reported(as_json=json):
        from msg_node.settings.load import load_settings
        from protofly.errors import SettingsError
        from trapezoid import node_state

        settings = load_settings(config)
        with node_state.stopped(settings) as data_dir:
            if not yes and (json or not typer.confirm("Forget what sessions have left here?", err=True)):
                raise SettingsError("nothing was changed: not confirmed (use --yes in scripts)")
            print_facts(node_state.reset(settings, data_dir), as_json=json)


@app.command()
def erase(
    person: Person,
    config: Config,
    keep_bans: Annotated[
        bool, typer.Option("--keep-bans", help="Keep what keeps them out: bans, and expulsions from objects.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count what would go, and change nothing.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Erase one person: sessions, addresses, registrations, requests, values. Of a running node, or of a stopped one.

    What others asked of them ends as failed. Records of messages are another matter: `trapezoid pipeline erase`.
    """
    with errors_reported(as_json=json):
        from msg_node.running import running_node
        from msg_node.settings.load import load_settings
        from protofly.errors import SettingsError
        from trapezoid import node_state
        from trapezoid.admin_client import ask_node

        settings = load_settings(config)
        if not (dry_run or yes) and (json or not typer.confirm(f"Erase what is held of {person}?", err=True)):
            raise SettingsError("nothing was changed: not confirmed (use --yes in scripts)")
        if running_node(settings.node.data_dir) is not None:
            arguments = {"person": person, "keep_bans": keep_bans}
            erased = ask_node(settings.node.data_dir, "erase", arguments, dry_run=dry_run)["before"]
        else:
            with node_state.stopped(settings) as data_dir:
                erased = node_state.erase_person(settings, data_dir, person, keeps_bans=keep_bans, is_tried=dry_run)
        print_facts(erased or {"found": "nothing"}, as_json=json)


@app.command()
def adopt(
    config: Config,
    name: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Name that the state gets, in place of `node.name`.")
    ] = "",
    json: Json = False,
) -> None:
    """Move what a node kept in its files before it had an engine into the engine: state, tokens, users, clients, GUIDs.

    Sessions, addresses, subscriptions and parked requests become those of `node.name` there, before it starts with the
    engine for the first time. Other nodes may run. Where the name has state already, `--as` gives one that no node has:
    sessions come back at any node. Of users, clients, GUIDs, restrictions and proposals the engine keeps what it has
    under the same name. The files get names that end in `.adopted`.
    """
    with errors_reported(as_json=json):
        from msg_node.settings.load import load_settings
        from msg_node.wiring.accounts import adopt_files, records_for_commands
        from msg_node.wiring.adopting import adopt_stored

        settings = load_settings(config)
        with records_for_commands(settings) as records:
            stored = adopt_stored(settings, name or settings.node.name)
            adopted = adopt_files(settings.node.data_dir, records)
        counts = {"users": adopted.users, "clients": adopted.clients, "guids": adopted.guids}
        print_facts(counts | stored, as_json=json)


@app.command()
def unseal(config: Config, json: Json = False) -> None:
    """Write an encrypted state in plain text again. Take `storage.key_file` out of the settings afterwards."""
    with errors_reported(as_json=json):
        from msg_node.settings.load import load_settings
        from trapezoid import node_state

        settings = load_settings(config)
        with node_state.stopped(settings) as data_dir:
            node_state.unseal(settings, data_dir)
        print_facts({"data_dir": str(data_dir), "state": "plain text"}, as_json=json)


@app.command("export")
def export_state(config: Config, file: Copy, json: Json = False) -> None:
    """Copy the state into one file: tables, trust, pins, policies, and the secret that seals them. Keep it safe."""
    with errors_reported(as_json=json):
        from msg_node.settings.load import load_settings
        from trapezoid import node_state

        settings = load_settings(config)
        with node_state.stopped(settings) as data_dir:
            names = node_state.export(settings, data_dir, file)
        print_facts({"file": str(file), "files": names}, as_json=json)


@app.command("import")
def import_state(config: Config, file: Copy, json: Json = False) -> None:
    """Restore an exported state into a data folder without state."""
    with errors_reported(as_json=json):
        from msg_node.settings.load import load_settings
        from trapezoid import node_state

        settings = load_settings(config)
        with node_state.stopped(settings) as data_dir:
            names = node_state.restore(settings, data_dir, file)
        print_facts({"data_dir": str(data_dir), "files": names}, as_json=json)
