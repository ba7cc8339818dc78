"""Links to other domains and to the other nodes of our own, for those who send over links.

A node of our own stands in place of a domain under its name with a mark (`msg_node.kernel.links.node_name`). Everything
else is handed to the links of other domains. Source: design, section 6.
"""

from __future__ import annotations

from federation.link_context import Refusal
from federation.outward_flow import OutwardFlow
from msg_node.bus.send_queues import Links
from msg_node.cluster.core.node_contents import Passed
from msg_node.cluster.node_bus import NodeBus
from msg_node.kernel.congestion import Congestible
from msg_node.kernel.links import node_name
from protofly.address import domain_of
from protofly.message import Message

_NO_ROLES: frozenset[str] = frozenset()


class ClusterLinks:
    """Sends over links of both kinds.

    Args:
        links: Those to other domains.
        node_bus: That between our nodes.
        domains: Our domain and its aliases.
    """

    def __init__(self, links: Links, node_bus: NodeBus, domains: frozenset[str]) -> None:
        self._links = links
        self._node_bus = node_bus
        self._domains = domains

    def send(self, domain: str, message: Message, roles: frozenset[str] = _NO_ROLES) -> Refusal | None:
        """See `OutboundLinks`."""
        node = node_name(domain)
        if not node:
            return self._links.send(domain, message, roles)
        sender = domain_of(message.from_)
        passed = Passed(message, roles, is_from_abroad=sender != "" and sender not in self._domains)
        code = self._node_bus.send(node, passed.encode())
        return None if code is None else Refusal(code)

    def flow(self, domain: str, message: Message, roles: frozenset[str]) -> OutwardFlow | None:
        """See `Links`: what goes to a node of our own is judged there, each message by itself."""
        return None if node_name(domain) else self._links.flow(domain, message, roles)

    def reach(self, domain: str, message: Message, roles: frozenset[str]) -> Refusal | None:
        """See `OutboundLinks`."""
        return None if node_name(domain) else self._links.reach(domain, message, roles)

    def is_live(self, domain: str) -> bool:
        """See `OutboundLinks`."""
        node = node_name(domain)
        return node in self._node_bus.connected if node else self._links.is_live(domain)

    def congested_link(self, domain: str) -> Congestible | None:
        """See `Links`."""
        node = node_name(domain)
        return self._node_bus.congested(node) if node else self._links.congested_link(domain)

    def flush(self) -> None:
        """See `Links`."""
        self._links.flush()
        self._node_bus.flush()
