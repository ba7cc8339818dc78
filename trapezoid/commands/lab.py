"""`trapezoid lab`: domains of your own on loopback, to try federation and to test it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trapezoid.output import FOUND_WANTING, errors_reported, print_facts, print_json, print_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from interop.domain_folders import Preparation
    from interop.lab.kept import DomainState, Exchange, KeptLab

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the laboratory.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(help="Run domains of your own on loopback, and test how they federate.", no_args_is_help=True)


@app.command()
def init(
    folder: Folder,
    domains: Annotated[int, typer.Option(help="Number of domains, 2 to 5.")] = 2,
    *,
    json: Json = False,
) -> None:
    """Make domains that trust and may talk to each other: keys, certificates, DNS, settings, policies, free ports."""
    import trio

    with errors_reported(as_json=json):
        from interop.lab.kept import make_lab

        lab = trio.run(make_lab, folder, domains, _shown(is_quiet=json))
    print_facts(
        {"folder": str(lab.path), "domains": list(lab.domains), "next": f"trapezoid lab up {folder}"}, as_json=json
    )


@app.command()
def up(folder: Folder, *, json: Json = False) -> None:
    """Start what does not run, then send a request between each two domains. Exits with 1 if one is not answered."""
    import trio

    async def start_and_ask() -> tuple[list[DomainState], list[Exchange]]:
        await lab.up(_shown(is_quiet=json))
        exchanges = await lab.exchange()
        return await lab.states(), exchanges

    with errors_reported(as_json=json):
        from interop.processes import first_error

        lab = _lab(folder)
        with first_error():
            states, exchanges = trio.run(start_and_ask)
    if json:
        print_json({"domains": states, "exchanges": exchanges})
    else:
        _print_states(lab, states)
        sys.stdout.write("\n")
        print_rows(
            [
                {
                    "from": one.source,
                    "to": one.target,
                    "answer": f"{one.code} {one.problem}".rstrip(),
                    "there and back": f"{one.taken_ms:.1f} ms",
                }
                for one in exchanges
            ],
            as_json=False,
        )
    raise typer.Exit(0 if all(200 <= one.code < 300 for one in exchanges) else FOUND_WANTING)


@app.command()
def down(folder: Folder, *, json: Json = False) -> None:
    """Stop all processes of a laboratory, and no others. Its data stay; `lab up` starts it again."""
    with errors_reported(as_json=json):
        ended = _lab(folder).down()
    print_facts(ended, as_json=json)


@app.command()
def status(folder: Folder, *, json: Json = False) -> None:
    """Show the domains of a laboratory. Exits with 1 if one does not run."""
    import trio

    with errors_reported(as_json=json):
        lab = _lab(folder)
        states = trio.run(lab.states)
    if json:
        print_json(states)
    else:
        _print_states(lab, states)
    raise typer.Exit(0 if all(one.state == "running" for one in states) else FOUND_WANTING)


def _lab(folder: Path) -> KeptLab:
    from interop.lab.kept import KeptLab

    return KeptLab(folder)


def _shown(*, is_quiet: bool) -> Callable[[Preparation], None]:
    def show(preparation: Preparation) -> None:
        if not is_quiet:
            typer.echo(f"{preparation.taken_ms:8.0f} ms  {preparation.title}", err=True)

    return show


def _print_states(lab: KeptLab, states: list[DomainState]) -> None:
    print_rows(
        [
            {
                "domain": one.domain,
                "state": one.state,
                "pid": one.pid or "",
                "runtimes connect to": one.runtimes,
                "links": ", ".join(f"{domain} {state}" for domain, state in one.links.items()),
            }
            for one in states
        ],
        as_json=False,
    )
    first = states[0]
    sys.stdout.write(
        f"\ncertificate authority: {lab.ca_file}\nsettings: {first.settings}, and so on\n"
        f"one node in detail: trapezoid status {first.site} --ca {lab.ca_file}\n"
    )
