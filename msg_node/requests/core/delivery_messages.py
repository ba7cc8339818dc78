"""The messages around a request that waits: what its recipient and its sender get.

Source: message specification, section 19.
"""

from __future__ import annotations

import re

import msgspec

from msg_node.requests.core.delivery_status import Status, StatusReport, status_body, status_members
from msg_node.requests.core.inbox import InboxEntry
from msg_node.requests.core.parked import ParkedRequest
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.lifetime import with_ttl
from protofly.message import Message

_REQUEST_ID = b"requestId"
_GIVEN_ID = re.compile(r"d-[0-9a-z-]{8,64}")
QUEUED = "queued"
_IS_QUEUED = StatusReport(Status.PENDING, 202, QUEUED)


def wants_seconds(message: Message) -> float | None:
    """Read the seconds that a request may wait by its own `body.ttl`; None if it has none.

    Raises:
        PeerError: BAD_BODY when that is no number.
    """
    raw = bytes(message.peek.ttl)
    if not raw or raw == b"null":
        return None
    try:
        return float(raw)
    except ValueError:
        raise PeerError(Code.BAD_BODY, "ttl must be a number of seconds") from None


def given_id(message: Message) -> str:
    """The request id that another node gave, "" without one that can be used."""
    if _REQUEST_ID not in message.body:
        return ""
    value = codec.body_members(message.body).get("requestId")
    return value if isinstance(value, str) and _GIVEN_ID.fullmatch(value) else ""


def handed_over(entry: ParkedRequest, now: float, *, with_lifetime: bool = False) -> Message:
    """A request as its recipient gets it: with its request id, and what is left of its time.

    `with_lifetime`: the time is said even when the sender said none. What was parked as an invitation keeps its bytes.
    """
    message, body = entry.request, entry.request.body
    if not entry.is_invitation:
        if message.peek.ttl or with_lifetime:
            body = with_ttl(body or b"{}", entry.expires_at - now)
        if _REQUEST_ID in body:
            body = codec.with_member(body, "requestId", msgspec.json.encode(entry.request_id))
        else:
            body = codec.append_members(body, b'"requestId":"' + entry.request_id.encode() + b'"')
    if entry.has_own_id:
        return message if body is message.body else codec.with_body(message, body)
    raw = codec.encode_message(id=entry.wire_id, type=message.type, from_=message.from_, to=message.to, body=body)
    return codec.decode(raw)[0]


def status_reply(entry: ParkedRequest, word: StatusReport) -> Message:
    """A report about a request as the answer to it; the code of a parked invitation is 100, never a success."""
    expires_at = 0.0 if word.status.is_final else entry.expires_at
    return _reported(entry.request, word, status_members(word, entry.request_id, expires_at=expires_at))


def repeated_reply(request: Message, request_id: str, word: StatusReport) -> Message:
    """The final word about a request, once more, as the answer to a repetition of it."""
    return _reported(request, word, status_members(word, request_id))


def _reported(request: Message, word: StatusReport, members: dict[str, object]) -> Message:
    return codec.response(request, word.code, description=word.description, extra=members)


def waiting_report(entry: ParkedRequest) -> StatusReport:
    """The report that the sender of an open request gets instead of its result: where it stands.

    Older runtimes take any success for the acceptance of an invitation, so theirs is 100.
    """
    if entry.is_invitation:
        return StatusReport(entry.status, 100)
    return _IS_QUEUED if entry.status is Status.PENDING else StatusReport(entry.status, 202)


def mirrored_answer(entry: ParkedRequest, answer: Message) -> Message:
    """The answer of an invited hyperty, under the id that the inviting one gave."""
    if entry.has_own_id:
        return answer
    raw = codec.encode_message(
        id=entry.request.id, type=answer.type, from_=answer.from_, to=answer.to, body=answer.body
    )
    return codec.decode(raw)[0]


def notice_body(entry: ParkedRequest, word: StatusReport) -> bytes:
    """The body of the event that reports about a request."""
    return msgspec.json.encode({"class": "event", **status_body(word, entry.request_id, source=_source(entry))})


def _source(entry: ParkedRequest) -> str:
    """The recipient of a request: the thing without its action."""
    return entry.request.to.partition("/actions/")[0]


def inbox_event(entry: InboxEntry, delivery_url: str) -> Message:
    """An inbox entry as the event that notifies its owner."""
    raw = codec.encode_message(
        id=entry.number, type="update", from_=delivery_url, to=f"{entry.owner}/inbox", body=entry.body
    )
    return codec.decode(raw)[0]


def abroad_event(entry: ParkedRequest, word: StatusReport, delivery_url: str, number: int) -> Message:
    """One word about a request of another domain, to that domain."""
    to = f"{entry.request.from_}/inbox"
    raw = codec.encode_message(id=number, type="update", from_=delivery_url, to=to, body=notice_body(entry, word))
    return codec.decode(raw)[0]


def cancellation(entry: ParkedRequest, from_: str, to: str, number: int) -> Message:
    """Make the message that asks the recipient of a request to cancel it."""
    body = {"resource": entry.request_id, "requestId": entry.request_id}
    return codec.build(id=number, type="delete", from_=from_, to=to, body=body)
