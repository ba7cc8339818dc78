"""`trapezoid node quarantine`: messages that a running node keeps aside."""

from __future__ import annotations

from typing import Annotated

import typer

from trapezoid.commands.node_changes import Config, DryRun, Json, ask_running, change_node
from trapezoid.output import errors_reported, print_facts

MessageName = Annotated[str, typer.Argument(metavar="MESSAGE", help="Its name, as `list` shows it.")]
MessageNames = Annotated[
    str, typer.Argument(metavar="MESSAGE", help="Its name, as `list` shows it, or FOLDER/* for all of a folder.")
]

app = typer.Typer(help="List, show, release and delete messages in quarantine.", no_args_is_help=True)


@app.command()
def show(message: MessageName, config: Config, json: Json = False) -> None:
    """Show one message with its body, where that is kept. Each use is an audit record."""
    with errors_reported(as_json=json):
        facts = ask_running(config, "quarantine show", {"message": message})
    print_facts(facts, as_json=json)


@app.command()
def release(message: MessageName, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Send a message again through the current gates; it is removed from quarantine once accepted."""
    change_node(config, "quarantine release", {"message": message}, dry_run=dry_run, as_json=json)


@app.command()
def delete(message: MessageNames, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Remove a message, or all of a folder."""
    change_node(config, "quarantine delete", {"message": message}, dry_run=dry_run, as_json=json)
