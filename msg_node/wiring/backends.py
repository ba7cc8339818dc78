"""The services that stand in front of other servers, as the settings name them: made, connected, run, looked at.

Source: message specification, sections 10 and 14.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import trio

from catalogue_client.core.location import Location
from catalogue_client.fetcher import Fetcher
from federation.link_context import Identify
from federation.resolver import Resolver
from federation.stub_host import StubHost
from federation.stub_provider import StubProvider
from msg_node.addresses.core.askers import asker_of
from msg_node.backends.backend import Backend
from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.backend_tls import BackendTls
from msg_node.backends.catalogue import CatalogueReader, OwnCatalogue
from msg_node.backends.connector_stubs import ConnectorStub
from msg_node.backends.core.connector_requests import connector_name, connector_service
from msg_node.backends.qos_watch import QosWatch
from msg_node.backends.registry_watch import RegistryWatch
from msg_node.backends.sources import SourceReader, document_reader, schema_reader
from msg_node.backends.web_push import ANSWER_BYTES, PushKey, PushOptions, PushOrigin, WebPush
from msg_node.bus.bus import Bus
from msg_node.bus.node_questions import NodeQuestions
from msg_node.bus.quotas_of_nodes import QuotasOfNodes, QuotaSources
from msg_node.identity.mark_keeper import CHANNEL as MARKS_CHANNEL
from msg_node.kernel.catalogue_questions import CATALOGUE, SCHEMA
from msg_node.kernel.data_schemas import DataSchema
from msg_node.kernel.domain_records import RECORDS_CHANNEL
from msg_node.kernel.service import Service
from msg_node.node_state import NodeState
from msg_node.qos.core.domain_quotas import QUOTAS, RELEASES
from msg_node.qos.core.qos_service import BROKER, QosService
from msg_node.registries.core.catalogue_service import catalogue_service, without_guest_code
from msg_node.registries.core.registry_relay import REGISTRY, RegistryRelay
from msg_node.registries.policy_documents import PolicyDocuments
from msg_node.registries.validation import Validation
from msg_node.requests.core.push_service import PushService
from msg_node.settings.model import Settings
from msg_node.settings.push import origin_of
from msg_node.settings.tables.push import PushSettings
from msg_node.settings.tables.registries import BackendSettings
from msg_node.site.site import Site
from msg_node.wiring.cluster import HeldName
from msg_node.wiring.identity import IdentityServices
from policy.core.engine import CompiledPolicies
from protofly.documents import SigningKey
from protofly.limits import BACKEND_ANSWER_BYTES, DESCRIPTOR_BYTES


class Backends:
    """The systems elsewhere that the settings name.

    Use: `services` go into the table of services, then `connect`, then `run` in a nursery.

    Attributes:
        documents: Policies of objects; None: nobody may name any.
        validation: Holds changes against schemas; None: nothing does.
    """

    def __init__(
        self, settings: Settings, state: NodeState, node_key: SigningKey, name: HeldName | None = None
    ) -> None:
        """Make them; nothing is asked yet.

        Args:
            settings: Loaded and checked.
            state: The tables of the node.
            node_key: Signs for the node.
            name: That of one of several nodes.

        Raises:
            SettingsError: A file that the settings name cannot be used.
        """
        self._settings = settings
        self._state = state
        self.identity = IdentityServices(settings, state, node_key, name)
        if name is not None:
            name.notices.follow(RECORDS_CHANNEL, self.identity.heard)
            if self.identity.marks is not None:
                name.notices.follow(MARKS_CHANNEL, self.identity.marks.heard)
        self._relay = self._registry = None
        if settings.registry is not None:
            self._relay = RegistryRelay(state, cache_seconds=settings.registry.cache_seconds)
            self._registry = _backend("registry", "the domain registry", settings.registry)
        self._watch: RegistryWatch | None = None
        self._qos = self._broker = None
        if settings.qos is not None:
            self._qos = QosService(state, max_lease_seconds=settings.qos.max_lease_seconds)
            self._broker = _backend("qos", "the QoS broker", settings.qos)
        self._qos_watch: QosWatch | None = None
        self._push_key = None if settings.push is None else PushKey(settings.push.key, settings.push.subject)
        self._push: WebPush | None = None
        self._readers: tuple[SourceReader[DataSchema], SourceReader[CompiledPolicies]] | None = None
        self._stubs: list[ConnectorStub] = []
        self.documents = PolicyDocuments(state, state.policy_names) if settings.policy.documents else None
        self.validation = Validation(state) if settings.middleware.schema.validate else None

    @property
    def services(self) -> Mapping[str, Service]:
        """Services by canonical key, for `Services(at=…)`."""
        services: dict[str, Service] = {**self.identity.services}
        domains = self._settings.own_domains
        catalogue = catalogue_service if self._settings.catalogue.guest_stubs else without_guest_code(domains)
        for domain in domains:
            if self._relay is not None:
                services[f"domain://registry.{domain}"] = self._relay
            if self._qos is not None:
                services[f"domain://qos.{domain}"] = services[f"domain://qos-broker.{domain}"] = self._qos
            services[f"domain://catalogue.{domain}"] = catalogue
            if self._push_key is not None and self._settings.push is not None:
                origins = [origin_of(one) for one in self._settings.push.service]
                push = PushService(self._state, public_key=self._push_key.public, origins=origins)
                services[f"domain://msg-node.{domain}/push"] = push
            for one in self._settings.connector:
                service = connector_service(one.service, serves_domains=one.serves_domains)
                services[f"domain://{one.service}.{domain}"] = service
        services["hyperty-catalogue://*"] = catalogue
        return services

    @property
    def identify(self) -> Identify | None:
        """Says who sends a message that crosses our border, for links."""
        return self.identity.identify

    def connect(self, bus: Bus) -> None:
        """Connect inquiries and news to the bus; once, before anything runs."""
        self.identity.connect(bus)
        if self._push_key is not None and self._settings.push is not None:
            self._push = _push(self._settings.push, self._push_key, self._state, bus)
            bus.parked_actions.recorder.on_parked = self._push.somebody_waits
        if self._relay is not None and self._registry is not None and self._settings.registry is not None:
            bus.inquiries.connect(REGISTRY, self._registry)
            self._watch = RegistryWatch(
                self._relay,
                self._registry,
                bus.effects.publish_statuses,
                poll_seconds=self._settings.registry.poll_seconds,
            )

        if self._qos is not None and self._broker is not None and self._settings.qos is not None:
            bus.inquiries.connect(BROKER, self._broker)
            self._qos_watch = QosWatch(
                self._qos,
                self._broker,
                bus.effects.publish_events,
                domain=self._settings.node.domain,
                watch_seconds=self._settings.qos.watch_seconds,
            )

    def connect_nodes(self, bus: Bus, questions: NodeQuestions, sources: QuotaSources) -> None:
        """Share quotas with the other nodes of the domain; once, before anything runs."""
        if self._qos is not None and self._qos_watch is not None:
            quotas = QuotasOfNodes(sources, questions, self._qos, self._state.leases)
            bus.inquiries.connect(QUOTAS, quotas.ask)
            bus.inquiries.connect(RELEASES, quotas.release)
            self._qos_watch.beside = quotas.run

    def connect_catalogues(self, bus: Bus, fetcher: Fetcher, resolver: Resolver, site: Site | None = None) -> None:
        """Have descriptors fetched, if the settings let runtimes read them; once, before anything runs.

        `site` has those that this node publishes itself.
        """
        chosen = self._settings.catalogue
        if not chosen.serve:
            return

        async def resolve(domain: str, asked_by: str) -> Location:
            return await resolver.resolve(domain, asked_by=asked_by)

        server = None
        if chosen.own is not None:
            tls = BackendTls("catalogue.own", chosen.own)
            server = BackendHttp(chosen.own.url, tls, max_bytes=DESCRIPTOR_BYTES)
        published = None if site is None or site.publisher is None else site.publisher.objects.read
        reader = CatalogueReader(
            fetcher,
            resolve=resolve,
            own=OwnCatalogue(self._settings.own_domains, server, published),
            cache_seconds=chosen.cache_seconds,
            asker_of=partial(asker_of, self._state),
        )
        bus.inquiries.connect(CATALOGUE, reader)
        self._readers = schemas, _ = schema_reader(reader), document_reader(reader)
        bus.inquiries.connect(SCHEMA, schemas)

    def connect_stubs(self, bus: Bus, provider: StubProvider, host: StubHost) -> None:
        """Have connectors that are stubs answer their services; once, before anything runs."""
        for one in self._settings.connector:
            name = f"{one.service}.{self._settings.node.domain}"
            stub = ConnectorStub(name, provider, host, allows_plaintext=one.insecure_plaintext)
            bus.inquiries.connect(connector_name(one.service), stub.port.ask)
            self._stubs.append(stub)

    def end_forbidden(self, sha256: str) -> None:
        """End connectors that run a module which the operator has just forbidden."""
        for stub in self._stubs:
            stub.end_forbidden(sha256)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Do what is to be done without requests, until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.identity.run)
            if self._readers is not None:
                schemas, policies = self._readers
                if self.validation is not None:
                    await nursery.start(self.validation.run, schemas)
                if self.documents is not None:
                    await nursery.start(self.documents.run, policies)
            for stub in self._stubs:
                nursery.start_soon(stub.run)
            if self._push is not None:
                nursery.start_soon(self._push.run)
            if self._watch is not None:
                nursery.start_soon(self._watch.run)
            if self._qos_watch is not None:
                nursery.start_soon(self._qos_watch.run)
            task_status.started()

    def status(self) -> dict[str, object]:
        """Report the state of each for operators."""
        status: dict[str, object] = self.identity.status()
        if self._registry is not None and self._watch is not None:
            status["registry"] = self._registry.status() | self._watch.counters.as_members()
        if self._push is not None:
            status["push"] = {**self._push.counters.shown(), "subscriptions": len(self._state.push)}
        if self.validation is not None:
            status["schemas"] = self.validation.counters.shown()
        if self.documents is not None:
            status["documents"] = self.documents.counters.shown()
        if self._broker is not None and self._qos_watch is not None:
            status["qos"] = self._broker.status() | self._qos_watch.counters.as_members()
        if self._stubs:
            status["connectors"] = {stub.name: stub.status() for stub in self._stubs}
        return status


def _push(settings: PushSettings, key: PushKey, state: NodeState, bus: Bus) -> WebPush:
    services = {
        origin_of(one): PushOrigin(
            BackendHttp(origin_of(one), BackendTls("push.service", one), max_bytes=ANSWER_BYTES), one.attempt_seconds
        )
        for one in settings.service
    }
    return WebPush(
        key,
        services,
        state.push,
        PushOptions(settings.ttl_seconds, settings.rest_seconds),
        is_away=bus.absences.is_away,
        keep=partial(bus.effects.publish_events, []),  # what has changed is kept with the events that it leads to: none
    )


def _backend(table: str, name: str, settings: BackendSettings) -> Backend:
    http = BackendHttp(settings.url, BackendTls(table, settings), max_bytes=BACKEND_ANSWER_BYTES)
    return Backend(name, http, attempt_seconds=settings.attempt_seconds)
