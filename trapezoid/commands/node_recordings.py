"""`trapezoid node recording`: record what passes a running node, for a time, into an encrypted file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from pipeline.cli.option_groups import grouped
from trapezoid.commands.node_changes import Config, DryRun, Json, Reason, change_node

app = typer.Typer(help="Record messages at the node, for `trapezoid lab replay`.", no_args_is_help=True)


@dataclass(frozen=True, kw_only=True)
class RecordingOptions:
    """Options for what is recorded."""

    for_: Annotated[str, typer.Option("--for", metavar="TIME", help="How long at most, for example 30s or 10m.")]
    source: Annotated[
        str,
        typer.Option("--from", metavar="SIDE", help="One side: an address, one with a final *, or a domain."),
    ] = ""
    target: Annotated[str, typer.Option("--to", metavar="SIDE", help="The other side; both directions count.")] = ""
    bodies: Annotated[
        bool, typer.Option("--bodies", help="With what messages say, without secrets. Default: only their length.")
    ] = False
    name: Annotated[str, typer.Option("--name", help="Name of the file. Default: the moment and the node.")] = ""
    reason: Reason = ""

    def arguments(self) -> dict[str, object]:
        """As requests give them."""
        given = {"for": self.for_, "from": self.source, "to": self.target, "name": self.name, "reason": self.reason}
        return {**given, "bodies": self.bodies}


@app.command()
@grouped
def start(config: Config, options: RecordingOptions, dry_run: DryRun = False, json: Json = False) -> None:
    """Record messages between two sides. The settings need a section `recording`; each use is an audit record."""
    change_node(config, "recording start", options.arguments(), dry_run=dry_run, as_json=json)


@app.command()
def stop(config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """End the recording under way."""
    change_node(config, "recording stop", {}, dry_run=dry_run, as_json=json)
