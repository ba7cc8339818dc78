"""The routing decisions of a node that stops: it refuses new requests, and lets all else go on.

Replies, events and actions are routed as ever: replies end what is under way, events wait for nobody, and actions are
stored. Requests to the node itself are served, since they are answered at once. Source: message
specification, section 5.4.
"""

from __future__ import annotations

from msg_node.bus.core.router import SERVE, SERVE_SESSION, Decision, Decisions, Refuse
from protofly.errors import Code
from protofly.message import Message


class DrainingRouter(Decisions):
    """Decides in place of the router of a running node.

    Args:
        router: Decides about everything that is not refused.
        retry_seconds: When senders may try again.
    """

    def __init__(self, router: Decisions, retry_seconds: float) -> None:
        self._router = router
        self._refusal = Refuse(Code.DRAINING, {"retryAfter": retry_seconds})

    def decide(self, message: Message, origin: int, now: float, *, may_park: bool = True) -> Decision:
        """See `Decisions`."""
        decision = self._router.decide(message, origin, now, may_park=may_park)
        if decision is SERVE or decision is SERVE_SESSION or message.is_action or not message.expects_reply:
            return decision
        return self._refusal
