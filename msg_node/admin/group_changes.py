"""Groups of the policy manager: named lists that rules refer to, changed by operators while the node runs.

A rule names a group as it names a list of its file, `"@name"`. Each change compiles the policies in force anew, with
their tests: what they cannot take is refused, and nothing has changed. Otherwise they are replaced between two
messages, and the rules of all flows end with those before. Source: data formats, section 6.2; feature row PE-18.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import trio

from msg_node.admin.administered import Administered
from msg_node.admin.core.operations import Value
from msg_node.admin.core.pages import Page, page_of
from msg_node.admin.core.plan import Plan
from msg_node.admin.policy_deployment import Policies, policies_of
from msg_node.storage.policy_store import Groups
from protofly.errors import Code, PeerError, SettingsError
from protofly.limits import POLICY_GROUP_MEMBERS, POLICY_GROUPS

Arguments = Mapping[str, Value]
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


async def groups(node: Administered, arguments: Arguments) -> Page:
    """All groups with their members, by name."""
    found = await trio.to_thread.run_sync(node.policy_store.groups)
    return page_of(
        [{"group": name, "count": len(found[name]), "members": list(found[name])} for name in sorted(found)], arguments
    )


async def create(node: Administered, arguments: Arguments, by: str) -> Plan:
    """Make a group without members.

    Raises:
        PeerError: BAD_BODY, IN_USE: there is one of that name; QUOTA.
    """
    name, now = str(arguments["group"]), await _groups(node)
    if _NAME.fullmatch(name) is None:
        raise PeerError(Code.BAD_BODY, "`group` has 1 to 64 letters, digits, and `.`, `_`, `-` inside")
    if name in now:
        raise PeerError(Code.IN_USE, f"there is a group {name} already")
    if len(now) >= POLICY_GROUPS:
        raise PeerError(Code.QUOTA, f"there are {POLICY_GROUPS} groups, more are not possible")
    return await _planned(node, now, {**now, name: ()}, name, by)


async def remove(node: Administered, arguments: Arguments, by: str) -> Plan:
    """Remove a group. Raises PeerError: NOT_REGISTERED; IN_USE: policies in force refer to it."""
    now = await _groups(node)
    name = _known(now, arguments)
    rest = {one: members for one, members in now.items() if one != name}
    try:
        return await _planned(node, now, rest, name, by)
    except PeerError as exc:
        if exc.code is Code.POLICY_INVALID:
            raise PeerError(Code.IN_USE, f"policies refer to the group: {exc.detail}") from exc
        raise


async def add(node: Administered, arguments: Arguments, by: str) -> Plan:
    """Add a member to a group; one that is there stays.

    Raises:
        PeerError: NOT_REGISTERED, BAD_BODY, QUOTA; POLICY_INVALID: a rule in force cannot take it.
    """
    now = await _groups(node)
    name, member = _known(now, arguments), str(arguments["member"])
    if not member or not member.isprintable() or member != member.strip():
        raise PeerError(Code.BAD_BODY, "`member` is a printable text without spaces around it")
    if member not in now[name] and len(now[name]) >= POLICY_GROUP_MEMBERS:
        raise PeerError(Code.QUOTA, f"a group has at most {POLICY_GROUP_MEMBERS} members")
    return await _planned(node, now, {**now, name: tuple(dict.fromkeys((*now[name], member)))}, name, by)


async def take(node: Administered, arguments: Arguments, by: str) -> Plan:
    """Take a member out of a group. Raises PeerError: NOT_REGISTERED; POLICY_INVALID: a test of the policies fails."""
    now = await _groups(node)
    name, member = _known(now, arguments), str(arguments["member"])
    if member not in now[name]:
        raise PeerError(Code.NOT_REGISTERED, f"the group {name} has no such member")
    return await _planned(node, now, {**now, name: tuple(one for one in now[name] if one != member)}, name, by)


async def _groups(node: Administered) -> Groups:
    return await trio.to_thread.run_sync(node.policy_store.groups)


def _known(now: Groups, arguments: Arguments) -> str:
    name = str(arguments["group"])
    if name not in now:
        raise PeerError(Code.NOT_REGISTERED, f"there is no group {name[:64]!r}; `groups` lists them")
    return name


async def _planned(node: Administered, now: Groups, after: Groups, name: str, by: str) -> Plan:
    """Plan other groups, with the policies in force made of them."""
    deployed = node.policies.in_force
    policies = await trio.to_thread.run_sync(_policies_with, node, after)
    store = partial(node.policy_store.set_groups, after)
    apply = partial(node.policies.deploy, policies, "groups", by)
    is_same = policies.compiled.revision == deployed.compiled.revision
    shown = _shown(now, name, deployed.compiled.revision), _shown(after, name, policies.compiled.revision)
    return Plan(*shown, _nothing if is_same else apply, store)


def _policies_with(node: Administered, groups: Groups) -> Policies:
    settings, active = node.settings(), node.policies.in_force.active
    try:
        return policies_of(settings.policy, settings.node.domain, node.policy_store, active, groups)
    except SettingsError as exc:
        raise PeerError(Code.POLICY_INVALID, exc.detail) from exc


def _shown(groups: Groups, name: str, revision: str) -> dict[str, object] | None:
    return {"group": name, "members": len(groups[name]), "revision": revision} if name in groups else None


def _nothing() -> None:
    """No rule in force refers to the group."""


QUESTIONS: Final[Mapping[str, Callable[[Administered, Arguments], Awaitable[object]]]] = {"groups": groups}
"""What is answered after reading from the disk, by the name of its operation."""

PLANNERS: Final[Mapping[str, Callable[[Administered, Arguments, str], Awaitable[Plan]]]] = {
    "group create": create,
    "group remove": remove,
    "group add": add,
    "group take": take,
}
"""What is planned in another thread, by the name of its operation; one at a time with changes of policies."""
