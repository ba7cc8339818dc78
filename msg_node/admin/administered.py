"""The parts of a running node that the operations of operators read and change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from catalogue_client.trust_store import TrustStore
from federation.resolver import Resolver
from federation.router import Federation
from msg_node.admin.log_tail import LogTail
from msg_node.bus.bus import Bus
from msg_node.bus.core.tables import BusTables
from msg_node.settings.model import Settings
from policy.core.gate import Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Administered:
    """The parts of one node.

    Attributes:
        settings: Those in force.
        state: Its tables.
        bus: Its message bus.
        federation: Its links.
        gate: Its gates.
        resolver: Finds other domains.
        trust_store: What is stored about other domains.
        log: The last lines of its log.
        status: Makes what `/status` shows.
    """

    settings: Settings
    state: BusTables
    bus: Bus
    federation: Federation
    gate: Gate
    resolver: Resolver
    trust_store: TrustStore
    log: LogTail
    status: Callable[[], object]
