"""`trapezoid user`: local users who log in with a password.

A running node makes the change itself, and records it; without one it is made in what the node will read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trapezoid.commands.roles import Roles, role_names
from trapezoid.output import errors_reported, print_facts, print_rows

if TYPE_CHECKING:
    from msg_node.identity.user_store import Users
    from msg_node.settings.tables.identity import PasswordSettings

Config = Annotated[Path, typer.Option("--config", metavar="FILE", help="Configuration file, for example node.toml.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Name = Annotated[str, typer.Argument(help="Name of the user: lower-case letters, digits, and . _ - inside.")]
Piped = Annotated[bool, typer.Option("--stdin", help="Read the password from standard input, one line.")]

app = typer.Typer(help="Add, change and list local users who log in with a password.", no_args_is_help=True)


@app.command()
def add(
    name: Name,
    config: Config,
    roles: Roles = None,
    stdin: Piped = False,
    json: Json = False,
) -> None:
    """Add a user; asks for the password."""
    with errors_reported(as_json=json):
        from msg_node.identity.core.password_login import is_user_name
        from msg_node.identity.user_store import LocalUser
        from protofly.errors import SettingsError

        if not is_user_name(name):
            raise SettingsError(f"{name!r} is no name: lower-case letters and digits, and `.`, `_`, `-` inside")
        named = role_names(roles)
        with _users(config) as (users, settings):
            before = users.find(name)
            if before is not None and before.hash:
                raise SettingsError(f"there is a user {name} already; see `trapezoid user password`")
            ended_at = 0.0 if before is None else before.ended_at
            chosen = read_new_password(is_piped=stdin)
            given = {"name": name, "password": chosen, "roles": ",".join(named)}
            if not _asked(config, "user add", given):
                text = _hashed(settings, chosen)
                users.replace(before, LocalUser(name=name, hash=text, roles=named, ended_at=ended_at))
        print_facts({"user": name, "roles": list(named)}, as_json=json)


@app.command()
def password(name: Name, config: Config, stdin: Piped = False, json: Json = False) -> None:
    """Change the password of a user, and end all log-ins with the old one."""
    with errors_reported(as_json=json):
        import time

        import msgspec

        with _users(config) as (users, settings):
            user = users.known(name)
            chosen = read_new_password(is_piped=stdin)
            if not _asked(config, "user password", {"name": name, "password": chosen}):
                text = _hashed(settings, chosen)
                users.replace(user, msgspec.structs.replace(user, hash=text, ended_at=time.time()))
        print_facts({"user": name, "password": "changed"}, as_json=json)


@app.command()
def disable(name: Name, config: Config, json: Json = False) -> None:
    """Forbid a user to log in, and end all log-ins."""
    with errors_reported(as_json=json):
        import time

        import msgspec

        with _users(config) as (users, _):
            user = users.known(name)
            if not _asked(config, "user disable", {"name": name}):
                users.replace(user, msgspec.structs.replace(user, is_disabled=True, ended_at=time.time()))
        print_facts({"user": name, "state": "disabled"}, as_json=json)


@app.command()
def enable(name: Name, config: Config, json: Json = False) -> None:
    """Let a disabled user log in again."""
    with errors_reported(as_json=json):
        import msgspec

        with _users(config) as (users, _):
            user = users.known(name)
            if not _asked(config, "user enable", {"name": name}):
                users.replace(user, msgspec.structs.replace(user, is_disabled=False))
        print_facts({"user": name, "state": "enabled"}, as_json=json)


@app.command()
def remove(name: Name, config: Config, json: Json = False) -> None:
    """Remove a user, and end all log-ins. The name is kept until the last token can have expired."""
    with errors_reported(as_json=json):
        import time

        from msg_node.identity.user_store import LocalUser

        with _users(config) as (users, _):
            user = users.known(name)
            if not _asked(config, "user remove", {"name": name}):
                users.replace(user, LocalUser(name=name, hash="", ended_at=time.time()))
        print_facts({"user": name, "state": "removed"}, as_json=json)


@app.command("list")
def list_users(config: Config, json: Json = False) -> None:
    """List users with their roles."""
    with errors_reported(as_json=json), _users(config) as (users, _):
        rows = [
            {"user": one.name, "roles": list(one.roles), "state": "disabled" if one.is_disabled else "enabled"}
            for one in users.load()
            if one.hash
        ]
        print_rows(rows, as_json=json)


@contextmanager
def _users(config: Path) -> Iterator[tuple[Users, PasswordSettings]]:
    """The users of a node that has local ones."""
    from msg_node.settings.load import load_settings
    from msg_node.wiring.accounts import users_for_commands
    from protofly.errors import SettingsError

    settings = load_settings(config)
    if settings.identity.passwords is None:
        raise SettingsError(f"{config} has no [identity.passwords]: this node has no local users")
    with users_for_commands(settings) as users:
        yield users, settings.identity.passwords


def _asked(config: Path, operation: str, arguments: dict[str, Any]) -> bool:
    """Have the node that runs with these settings make a change; False if none runs, or it has no local users yet."""
    from msg_node.running import running_node
    from msg_node.settings.load import load_settings
    from protofly.errors import Code, PeerError
    from trapezoid.process_admin import ask_processes

    data_dir = load_settings(config).node.data_dir
    if running_node(data_dir) is None:
        return False
    try:
        ask_processes(data_dir, operation, arguments)
    except PeerError as exc:
        if exc.code is Code.CONNECTOR_OFF:
            return False
        raise
    return True


def _hashed(settings: PasswordSettings, password: str) -> str:
    from msg_node.identity.password_hash import HashCost

    return HashCost(settings.memory_kib, settings.passes).hash(password)


def read_new_password(*, is_piped: bool) -> str:
    """Ask for a password that is to be a new one.

    Raises:
        SettingsError: It is too short or too long.
    """
    import sys

    from msg_node.identity.core.password_login import is_acceptable
    from protofly.errors import SettingsError

    if is_piped:
        chosen = sys.stdin.readline().rstrip("\r\n")
    else:
        chosen = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    if not is_acceptable(chosen):
        raise SettingsError("a password has 8 to 1024 bytes")
    return chosen
