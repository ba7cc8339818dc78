"""What follows from what happens to the carrier of a canary lane: events in, actions out, as in `link_machine`.

The carrier is none of the carriers of the link: nothing of the link goes by it but the share of the lane.
"""

from __future__ import annotations

from federation.core.canary_lane import CanaryLane
from federation.core.carrier import Accepted, CarrierDown, CarrierEvent, CarrierUp, Convicted, Refused
from federation.core.link_counts import LinkCount
from federation.core.link_machine import (
    RELIEVED,
    Answer,
    Delivered,
    LinkAction,
    LinkMachine,
    Pump,
    Quarantine,
)
from protofly.errors import Code


class CanaryMachine:
    """The share of a newer version, as part of the link that it is of.

    Args:
        machine: Of the link; its `canary` is the lane.
        lane: The share.
    """

    def __init__(self, machine: LinkMachine, lane: CanaryLane) -> None:
        self._machine = machine
        self._lane = lane

    def handle(self, event: CarrierEvent, now: float) -> list[LinkAction]:
        """Take in one event of the carrier; returns what is to be done. `now` is monotonic seconds."""
        if isinstance(event, Accepted):
            return self._accepted(event, now)
        if isinstance(event, CarrierUp):
            return self._carrier_up(event)
        if isinstance(event, CarrierDown):
            return self._carrier_down(event, now)
        if isinstance(event, Refused):
            return self._refused(event, now)
        if isinstance(event, Convicted):
            ended = self._machine.end_message(event.message, "trapped", Code.QUARANTINED, "", now)
            return [Quarantine(event.message), *ended]
        return []

    def _carrier_up(self, event: CarrierUp) -> list[LinkAction]:
        """Another instance may follow the first one, to see the share through."""
        self._lane.carrier = event.carrier
        self._lane.queue.is_carried = True
        return [Pump(event.carrier), RELIEVED]

    def _carrier_down(self, event: CarrierDown, now: float) -> list[LinkAction]:
        if self._lane.carrier is event.carrier:
            self._lane.carrier = None
            self._lane.queue.carrier_lost(now)
        return []

    def _accepted(self, event: Accepted, now: float) -> list[LinkAction]:
        lane, machine = self._lane, self._machine
        done = lane.queue.resume(event.number)
        actions: list[LinkAction] = []
        if done:
            lane.delivered += len(done)
            machine.counters[LinkCount.ACCEPTED] += len(done)
            actions.append(Delivered(done, not lane.queue.is_congested))
            asking = [sent.message for sent in done if sent.message.peek.receipt]
            actions += map(Answer, machine.replies.receipts(asking, now))
        if lane.queue.waiting and lane.carrier is not None:
            actions.append(Pump(lane.carrier))
        return actions

    def _refused(self, event: Refused, now: float) -> list[LinkAction]:
        message = self._lane.queue.refused(event.number)
        if message is None:
            return []
        self._lane.refused += 1
        return self._machine.end_message(message, "rejected", event.code, event.detail, now)
