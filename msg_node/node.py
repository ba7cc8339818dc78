"""The assembled node: everything that runs in one process, for those who start it and those who report on it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from federation.discovery.dialler import Dialler
from federation.discovery.resolver import Resolver
from federation.discovery.reverse_check import ReverseChecks
from federation.links.link_acceptor import LinkAcceptor
from federation.links.router import Federation
from federation.links.traces import Traces
from federation.stubs.flight_recorder import FlightRecorders
from msg_node.admin.administration import Administration
from msg_node.admin.alarm_watch import AlarmWatch
from msg_node.admin.block_subscriptions import BlockSubscriptions
from msg_node.admin.core.alarms import Alarms
from msg_node.admin.core.traffic import Traffic
from msg_node.admin.expiry_watch import ExpiryWatch
from msg_node.admin.log_levels import LogLevels
from msg_node.admin.log_tail import LogTail
from msg_node.admin.peer_checks import PeerChecks
from msg_node.admin.policy_deployment import PolicyDeployment
from msg_node.admin.record_search import RecordSearch
from msg_node.admin.shared_restrictions import SharedRestrictions
from msg_node.bus.bus import Bus
from msg_node.bus.policy_duties import PolicyDuties
from msg_node.bus.recorder import Recorder
from msg_node.cluster.followed_tables import FollowedTables
from msg_node.connectors.listener import Listener
from msg_node.node_state import NodeState
from msg_node.records.writer import RecordsWriter
from msg_node.settings.model import Settings
from msg_node.site.site import Site
from msg_node.storage.state_store import StateStore
from msg_node.wiring.backends import Backends
from msg_node.wiring.cluster import HeldName
from msg_node.wiring.discovery import WaysOut
from msg_node.wiring.foundation import CurrentSettings
from msg_node.wiring.nodes import JoinedNode
from msg_node.wiring.reloading import Reloading
from msg_node.wiring.session_steps import SessionSteps
from msg_node.wiring.trust import Trust
from policy.core.gate import Gate
from sandbox.host import Sandbox
from stubs_cache.cache import StubsCache

if TYPE_CHECKING:
    from msg_node.admin.admin_site import AdminSite
    from msg_node.admin.span_export import SpanExport
    from msg_node.cluster.shared_trust import SharedTrust
    from msg_node.wiring.mqtt import BrokerLine


@dataclass(slots=True)
class Node:
    """Everything that runs in one node process."""

    settings: Settings
    current: CurrentSettings
    version: str
    state: NodeState
    bus: Bus
    duties: PolicyDuties
    backends: Backends
    federation: Federation
    store: StateStore
    name: HeldName | None
    cluster: JoinedNode | None
    records: RecordsWriter
    traffic: Traffic
    spans: SpanExport | None
    sandbox: Sandbox
    resolver: Resolver
    cache: StubsCache
    traces: Traces
    listener: Listener
    mqtt: BrokerLine
    site: Site | None
    gate: Gate
    steps: SessionSteps
    recorder: Recorder | None
    policies: PolicyDeployment
    expiries: ExpiryWatch
    dialler: Dialler
    ways: WaysOut
    recorders: FlightRecorders
    plaintext: set[str]
    trust: Trust
    acceptor: LinkAcceptor | None
    reverse_checks: ReverseChecks | None
    started_at: float = field(default_factory=time.time)
    log: LogTail = field(default_factory=LogTail)
    levels: LogLevels = field(default_factory=LogLevels)
    reloading: Reloading = field(init=False)
    administration: Administration = field(init=False)
    alarm_watch: AlarmWatch = field(init=False)
    block_lists: BlockSubscriptions | None = None
    alarms: Alarms = field(default_factory=Alarms)
    admin_site: AdminSite | None = None
    restrictions: SharedRestrictions | None = None
    followed_tables: FollowedTables | None = None
    shared_trust: SharedTrust | None = None
    checks: PeerChecks | None = None
    search: RecordSearch | None = None

    def problems(self) -> list[str]:
        """Describe what keeps this node from doing all its work."""
        problems = ["draining: the node stops"] if self.federation.visitors.is_draining else []
        if self.store.statistics().last_error:
            problems.append(f"state: {self.store.statistics().last_error}")
        if self.name is not None:
            problems += self.name.problems()
        if self.records.statistics().error:
            problems.append(f"records: {self.records.statistics().error}")
        if not self.sandbox.zygote_pid:
            problems.append("sandbox: no zygote")
        binding = self.mqtt.binding
        if binding is not None and binding.client.error:
            problems.append(f"mqtt: {binding.client.error}")
        return problems + self.expiries.problems()
