"""`trapezoid node`: see and change a running node on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trapezoid.commands import node_accounts, node_changes, node_groups, node_policies, node_quarantine, node_recordings
from trapezoid.output import errors_reported, print_facts, print_json, print_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Configuration file, for example node.toml.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Where = Annotated[str, typer.Option("--where", metavar="MEMBER=TEXT", help="Only rows whose member contains a text.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", help="Rows to show, at most 1000.")]
After = Annotated[int, typer.Option("--after", metavar="N", help="Rows to skip: the `next` of the page before.")]

DEFAULT_ROWS = 100

app = typer.Typer(help="See and change a running node on this machine.", no_args_is_help=True)


app.add_typer(node_changes.peer_app, name="peer")
app.add_typer(node_changes.stub_app, name="stub")
app.add_typer(node_changes.gate_app, name="gate")
app.add_typer(node_policies.app, name="policy")
app.add_typer(node_recordings.app, name="recording")
app.add_typer(node_quarantine.app, name="quarantine")
app.add_typer(node_groups.app, name="group")
app.add_typer(node_accounts.user_app, name="user")
app.add_typer(node_accounts.client_app, name="client")
for command in (
    node_changes.kick,
    node_changes.unban,
    node_changes.reload,
    node_changes.drain,
    node_policies.evaluate,
):
    app.command()(command)
app.command("log-level")(node_changes.log_level)


_IN_JSON_ONLY: Final = frozenset({"uptime_seconds", "memory_bytes", "parked_sessions", "delivered", "refused"})


def _without(row: Mapping[str, object], names: Collection[str]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name not in names}


@app.command("list")
def members(config: Config, json: Json = False) -> None:
    """List the nodes of this domain that share its engine, with their figures, running or not; needs no running node.

    Figures are those of the last second, or of the last one of a node that does not run. --json has more of them.
    """
    with errors_reported(as_json=json):
        from msg_node.settings.load import load_settings
        from trapezoid.check_cluster import cluster_members

        rows = cluster_members(load_settings(config))
        print_rows(rows if json else [_without(row, _IN_JSON_ONLY) for row in rows], as_json=json)


@app.command()
def remove(config: Config, name: Annotated[str, typer.Argument(help="Name of the node.")], json: Json = False) -> None:
    """Delete the name of a node that has stopped in order and owns no rows in the engine."""
    with errors_reported(as_json=json):
        from msg_node.settings.load import load_settings
        from trapezoid.check_cluster import remove_member

        remove_member(load_settings(config), name)
        print_facts({"removed": name}, as_json=json)


@app.command()
def sessions(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List the sessions of runtimes, live or parked."""
    columns = (
        "runtime",
        "state",
        "class",
        "dialect",
        "roles",
        "silent_seconds",
        "addresses",
        "subscriptions",
        "queued",
    )
    _list(config, "sessions", _page(where, limit, after), columns, as_json=json)


@app.command()
def addresses(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List the addresses that sessions own."""
    _list(config, "addresses", _page(where, limit, after), ("address", "runtime", "allocation_key"), as_json=json)


@app.command()
def subscriptions(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List the subscriptions of sessions and of linked domains."""
    _list(config, "subscriptions", _page(where, limit, after), ("address", "listener", "source"), as_json=json)


@app.command()
def links(config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False) -> None:
    """List the links to other domains."""
    columns = ("domain", "state", "carried_by", "waiting", "under_way", "sent", "accepted", "denied", "problem")
    _list(config, "links", _page(where, limit, after), columns, as_json=json)


@app.command()
def stubs(config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False) -> None:
    """List the stubs of other domains that run or ran here; --json adds their last states."""
    columns = ("domain", "state", "since", "version", "worker_pid", "update", "detail")
    _list(config, "stubs", _page(where, limit, after), columns, as_json=json)


@app.command()
def peers(config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False) -> None:
    """List other domains: entry in the settings, stored trust, discovery, link."""
    columns = ("domain", "entry", "trust", "root", "serial", "held", "failed", "discovery", "reason", "link")
    _list(config, "peers", _page(where, limit, after), columns, as_json=json)


@app.command()
def partner(
    config: Config,
    domain: Annotated[str, typer.Argument(metavar="DOMAIN", help="The other domain.")],
    json: Json = False,
) -> None:
    """Show everything about one other domain: trust, discovery, link, stub, traffic, denials."""
    _facts(config, "partner", {"domain": domain}, as_json=json)


@node_accounts.user_app.command("list")
def user_list(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List local users with their roles."""
    _list(config, "users", _page(where, limit, after), ("user", "roles", "state"), as_json=json)


@node_accounts.client_app.command("list")
def client_list(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List clients with their kinds, runtimes and states."""
    columns = ("client", "kind", "runtime", "roles", "state", "until")
    _list(config, "clients", _page(where, limit, after), columns, as_json=json)


@app.command()
def latencies(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List messages of the last five minutes to other domains: counts, and times in milliseconds."""
    columns = ("domain", "arrived", "failed", "queue_p99_ms", "stub_p99_ms", "acknowledgement_p50_ms")
    _list(config, "latencies", _page(where, limit, after), (*columns, "acknowledgement_p99_ms"), as_json=json)


@app.command()
def denials(
    config: Config,
    domain: Annotated[str, typer.Option("--domain", help="Only those of this domain.")] = "",
    where: Where = "",
    limit: Limit = DEFAULT_ROWS,
    after: After = 0,
    json: Json = False,
) -> None:
    """List the last messages that gates did not let pass, newest first; `records find --refused` has older ones."""
    arguments = {**_page(where, limit, after), **({"domain": domain} if domain else {})}
    _list(config, "denials", arguments, ("time", "gate", "from", "to", "type", "code", "rule", "msg_id"), as_json=json)


@app.command()
def policies(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List the rules in force, in the order in which they are asked."""
    _list(config, "policies", _page(where, limit, after), ("rule", "effect", "mode", "condition"), as_json=json)


@node_policies.app.command("bundles")
def policy_bundles(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List bundles of policies, newest first, and the files of the settings."""
    columns = ("bundle", "state", "rules", "added", "by", "note")
    _list(config, "policy bundles", _page(where, limit, after), columns, as_json=json)


@node_quarantine.app.command("list")
def quarantined(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List messages in quarantine, oldest first: those that crashed a stub, and copies that rules asked for."""
    columns = ("message", "why", "time", "from", "to", "type", "passed", "size_bytes")
    _list(config, "quarantine", _page(where, limit, after), columns, as_json=json)


@node_policies.app.command("proposals")
def policy_proposals(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List changes of policies that wait for a second person, oldest first."""
    columns = ("proposal", "operation", "arguments", "by", "at", "until")
    _list(config, "policy proposals", _page(where, limit, after), columns, as_json=json)


@app.command()
def alarms(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List the alarms that are raised, oldest first."""
    _list(
        config,
        "alarms",
        _page(where, limit, after),
        ("alarm", "subject", "since", "value", "meaning", "detail"),
        as_json=json,
    )


@node_recordings.app.command("list")
def recordings(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List the recordings of the node, oldest first."""
    columns = ("file", "state", "written_bytes", "messages", "left_out", "seconds", "ends_after_seconds", "by")
    _list(config, "recordings", _page(where, limit, after), columns, as_json=json)


@app.command()
def quotas(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """Show the bounds of the node, and how much of each is used."""
    _list(config, "quotas", _page(where, limit, after), ("bound", "taken", "most", "share"), as_json=json)


@app.command()
def gates(config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False) -> None:
    """List gates for a time, in the order in which they are asked."""
    columns = ("effect", "from", "to", "type", "scheme", "until", "since", "by", "reason")
    _list(config, "gates", _page(where, limit, after), columns, as_json=json)


@app.command()
def groups(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List the groups that rules refer to, with their members."""
    _list(config, "groups", _page(where, limit, after), ("group", "count", "members"), as_json=json)


@app.command()
def limits(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List the counts for limits of rules, most messages first."""
    columns = ("limit", "who", "per", "messages", "most_messages", "bytes", "most_bytes", "until")
    _list(config, "limits", _page(where, limit, after), columns, as_json=json)


@app.command()
def queues(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List the queues with messages or requests in them."""
    _list(config, "queues", _page(where, limit, after), ("kind", "queue", "waiting", "under_way"), as_json=json)


@app.command()
def restrictions(
    config: Config, where: Where = "", limit: Limit = DEFAULT_ROWS, after: After = 0, json: Json = False
) -> None:
    """List the domains, runtimes and stubs that operators have forbidden, each with its end."""
    columns = ("what", "subject", "aliases", "until", "since", "by", "reason")
    _list(config, "restrictions", _page(where, limit, after), columns, as_json=json)


@app.command()
def log(
    config: Config,
    level: Annotated[str, typer.Option("--level", help="Only lines of this level and above.")] = "",
    where: Where = "",
    limit: Limit = DEFAULT_ROWS,
    after: After = 0,
    json: Json = False,
) -> None:
    """Show the last lines of the log of a running node, newest first."""
    arguments = {**_page(where, limit, after), **({"level": level} if level else {})}
    _list(config, "log", arguments, ("time", "level", "logger", "message"), as_json=json)


@app.command()
def status(config: Config, json: Json = False) -> None:
    """Show the data of /status; works without a site."""
    _facts(config, "status", {}, as_json=json)


@app.command()
def summary(config: Config, json: Json = False) -> None:
    """Show a summary of the node: counts, current and coming problems."""
    _facts(config, "summary", {}, as_json=json)


def _facts(config: Path, operation: str, arguments: dict[str, Any], *, as_json: bool) -> None:
    """Ask for facts, and print them: all as JSON, or for people without what is empty inside them."""
    with errors_reported(as_json=as_json):
        facts = node_changes.ask_running(config, operation, arguments)
    if as_json:
        print_json(facts)
    else:
        print_facts({name: _filled(value) for name, value in facts.items()}, as_json=False)


def _filled(value: object) -> object:
    """A fact for people: nothing in it that is empty, nor the last states of a stub."""
    if isinstance(value, dict):
        kept = {name: _filled(one) for name, one in value.items() if name != "states"}
        return {name: one for name, one in kept.items() if one not in (None, "", [], {})}
    return [_filled(one) for one in value] if isinstance(value, list) else value


def _page(where: str, limit: int, after: int) -> dict[str, Any]:
    return {"limit": limit, "after": after, **({"where": where} if where else {})}


def _list(config: Path, operation: str, arguments: Mapping[str, Any], columns: Sequence[str], *, as_json: bool) -> None:
    """Ask for a page of a list, and print it: whole rows as JSON, or some columns."""
    with errors_reported(as_json=as_json):
        page = node_changes.ask_running(config, operation, dict(arguments))
    if as_json:
        print_json(page)
        return
    if not page["rows"]:
        typer.echo("none")
        return
    shown = (*columns, "process") if "process" in page["rows"][0] else columns
    print_rows([{name: _shown(row[name]) for name in shown} for row in page["rows"]], as_json=False)
    if page["next"] is not None:
        typer.echo(f"{len(page['rows'])} of {page['total']}; go on with --after {page['next']}", err=True)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
