"""Releases of addresses that other nodes own: refused, as a node alone refuses them for addresses of other sessions.

An address that nobody here owns may be another node's, so the directory is asked before the allocation service of this
node answers a `delete`. Operators, who may release it, do so at that node. Source: message specification, section 7.3.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from msg_node.addresses.core.allocation_service import named_for_release
from msg_node.bus.core.tables import BusTables
from msg_node.cluster.directory import Claim, Directory, found_soon
from msg_node.kernel.service import Answer, ConnectorName, Inquiry, Service, ServiceRequest, inquire
from protofly.address import canonical_key, domain_of
from protofly.errors import Code, PeerError


class NotOurs(msgspec.Struct, frozen=True):
    """Canonical keys of addresses that nobody at this node owns."""

    keys: tuple[str, ...]


RELEASES_OF_NODES: ConnectorName[NotOurs, Mapping[str, Claim]] = ConnectorName("releases")


class ReleasesOfNodes:
    """Stands before the allocation service.

    Args:
        node: The name of this node.
        state: Who owns what here.
        directory: Who owns the rest.
    """

    def __init__(self, node: str, state: BusTables, directory: Directory) -> None:
        self._node = node
        self._state = state
        self._directory = directory

    def over(self, service: Service) -> Service:
        """Wrap the service: with each `delete` it learns which of the addresses other nodes own."""

        def serve(request: ServiceRequest) -> Answer | Inquiry:
            is_asked = request.message.type == "delete" and not request.caller.is_link
            keys = self._not_ours(request) if is_asked else ()
            if not keys:
                return service(request)

            def conclude(claims: Mapping[str, Claim], _: float) -> Answer | Inquiry:
                if self._state.sessions.get(request.caller.number) is None:
                    raise PeerError(Code.NOT_CONNECTED, "the session has ended")
                request.elsewhere = frozenset(key for key, claim in claims.items() if claim.node != self._node)
                return service(request)

            return inquire(RELEASES_OF_NODES, NotOurs(keys), conclude)

        return serve

    async def ask(self, question: NotOurs) -> Mapping[str, Claim]:
        """Ask the directory. Raises HostError as it does."""
        return await found_soon(self._directory, question.keys)

    def _not_ours(self, request: ServiceRequest) -> tuple[str, ...]:
        keys = []
        for text in named_for_release(request.members):
            try:
                key = canonical_key(text)
            except PeerError:
                continue  # a name of a block
            if domain_of(key) in self._state.domains and self._state.owners.claimant(key) is None:
                keys.append(key)
        return tuple(dict.fromkeys(keys))
