"""The link to a domain as the carrier of a share sees it: messages come in as by any carrier, the share goes out.

`core/canary_lane` has the share, `stub_canary` says when it begins and ends.
"""

from __future__ import annotations

from federation.core.canary_lane import CanaryLane
from federation.core.canary_machine import CanaryMachine
from federation.core.carrier import Carrier, CarrierDown, CarrierEvent, CarrierProved, CarrierUp, Inbox, LinkPort
from federation.core.outbound_queue import OutboundQueue
from federation.links.domain_link import DomainLink


class CanaryPort(LinkPort):
    """The port of one instance that carries a share.

    Args:
        link: That the share is of.
        lane: The share.
        stub_sha256: The module of the instance, for the records of what it carries.
    """

    def __init__(self, link: DomainLink, lane: CanaryLane, stub_sha256: str) -> None:
        self._link = link
        self._lane = lane
        self._machine = CanaryMachine(link.machine, lane)
        self._stub_sha256 = stub_sha256

    @property
    def queue(self) -> OutboundQueue:
        """See `LinkPort`."""
        return self._lane.queue

    def handle(self, event: CarrierEvent) -> None:
        """See `LinkPort`."""
        link, inward = self._link, self._link.inward
        if isinstance(event, CarrierUp):
            inward.carrier_live(event.carrier, event.domains, is_node=bool(event.peer_node))
        elif isinstance(event, CarrierProved):
            inward.carrier_proved(event.carrier, event.domains)
        elif isinstance(event, CarrierDown):
            inward.carrier_lost(event.carrier)
        now = link.now()
        actions = self._machine.handle(event, now)
        if actions:
            with link.records.as_carried_by("stub", self._stub_sha256):
                link.effects.perform(actions, now)

    def is_active(self, carrier: Carrier) -> bool:
        """See `LinkPort`."""
        return self._lane.carrier is carrier

    @property
    def inbound(self) -> Inbox:
        """See `LinkPort`."""
        return self._link.inbound

    async def wait_for_room(self) -> None:
        """See `LinkPort`."""
        await self._link.wait_for_room()

    def processed(self, stream: str) -> int:
        """See `LinkPort`."""
        return self._link.processed(stream)
