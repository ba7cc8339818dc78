"""The tables of a node that the services of requests use, as a protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from federation.core.interworking import Interworking
from msg_node.kernel.changes import Change
from msg_node.kernel.directories import (
    ListenerDirectory,
    OwnerDirectory,
    SenderDirectory,
    SessionDirectory,
    UserDirectory,
)
from msg_node.kernel.links import LinkNumbers
from msg_node.kernel.rules import Rules
from msg_node.requests.core.delivery_state import DeliveryState
from msg_node.requests.core.parked import Sender
from msg_node.requests.core.push_targets import PushTargets


class ArrivedAddresses(Protocol):
    """Addresses with waiting requests that got an owner."""

    def take(self) -> list[str]:
        """Those that arrived since the last call."""


class QueueOwners(OwnerDirectory, Protocol):
    """Owners of the addresses that requests wait for."""

    @property
    def arrivals(self) -> ArrivedAddresses:
        """Addresses with waiting requests that got an owner."""


class RequestTables(Protocol):
    """Tables of requests, and what is needed of others."""

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
    def delivery(self) -> DeliveryState:
        """Parked requests, inboxes and queues."""

    @property
    def push(self) -> PushTargets:
        """Push subscriptions."""

    @property
    def owners(self) -> QueueOwners:
        """Owners of addresses."""

    @property
    def listeners(self) -> ListenerDirectory:
        """Subscribers of addresses."""

    @property
    def senders(self) -> SenderDirectory:
        """Addresses that sessions may use as `from`."""

    @property
    def sessions(self) -> SessionDirectory:
        """Live and parked sessions."""

    @property
    def users(self) -> UserDirectory:
        """Users that are registered here."""

    @property
    def links(self) -> LinkNumbers:
        """The numbers of foreign domains."""

    @property
    def take_changes(self) -> Callable[[], list[Change]]:
        """Gives what changed since the last call."""


def is_sender(tables: RequestTables, sid: int, sender: Sender, key: str) -> bool:
    """True if a session may read what became of a request that `sender` handed in under the name `key`.

    It is of the same runtime, or owns that address now; and it holds the same credential, if there was one.
    """
    session, owner = tables.sessions.get(sid), tables.owners.owner(key)
    if session is None:
        return False
    owns = None if owner is None else owner == sid
    return is_of_sender(session.runtime_key, session.proof.credential, sender, owns=owns)


def is_of_sender(runtime_key: str, credential: str, sender: Sender, *, owns: bool | None) -> bool:
    """The same for a session of that runtime and credential; `owns`: whether it owns the address, None: nobody does."""
    if sender.domain or (sender.credential and sender.credential != credential):
        return False
    return runtime_key == sender.runtime_key if owns is None else owns
