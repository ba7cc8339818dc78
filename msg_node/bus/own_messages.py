"""Messages of the node's own: notifications, events and answers that it makes in place of others."""

from __future__ import annotations

import time

from msg_node.bus.core.router import Deliver, Router, ToDomain
from msg_node.bus.send_queues import SendQueues
from msg_node.kernel.answers import described
from protofly.errors import PeerError
from protofly.message import Message

_NODE_ORIGIN = 0


class OwnMessages:
    """Sends messages of the node itself. Nobody waits for them: what cannot be delivered is dropped."""

    def __init__(self, router: Router, send_queues: SendQueues) -> None:
        self._router = router
        self._send_queues = send_queues

    def send(self, message: Message) -> None:
        """Queue a message for those whom its `to` reaches, here and in other domains."""
        try:
            decision = self._router.decide(message, _NODE_ORIGIN, time.time())
        except PeerError:
            return
        queues = self._send_queues
        numbers = decision.numbers if isinstance(decision, Deliver | ToDomain) else ()
        if numbers:
            ports = [port for number in numbers if (port := queues.ports.get(number)) is not None]
            if message.is_response and any(port.line.dialect.reads_desc for port in ports):
                message = described(message)
            queues.to_listeners(numbers, message, set())
        if type(decision) is ToDomain:
            queues.links.send(decision.domain, message)
