"""Answers of registries of other domains, made readable for our runtimes.

Some nodes answer 200 whatever their registry said: nothing found comes as 200 with an empty `value`, or with one that
holds only a `message`. Such a reply is handed on as 404. Source: message specification, section 10.6.
"""

from __future__ import annotations

import msgspec

from protofly import codec
from protofly.errors import Code
from protofly.message import Message

REGISTRIES = "domain://registry."
"""How the addresses of domain registries begin."""


def as_found(reply: Message) -> Message:
    """A message of a foreign registry; a reply that says 200 and has nothing becomes 404.

    Raises:
        PeerError: BAD_BODY.
    """
    if not reply.is_response:
        return reply
    members = codec.body_members(reply.body)
    value = members.get("value")
    if members.get("code") not in (200, "200") or not isinstance(value, dict) or value.keys() - {"message"}:
        return reply
    code = Code.NOT_REGISTERED
    said = {"code": code.status, "description": code.description, "reason": code.word}
    if "desc" in members:
        said["desc"] = code.description
    return codec.with_body(reply, msgspec.json.encode({**members, **said}))
