"""The tables of a node that the services of addresses use, as a protocol."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from federation.core.interworking import Interworking
from msg_node.addresses.core.allocation import Owners
from msg_node.addresses.core.holders import Holders
from msg_node.addresses.core.observer_rights import ObserverRights
from msg_node.addresses.core.sender_rights import GuestDomains, SenderRights
from msg_node.addresses.core.subscriptions import Listeners
from msg_node.kernel.changes import Change
from msg_node.kernel.directories import SessionDirectory
from msg_node.kernel.links import LinkNumbers
from msg_node.kernel.rules import Rules


class GuestQuotas(GuestDomains, Protocol):
    """Bounds what guests own."""

    @property
    def per_domain(self) -> int:
        """Number of addresses that the guests of one domain may own together."""

    def of(self, domain: str, /) -> Collection[int]:
        """Sessions of a domain's guests."""

    def check_quota(self, sid: int, number: int, /) -> None:
        """Raise PeerError QUOTA when the guests of this guest's domain would own too much together."""


class AddressTables(Protocol):
    """Tables of addresses, and what is needed of others."""

    @property
    def domains(self) -> frozenset[str]:
        """Our domain and its aliases."""

    @property
    def rules(self) -> Rules:
        """The switches of the operator."""

    @property
    def interworking(self) -> Interworking:
        """Legacy addresses that were granted to interworking stubs."""

    @property
    def owners(self) -> Owners:
        """Owners of addresses."""

    @property
    def listeners(self) -> Listeners:
        """Subscribers of addresses."""

    @property
    def holders(self) -> Holders:
        """Sessions that answer for addresses."""

    @property
    def senders(self) -> SenderRights:
        """Addresses that sessions may use as `from`."""

    @property
    def observer_rights(self) -> ObserverRights:
        """Rights of sessions to observe objects."""

    @property
    def links(self) -> LinkNumbers:
        """The numbers of foreign domains."""

    @property
    def sessions(self) -> SessionDirectory:
        """Live and parked sessions."""

    @property
    def guests(self) -> GuestQuotas:
        """Sessions of runtimes of other domains."""

    @property
    def take_changes(self) -> Callable[[], list[Change]]:
        """Gives what changed since the last call."""
