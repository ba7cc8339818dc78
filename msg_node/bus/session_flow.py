"""One flow of one session to one destination: the text of its headers, and what was decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from msg_node.bus.core.router import Deliver, ToDomain
from msg_node.kernel.congestion import Congestible
from msg_node.kernel.counts import NodeCount
from protofly.counters import Counters
from protofly.header_text import HeaderText
from protofly.message import Message


class Outward(Protocol):
    """The way by which a flow leaves its sender; see `OutwardFlow`."""

    @property
    def is_current(self) -> bool:
        """True while what was decided about the way holds."""

    @property
    def sent(self) -> int:
        """Messages that have left by it."""

    def difference(self, message: Message, sent: int, /) -> str:
        """Describe the difference between the treatment of a message and that of `send`; "" if there is none."""

    def send(self, messages: list[Message], now: float, /) -> int:
        """Queue messages of the flow, in order; returns how many."""


class Listeners(Protocol):
    """The queues of runtimes that are connected here; see `SendQueues`."""

    @property
    def counters(self) -> Counters:
        """Those of the bus."""

    def run_to_listener(self, number: int, run: Sequence[Message], /) -> int:
        """Queue messages of one flow for one runtime; returns how many."""

    def congested(self, number: int, /) -> Congestible | None:
        """The queue of a runtime if its senders should pause."""


@dataclass(frozen=True, slots=True)
class ListenerWay:
    """The way of one flow to one runtime that is connected here, in the place of an `OutwardFlow`.

    `number` is that of its session.
    """

    listeners: Listeners
    number: int
    is_current = True
    """The router says who listens."""

    @property
    def sent(self) -> int:
        """Messages that this node has given to somebody."""
        return self.listeners.counters[NodeCount.DELIVERED]

    def send(self, messages: list[Message], now: float) -> int:  # noqa: ARG002  of `OutwardFlow`
        """See `OutwardFlow.send`."""
        return self.listeners.run_to_listener(self.number, messages)

    def difference(self, message: Message, sent: int) -> str:  # noqa: ARG002  it goes as it came
        """See `OutwardFlow.difference`."""
        if self.sent == sent + 1 or self.listeners.congested(self.number) is not None:
            return ""
        return "it was not delivered"


@dataclass(slots=True)
class SessionFlow:
    """One flow of one session.

    `like` is a message of it without its body, `turn` the one in which what was decided was last compared with what
    holds. `decision` names one other domain, one other node of ours, or one runtime that is connected here.
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
