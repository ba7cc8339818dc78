"""Status of a request that waits: six values, four of them final, and how they are reported.

Source: message specification, section 19.2.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec import Raw

from protofly import codec
from protofly.answer_codes import code_of
from protofly.errors import DESCRIPTIONS, Code
from protofly.message import Message

_ABSENT = Raw()


class Status(StrEnum):
    """The statuses of a request."""

    PENDING = "pending"
    DELIVERED = "delivered"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def is_final(self) -> bool:
        """True if nothing comes after it."""
        return self not in (Status.PENDING, Status.DELIVERED)


_WORDS = {
    "pending": Status.PENDING,
    "queued": Status.PENDING,
    "delivered": Status.DELIVERED,
    "running": Status.DELIVERED,
    "complete": Status.COMPLETED,
    "completed": Status.COMPLETED,
    "failed": Status.FAILED,
    "error": Status.FAILED,
    "cancelled": Status.CANCELLED,
    "canceled": Status.CANCELLED,
    "expired": Status.EXPIRED,
}


def read_status(value: object) -> Status | None:
    """A status in any accepted spelling; None for anything else."""
    return _WORDS.get(value.lower()) if isinstance(value, str) else None


class StatusReport(NamedTuple):
    """One word about a request: its status, the code that goes with it, a reason, and the value, as JSON text."""

    status: Status
    code: int
    reason: str = ""
    value: bytes = b""
    description: str = ""

    @classmethod
    def of_code(cls, status: Status, code: Code, detail: str = "") -> StatusReport:
        """A word of the node's own."""
        description = f"{code.description}: {detail}" if detail else ""
        return cls(status, code.status, code.word, description=description)


CANCELLED = StatusReport.of_code(Status.CANCELLED, Code.CANCELLED)
EXPIRED = StatusReport.of_code(Status.EXPIRED, Code.EXPIRED)


class _AnswerBody(msgspec.Struct, frozen=True, gc=False):
    status: Raw = _ABSENT
    value: Raw = _ABSENT
    reason: Raw = _ABSENT
    description: Raw = _ABSENT


_decode_answer = msgspec.json.Decoder(_AnswerBody).decode


def report_of(reply: Message) -> StatusReport:
    """Read the report in a reply of an agent or another node.

    Below 200 it is at work on it; 202 and a status that is not final: another node keeps the request for its agent.
    """
    code = code_of(reply)
    body = _decode_answer(reply.body) if reply.body else _AnswerBody()
    said = read_status(codec.body_text(bytes(body.status)))
    reason = codec.body_text(bytes(body.reason))
    value, description = bytes(body.value), codec.body_text(bytes(body.description))
    if not code:
        return StatusReport.of_code(Status.FAILED, Code.BAD_REPLY, "the answer holds no code")
    if code < 200:
        return StatusReport(Status.DELIVERED, code, reason, value, description)
    if code == 202 and said is not None:
        return StatusReport(said, code, reason, value, description)
    if code < 300:
        return StatusReport(
            said if said is not None and said.is_final else Status.COMPLETED, code, reason, value, description
        )
    status = said if said in (Status.CANCELLED, Status.EXPIRED) else Status.FAILED
    return StatusReport(status, code, reason, value, description)


def status_body(word: StatusReport, request_id: str, *, source: str = "", expires_at: float = 0.0) -> dict[str, object]:
    """Return the members that report one status of a request."""
    description = word.description or DESCRIPTIONS.get(word.code, "")
    body: dict[str, object] = {"code": word.code, "description": description}
    body |= status_members(word, request_id, expires_at=expires_at)
    if source:
        body["source"] = source
    return body


def status_members(word: StatusReport, request_id: str, *, expires_at: float = 0.0) -> dict[str, object]:
    """Return those members that follow code and description."""
    members: dict[str, object] = {"reason": word.reason} if word.reason else {}
    members["requestId"] = request_id
    members["status"] = word.status
    if word.value:
        members["value"] = Raw(word.value)
    if expires_at:
        members["expires"] = int(expires_at)
    return members
