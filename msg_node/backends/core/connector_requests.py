"""Requests to a service address that a sandboxed connector serves: what it is given, and what counts as its answer.

A connector answers requests and says nothing else. An answer is a `response` from the service's own address, under the
number of a request that waits. Its header goes no further: the node answers who asked. Source: docs/connectors.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from msg_node.kernel.service import Answer, ConnectorName, Inquiry, Service, ServiceRequest, inquire
from protofly.errors import Code, PeerError
from protofly.late_replies import LATE

_ERROR: Final = 300
_CODES: Final = range(200, 600)
_TEXT_CHARS: Final = 512
_OWN: Final = frozenset(
    {
        *("auth", "code", "desc", "description", "identity", "reason", "source", "trace", "value", "via"),
        *("assertedIdentity", "sessionToken", LATE),
    }
)
"""Members of a body that the node writes itself."""


class ConnectorQuestion(msgspec.Struct, frozen=True):
    """One request for a connector."""

    type: str
    from_: str
    body: bytes


class _Answer(msgspec.Struct):
    id: int
    type: str
    from_: str = msgspec.field(name="from")
    body: dict[str, Any] = {}


def connector_name(service: str) -> ConnectorName[ConnectorQuestion, Mapping[str, Any]]:
    """The name under which the connector of a service is asked; it replies with the body of an answer."""
    return ConnectorName(f"connector {service}")


def connector_service(service: str, *, serves_domains: bool) -> Service:
    """A service address as its connector answers it.

    Args:
        service: Its word, such as `registry`.
        serves_domains: Other domains and their guests may ask too.
    """
    name = connector_name(service)

    def serve(request: ServiceRequest) -> Inquiry:
        if not serves_domains and (request.caller.is_link or request.caller.is_guest):
            raise PeerError(Code.POLICY, "this service is for our own domain")
        message = request.message
        question = ConnectorQuestion(message.type, message.from_, bytes(message.body))
        return inquire(name, question, _conclude)

    return serve


def request_bytes(number: int, question: ConnectorQuestion, address: str) -> bytes:
    """A request as the connector at `address` is given it; its id is a number of ours."""
    header = {"id": number, "type": question.type, "from": question.from_, "to": address}
    return msgspec.json.encode({**header, "body": msgspec.Raw(question.body or b"{}")})


def read_answer(raw: bytes, address: str) -> tuple[int, dict[str, Any]]:
    """Return the number of the request that is answered, and the body.

    Raises:
        PeerError: BAD_REPLY for anything else than an answer; SPOOFED_SOURCE when it is in another's name.
    """
    try:
        answer = msgspec.json.decode(raw, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise PeerError(Code.BAD_REPLY, "no message") from exc
    if answer.type != "response":
        raise PeerError(Code.BAD_REPLY, "a connector sends responses only")
    if answer.from_ != address:
        raise PeerError(Code.SPOOFED_SOURCE, f"a connector speaks as {address} only")
    return answer.id, answer.body


def _conclude(body: Mapping[str, Any], _: float) -> Answer:
    code = body.get("code", 200)
    if not isinstance(code, int) or isinstance(code, bool) or code not in _CODES:
        raise PeerError(Code.BAD_REPLY, "the connector's answer has no usable code")
    more = {name: value for name, value in body.items() if name not in _OWN}
    return Answer(
        code=code,
        value=body.get("value", msgspec.UNSET),
        reason=_text(body.get("reason")) if code >= _ERROR else "",
        description=_text(body.get("description", body.get("desc"))),
        members=more or None,
    )


def _text(value: object) -> str:
    return value[:_TEXT_CHARS] if isinstance(value, str) else ""
