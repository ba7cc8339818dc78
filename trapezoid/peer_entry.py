"""The `[[peer]]` entry of a domain that publishes nothing: the options of `trapezoid peer add`, and the text."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from protofly.errors import SettingsError


@dataclass(frozen=True, kw_only=True)
class EntryOptions:
    """The settings of the entry."""

    stub: Annotated[str, typer.Option(help="A .wasm file, or the name of a stub, for example vertx_peer.")]
    endpoint: Annotated[str, typer.Option(metavar="URL", help="URL of the domain's node.")]
    set: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="One setting for the stub. Repeatable.")
    ] = None
    allow: Annotated[
        list[str] | None, typer.Option(metavar="RANGE", help="Internal range that it may resolve to. Repeatable.")
    ] = None
    stay_connected: Annotated[
        bool, typer.Option("--stay-connected/--on-demand", help="Connect when the node starts, and stay.")
    ] = True
    insecure_plaintext: Annotated[
        bool, typer.Option("--insecure-plaintext", help="Accept ws:// for this domain: no TLS at all.")
    ] = False


def entry_text(domain: str, options: EntryOptions) -> str:
    """The entry as TOML. Raises SettingsError for a setting that is not `NAME=VALUE`."""
    stub = options.stub
    lines = ["[[peer]]", f"domain = {json.dumps(domain)}"]
    if stub.endswith(".wasm"):
        stub = str(Path(stub).absolute())
    lines += [f"stub = {json.dumps(stub)}", f"endpoint = {json.dumps(options.endpoint)}", 'class = "plain"']
    lines.append(f"stay_connected = {str(options.stay_connected).lower()}")
    if options.allow:
        lines.append(f"allow_addresses = {json.dumps(options.allow)}")
    if options.insecure_plaintext:
        lines.append("insecure_plaintext = true")
    if options.set:
        members = []
        for text in options.set:
            name, equals, value = text.partition("=")
            if not equals or not name:
                raise SettingsError(f"--set {text!r}: expected NAME=VALUE")
            members.append(f"{json.dumps(name)} = {_value(value)}")
        lines.append(f"configuration = {{ {', '.join(members)} }}")
    return "\n".join(lines) + "\n"


def _value(text: str) -> str:
    """A setting as TOML: a whole number, a truth value, or else a text."""
    return text if text in {"true", "false"} or (text.isdecimal() and text == str(int(text))) else json.dumps(text)
