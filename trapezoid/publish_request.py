"""What one run of `publish` is asked for. Apart from what completes it, so that `trapezoid --help` imports little."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True, kw_only=True)
class PublishRequest:
    """The options of one run. None means: as published already, or else the default.

    A group of options of the command line as well (`pipeline/cli/option_groups.py`).
    """

    module: Annotated[
        Path | None, typer.Argument(help="Module of the stub. Default: the published one, else the built-in link stub.")
    ] = None
    url: Annotated[
        str | None, typer.Option(help="URL under which others reach the site. First default: https://DOMAIN.")
    ] = None
    selector: Annotated[str, typer.Option(help="Name under which the live document lists the stub.")] = "default"
    description: Annotated[str | None, typer.Option(help="Describe the stub in one line, for catalogues.")] = None
    aliases: Annotated[
        list[str] | None, typer.Option("--alias", help="Additional domain that these keys may act for. Repeatable.")
    ] = None
    endpoints: Annotated[
        list[str] | None, typer.Option("--endpoint", help="Name of an endpoint that the stub may open. Repeatable.")
    ] = None
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            help="Legacy addresses of an interworking stub, for example sip://legacy.example. Repeatable.",
        ),
    ] = None
    needs_auth: Annotated[
        bool | None,
        typer.Option(
            "--auth/--no-auth", help="Whether the stub's protocol proves the nodes to each other, or TLS alone does."
        ),
    ] = None
    """A stub that needs it must not report `live` before. Interworking stubs never need it."""
    memory_kib: Annotated[
        int | None,
        typer.Option(
            help="Memory that the stub needs, in KiB; nodes give no more. 0: what they have.", min=0, max=16_384
        ),
    ] = None
    call_ms: Annotated[
        int | None, typer.Option(help="CPU time that a call needs, in milliseconds. 0: what nodes have.", min=0, max=50)
    ] = None
    for_domains: Annotated[
        list[str] | None, typer.Option("--for-domain", help="Domain that may run the stub; * for all. Repeatable.")
    ] = None
    runtime_stub: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="JavaScript stub for runtimes: the catalogue's default for all that run no WebAssembly.",
        ),
    ] = None
    runtime_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Where that stub connects, for example wss://mn.a.example/ws.")
    ] = None
    serial: Annotated[int, typer.Option(help="Serial number of a new manifest; 0 takes the next.", min=0)] = 0
    threshold: Annotated[int | None, typer.Option(help="Number of root keys that must sign a root.", min=1)] = None
    revoke: Annotated[list[str] | None, typer.Option(help="SHA-256 of a module to revoke. Repeatable.")] = None
    reset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Return an option to its default: url, alias, range, module, …; or all. Repeatable."
        ),
    ] = None
