"""One flow of one session to another domain or another node of ours: the text of its headers, and what was decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from msg_node.bus.core.router import Deliver, ToDomain
from protofly.header_text import HeaderText
from protofly.message import Message


class Outward(Protocol):
    """The way by which a flow leaves this node; see `OutwardFlow`."""

    @property
    def is_current(self) -> bool:
        """True while what was decided about the way holds."""

    @property
    def sent(self) -> int:
        """Messages that have left by it."""

    def difference(self, message: Message, sent: int, /) -> str:
        """How a message was treated otherwise than `send` would have treated it; "" for not at all."""

    def send(self, messages: list[Message], now: float, /) -> int:
        """Queue messages of the flow, in order; returns how many."""


@dataclass(slots=True)
class SessionFlow:
    """One flow of one session.

    `like` is a message of it without its body, `turn` the one in which what was decided was last compared with what
    holds. `decision` names one other domain, or one other node of ours.
    """

    text: HeaderText
    like: Message
    sid: int
    roles: frozenset[str]
    decision: ToDomain | Deliver
    outward: Outward
    turn: int = 0

    @property
    def domain(self) -> str:
        """The other domain that it goes to, "" when it stays in ours."""
        return self.decision.domain if type(self.decision) is ToDomain else ""
