"""The routing decisions of a node that is one of several of its domain.

What is here is decided as by a node alone. What is nowhere here may be at another node: then it goes there if that is
known, and otherwise waits until the directory has been asked (`FIND_NODE`). An action for a node that cannot be reached
is parked here, and follows its recipient (`WorkMoves`); nothing else waits for that. Events for observers need no
look-up: whichever node has observers has said so. Source: message specification, section 20.2.
"""

from __future__ import annotations

from typing import Protocol

from msg_node.addresses.core.allocation import is_below_any
from msg_node.bus.core.router import DROP, FIND_NODE, PARK_HERE, Decision, Decisions, Deliver, Park, Refuse
from msg_node.bus.core.tables import BusTables
from msg_node.kernel.resources import EVENT_SUFFIXES, object_of_events
from protofly.address import domain_of
from protofly.errors import Code
from protofly.message import Message

_OWN_SCHEMES = ("domain://", "global://", "mn:", "user-guid:")


class KnownPlaces(Protocol):
    """Remembers at which nodes addresses are."""

    def place(self, key: str, /) -> int | None:
        """The number of the node that has an address, 0 when none has; None when that is to be looked up."""

    def reaches(self, number: int, /) -> bool:
        """True if the node of that number is connected with this one."""


class LinkNodes(Protocol):
    """Remembers which nodes have the links to other domains."""

    def elsewhere(self, domain: str, /) -> str:
        """The other node that has the link to a domain, "" when this one has it or it is not known."""


class ClusterRouter(Decisions):
    """Decides in place of the router of a node alone.

    Args:
        router: Decides about everything that is here.
        places: What is known about other nodes.
        links: Where the links to other domains are: actions for those are parked there.
        state: What is ours, and what somebody here has claimed.
    """

    def __init__(self, router: Decisions, places: KnownPlaces, links: LinkNodes, state: BusTables) -> None:
        self._router = router
        self._places = places
        self._link_nodes = links
        self._numbers = state.links
        self._domains = state.domains
        self._pending = state.owners.pending

    def decide(self, message: Message, origin: int, now: float, *, may_park: bool = True) -> Decision:
        """See `Decisions`."""
        decision = self._router.decide(message, origin, now, may_park=may_park)
        if self._pending and is_below_any(message.to_key, self._pending):
            return FIND_NODE  # who has claimed it here may not get it
        if type(decision) is Deliver:
            return decision
        if decision is DROP or decision in (_NO_ROUTE, PARK_HERE):
            return self._elsewhere(message, decision)
        if type(decision) is Park and (node := self._link_nodes.elsewhere(decision.domain)):
            number = self._numbers.of_node(node)
            return Deliver((number,)) if self._places.reaches(number) else decision
        return decision

    def _elsewhere(self, message: Message, decision: Decision) -> Decision:
        key = message.to_key
        if not self._may_be_elsewhere(key):
            return decision
        number = self._places.place(key)
        if number is None:
            return FIND_NODE
        if not number or (decision == PARK_HERE and not self._places.reaches(number)):
            return decision
        return Deliver((number,))

    def _may_be_elsewhere(self, key: str) -> bool:
        if key.startswith(_OWN_SCHEMES) or (key.endswith(EVENT_SUFFIXES) and object_of_events(key)):
            return False
        domain = domain_of(key)
        return not domain or domain in self._domains


_NO_ROUTE = Refuse(Code.NO_ROUTE)
