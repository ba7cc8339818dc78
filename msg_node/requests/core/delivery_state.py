"""State of deferred delivery: open requests, inboxes and queue rules of agents, stored together.

Source: message specification, section 19.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msg_node.kernel.changes import Journal, Rows, Table
from msg_node.requests.core.agent_queues import AgentQueues, QueueRules
from msg_node.requests.core.inbox import Inboxes
from msg_node.requests.core.parked import ParkedRequest
from msg_node.requests.core.parking import Bounds, Parking
from protofly.limits import AGENT_UNANSWERED_DEFAULT, INBOX_PER_OWNER, INBOX_SECONDS, PARKED_SECONDS


@dataclass(frozen=True, slots=True)
class DeliveryRules:
    """Settings of deferred delivery; times in seconds."""

    bounds: Bounds = field(default_factory=Bounds)
    default_seconds: float = PARKED_SECONDS
    unanswered: int = AGENT_UNANSWERED_DEFAULT
    inbox_seconds: float = INBOX_SECONDS
    inbox_per_owner: int = INBOX_PER_OWNER


class DeliveryState:
    """Open requests, inboxes and the queues of agents.

    Args:
        first_number: Where the ids of inbox entries begin, at random below 2^31.

    Attributes:
        journal: Of what changes here.
        cancelled: Requests that were cancelled and whether that was by their sender; taken out when the cancellation
            is carried out.
    """

    def __init__(self, journal: Journal, rules: DeliveryRules | None = None, *, first_number: int = 1) -> None:
        rules = rules or DeliveryRules()
        self.journal = journal
        self.cancelled: list[tuple[ParkedRequest, bool]] = []
        self.parking = Parking(journal, rules.bounds)
        self.inboxes = Inboxes(
            journal, first_number=first_number, keep_seconds=rules.inbox_seconds, per_owner=rules.inbox_per_owner
        )
        self.queues = AgentQueues(
            journal,
            defaults=QueueRules(rules.default_seconds, rules.unanswered),
            longest_seconds=rules.bounds.longest_seconds,
        )

    def follow(self, rules: DeliveryRules) -> None:
        """Let other rules count: bounds for what comes, times of agents and inboxes for what waits as well."""
        self.parking.bounds = rules.bounds
        self.inboxes.keep_seconds, self.inboxes.per_owner = rules.inbox_seconds, rules.inbox_per_owner
        self.queues.defaults = QueueRules(rules.default_seconds, rules.unanswered)
        self.queues.longest_seconds = rules.bounds.longest_seconds

    def restore(self, rows: Mapping[Table, Rows], *, now: float) -> None:
        """Take over what was stored.

        Raises:
            HostError: STORAGE.
        """
        self.queues.restore(rows.get(Table.AGENT_QUEUES, {}))
        self.inboxes.restore(rows.get(Table.INBOX, {}))
        self.parking.restore(rows.get(Table.PARKED, {}), now=now)

    def statistics(self) -> dict[str, int]:
        """Count what waits."""
        return {
            "open": len(self.parking),
            "open_bytes": self.parking.size_bytes,
            "queues": len(self.parking.queues.names()),
            "inbox_entries": len(self.inboxes),
            "inbox_dropped": self.inboxes.dropped,
        }
