"""Answers that the bus gives in place of somebody else. Source: message specification, sections 1.7 and 4."""

from __future__ import annotations

import msgspec

from protofly import codec
from protofly.errors import Code
from protofly.message import Message

VALIDATOR = "mn:/validator"


class _Described(msgspec.Struct, frozen=True, gc=False):
    description: msgspec.Raw = msgspec.Raw()


_decode_described = msgspec.json.Decoder(_Described).decode


def validator_reply(broken: codec.BrokenMessageError, runtime: str, *, has_desc: bool = True) -> Message | None:
    """Return the answer to the sender of a broken frame, None when nobody can get one.

    Args:
        broken: What is wrong with the frame.
        runtime: Address of the session's runtime, "" before there is a session.
        has_desc: It reads descriptions as `desc`.
    """
    is_silent = broken.code is Code.BROKEN_JSON and not broken.from_ and broken.id is None
    to = (broken.from_ or runtime) if broken.member == "type" else (runtime or broken.from_)
    if broken.is_response or is_silent or not to:
        return None
    body: dict[str, object] = {
        "code": broken.code.status,
        "description": broken.code.description,
        "reason": broken.code.word,
    }
    if broken.member:
        body["value"] = {"member": broken.member}
    if has_desc:
        body["desc"] = broken.code.description
    return codec.build(id=broken.id, type="response", from_=VALIDATOR, to=to, body=body)


def session_refusal(
    message: Message,
    code: Code,
    value: dict[str, object] | None,
    *,
    source: str,
    has_desc: bool = True,
    detail: str = "",
) -> Message:
    """Refuse a message of a session; dialect A reads the description as `desc`. `detail` is added to it."""
    extra: dict[str, object] = {"reason": code.word, "source": source}
    if value is not None:
        extra["value"] = value
    description = f"{code.description}: {detail}" if detail else None
    return codec.response(message, code.status, description=description, extra=extra, has_desc=has_desc)


def described(reply: Message) -> Message:
    """The same answer for a runtime of dialect A, which reads the description as `desc`."""
    if b'"desc":' in reply.body or not reply.body:
        return reply
    description = bytes(_decode_described(reply.body).description)
    return codec.with_last_member(reply, b'"desc":' + description) if description.startswith(b'"') else reply


def gap_word(runtime: str, objects: tuple[str, ...], *, is_vague: bool) -> Message:
    """Notify a runtime that is back of which objects it missed more than it was handed.

    `is_vague`: and perhaps of others. Source: feature row DS-08.
    """
    body: dict[str, object] = {"value": "missed", "resources": list(objects)}
    if is_vague:
        body["others"] = True
    return codec.build(id=None, type="update", from_="mn:/session", to=f"{runtime}/status", body=body)


def not_stored(reply: Message, code: Code) -> Message:
    """In place of a reply whose change could not be made durable; `code` says why."""
    body = {"code": code.status, "description": code.description, "reason": code.word}
    if "desc" in codec.body_members(reply.body):
        body["desc"] = code.description
    return codec.build(id=reply.id, type=reply.type, from_=reply.from_, to=reply.to, body=body)
