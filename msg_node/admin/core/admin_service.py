"""`domain://msg-node.<d>/admin`: the admin service by message, for runtimes with the role of operators.

`read` sees and `execute` changes; the body names the operation as on every other way in:

    {"operation": "peer block", "arguments": {"domain": "c.example", "for": "2h"}, "dryRun": true}

Links and guests are never operators, whatever their messages say: the role comes from the credential of a session of
our own, and counts for what its runtime sends in its own name, not for the hyperties and stubs that run in it.
Requests of all operators are performed one after the other: a block and the unblock behind it keep their order.
"""

from __future__ import annotations

from typing import Final

import msgspec

from msg_node.admin.core.operations import AdminRequest, find_operation
from msg_node.kernel.credentials import OPERATOR
from msg_node.kernel.resources import Members, object_or_refuse, text_of
from msg_node.kernel.service import Answer, Caller, ConnectorName, Inquiry, Lane, ServiceRequest, inquire
from protofly.errors import Code, PeerError

_DRY_RUN: Final = "dryrun"
_TYPES: Final = frozenset({"read", "execute"})


class AdminQuestion(msgspec.Struct, frozen=True):
    """A request of the session with that number, sent in the name `from_key`.

    `role` is the role that it needs, unless it is that of operators.
    """

    request: AdminRequest
    number: int
    from_key: str
    role: str = OPERATOR


ADMIN: Final[ConnectorName[AdminQuestion, object]] = ConnectorName("admin")
"""Performs the operation; replies with its result as plain values."""


def admin_service(request: ServiceRequest) -> Inquiry:
    """Serve `read` and `execute`.

    Raises:
        PeerError: POLICY for everybody but operators of this node, before anything of the body is read; BAD_TYPE,
            BAD_BODY, TOO_LARGE, NO_SUCH_SERVICE.
    """
    check_operator(request.caller)
    type_ = request.message.type
    if type_ not in _TYPES:
        raise PeerError(Code.BAD_TYPE, "this service knows read and execute")
    asked = _request_of(request.members)
    if find_operation(asked.operation).changes and type_ != "execute":
        raise PeerError(Code.BAD_TYPE, f"{asked.operation} changes something: send `execute`")
    return ask(request, asked)


def ask(request: ServiceRequest, asked: AdminRequest, role: str = OPERATOR) -> Inquiry:
    """Have an operation performed for the sender of a request, who has to have that role, or that of operators.

    The answer has its result as `value`.
    """
    question = AdminQuestion(asked, request.caller.number, request.message.from_key, role)
    return inquire(ADMIN, question, lambda value, _now: Answer(value=value), lane=Lane("admin"))


def check_operator(caller: Caller) -> None:
    """Let only operators of this node pass. Raises PeerError: POLICY."""
    if not caller.is_operator or caller.is_guest or caller.is_link:
        raise PeerError(Code.POLICY, "the admin service is for operators")


def _request_of(members: Members) -> AdminRequest:
    arguments = dict(object_or_refuse(members, "arguments"))
    return AdminRequest(operation=text_of(members, "operation"), arguments=arguments, dry_run=is_dry_run(members))


def is_dry_run(members: Members) -> bool:
    """Read `dryRun` in any spelling: one that is misspelt must not become a change.

    Raises:
        PeerError: BAD_BODY.
    """
    found = [value for name, value in members.items() if name.lower().replace("_", "").replace("-", "") == _DRY_RUN]
    if any(not isinstance(one, bool) for one in found):
        raise PeerError(Code.BAD_BODY, "`dryRun` is true or false")
    return any(found)
