"""A share of the messages to one domain, which goes by a newer version of its stub to try it out.

The newer version has a line of its own beside that of the running one, and a stream of numbers of its own; to the far
end it is one node more that links to it. Which messages are its share is said by the pair of their addresses: all that
one sends to another goes one way, so the order holds.

    open: what waits for the running version and is of the share moves over, once nothing is under way there
    share ──▶ queue ──▶ newer version
    close: new ones wait in `held`, until nothing is under way in `queue`; then all of them wait for the running version

Pure: no clock, no carrier is called. Source: trust and hosts, section 3.6, step 6.
"""

from __future__ import annotations

from hashlib import blake2b

from federation.core.carrier import Carrier
from federation.core.outbound_queue import OutboundQueue, QueueLimits
from protofly.message import Message

_PERCENT = 100


class CanaryLane:
    """The share of one newer version.

    Args:
        stream: 32 hex digits that name its sequence of message numbers, and decide which pairs are its share: nobody
            can choose addresses that are, or are not.
        percent: Of the pairs of addresses.
        limits: Bounds of its queue.

    Attributes:
        queue: What waits for the newer version or is under way by it.
        held: What waits for the end of the share.
        carrier: The one that carries it, None while none is up.
        is_open: New messages of the share go by it.
        delivered: Messages that the far end answers for.
        refused: Messages that the newer version or the far end refused.
    """

    def __init__(self, stream: str, percent: int, limits: QueueLimits) -> None:
        self.queue = OutboundQueue(stream, limits)
        self.held = OutboundQueue(stream, limits)
        self.carrier: Carrier | None = None
        self.is_open = False
        self.delivered = self.refused = 0
        self._key = bytes.fromhex(stream)
        self._below = percent * (1 << 32) // _PERCENT

    def takes(self, message: Message) -> bool:
        """True when a message is of the share."""
        pair = f"{message.from_}\n{message.to}".encode()
        return int.from_bytes(blake2b(pair, digest_size=4, key=self._key).digest(), "big") < self._below

    def queue_for(self, message: Message, others: OutboundQueue) -> OutboundQueue:
        """The queue that a new message goes to; `others` is that of the running version."""
        if not self.takes(message):
            return others
        return self.queue if self.is_open else self.held

    def open(self, others: OutboundQueue) -> None:
        """Begin: what waits in `others` and is of the share moves over, as nothing of it is under way there."""
        assert others.is_clear
        self.is_open = True
        self.queue.adopt(others.take_out(lambda pending: self.takes(pending.message)))

    def close(self, until: float) -> None:
        """End, in order: what was never handed over, and what comes from now on, waits for the running version.

        `until` is when that is expected, in monotonic seconds; as many may wait as while a carrier is up.
        """
        self.is_open = False
        self.held.awaited_until = until
        self.held.adopt(self.queue.take_out(lambda pending: not pending.number))

    @property
    def is_finished(self) -> bool:
        """True when it is closed and nothing is under way by it."""
        return not self.is_open and not self.queue.under_way and not self.queue.waiting

    def join(self, others: OutboundQueue) -> int:
        """Have everything that is here follow what waits in `others`; returns how many may arrive twice.

        Those are the ones that a carrier took and the far end did not accept: none once it `is_finished`.
        """
        unsure = self.queue.abandon()
        others.adopt([*unsure, *self.held.abandon()])
        return len(unsure)
