"""The commands of `trapezoid node` that change a running node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pipeline.cli.option_groups import grouped
from trapezoid.output import errors_reported, print_facts, print_json

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Configuration file, for example node.toml.")]
Domain = Annotated[str, typer.Argument(help="Domain of the peer.")]
Pattern = Annotated[str, typer.Argument(help="Domain of the peer, or *. and a domain for all its sub-domains.")]
StubOrModule = Annotated[
    str, typer.Argument(metavar="DOMAIN|SHA256", help="Domain of the peer, or SHA-256 of a module.")
]
Runtime = Annotated[str, typer.Argument(help="Address of the runtime.")]
For = Annotated[str, typer.Option("--for", metavar="TIME", help="How long, for example 30m, 2h or 1d.")]
Reason = Annotated[str, typer.Option("--reason", help="Why, for the record.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, and change nothing.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

peer_app = typer.Typer(
    help="Cut domains off, close their links, look them up again, change the trust in them.", no_args_is_help=True
)
stub_app = typer.Typer(help="Stop, restart and forbid stubs of other domains, approve versions.", no_args_is_help=True)

_MOMENTS = frozenset({"since", "until"})
_EMPTY: tuple[object, ...] = (None, "", [], {})

gate_app = typer.Typer(help="Permit or deny messages from one domain to another for a time.", no_args_is_help=True)


@dataclass(frozen=True, kw_only=True)
class GateOptions:
    """Options that select the messages of a gate."""

    source: Annotated[str, typer.Argument(metavar="FROM", help="Domain of senders; *. and a domain, or * for all.")]
    target: Annotated[str, typer.Argument(metavar="TO", help="Domain of recipients, likewise.")]
    type_: Annotated[str, typer.Option("--type", help="Only messages of this type.")] = ""
    scheme: Annotated[str, typer.Option("--scheme", help="Only to addresses of this scheme.")] = ""

    def arguments(self) -> dict[str, str]:
        """As requests give them."""
        return {"from": self.source, "to": self.target, "type": self.type_, "scheme": self.scheme}


@dataclass(frozen=True, kw_only=True)
class GateTerm:
    """The effect of a gate, and until when it holds."""

    effect: Annotated[Literal["deny", "permit"], typer.Option(help="Whether it passes.")] = "deny"
    for_: For = ""
    until: Annotated[str, typer.Option(metavar="MOMENT", help="Until when, as 2026-03-01T18:00:00Z.")] = ""
    reason: Reason = ""

    def arguments(self) -> dict[str, str]:
        """As requests give them."""
        return {"effect": self.effect, "for": self.for_, "until": self.until, "reason": self.reason}


@gate_app.command("set")
@grouped
def gate_set(gate: GateOptions, config: Config, term: GateTerm, dry_run: DryRun = False, json: Json = False) -> None:
    """Set a gate that overrides all rules, for a time given by --for or --until. It survives a restart."""
    change_node(config, "gate set", {**gate.arguments(), **term.arguments()}, dry_run=dry_run, as_json=json)


@gate_app.command("unset")
@grouped
def gate_unset(gate: GateOptions, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """End a gate before its time."""
    change_node(config, "gate unset", gate.arguments(), dry_run=dry_run, as_json=json)


@peer_app.command("block")
def peer_block(
    domain: Pattern, config: Config, for_: For = "", reason: Reason = "", dry_run: DryRun = False, json: Json = False
) -> None:
    """Cut a domain off at once: messages, links, stub, guests, stored requests. It survives a restart."""
    change_node(config, "peer block", {"domain": domain, "for": for_, "reason": reason}, dry_run=dry_run, as_json=json)


@peer_app.command("unblock")
def peer_unblock(domain: Pattern, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Lift the block of a domain."""
    change_node(config, "peer unblock", {"domain": domain}, dry_run=dry_run, as_json=json)


@peer_app.command("close")
def peer_close(domain: Domain, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """End the links of a domain in good order; the next message opens one."""
    change_node(config, "peer close", {"domain": domain}, dry_run=dry_run, as_json=json)


@peer_app.command("connect")
def peer_connect(domain: Domain, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Open a link to a domain if none is up, after `unblock` for example, and show how long an answer takes."""
    change_node(config, "peer connect", {"domain": domain}, dry_run=dry_run, as_json=json)


@peer_app.command("refresh")
def peer_refresh(domain: Domain, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Ask a domain for its documents now, and start its stub anew if its link is down."""
    change_node(config, "peer refresh", {"domain": domain}, dry_run=dry_run, as_json=json)


@peer_app.command("ping")
def peer_ping(domain: Domain, config: Config, json: Json = False) -> None:
    """Send a message to the node of a domain over the link that is up, and show how long its answer took."""
    with errors_reported(as_json=json):
        print_facts(ask_running(config, "peer ping", {"domain": domain}), as_json=json)


@peer_app.command("retrust")
def peer_retrust(
    domain: Domain,
    config: Config,
    fingerprint: Annotated[str, typer.Option(help="New key-set fingerprint, received from the peer out of band.")],
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Replace the trust in a domain that lost its keys; its links restart. `trapezoid peer retrust` asks first."""
    arguments = {"domain": domain, "fingerprint": fingerprint}
    change_node(config, "peer retrust", arguments, dry_run=dry_run, as_json=json)


@peer_app.command("forget")
def peer_forget(domain: Domain, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Undo an unused retrust; otherwise delete the keys of a domain, and a pinned stub. Its links restart."""
    change_node(config, "peer forget", {"domain": domain}, dry_run=dry_run, as_json=json)


@stub_app.command("drain")
def stub_drain(domain: Domain, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """End the stub of a domain in good order; the next message starts it."""
    change_node(config, "stub drain", {"domain": domain}, dry_run=dry_run, as_json=json)


@stub_app.command("restart")
def stub_restart(domain: Domain, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Restart the stub of a domain at once."""
    change_node(config, "stub restart", {"domain": domain}, dry_run=dry_run, as_json=json)


@stub_app.command("forbid")
def stub_forbid(
    what: StubOrModule, config: Config, for_: For = "", reason: Reason = "", dry_run: DryRun = False, json: Json = False
) -> None:
    """Forbid the stub of a domain, or a module of any domain, to run here. It survives a restart.

    Links that the domain's own node opens go on.
    """
    arguments = {**_stub_or_module(what), "for": for_, "reason": reason}
    change_node(config, "stub forbid", arguments, dry_run=dry_run, as_json=json)


@stub_app.command("allow")
def stub_allow(what: StubOrModule, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Allow a forbidden stub or module to run again."""
    change_node(config, "stub allow", _stub_or_module(what), dry_run=dry_run, as_json=json)


def _stub_or_module(what: str) -> dict[str, str]:
    return {"domain": what} if "." in what else {"module": what}


@stub_app.command("pin")
def stub_pin(
    domain: Domain,
    module: Annotated[str, typer.Argument(help="SHA-256 of the module.")],
    config: Config,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Accept another module as the stub that the settings choose for a domain. `peer approve` reads its file."""
    change_node(config, "stub pin", {"domain": domain, "module": module}, dry_run=dry_run, as_json=json)


@stub_app.command("approve")
def stub_approve(domain: Domain, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Allow held or failed versions of the stub of a domain to run here."""
    change_node(config, "stub approve", {"domain": domain}, dry_run=dry_run, as_json=json)


@stub_app.command("roll-back")
def stub_roll_back(
    domain: Domain, config: Config, reason: Reason = "", dry_run: DryRun = False, json: Json = False
) -> None:
    """Return to the previous version; the current one is not tried again here until `stub approve`."""
    change_node(config, "stub roll-back", {"domain": domain, "reason": reason}, dry_run=dry_run, as_json=json)


def kick(
    runtime: Runtime,
    config: Config,
    ban: Annotated[str, typer.Option("--ban", metavar="TIME", help="Let it open no session for so long.")] = "",
    reason: Reason = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """End the sessions of a runtime at once, and release everything they hold."""
    change_node(config, "kick", {"runtime": runtime, "ban": ban, "reason": reason}, dry_run=dry_run, as_json=json)


def unban(runtime: Runtime, config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Let a banned runtime open sessions again."""
    change_node(config, "unban", {"runtime": runtime}, dry_run=dry_run, as_json=json)


def reload(config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Apply changed settings, all or none: peers, lists, rates, policies, certificates. Shows the differences."""
    change_node(config, "reload", {}, dry_run=dry_run, as_json=json)


def drain(config: Config, dry_run: DryRun = False, json: Json = False) -> None:
    """Stop the node in order, as SIGTERM does."""
    change_node(config, "drain", {}, dry_run=dry_run, as_json=json)


def log_level(
    level: Annotated[Literal["debug", "info", "warning", "error"], typer.Argument(help="The new level.")],
    config: Config,
    logger: Annotated[str, typer.Option("--logger", help="For example msg_node or federation. Default: all.")] = "",
    for_: For = "",
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Set the level of the log of a running node for a time: ten minutes unless --for says another."""
    change_node(config, "log level", {"level": level, "logger": logger, "for": for_}, dry_run=dry_run, as_json=json)


def ask_running(config: Path, operation: str, arguments: dict[str, Any], *, dry_run: bool = False) -> Any:
    """Ask the node that runs with these settings; it is reached while they are being edited, too. Raises HostError."""
    from msg_node.settings.load import data_dir_of
    from protofly.printable import escaped
    from trapezoid.process_admin import ask_processes

    data_dir, problem = data_dir_of(config)
    if problem:
        note = "note: these settings cannot be used now; asking the node that runs on their data folder"
        typer.echo(escaped(f"{note}: {problem.partition(chr(10))[0]}"), err=True)
    return ask_processes(data_dir, operation, arguments, dry_run=dry_run)


def change_node(config: Path, operation: str, arguments: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    """Ask for a change, and print what is so before and after."""
    with errors_reported(as_json=as_json):
        given = {name: value for name, value in arguments.items() if value != ""}
        result = ask_running(config, operation, given, dry_run=dry_run)
    if as_json:
        print_json(result)
        return
    after, differences = _differences(result["after"])
    facts = {"operation": operation, "before": _stated(result["before"]), "after": _stated(after), **differences}
    facts |= {"answer": _stated(result["answer"])} if "answer" in result else {}
    print_facts({**facts, **not_done(result)}, as_json=False)


def _differences(after: object) -> tuple[object, dict[str, list[str]]]:
    """The state after a change, and the settings that differ as lines of their own."""
    if not isinstance(after, dict) or not isinstance(after.get("changes"), list):
        return after, {}
    lines = [f"{one['name']}: {_short(one['before'])} → {_short(one['after'])}" for one in after["changes"]]
    return {name: value for name, value in after.items() if name != "changes"}, {"changes": lines}


def _short(value: object) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value)


def not_done(result: dict[str, Any]) -> dict[str, str]:
    """Row for a change that was not made: a dry run, or one that waits for a second person; {} for one that was."""
    if result["dry_run"]:
        return {"dry_run": "nothing was changed"}
    if "proposal" in result:
        id_ = result["proposal"]
        return {"proposed": f"nothing was changed yet; somebody else: trapezoid node policy confirm {id_}"}
    return {}


def _stated(facts: object) -> object:
    """The members of a change that are not empty, with moments as people read them."""
    if isinstance(facts, dict):
        kept = {name: _moment(value) if name in _MOMENTS else _inner(value) for name, value in facts.items()}
        return {name: value for name, value in kept.items() if value not in _EMPTY} or "nothing"
    return "nothing" if facts is None else facts


def _inner(value: object) -> object:
    return _stated(value) if isinstance(value, dict) and value else value


def _moment(value: object) -> object:
    from datetime import UTC, datetime

    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return value
