"""The parts of a running node that the operations of operators read and change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import trio

from catalogue_client.trust_store import TrustStore
from federation.discovery.domain_documents import DomainDocuments
from federation.discovery.resolver import Resolver
from federation.links.router import Federation
from msg_node.admin.core.alarms import Alarms
from msg_node.admin.core.plan import Plan
from msg_node.admin.core.proposals import Proposals
from msg_node.admin.core.traffic import Traffic
from msg_node.admin.log_levels import LogLevels
from msg_node.admin.log_tail import LogTail
from msg_node.admin.peer_checks import PeerChecks
from msg_node.admin.policy_deployment import PolicyDeployment
from msg_node.admin.record_search import RecordSearch
from msg_node.bus.bus import Bus
from msg_node.bus.core.tables import BusTables
from msg_node.bus.recorder import Recorder
from msg_node.identity.local_clients import LocalClients
from msg_node.identity.password_check import PasswordCheck
from msg_node.settings.model import Settings
from msg_node.storage.policy_store import PolicyStore
from msg_node.storage.state_store import StateStore
from policy.core.engine import CompiledPolicies
from policy.core.gate import Gate
from policy.core.model import Recipients
from protofly.records import Record
from stubs_cache.stub_pins import StubPins


@dataclass(frozen=True, slots=True, kw_only=True)
class Administered:
    """The parts of one node.

    Attributes:
        settings: Those in force.
        state: Its tables.
        bus: Its message bus.
        federation: Its links.
        gate: Its gates.
        recipients: Gives its gates the facts about recipients.
        resolver: Finds other domains.
        trust_store: What is stored about other domains.
        pins: Digests of stubs that the operator chose for other domains.
        documents: What other domains publish.
        end_connectors: Ends connectors of ours that run the module of this digest.
        log: The last lines of its log.
        levels: Levels of loggers that hold for a time.
        proposals: Changes of policies that wait for a second person.
        store: Where its tables become durable.
        record: Takes audit records.
        pseudonym: Makes a keyed hash of what names a person, for records.
        status: Makes what `/status` shows.
        summary: Makes the short form of it.
        metrics: Writes its figures for Prometheus.
        traffic: What records say about the last hour.
        alarms: Which alarms are raised.
        plan_reload: Reads and checks changed settings. Raises SettingsError.
        changing: Held while a change of settings or policies is planned and applied.
        policies: Which policies are in force.
        policy_store: Bundles of policies.
        recorder: Records conversations; None where the settings want none.
        gate_with: Makes a gate like this one, with other policies, to be asked what it would say. Raises SettingsError.
        clients: Clients that operators manage.
        passwords: Local users, and their passwords.
        forget_guid: Drops what is remembered of a GUID, and not how far it had come. Blocks. Raises HostError.
        on_their_way: Rows of sessions on their way between nodes of the domain, by key. Blocks. Raises HostError.
        checks: Check other domains; None where the program brings no tester.
        search: Searches the audit records; None where the program brings no search.
        stop: The node is to stop.
    """

    settings: Callable[[], Settings]
    state: BusTables
    bus: Bus
    federation: Federation
    gate: Gate
    recipients: Recipients | None
    resolver: Resolver
    trust_store: TrustStore
    pins: StubPins
    documents: DomainDocuments
    end_connectors: Callable[[str], None]
    log: LogTail
    levels: LogLevels
    proposals: Proposals
    store: StateStore
    record: Callable[[Record], None]
    pseudonym: Callable[[str], str]
    status: Callable[[], object]
    summary: Callable[[], object]
    metrics: Callable[[], bytes]
    traffic: Traffic
    alarms: Alarms
    plan_reload: Callable[[], Awaitable[Plan]]
    changing: trio.Lock
    policies: PolicyDeployment
    policy_store: PolicyStore
    recorder: Recorder | None
    gate_with: Callable[[CompiledPolicies], Gate]
    clients: LocalClients
    passwords: PasswordCheck
    forget_guid: Callable[[str], None]
    on_their_way: Callable[[], Mapping[str, bytes]] = dict
    checks: PeerChecks | None = None
    search: RecordSearch | None = None
    stop: trio.Event = field(default_factory=trio.Event)
