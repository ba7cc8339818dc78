"""The flows of one connection, of a runtime or to another node, that are known, and what was seen of others."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Generic, Literal, Protocol, TypeVar

from protofly.header_text import HeaderText, key_of
from protofly.message import Message

FlowMode = Literal["on", "verify", "off"]
"""Mode of flows: used, off, or "verify", which handles every message fully and compares the result with the flow's."""

FLOWS_PER_SESSION: Final = 64
FLOWS_PER_LINK: Final = 512
"""A link brings the messages of many sessions; a flow takes one to three KiB."""
FLOW_MESSAGES: Final = 32
"""Messages for which it has to save something to make one flow, which costs as much as one or two go the whole way."""
MISSES: Final = 16
"""Texts in a row that are of no flow, after which nothing is looked up until a flow is seen again."""
_CREDIT: Final = 4 * FLOW_MESSAGES


class HasText(Protocol):
    """A flow: messages that share the text of their header."""

    @property
    def text(self) -> HeaderText:
        """The text of the header that its messages share."""


F = TypeVar("F", bound=HasText)


class FlowTable(Generic[F]):
    """The flows of one connection, oldest first.

    A sender whose messages are all different must not cost more than without flows. So what was seen before is
    remembered by a hash among a few, a flow is made only where others have saved its cost or its messages
    have come often, and while nothing is found nothing is looked up.

    Args:
        most: As many flows are kept.

    Attributes:
        last: The flow that was used last; None while none is looked up.
    """

    __slots__ = ("_credit", "_flows", "_misses", "_most", "_seen", "last")

    def __init__(self, most: int) -> None:
        self._most = most
        self._flows: OrderedDict[bytes, F] = OrderedDict()
        self._seen: dict[int, bool] = {}  # by hash of both addresses; True where a flow was kept
        self._credit = _CREDIT
        self._misses = 0
        self.last: F | None = None

    def find(self, raw: bytes) -> F | None:
        """The flow of a text that is not of the last one."""
        flow = self._flows.get(key_of(raw)) if len(self._flows) > 1 else None
        if flow is None:
            self._misses += 1
            if self._misses >= MISSES:
                self.last = None
        return flow

    def used(self, flow: F, messages: int) -> None:
        """So many messages have gone on as a flow."""
        self.last, self._misses = flow, 0
        self._credit = min(self._credit + messages, _CREDIT)

    def wants(self, message: Message) -> bool:
        """True when a flow is to be made for a message that has gone the whole way, as one like it did lately."""
        seen, number = self._seen, hash(message.to) ^ hash(message.from_)
        is_kept = seen.get(number)
        if is_kept is None:
            if len(seen) >= 2 * self._most:
                seen.clear()
            seen[number] = False
            return False
        known = self._flows.get(key_of(message.raw)) if is_kept else None
        if known is not None:
            self.last, self._misses = known, 0
            return False
        self._credit += 1
        if self._credit < FLOW_MESSAGES:
            return False
        self._credit -= FLOW_MESSAGES
        return True

    def keep(self, flow: F, like: Message) -> None:
        """Keep the flow of a message that was wanted; the oldest gives way."""
        self._seen[hash(like.to) ^ hash(like.from_)] = True
        self._flows[flow.text.key] = self.last = flow
        self._misses = 0
        if len(self._flows) > self._most:
            self._flows.popitem(last=False)

    def drop(self, flow: F) -> None:
        """A flow is not what it was."""
        self._flows.pop(flow.text.key, None)
        self.last = None
