"""`trapezoid node policy`: bundles of policies of a running node, and questions to its gates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from protofly.printable import escaped
from trapezoid.commands.node_changes import ask_running, not_done
from trapezoid.commands.policy import CLASS_OPTION, read_message, session_of
from trapezoid.output import FOUND_WANTING, errors_reported, print_facts, print_json

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Configuration file, for example node.toml.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, and change nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
BundleName = Annotated[
    str,
    typer.Argument(metavar="BUNDLE", help="Digest or revision of a bundle, or its first eight characters or more."),
]
ProposalName = Annotated[str, typer.Argument(metavar="PROPOSAL", help="Name of the proposal; `proposals` lists them.")]

app = typer.Typer(help="Add bundles of policies, put them in force, roll back.", no_args_is_help=True)


@app.command()
def active(config: Config, json: Json = False) -> None:
    """Show the policies in force, since when, and the previous ones."""
    facts = _ask(config, "policy active", {}, as_json=json)
    if json:
        print_json(facts)
    else:
        history = [f"{one['at']}  {one['bundle']}  {one['by']}" for one in facts["history"]]
        print_facts({**facts, "history": history or "none"}, as_json=False)


@app.command()
def show(bundle: BundleName, config: Config, json: Json = False) -> None:
    """Show one bundle with its files."""
    facts = _ask(config, "policy bundle", {"bundle": bundle}, as_json=json)
    if json:
        print_json(facts)
        return
    print_facts({name: value for name, value in facts.items() if name != "files"}, as_json=False)
    for name, text in facts["files"].items():
        shown = escaped(text, keep="\n\t")
        typer.echo(f"\n# {escaped(name)}\n{shown}")


@app.command()
def add(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Policy files, TOML or JSON, in order; a .sig file signs them."),
    ],
    config: Config,
    note: Annotated[str, typer.Option("--note", help="What is new in it.")] = "",
    activate: Annotated[bool, typer.Option("--activate", help="Put it in force at once.")] = False,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Add a bundle of policy files, after their tests have passed. It is not in force before it is activated."""
    with errors_reported(as_json=json):
        from policy.files import SIGNATURE_SUFFIX, read_bundle

        texts = read_bundle([path for path in files if path.suffix != SIGNATURE_SUFFIX])
        signature = "".join(_signature(path) for path in files if path.suffix == SIGNATURE_SUFFIX)
        arguments: dict[str, Any] = {"files": texts, "note": note, "signature": signature}
    added = _change(config, "policy add", arguments, dry_run=dry_run, as_json=json)
    if activate and not dry_run:
        _change(config, "policy activate", {"bundle": added["after"]["bundle"]}, dry_run=False, as_json=json)


def _signature(path: Path) -> str:
    """The text of a signature. Raises SettingsError."""
    from protofly.errors import SettingsError
    from protofly.limits import POLICY_SIGNATURE_BYTES

    try:
        with path.open("rb") as file:
            return file.read(POLICY_SIGNATURE_BYTES + 1).decode()
    except OSError as exc:
        raise SettingsError(f"{path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise SettingsError(f"{path}: no signature; make one with `trapezoid policy sign`") from exc


@app.command("activate")
def activate_bundle(
    bundle: Annotated[
        str, typer.Argument(metavar="BUNDLE", help="A bundle, or `settings`: the files of the settings.")
    ],
    config: Config,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Put a bundle in force at once; it survives reloads and restarts. --dry-run: which decisions would change."""
    _change(config, "policy activate", {"bundle": bundle}, dry_run=dry_run, as_json=json)


@app.command("roll-back")
def roll_back(config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Restore the policies that were in force before."""
    _change(config, "policy roll-back", {}, dry_run=dry_run, as_json=json)


@app.command()
def remove(bundle: BundleName, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Delete a bundle that is not in force."""
    _change(config, "policy remove", {"bundle": bundle}, dry_run=dry_run, as_json=json)


@app.command()
def confirm(proposal: ProposalName, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Confirm a change of policies that another person has proposed (`policy.two_persons`)."""
    _change(config, "policy confirm", {"proposal": proposal}, dry_run=dry_run, as_json=json)


@app.command()
def withdraw(proposal: ProposalName, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Withdraw a proposed change of policies."""
    _change(config, "policy withdraw", {"proposal": proposal}, dry_run=dry_run, as_json=json)


def evaluate(
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="JSON text, @FILE, or - for standard input.")],
    config: Config,
    gate: Annotated[str, typer.Option("--gate", help="peer, out, in or local. Default: the first on its way.")] = "",
    roles: Annotated[
        str, typer.Option("--roles", help=f"Roles of the sender's session, with commas; {CLASS_OPTION}.")
    ] = "",
    bundle: Annotated[str, typer.Option("--bundle", help="With the policies of this bundle.")] = "",
    json: Json = False,
) -> None:
    """Ask whether a message would pass a gate, and why. Exits with 1 if not. Nothing is sent or counted."""
    with errors_reported(as_json=json):
        asked = read_message(message)
        names, class_ = session_of(roles.replace(",", " ").split())
    given = {"from": asked.from_, "to": asked.to, "type": asked.type, "body": asked.body.decode()}
    given |= {"gate": gate, "roles": ",".join(sorted(names)), "class": class_, "bundle": bundle}
    facts = _ask(config, "evaluate", {name: value for name, value in given.items() if value}, as_json=json)
    print_facts(facts, as_json=json)
    raise typer.Exit(0 if facts["permitted"] else FOUND_WANTING)


def _change(config: Path, operation: str, arguments: dict[str, Any], *, dry_run: bool, as_json: bool) -> Any:
    """Ask for a change, and print what is so before and after."""
    given = {name: value for name, value in arguments.items() if value != ""}
    result = _ask(config, operation, given, dry_run=dry_run, as_json=as_json)
    if as_json:
        print_json(result)
        return result
    before, after = ({**(result[name] or {})} for name in ("before", "after"))
    changes = [
        f"{one['time']} {one['gate']} {one['type']} {one['from']} -> {one['to']}: would {one['would']}, {one['rule']}"
        for one in after.pop("changes", [])
    ]
    facts: dict[str, object] = {"operation": operation, "before": before or "nothing", "after": after or "nothing"}
    facts |= {"decisions": changes} if changes else {}
    print_facts({**facts, **not_done(result)}, as_json=False)
    return result


def _ask(config: Path, operation: str, arguments: dict[str, Any], *, as_json: bool, dry_run: bool = False) -> Any:
    with errors_reported(as_json=as_json):
        return ask_running(config, operation, arguments, dry_run=dry_run)
