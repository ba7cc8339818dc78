"""The flows of one connection that are known, and what was seen of others."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from federation.outward_flow import OutwardFlow
from msg_node.bus.core.router import ToDomain
from protofly.header_text import HeaderText, key_of
from protofly.message import Message

FLOWS_PER_SESSION: Final = 64
FLOW_MESSAGES: Final = 32
"""Messages for which it has to save something to make one flow, which costs as much as one or two go the whole way."""
MISSES: Final = 16
"""Texts in a row that are of no flow, after which nothing is looked up until a flow is seen again."""
_CREDIT: Final = 4 * FLOW_MESSAGES
_SEEN: Final = 128


@dataclass(slots=True)
class Flow:
    """One flow of one session: the text of its headers, and what was decided about it.

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


class FlowTable:
    """The flows of one connection, oldest first.

    A sender whose messages are all different must not cost more than without flows. So what was seen before is
    remembered by a hash among a few, a flow is made only where others have saved its cost or its messages
    have come often, and while nothing is found nothing is looked up.

    Attributes:
        last: The flow that was used last; None while none is looked up.
    """

    __slots__ = ("_credit", "_flows", "_misses", "_seen", "last")

    def __init__(self) -> None:
        self._flows: OrderedDict[bytes, Flow] = OrderedDict()
        self._seen: set[int] = set()
        self._credit = _CREDIT
        self._misses = 0
        self.last: Flow | None = None

    def find(self, raw: bytes) -> Flow | None:
        """The flow of a text that is not of the last one."""
        flow = self._flows.get(key_of(raw)) if len(self._flows) > 1 else None
        if flow is None:
            self._misses += 1
            if self._misses >= MISSES:
                self.last = None
        return flow

    def used(self, flow: Flow, messages: int) -> None:
        """So many messages have gone on as a flow."""
        self.last, self._misses = flow, 0
        self._credit = min(self._credit + messages, _CREDIT)

    def wants(self, message: Message) -> bool:
        """True when a flow is to be made for a message that has gone the whole way, as one like it did lately."""
        seen, number = self._seen, hash(message.to) ^ hash(message.from_)
        if number not in seen:
            if len(seen) >= _SEEN:
                seen.clear()
            seen.add(number)
            return False
        known = self._flows.get(key_of(message.raw))
        if known is not None:
            self.last, self._misses, known.turn = known, 0, 0
            return False
        self._credit += 1
        if self._credit < FLOW_MESSAGES:
            return False
        self._credit -= FLOW_MESSAGES
        return True

    def keep(self, flow: Flow) -> None:
        """Keep a flow; the oldest gives way."""
        self._flows[flow.text.key] = self.last = flow
        self._misses = 0
        if len(self._flows) > FLOWS_PER_SESSION:
            self._flows.popitem(last=False)

    def drop(self, flow: Flow) -> None:
        """A flow is not what it was."""
        self._flows.pop(flow.text.key, None)
        self.last = None
