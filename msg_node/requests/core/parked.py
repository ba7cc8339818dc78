"""One request that may be parked: as it is submitted, while it is open, as it is stored, and when it has finished.

Source: message specification, section 19.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec import Raw

from msg_node.kernel.changes import Table
from msg_node.requests.core.delivery_status import Status, StatusReport
from protofly import codec
from protofly.errors import Code, HostError
from protofly.message import Message

TransactionKey = tuple[str, bytes, str]
"""Canonical `from`, id and canonical `to` of a request. Source: message specification, section 3."""


class Sender(NamedTuple):
    """Origin of a request: runtime and credential of a session of ours, or a foreign domain."""

    runtime_key: str
    credential: str = ""
    domain: str = ""


class Submission(NamedTuple):
    """A request to be taken.

    Attributes:
        request: As its sender wrote it, without flags.
        queue: Recipient: the key of an agent, or the name of a foreign domain.
        sender: Origin, which is bounded and may ask how the request stands.
        request_id: A fresh one, or for a foreign domain's request the one that its node gave.
        lifetime_seconds: How long it may stay open, before the operator's cap.
        roles: Of the session of its sender.
        asker: Session or link that it came from.
        is_invitation: It is parked because a policy said so.
    """

    request: Message
    queue: str
    sender: Sender
    request_id: str
    lifetime_seconds: float
    roles: frozenset[str] = frozenset()
    asker: int = 0
    is_invitation: bool = False


class ParkedRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stored request.

    `status` is final for a finished one that another domain may hand over again. `is_given`: another node of ours has
    it, and its domain is to hear that it waits.
    """

    number: int
    request_id: str
    queue: str
    message: Raw
    runtime_key: str
    accepted_at: float
    expires_at: float
    credential: str = ""
    domain: str = ""
    roles: tuple[str, ...] = ()
    wire_id: str = ""
    status: Status = Status.PENDING
    is_acknowledged: bool = False
    is_cancelling: bool = False
    is_invitation: bool = False
    is_given: bool = False
    code: int = 0
    reason: str = ""
    description: str = ""
    value: Raw = Raw(b"null")


@dataclass(slots=True, eq=False)
class ParkedRequest:
    """One open request.

    Attributes:
        number: Order of arrival at this node.
        transaction: The key that an answer to it mirrors.
        roles: Of the session of its sender.
        asker: Session or link to which a direct reply goes, 0 after a restart.
        taken_at: When this process took it, in seconds of a clock that nobody sets; None: another one did.
        is_invitation: It is parked because a policy said so; the answer goes to its sender as an answer.
        is_stored: It survives the process.
        is_acknowledged: The taker has said that it has it.
        is_cancelling: Its sender has cancelled it; its recipient decides.
    """

    number: int
    request_id: str
    queue: str
    request: Message
    sender: Sender
    accepted_at: float
    expires_at: float
    transaction: TransactionKey
    status: Status = Status.PENDING
    is_invitation: bool = False
    is_stored: bool = False
    is_acknowledged: bool = False
    is_cancelling: bool = False
    roles: frozenset[str] = frozenset()
    asker: int = 0
    taken_at: float | None = None

    @property
    def wire_id(self) -> bytes:
        """Id under which it is handed over: its own, or a fresh one when an open request has that already."""
        return self.transaction[1]

    @property
    def has_own_id(self) -> bool:
        """True when it is handed over under the id that its sender gave it."""
        return self.request.id == self.wire_id

    @property
    def size_bytes(self) -> int:
        """Bytes that count against the bound of the node."""
        return len(self.request.raw)


class FinishedRequest(NamedTuple):
    """A request that had its final answer. `is_stored`: it has a row as well."""

    request_id: str
    queue: str
    sender: Sender
    from_key: str
    word: StatusReport
    number: int
    expires_at: float
    is_stored: bool


def finished_of(entry: ParkedRequest, word: StatusReport, *, is_stored: bool) -> FinishedRequest:
    """Return what is kept of a request after its final answer."""
    return FinishedRequest(
        entry.request_id,
        entry.queue,
        entry.sender,
        entry.request.from_key,
        word,
        entry.number,
        entry.expires_at,
        is_stored,
    )


def row_key(number: int) -> str:
    """Key of the row of a request; rows sort in order of arrival."""
    return f"{number:012d}"


def row_of(entry: ParkedRequest, word: StatusReport | None = None) -> ParkedRow:
    """The row of a request; with `word`, that of one that has ended here, with only the header of its message."""
    sender = entry.sender
    return ParkedRow(
        number=entry.number,
        request_id=entry.request_id,
        queue=entry.queue,
        message=Raw(entry.request.raw if word is None else _header_of(entry.request)),
        runtime_key=sender.runtime_key,
        credential=sender.credential,
        domain=sender.domain,
        accepted_at=entry.accepted_at,
        expires_at=entry.expires_at,
        roles=tuple(sorted(entry.roles)),
        wire_id="" if entry.has_own_id else entry.wire_id.decode(),
        status=word.status if word is not None else entry.status if entry.is_acknowledged else Status.PENDING,
        is_acknowledged=entry.is_acknowledged,
        is_cancelling=entry.is_cancelling,
        is_invitation=entry.is_invitation,
        is_given=word is not None and not word.status.is_final,
        code=0 if word is None else word.code,
        reason="" if word is None else word.reason,
        description="" if word is None else word.description,
        value=Raw(word.value) if word is not None and word.value else Raw(b"null"),
    )


def _header_of(request: Message) -> bytes:
    return codec.encode_message(id=request.id, type=request.type, from_=request.from_, to=request.to)


def value_of(row: ParkedRow) -> bytes:
    """The value of a stored final answer, b"" without one."""
    value = bytes(row.value)
    return b"" if value == b"null" else value


def from_row(row: ParkedRow, expires_at: float) -> ParkedRequest:
    """The open request of a row.

    Raises:
        HostError: STORAGE, when it holds no message.
    """
    try:
        (request,) = codec.decode(bytes(row.message))
    except (codec.BrokenMessageError, ValueError) as exc:
        raise HostError(Code.STORAGE, f"state row {Table.PARKED.value}/{row.number} holds no message") from exc
    return ParkedRequest(
        number=row.number,
        request_id=row.request_id,
        queue=row.queue,
        request=request,
        sender=Sender(row.runtime_key, row.credential, row.domain),
        accepted_at=row.accepted_at,
        expires_at=expires_at,
        transaction=(
            request.from_key,
            row.wire_id.encode() or request.id or msgspec.json.encode(row.request_id),
            request.to_key,
        ),
        status=row.status,
        is_invitation=row.is_invitation,
        is_stored=True,
        is_acknowledged=row.is_acknowledged,
        is_cancelling=row.is_cancelling,
        roles=frozenset(row.roles),
    )


def number_of(entry: ParkedRequest) -> int:
    """Sort key for order of arrival."""
    return entry.number
