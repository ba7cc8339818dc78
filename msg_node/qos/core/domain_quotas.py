"""What all nodes of a domain have reserved of the quotas of providers, as the one node sees it that grants.

A reservation is a lease of the node that has the session. Before a node makes one, it asks the granting node of the
domain (`Grant`). That one counts what all nodes have stored, and what it has granted and nobody has stored yet: so two
nodes never take the same rest, and no message of a node that died has to be waited for.

    asked ──grant──▶ pending ──seen among what is stored, or PENDING_SECONDS──▶ forgotten here: what is stored counts

Source: message specification, section 14; docs/cluster.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import msgspec

from msg_node.kernel.service import ConnectorName
from msg_node.qos.core.leases import Amounts, Lease, QosKind

PENDING_SECONDS: Final = 30.0
"""A grant that nobody has stored for so long came to nothing: its node died, or its session ended meanwhile."""


class Grant(msgspec.Struct, frozen=True):
    """May this be reserved?

    Attributes:
        name: Of the reservation.
        provider: Where.
        amounts: How much.
        usage: What the provider has counted, as the node that asks has just read it.
        limits: The quotas of the provider, in the same way.
        object_key: What it is for, "" for nothing; it has to be somebody's in this domain.
    """

    name: str
    provider: str
    amounts: Amounts
    usage: Amounts
    limits: Amounts
    object_key: str = ""


class Granted(msgspec.Struct, frozen=True):
    """The answer.

    Attributes:
        is_granted: It may.
        reserved: What others have reserved there.
        has_object: What it is for exists.
    """

    is_granted: bool
    reserved: Amounts = Amounts()
    has_object: bool = True


class Release(msgspec.Struct, frozen=True):
    """An operator ends a reservation, which another node has."""

    name: str


class Released(msgspec.Struct, frozen=True):
    """Says if a node had it; `is_whole`: all nodes that may have it were asked."""

    is_found: bool
    is_whole: bool = True


QUOTAS: ConnectorName[Grant, Granted] = ConnectorName("quotas")
"""Asks the granting node of the domain."""
RELEASES: ConnectorName[Release, Released] = ConnectorName("releases")
"""Asks all other nodes."""


class DomainView(Protocol):
    """The reservations of other nodes, as one of several nodes knows them."""

    @property
    def is_granting(self) -> bool:
        """True for the node that grants, and notifies listeners of quotas."""

    def reserved(self, provider: str) -> Amounts:
        """Amounts reserved at a provider: by all nodes if `is_granting`, else at least those of this one."""


class DomainQuotas:
    """Grants for the whole domain. `now` is seconds since the Unix epoch."""

    def __init__(self) -> None:
        self._stored: dict[str, Amounts] = {}
        self._pending: dict[str, tuple[Grant, float]] = {}

    def saw(self, leases: Iterable[Lease], now: float) -> None:
        """Take what all nodes have stored now; a session that moves may be there twice with what it has reserved."""
        standing = {lease.name: lease for lease in leases if lease.expires_at > now}
        self._stored = {}
        for lease in standing.values():
            self._stored[lease.provider] = self._stored.get(lease.provider, Amounts()).plus(lease.amounts)
        for name, (_, until) in list(self._pending.items()):
            if name in standing or until <= now:
                del self._pending[name]

    def reserved(self, provider: str) -> Amounts:
        """The sum that is reserved at a provider, as of the last look, or granted since."""
        total = self._stored.get(provider, Amounts())
        for grant, _ in self._pending.values():
            if grant.provider == provider:
                total = total.plus(grant.amounts)
        return total

    def grant(self, wanted: Grant, now: float) -> Granted:
        """Judge a reservation, directly after a look at what is stored."""
        reserved = self.reserved(wanted.provider)
        for kind in QosKind:
            used = max(wanted.usage.of(kind), reserved.of(kind))
            if wanted.amounts.of(kind) and used + wanted.amounts.of(kind) > wanted.limits.of(kind):
                return Granted(is_granted=False, reserved=reserved)
        self._pending[wanted.name] = wanted, now + PENDING_SECONDS
        return Granted(is_granted=True, reserved=reserved)
