"""`domain://msg-node.<d>/pep`: policies by message, for runtimes with the role `policy-manager` or `operator`.

Each request is an operation of the admin service under the name that the message specification gives it, so that it is
checked, performed and recorded as on every other way in. Source: message specification, section 15.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from msg_node.admin.core.admin_service import ask, is_dry_run
from msg_node.admin.core.operations import AdminRequest
from msg_node.kernel.credentials import POLICY_MANAGER
from msg_node.kernel.resources import Members, object_or_refuse, text_of
from msg_node.kernel.service import Answer, Caller, Inquiry, ServiceRequest
from protofly.errors import Code, PeerError

_BUNDLES: Final = "/bundles"
_DECISIONS: Final = "/decisions"
_POLICY_FILE: Final = "policy.json"
"""Name of a policy set that comes without files."""
_HOOKS: Final = {"domain-out": "out", "domain-in": "in"}
_LISTS: Final = {
    _BUNDLES: "policy bundles",
    "/active": "policy active",
    _DECISIONS: "denials",
    "/gates": "gates",
    "/groups": "groups",
    "/proposals": "policy proposals",
}

_OF_PROPOSALS: Final = ("confirm", "withdraw")
_GROUP_METHODS: Final = {
    "createGroup": "group create",
    "deleteGroup": "group remove",
    "removeGroup": "group remove",
    "addToGroup": "group add",
    "removeFromGroup": "group take",
}
_GROUP_WORDS: Final = {"groupName": "group", "userEmail": "member"}

_Named = tuple[str, dict[str, Any]]
"""An operation and its arguments."""


def pep_service(request: ServiceRequest) -> Inquiry:
    """Serve `read`, `create`, `update`, `delete` and `execute`.

    Raises:
        PeerError: POLICY for everybody but policy managers and operators of this node, before anything of the body is
            read; BAD_TYPE, BAD_BODY, TOO_LARGE, NO_SUCH_SERVICE.
    """
    _check_manager(request.caller)
    read = _READERS.get(request.message.type)
    if read is None:
        raise PeerError(Code.BAD_TYPE, f"this service knows {', '.join(_READERS)}")
    operation, arguments = read(request.members)
    asked = AdminRequest(operation=operation, arguments=arguments, dry_run=is_dry_run(request.members))
    inquiry = ask(request, asked, POLICY_MANAGER)
    if operation != "policy add":
        return inquiry
    return msgspec.structs.replace(inquiry, conclude=lambda value, _now: Answer(value=_with_id(value)))


def _with_id(value: object) -> object:
    """The result of adding a bundle, with the names that the message specification has for it."""
    result = msgspec.json.decode(value, type=dict[str, Any]) if isinstance(value, msgspec.Raw) else {}
    bundle = (result.get("after") or {}).get("bundle")
    return {**result, "id": bundle, "digest": bundle} if bundle else value


def _check_manager(caller: Caller) -> None:
    """Let nobody else pass. Raises PeerError: POLICY."""
    if not (caller.is_operator or caller.is_policy_manager) or caller.is_guest or caller.is_link:
        raise PeerError(Code.POLICY, "policies are for sessions with the role policy-manager or operator")


def _read(members: Members) -> _Named:
    resource = text_of(members, "resource")
    if (operation := _LISTS.get(resource)) is not None:
        criteria = dict(object_or_refuse(members, "criteria"))
        if "hook" in criteria and resource == _DECISIONS:
            hook = criteria.pop("hook")
            criteria["gate"] = _HOOKS.get(str(hook), hook)
        return operation, criteria
    return "policy bundle", {"bundle": _bundle_of(resource)}


def _create(members: Members) -> _Named:
    """A bundle: its files by name, or one policy set as it is."""
    if text_of(members, "resource") != _BUNDLES:
        raise PeerError(Code.NO_SUCH_SERVICE, f"policies are created at {_BUNDLES}")
    value = object_or_refuse(members, "value")
    if isinstance(value.get("files"), dict):
        return "policy add", dict(value)
    return "policy add", {"files": {_POLICY_FILE: msgspec.json.encode(value).decode()}}


def _update(members: Members) -> _Named:
    if text_of(members, "resource") != "/active":
        raise PeerError(Code.NO_SUCH_SERVICE, "only /active is updated")
    return "policy activate", dict(object_or_refuse(members, "value"))


def _delete(members: Members) -> _Named:
    return "policy remove", {"bundle": _bundle_of(text_of(members, "resource"))}


def _execute(members: Members) -> _Named:
    method = text_of(members, "method")
    if method == "roll-back":
        return "policy roll-back", {}
    if method in ("groups", "getGroupsNames"):
        return "groups", {}
    if method not in ("evaluate", "gates", *_OF_PROPOSALS, *_GROUP_METHODS):
        known = ", ".join(("evaluate", "gates", "groups", "roll-back", *_OF_PROPOSALS, *_GROUP_METHODS))
        raise PeerError(Code.NO_SUCH_SERVICE, f"this service executes {known}")
    params = object_or_refuse(members, "params")
    if method == "gates":
        return _gates(params)
    if method in _OF_PROPOSALS:
        return f"policy {method}", dict(params)
    if method in _GROUP_METHODS:
        return _GROUP_METHODS[method], _renamed(params)
    message = params.get("message")
    if not isinstance(message, dict):
        raise PeerError(Code.BAD_BODY, "`params.message` is the message that is to be judged")
    hook, body = params.get("hook"), message.get("body")
    arguments = {name: message.get(name) for name in ("from", "to", "type")}
    arguments["gate"] = _HOOKS.get(str(hook), hook)
    arguments |= {name: params.get(name) for name in ("bundle", "roles", "class")}
    if body is not None:
        arguments["body"] = msgspec.json.encode(body).decode()
    return "evaluate", arguments


def _gates(params: Members) -> _Named:
    """Set or end a gate for a time."""
    op = params.get("op")
    if op not in ("set", "unset"):
        raise PeerError(Code.BAD_BODY, "`params.op` is set or unset")
    return f"gate {op}", {name: value for name, value in params.items() if name != "op"}


def _renamed(params: Members) -> dict[str, Any]:
    """Arguments of a change of groups, also under the names that the policy engine of runtimes gives them."""
    renamed: dict[str, Any] = {}
    for name, value in params.items():
        key = _GROUP_WORDS.get(name, name)
        if key in renamed:
            raise PeerError(Code.BAD_BODY, f"`params` has `{key}` twice, under two names")
        renamed[key] = value
    return renamed


def _bundle_of(resource: str) -> str:
    prefix, _, name = resource.rpartition("/")
    if prefix != _BUNDLES or not name:
        known = ", ".join([*_LISTS, f"{_BUNDLES}/<id>"])
        raise PeerError(Code.NO_SUCH_SERVICE, f"there is no resource {resource[:64]!r}; there are: {known}")
    return name


_READERS: Final[Mapping[str, Callable[[Members], _Named]]] = {
    "read": _read,
    "create": _create,
    "update": _update,
    "delete": _delete,
    "execute": _execute,
}
