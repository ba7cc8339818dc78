"""The settings of one node: what an operator may write in `node.toml`, as types.

These types are the only definition; those of each table are in `tables/`. `load` reads files into them, the modules
beside it check what types cannot express, `reference` prints them as `docs/configuration.md`. Every field carries its
own explanation; units end the names.

Unknown keys are errors. A setting at the wrong level that is silently ignored is how domain blocks come not to block.

Source: trust and hosts, sections 6.1 and 6.2.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from msg_node.settings.tables.addresses import AllocationSettings, RoutingSettings, SubscriptionSettings
from msg_node.settings.tables.admin import AdminSettings
from msg_node.settings.tables.alarms import AlarmSettings
from msg_node.settings.tables.bindings import HttpsSettings, MqttSettings, TwinSettings
from msg_node.settings.tables.block_lists import BlockListSettings
from msg_node.settings.tables.bounds import LimitSettings
from msg_node.settings.tables.cluster import ClusterSettings
from msg_node.settings.tables.compat import CompatSettings
from msg_node.settings.tables.connectors import ConnectorSettings
from msg_node.settings.tables.delivery import DeliverySettings
from msg_node.settings.tables.discovery import DiscoverySettings
from msg_node.settings.tables.exchange import ExchangeSettings
from msg_node.settings.tables.identity import GlobalRegistrySettings, IdentitySettings
from msg_node.settings.tables.interworking import InterworkingSettings
from msg_node.settings.tables.listeners import ListenSettings, SiteSettings
from msg_node.settings.tables.middleware import MiddlewareSettings
from msg_node.settings.tables.node import DebugSettings, LogSettings, NodeSettings
from msg_node.settings.tables.peers import PeerSettings
from msg_node.settings.tables.policy import PolicySettings
from msg_node.settings.tables.publish import PublishSettings
from msg_node.settings.tables.push import PushSettings
from msg_node.settings.tables.recording import RecordingSettings
from msg_node.settings.tables.records import RecordSettings
from msg_node.settings.tables.registries import CatalogueSettings, QosSettings, RegistrySettings
from msg_node.settings.tables.sandbox import SandboxSettings
from msg_node.settings.tables.sessions import SessionSettings
from msg_node.settings.tables.storage import StorageSettings
from msg_node.settings.tables.traces import TracesSettings


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    node: NodeSettings
    listen: ListenSettings = ListenSettings()
    https: HttpsSettings = HttpsSettings()
    site: SiteSettings | None = None
    admin: AdminSettings | None = None
    alarms: AlarmSettings = AlarmSettings()
    publish: PublishSettings | None = None
    discovery: DiscoverySettings = DiscoverySettings()
    policy: PolicySettings = PolicySettings()
    registry: RegistrySettings | None = None
    qos: QosSettings | None = None
    catalogue: CatalogueSettings = CatalogueSettings()
    limits: LimitSettings = LimitSettings()
    storage: StorageSettings = StorageSettings()
    cluster: ClusterSettings = ClusterSettings()
    records: RecordSettings = RecordSettings()
    recording: RecordingSettings | None = None
    sandbox: SandboxSettings = SandboxSettings()
    sessions: SessionSettings = SessionSettings()
    allocation: AllocationSettings = AllocationSettings()
    subscriptions: SubscriptionSettings = SubscriptionSettings()
    routing: RoutingSettings = RoutingSettings()
    twin: TwinSettings = TwinSettings()
    middleware: MiddlewareSettings = MiddlewareSettings()
    mqtt: MqttSettings | None = None
    delivery: DeliverySettings = DeliverySettings()
    push: PushSettings | None = None
    global_registry: GlobalRegistrySettings | None = None
    identity: IdentitySettings = IdentitySettings()
    compat: CompatSettings = CompatSettings()
    log: LogSettings = LogSettings()
    traces: TracesSettings | None = None
    debug: DebugSettings = DebugSettings()
    peer: tuple[PeerSettings, ...] = ()
    exchange: ExchangeSettings | None = None
    block_list: Annotated[tuple[BlockListSettings, ...], Meta(max_length=16)] = ()
    interworking: tuple[InterworkingSettings, ...] = ()
    connector: tuple[ConnectorSettings, ...] = ()

    @property
    def own_domains(self) -> tuple[str, ...]:
        """The domain and its aliases: addresses in them are local."""
        return (self.node.domain, *self.node.aliases)

    @property
    def node_id(self) -> str:
        """Name of this node that is unique among all domains; identifies record files."""
        return f"{self.node.name}.{self.node.domain}"

    @property
    def exchange_dir(self) -> Path:
        """The folder of what partners have handed in."""
        named = self.exchange.folder if self.exchange is not None else None
        return named or self.node.data_dir / "exchange" / "in"

    @property
    def spool_dir(self) -> Path:
        """The folder of record segments."""
        return self.records.spool_dir or self.node.data_dir / "records"

    @property
    def site_url(self) -> str:
        """The address of our site for others, without a final slash."""
        public_url = self.site.public_url if self.site else ""
        return (public_url or f"https://{self.node.domain}").rstrip("/")
