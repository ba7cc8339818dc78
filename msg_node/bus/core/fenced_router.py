"""The routing decisions of a node whose name others may be about to take: it promises nothing.

Everything that expects a reply, and every action, is refused: another process may already answer for this name. What
sessions say about themselves goes on, and so do events and replies, which promise nothing. See docs/adr/0028.
"""

from __future__ import annotations

from msg_node.bus.core.router import SERVE_SESSION, Decision, Decisions, Refuse
from protofly.errors import Code
from protofly.message import Message


class FencedRouter(Decisions):
    """Decides in place of the router of a running node, until that may decide again.

    Args:
        router: Decides about everything that is not refused.
        retry_seconds: When senders may try again.
    """

    def __init__(self, router: Decisions, retry_seconds: float) -> None:
        self.router = router
        self._refusal = Refuse(Code.STATE_UNAVAILABLE, {"retryAfter": retry_seconds})

    def decide(self, message: Message, origin: int, now: float, *, may_park: bool = True) -> Decision:
        """See `Decisions`."""
        decision = self.router.decide(message, origin, now, may_park=may_park)
        if decision is SERVE_SESSION or not (message.is_action or message.expects_reply):
            return decision
        return self._refusal


def fenced(router: Decisions, retry_seconds: float | None) -> Decisions:
    """Return the router that decides from now on; with None, the one that decided before it was fenced."""
    if retry_seconds is None:
        return router.router if isinstance(router, FencedRouter) else router
    return router if isinstance(router, FencedRouter) else FencedRouter(router, retry_seconds)
