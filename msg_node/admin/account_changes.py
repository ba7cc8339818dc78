"""Local users and clients for operators: who there is, adding, changing, switching off and removing them.

Each change is on the disk before it is in force, and ends the sessions that it takes the ground from. Tokens and codes
are made here, shown to the one who asks, and stored as digests only. Source: feature rows SC-14, HV-48 and HV-56.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from typing import Final

import trio
from msgspec.structs import replace

from msg_node.admin.administered import Administered
from msg_node.admin.core.operations import Value
from msg_node.admin.core.pages import Page, page_of
from msg_node.admin.core.plan import Plan
from msg_node.identity.core.local_clients import (
    CLIENTS,
    ENROL_MOST_SECONDS,
    ENROL_SECONDS,
    LocalClient,
    new_client,
    read_roles,
)
from msg_node.identity.core.password_login import is_acceptable, is_user_name
from msg_node.identity.local_clients import known, new_token
from msg_node.identity.password_hash import HashCost
from msg_node.identity.user_store import LocalUser
from msg_node.kernel.credentials import digest_of
from protofly.errors import Code, PeerError

Arguments = Mapping[str, Value]
_HASHES_AT_ONCE: Final = trio.CapacityLimiter(1)


def held(node: Administered) -> AbstractAsyncContextManager[object]:
    """The lock under which accounts are changed."""
    return node.clients.changing


# Users.


async def users(node: Administered, arguments: Arguments) -> Page:
    """All local users, by name."""
    _cost_of(node)
    loaded = await trio.to_thread.run_sync(node.passwords.users.load)
    return page_of([_shown_user(one) for one in loaded if one.hash], arguments)


def _shown_user(user: LocalUser) -> dict[str, object]:
    return {"user": user.name, "roles": list(user.roles), "state": "disabled" if user.is_disabled else "enabled"}


async def add_user(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Add a local user. One that was removed keeps what has ended: old tokens do not come back."""
    cost, name = _cost_of(node), str(arguments["name"])
    if not is_user_name(name):
        raise PeerError(Code.BAD_BODY, "`name` has lower-case letters and digits, and `.`, `_`, `-` inside")
    before = await trio.to_thread.run_sync(node.passwords.users.find, name)
    if before is not None and before.hash:
        raise PeerError(Code.DUPLICATE, f"there is a user {name} already")
    roles = read_roles(str(arguments.get("roles", "")))
    hashed = await _hash(node, cost, arguments)
    ended_at = 0.0 if before is None else before.ended_at
    user = LocalUser(name=name, hash=hashed, roles=roles, ended_at=ended_at)
    return _put_user(node, before, user)


async def change_user(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Give a user other roles: tokens have those that the user had at the log-in."""
    before = await _user(node, arguments)
    if "roles" not in arguments:
        raise PeerError(Code.BAD_BODY, "user change needs `roles`")
    return _put_user(node, before, replace(before, roles=read_roles(str(arguments["roles"]))))


async def change_password(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Give a user another password."""
    before = await _user(node, arguments)
    hashed = await _hash(node, _cost_of(node), arguments)
    return _put_user(node, before, replace(before, hash=hashed, ended_at=node.bus.options.now()))


async def disable_user(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Let a user log in no more."""
    before = await _user(node, arguments)
    return _put_user(node, before, replace(before, is_disabled=True, ended_at=node.bus.options.now()))


async def enable_user(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Let a user log in again."""
    before = await _user(node, arguments)
    return _put_user(node, before, replace(before, is_disabled=False))


async def remove_user(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Remove a user. The name is kept until the last token can have expired."""
    before = await _user(node, arguments)
    return _put_user(node, before, LocalUser(name=before.name, hash="", ended_at=node.bus.options.now()))


async def _user(node: Administered, arguments: Arguments) -> LocalUser:
    _cost_of(node)
    return await trio.to_thread.run_sync(node.passwords.users.known, str(arguments["name"]))


async def _hash(node: Administered, cost: HashCost, arguments: Arguments) -> str:
    password = str(arguments["password"])
    if not is_acceptable(password):
        raise PeerError(Code.BAD_BODY, "a password has 8 to 1024 bytes")
    return await trio.to_thread.run_sync(node.passwords.hashing.hash, cost, password, limiter=_HASHES_AT_ONCE)


def _cost_of(node: Administered) -> HashCost:
    if node.passwords.cost is None:
        raise PeerError(Code.CONNECTOR_OFF, "this node has no local users: the settings have no [identity.passwords]")
    return node.passwords.cost


def _put_user(node: Administered, before: LocalUser | None, user: LocalUser) -> Plan:
    return Plan(
        None if before is None or not before.hash else _shown_user(before),
        _shown_user(user) if user.hash else None,
        partial(node.passwords.end_changed, [user]),
        partial(node.passwords.users.replace, before, user),
    )


# Clients.


async def clients(node: Administered, arguments: Arguments) -> Page:
    """All clients, by name."""
    now = node.bus.options.now()
    return page_of([_shown_client(one, now) for one in node.clients], arguments)


def _shown_client(client: LocalClient, now: float) -> dict[str, object]:
    state = client.state(now)
    ends_at = client.code_ends_at if state == "to be enrolled" else client.ends_at
    return {
        "client": client.name,
        "kind": client.kind,
        "runtime": client.runtime,
        "roles": list(client.roles),
        "state": state,
        "until": None if ends_at is None or not ends_at else _utc(ends_at),
        "changed": _utc(client.changed_at),
    }


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


async def add_client(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Add a client, with a token of its own."""
    fresh, token = _new(node, arguments), new_token()
    client = replace(fresh, digest=digest_of(token), ends_at=_end(node, arguments, "for"))
    return _put_client(node, None, client, {"token": token})


async def enrol_client(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Add a client that has a code, and gets its token for it."""
    fresh, code = _new(node, arguments), new_token()
    within = float(arguments.get("within", ENROL_SECONDS))
    if within > ENROL_MOST_SECONDS:
        raise PeerError(Code.BAD_BODY, "`within` is at most 7d")
    if fresh.runtime.endswith("*"):
        raise PeerError(Code.BAD_BODY, "a client that is to be enrolled has one `runtime`, in full")
    seconds = float(arguments["for"]) if "for" in arguments else None
    client = replace(fresh, code=digest_of(code), code_ends_at=node.bus.options.now() + within, token_seconds=seconds)
    return _put_client(node, None, client, {"code": code})


async def change_client(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Give a client other roles or runtimes; sessions of runtimes that are not its any more end."""
    before = known(node.clients, str(arguments["name"]))
    roles = read_roles(str(arguments["roles"])) if "roles" in arguments else before.roles
    runtime = str(arguments.get("runtime", before.runtime))
    checked = new_client(before.name, before.kind, runtime, roles, node.settings().own_domains)
    return _put_client(node, before, replace(before, roles=checked.roles, runtime=checked.runtime))


async def give_token(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Give a client another token."""
    before, token = known(node.clients, str(arguments["name"])), new_token()
    client = replace(before, digest=digest_of(token), ends_at=_end(node, arguments, "for"), code="", code_ends_at=0.0)
    return _put_client(node, before, client, {"token": token})


async def disable_client(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Let a client open no session."""
    before = known(node.clients, str(arguments["name"]))
    return _put_client(node, before, replace(before, is_disabled=True))


async def enable_client(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Let a disabled client open sessions again."""
    before = known(node.clients, str(arguments["name"]))
    return _put_client(node, before, replace(before, is_disabled=False))


async def remove_client(node: Administered, arguments: Arguments, _by: str) -> Plan:
    """Remove a client."""
    before = known(node.clients, str(arguments["name"]))
    apply, store = partial(node.clients.apply, before.name, None), partial(node.clients.store, before, None)
    return Plan(_shown_client(before, node.bus.options.now()), None, apply, store)


def _new(node: Administered, arguments: Arguments) -> LocalClient:
    """A client of a name that is free."""
    all_clients, name = node.clients, str(arguments["name"])
    if all_clients.find(name) is not None:
        raise PeerError(Code.DUPLICATE, f"there is a client {name} already")
    if len(all_clients) >= CLIENTS:
        raise PeerError(Code.QUOTA, f"there are {CLIENTS} clients already")
    settings = node.settings()
    runtime = str(arguments.get("runtime") or f"runtime://{settings.node.domain}/{name}")
    roles = read_roles(str(arguments.get("roles", "")))
    return new_client(name, str(arguments["kind"]), runtime, roles, settings.own_domains)


def _end(node: Administered, arguments: Arguments, name: str) -> float | None:
    return node.bus.options.now() + float(arguments[name]) if name in arguments else None


def _put_client(
    node: Administered, before: LocalClient | None, client: LocalClient, answer: Mapping[str, str] | None = None
) -> Plan:
    now = node.bus.options.now()
    all_clients, changed = node.clients, replace(client, changed_at=now)
    return Plan(
        None if before is None else _shown_client(before, now),
        _shown_client(changed, now),
        partial(all_clients.apply, changed.name, changed),
        partial(all_clients.store, before, changed),
        answer=answer or {},
    )


QUESTIONS: Final[Mapping[str, Callable[[Administered, Arguments], Awaitable[object]]]] = {
    "users": users,
    "clients": clients,
}
"""What is listed, by the name of its operation."""

PLANNERS: Final[Mapping[str, Callable[[Administered, Arguments, str], Awaitable[Plan]]]] = {
    "user add": add_user,
    "user change": change_user,
    "user password": change_password,
    "user disable": disable_user,
    "user enable": enable_user,
    "user remove": remove_user,
    "client add": add_client,
    "client enrol": enrol_client,
    "client change": change_client,
    "client token": give_token,
    "client disable": disable_client,
    "client enable": enable_client,
    "client remove": remove_client,
}
"""What is planned while nobody else changes accounts, by the name of its operation."""
