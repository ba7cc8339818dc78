"""Messages of the node's own: notifications, events and answers that it makes in place of others."""

from __future__ import annotations

import time
from typing import Protocol

from federation.links.link_context import Refusal
from msg_node.bus.core.router import FIND_NODE, Decisions, Deliver, ToDomain
from msg_node.bus.send_queues import SendQueues
from msg_node.kernel.answers import described
from protofly.errors import PeerError
from protofly.message import Message

_NODE_ORIGIN = 0


class NodeFinder(Protocol):
    """Finds out at which node of our domain recipients are."""

    def take(self, message: Message, number: int, /) -> Refusal | None:
        """Keep a message of a session, a link or (0) the node itself until it is known where its recipient is."""


class OwnMessages:
    """Sends messages of the node itself. Nobody waits for them: what cannot be delivered is dropped.

    Args:
        router: Decides where they go.
        nodes: Finds addresses at other nodes, for one of several.
    """

    def __init__(self, router: Decisions, send_queues: SendQueues, nodes: NodeFinder | None = None) -> None:
        self._router = router
        self._send_queues = send_queues
        self._nodes = nodes

    def send(self, message: Message) -> None:
        """Queue a message for those whom its `to` reaches, here and in other domains."""
        self.give(message)

    def give(self, message: Message) -> bool:
        """Queue a message for those whom its `to` reaches, here and in other domains; returns if that is anybody."""
        try:
            decision = self._router.decide(message, _NODE_ORIGIN, time.time())
        except PeerError:
            return False
        if decision is FIND_NODE and self._nodes is not None:
            return self._nodes.take(message, _NODE_ORIGIN) is None
        queues = self._send_queues
        numbers = decision.numbers if isinstance(decision, Deliver | ToDomain) else ()
        if numbers:
            ports = [port for number in numbers if (port := queues.ports.get(number)) is not None]
            if message.is_response and any(port.line.dialect.reads_desc for port in ports):
                message = described(message)
            queues.to_listeners(numbers, message, set())
        refusal = queues.links.send(decision.domain, message) if type(decision) is ToDomain else None
        return bool(numbers) or (type(decision) is ToDomain and refusal is None)
