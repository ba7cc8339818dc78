"""Replies that come after their request was answered: how they are marked.

The first code of 200 or higher ends a request, and so does the node's own answer (504). What comes later is a late
reply. It carries `"late": true` in its body, and only sessions that asked for late replies are given it, so that nobody
takes it for the answer. The member alone decides nothing: what counts is what the node that delivers it knows.

Source: message specification, section 3, rule 3.
"""

from __future__ import annotations

import msgspec

from protofly import codec
from protofly.message import Message

LATE = "late"


def marked_late(reply: Message) -> Message:
    """The same reply with `"late": true` in its body, and known as late to the node; all other members stay."""
    if reply.is_late:
        return reply
    # A member of that name may be there already, escaped or twice: only the decoded names say.
    body = codec.with_member(reply.body or b"{}", LATE, b"true")
    return msgspec.structs.replace(codec.with_body(reply, body), is_late=True)
