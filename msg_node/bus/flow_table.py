"""The flows of one connection that are known, and what was seen of others."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from federation.outward_flow import OutwardFlow
from msg_node.bus.core.router import ToDomain
from protofly.header_text import HeaderText, key_of
from protofly.message import Message

FLOWS_PER_SESSION: Final = 32


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
    """The flows of one connection, oldest first."""

    __slots__ = ("_flows", "_seen", "last")

    def __init__(self) -> None:
        self._flows: OrderedDict[bytes, Flow] = OrderedDict()
        self._seen: OrderedDict[int, None] = OrderedDict()  # hashes: names may be long
        self.last: Flow | None = None

    def find(self, raw: bytes) -> Flow | None:
        """The flow of a text, if its sender has more than the last one."""
        return self._flows.get(key_of(raw)) if len(self._flows) > 1 else None

    def has_seen(self, message: Message) -> bool:
        """True when a message of the same flow has been seen before, among the latest; from now on this one has."""
        names, seen = hash((message.type, message.from_, message.to)), self._seen
        if names in seen:
            return True
        seen[names] = None
        if len(seen) > FLOWS_PER_SESSION:
            seen.popitem(last=False)
        return False

    def keep(self, flow: Flow) -> None:
        """Keep a flow; the oldest gives way."""
        self._flows[flow.text.key] = self.last = flow
        self._flows.move_to_end(flow.text.key)
        if len(self._flows) > FLOWS_PER_SESSION:
            self._flows.popitem(last=False)

    def drop(self, flow: Flow) -> None:
        """A flow is not what it was."""
        self._flows.pop(flow.text.key, None)
        self.last = None
