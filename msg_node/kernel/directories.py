"""Narrow protocols by which the services of one subject use the tables of another.

Sessions, addresses, requests, registries, identity and QoS do not import each other. What they share of their tables is
named here, and `msg_node.node_state` gives each the table of the other.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from enum import Enum
from typing import Protocol

from msg_node.kernel.registrations import Index
from msg_node.kernel.session import Session
from protofly.errors import Code


class Source(Enum):
    """The relation of a `from` to the session that sent the message. `code` is None where it may be used.

    Source: message specification, section 20.3.
    """

    OWN = "own"
    SUBSCRIBED = "subscribed"
    LOCAL_NAME = "local-name"
    LEARNABLE = "learnable"
    NOT_OWNER = "not-owner"
    SPOOFED = "spoofed"

    @property
    def code(self) -> Code | None:
        """The refusal, if it is one."""
        return _SOURCE_CODES.get(self)


OWN = Source.OWN
"""Before Python 3.12 a member costs ten times as much by way of its enumeration."""
_SOURCE_CODES = {Source.NOT_OWNER: Code.NOT_OWNER, Source.SPOOFED: Code.SPOOFED_SOURCE}


class SessionDirectory(Protocol):
    """Finds sessions, live and parked ones."""

    def __iter__(self) -> Iterator[Session]:
        """All of them."""

    def get(self, sid: int, /) -> Session | None:
        """The session of that number."""

    def by_runtime(self, key: str, /) -> int | None:
        """The session that speaks for a runtime key."""

    def below(self, key: str, /) -> int | None:
        """The session to whose runtime address `key` belongs."""

    def of_runtime(self, sid: int, /) -> frozenset[int]:
        """All sessions of the same runtime as `sid`."""


class OwnedAddress(Protocol):
    """An address that a session owns."""

    @property
    def url(self) -> str:
        """The address as it was given out or claimed."""


class LentAddresses(Protocol):
    """Addresses that the node lends, and that nobody may claim."""

    @property
    def keys(self) -> Container[str]:
        """Their canonical keys."""


class OwnerDirectory(Protocol):
    """Finds the owners of addresses, and gives addresses to those who claim them."""

    @property
    def pools(self) -> LentAddresses:
        """Addresses that are lent and never claimed."""

    def owner(self, key: str, /) -> int | None:
        """The session that owns a canonical key; one dictionary hit."""

    def owner_above(self, key: str, /) -> tuple[int, str] | None:
        """Owner and key of the nearest owned address above."""

    def claimant(self, key: str, /) -> int | None:
        """The session that owns an address, or has claimed it and may be refused yet."""

    def owned(self, sid: int, /) -> Sequence[OwnedAddress]:
        """Addresses that a session owns, oldest first."""

    def count(self, sid: int, /) -> int:
        """Return the number of addresses that a session owns."""

    def check_quota(self, sid: int, number: int, /) -> None:
        """Raise PeerError QUOTA when a session would own too much."""

    def claim(self, sid: int, url: str, /) -> bool:
        """Give a session an address that its runtime made itself; False when it is another's."""


class HolderDirectory(Protocol):
    """Finds who answers for an address."""

    def speaker_of(self, key: str, /) -> int | None:
        """The session that owns an address, or one above it; None when no session of ours does."""


class ListenerDirectory(Protocol):
    """Finds those who subscribed to an address."""

    def targets(self, key: str, /) -> tuple[int, ...]:
        """Sessions and links that subscribed to a canonical key."""

    def is_heard(self, key: str, /) -> bool:
        """True if any did; remembers nothing, for keys that are asked about once."""

    def listens(self, sid: int, key: str, /) -> bool:
        """True if a session or link gets what is sent to a key."""


class SenderDirectory(Protocol):
    """Says who may send as an address."""

    def source_of(self, sid: int, from_key: str, /) -> Source:
        """Return the relation of a `from` to the session that uses it."""

    def other_domain_of(self, number: int, /) -> str:
        """The foreign domain that a link or a guest's session speaks for, "" for a session of our own domain."""


class UserDirectory(Protocol):
    """Finds users in our own registry."""

    def hyperty_for(self, names: Iterable[tuple[Index, str]], origin: int, /) -> str:
        """The address to which an action for a user with these names goes, "" when none is registered here."""


class ObserverDirectory(Protocol):
    """Says who was taken off an object by its reporter."""

    def is_expelled(self, number: int, object_key: str, /) -> bool:
        """True if the reporter of an object has taken a session off it."""
