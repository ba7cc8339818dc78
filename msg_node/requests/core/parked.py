"""One open request as the parking book knows it, in memory and stored. Source: message specification, section 19."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
from msgspec import Raw

from msg_node.kernel.changes import Table
from msg_node.requests.core.delivery_status import Status, Word
from protofly import codec
from protofly.errors import Code, HostError
from protofly.message import Message

TransactionKey = tuple[str, bytes, str]
"""Who asked, with which id, whom. Source: message specification, section 3."""


class Sender(NamedTuple):
    """Who handed in a request: the runtime and the credential of a session of ours, or a foreign domain."""

    runtime_key: str
    credential: str = ""
    domain: str = ""


class ParkedRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry as it is stored. `status` is final for the mark of what another domain may hand over again."""

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
    code: int = 0
    reason: str = ""
    description: str = ""
    value: Raw = Raw(b"null")


@dataclass(slots=True, eq=False)
class Entry:
    """One open request.

    `wire_id` is the id under which it is handed over, where its own is taken by another one; `reply_until` is how long
    the sender still waits for a direct answer (None: it has had one), at session or link `asker` (0 after a restart).
    `roles` are those of the sender's session. `is_invitation`: parked because a policy said so;
    its answer goes to the sender as an answer.
    """

    number: int
    request_id: str
    queue: str
    request: Message
    sender: Sender
    accepted_at: float
    expires_at: float
    wire_id: bytes
    status: Status = Status.PENDING
    is_invitation: bool = False
    is_stored: bool = False
    is_acknowledged: bool = False
    is_cancelling: bool = False
    reply_until: float | None = None
    roles: frozenset[str] = frozenset()
    asker: int = 0

    @property
    def transaction(self) -> TransactionKey:
        """What the answer mirrors."""
        return self.request.from_key, self.wire_id, self.request.to_key

    @property
    def has_own_id(self) -> bool:
        """Whether it is handed over under the id that its sender gave it."""
        return self.request.id == self.wire_id

    @property
    def size_bytes(self) -> int:
        """What it takes."""
        return len(self.request.raw)


class Finished(NamedTuple):
    """A request that had its final word."""

    request_id: str
    queue: str
    sender: Sender
    from_key: str
    word: Word
    number: int
    expires_at: float
    is_stored: bool


def finished_of(entry: Entry, word: Word, *, is_stored: bool) -> Finished:
    """What is remembered of a request that had its final word; `is_stored`: in the store as well."""
    return Finished(
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
    """Key of the row of an entry: rows sort in order of arrival."""
    return f"{number:012d}"


def row_of(entry: Entry, word: Word | None = None) -> ParkedRow:
    """An entry as it is stored; with its final `word`, the mark that it leaves."""
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
        code=0 if word is None else word.code,
        reason="" if word is None else word.reason,
        description="" if word is None else word.description,
        value=Raw(word.value) if word is not None and word.value else Raw(b"null"),
    )


def _header_of(request: Message) -> bytes:
    return codec.encode_message(id=request.id, type=request.type, from_=request.from_, to=request.to)


def value_of(row: ParkedRow) -> bytes:
    """The value of a stored final word, b"" without one."""
    value = bytes(row.value)
    return b"" if value == b"null" else value


def from_row(row: ParkedRow, expires_at: float) -> Entry:
    """A stored entry.

    Raises:
        HostError: STORAGE, when it holds no message.
    """
    try:
        (request,) = codec.decode(bytes(row.message))
    except (codec.BrokenMessageError, ValueError) as exc:
        raise HostError(Code.STORAGE, f"state row {Table.PARKED.value}/{row.number} holds no message") from exc
    return Entry(
        number=row.number,
        request_id=row.request_id,
        queue=row.queue,
        request=request,
        sender=Sender(row.runtime_key, row.credential, row.domain),
        accepted_at=row.accepted_at,
        expires_at=expires_at,
        wire_id=row.wire_id.encode() or request.id or msgspec.json.encode(row.request_id),
        status=row.status,
        is_invitation=row.is_invitation,
        is_stored=True,
        is_acknowledged=row.is_acknowledged,
        is_cancelling=row.is_cancelling,
        roles=frozenset(row.roles),
    )
