"""The tables of a node that the bus uses, as a protocol."""

from __future__ import annotations

from typing import Protocol

from msg_node.addresses.core.tables import AddressTables
from msg_node.kernel.list_marks import ListMarks
from msg_node.kernel.restrictions import Restrictions
from msg_node.qos.core.leases import Leases
from msg_node.registries.core.policy_names import PolicyNames
from msg_node.registries.core.registry import DomainRegistry
from msg_node.registries.core.twin import Twin
from msg_node.registries.core.user_places import LocalUsers
from msg_node.requests.core.delivery_state import DeliveryState
from msg_node.requests.core.push_targets import PushTargets
from msg_node.sessions.core.guests import Guests
from msg_node.sessions.core.sessions import Sessions
from msg_node.sessions.core.transitions import SessionTransitions


class BusTables(AddressTables, Protocol):
    """Tables of all subjects that messages are routed by."""

    @property
    def transitions(self) -> SessionTransitions:
        """Opens and ends sessions."""

    @property
    def sessions(self) -> Sessions:
        """Live and parked sessions."""

    @property
    def guests(self) -> Guests:
        """Sessions of runtimes of other domains."""

    @property
    def registry(self) -> DomainRegistry:
        """Registered hyperties and data objects."""

    @property
    def users(self) -> LocalUsers:
        """Users that are registered here."""

    @property
    def leases(self) -> Leases:
        """Reservations of sessions."""

    @property
    def twin(self) -> Twin:
        """Descriptions and values of things."""

    @property
    def delivery(self) -> DeliveryState:
        """Parked requests, inboxes and queues."""

    @property
    def push(self) -> PushTargets:
        """Push subscriptions."""

    @property
    def policy_names(self) -> PolicyNames:
        """Policies that owners have named for their objects."""

    @property
    def restrictions(self) -> Restrictions:
        """The restrictions that operators have set."""

    @property
    def list_marks(self) -> ListMarks:
        """The newest block lists that are known."""
