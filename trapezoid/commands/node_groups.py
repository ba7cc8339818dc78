"""`trapezoid node group`: groups that rules of policies refer to, of a running node."""

from __future__ import annotations

from typing import Annotated

import typer

from trapezoid.commands.node_changes import Config, DryRun, Json, change_node

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group; rules write `@GROUP`.")]
Member = Annotated[str, typer.Argument(metavar="MEMBER", help="A user, an address, a domain: what rules compare.")]

app = typer.Typer(help="Change the groups that rules refer to as lists.", no_args_is_help=True)


@app.command()
def create(group: GroupName, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Make a group without members."""
    change_node(config, "group create", {"group": group}, dry_run=dry_run, as_json=json)


@app.command()
def remove(group: GroupName, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Remove a group that no policy in force refers to."""
    change_node(config, "group remove", {"group": group}, dry_run=dry_run, as_json=json)


@app.command()
def add(group: GroupName, member: Member, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Add a member to a group; it counts from the next message on."""
    change_node(config, "group add", {"group": group, "member": member}, dry_run=dry_run, as_json=json)


@app.command()
def take(group: GroupName, member: Member, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Remove a member from a group, from the next message on."""
    change_node(config, "group take", {"group": group, "member": member}, dry_run=dry_run, as_json=json)
