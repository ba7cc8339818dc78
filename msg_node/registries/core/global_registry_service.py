"""`global://registry/`: records of GUIDs, read and stored for runtimes of our own domain.

Two dialects ask (`resource`/`value` of the documents, `guid`/`jwt` of running code), and what is answered has the
members of both. The registry itself is asked by a connector, which also decides what is to be believed.

Source: message specification, sections 12.1 to 12.3; data formats, section 4.6.
"""

from __future__ import annotations

import msgspec

from msg_node.kernel.resources import Members, text_of
from msg_node.kernel.service import Answer, ConnectorName, Inquiry, ServiceRequest, inquire
from protofly.errors import DESCRIPTIONS, Code, HostError, PeerError
from protofly.guid import bare_guid
from protofly.limits import GLOBAL_REGISTRY_READ_SECONDS, GLOBAL_REGISTRY_WRITE_SECONDS

GLOBAL_REGISTRY_KEY = "global://registry"
_CHECK_SECONDS = 3.0  # for the checks, behind those of others
_WRITES = frozenset({"create", "update"})


class GuidQuestion(msgspec.Struct, frozen=True):
    """A question about a GUID. `jwt` is the record to store, "" reads the one that is there."""

    guid: str
    jwt: str = ""


GLOBAL_REGISTRY: ConnectorName[GuidQuestion, str] = ConnectorName("global-registry")
"""Replies with the record that was read, or that is stored now."""


class GlobalRegistryService:
    """The global registry as a message service."""

    def __init__(
        self,
        *,
        read_seconds: float = GLOBAL_REGISTRY_READ_SECONDS,
        write_seconds: float = GLOBAL_REGISTRY_WRITE_SECONDS,
    ) -> None:
        self.follow(read_seconds=read_seconds, write_seconds=write_seconds)

    def follow(self, *, read_seconds: float, write_seconds: float) -> None:
        """Give the registry so much time from the next request on."""
        self._read_seconds = read_seconds + _CHECK_SECONDS
        self._write_seconds = write_seconds + _CHECK_SECONDS

    def __call__(self, request: ServiceRequest) -> Answer | Inquiry:
        """Serve `read`, `create` and, as the same, `update`. Refusals are answers here: they have both spellings."""
        try:
            question = _question(request)
        except PeerError as exc:
            return _refused(exc, request.now)
        seconds = self._write_seconds if question.jwt else self._read_seconds
        conclude = _written if question.jwt else _read
        return inquire(GLOBAL_REGISTRY, question, conclude, failed=_refused, seconds=seconds)


def _question(request: ServiceRequest) -> GuidQuestion:
    if request.caller.is_abroad:
        raise PeerError(Code.TRANSIT, "every domain asks the global registry through a node of its own")
    members, kind = request.members, request.message.type
    if kind != "read" and kind not in _WRITES:
        raise PeerError(Code.BAD_TYPE, "this service knows read, create and update")
    guid = bare_guid(text_of(members, "resource") or text_of(members, "guid"))
    if kind == "read":
        return GuidQuestion(guid)
    jwt = _record_in(members)
    if not jwt:
        raise PeerError(Code.BAD_BODY, "the record is missing: `value`, or `jwt`")
    return GuidQuestion(guid, jwt)


def _record_in(members: Members) -> str:
    """The record, however long it is: to judge that is its reader's."""
    return next((jwt for name in ("value", "jwt") if isinstance(jwt := members.get(name), str) and jwt), "")


def _read(jwt: str, _now: float) -> Answer:
    return _said(200, value=jwt)


def _written(_jwt: str, _now: float) -> Answer:
    return _said(200, value="")


def _refused(error: HostError, _now: float) -> Answer:
    code = error.code
    return _said(code.status, reason=code.word, detail=error.detail)


def _said(code: int, *, value: str | None = None, reason: str = "", detail: str = "") -> Answer:
    """Both spellings of one answer; runtimes read `Code` and `Value`. Source: message specification, section 12.3."""
    word = DESCRIPTIONS[code]
    description = f"{word}: {detail}" if detail else word
    capital: dict[str, object] = {"Code": code, "Message": description}
    if value is not None:
        capital["Value"] = value
    return Answer(code, msgspec.UNSET if value is None else value, reason, description, members=capital)
