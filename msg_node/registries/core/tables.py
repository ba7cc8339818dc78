"""The tables of a node that the services of registries use, as a protocol."""

from __future__ import annotations

from typing import Protocol

from federation.core.interworking import Interworking
from msg_node.kernel.directories import (
    HolderDirectory,
    ListenerDirectory,
    ObserverDirectory,
    OwnerDirectory,
    SessionDirectory,
)
from msg_node.kernel.links import LinkNumbers
from msg_node.kernel.rules import Rules
from msg_node.registries.core.registry import DomainRegistry
from msg_node.registries.core.twin import Twin


class RegistryTables(Protocol):
    """Tables of registries, and what is needed of others."""

    @property
    def domains(self) -> frozenset[str]:
        """Our domain and its aliases."""

    @property
    def interworking(self) -> Interworking:
        """Legacy addresses that were granted to interworking stubs."""

    @property
    def registry(self) -> DomainRegistry:
        """Registered hyperties and data objects."""

    @property
    def twin(self) -> Twin:
        """Descriptions and values of things."""

    @property
    def rules(self) -> Rules:
        """The rules that the operator has set."""

    @property
    def holders(self) -> HolderDirectory:
        """Sessions that answer for addresses."""

    @property
    def owners(self) -> OwnerDirectory:
        """Owners of addresses."""

    @property
    def listeners(self) -> ListenerDirectory:
        """Subscribers of addresses."""

    @property
    def observer_rights(self) -> ObserverDirectory:
        """Observers that were removed from objects."""

    @property
    def sessions(self) -> SessionDirectory:
        """Live and parked sessions."""

    @property
    def links(self) -> LinkNumbers:
        """The numbers of foreign domains."""
