"""One flow of one session to another domain: the text of its headers, and what was decided about it."""

from __future__ import annotations

from dataclasses import dataclass

from federation.outward_flow import OutwardFlow
from msg_node.bus.core.router import ToDomain
from protofly.header_text import HeaderText
from protofly.message import Message


@dataclass(slots=True)
class SessionFlow:
    """One flow of one session.

    `like` is a message of it without its body, `turn` the one in which what was decided was last compared with what
    holds.
    """

    text: HeaderText
    like: Message
    sid: int
    roles: frozenset[str]
    decision: ToDomain
    outward: OutwardFlow
    turn: int = 0
