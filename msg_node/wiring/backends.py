"""The services that stand in front of other servers, as the settings name them: made, connected, run, looked at.

Source: message specification, sections 10 and 14.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import trio

from catalogue_client.core.location import Location
from catalogue_client.fetcher import Fetcher
from federation.discovery.resolver import Resolver
from federation.links.link_context import Identify
from msg_node.addresses.core.askers import asker_of
from msg_node.backends.backend import Backend
from msg_node.backends.backend_http import BackendHttp
from msg_node.backends.backend_tls import BackendTls
from msg_node.backends.catalogue import CatalogueReader, OwnCatalogue
from msg_node.backends.global_registry_rest import GlobalRegistryRest
from msg_node.backends.qos_watch import QosWatch
from msg_node.backends.registry_watch import RegistryWatch
from msg_node.backends.sources import document_reader, schema_reader
from msg_node.backends.web_push import ANSWER_BYTES, PushKey, PushOptions, PushOrigin, WebPush
from msg_node.bus.bus import Bus
from msg_node.bus.node_questions import NodeQuestions
from msg_node.bus.quotas_of_nodes import QuotasOfNodes, QuotaSources
from msg_node.identity.mark_keeper import CHANNEL as MARKS_CHANNEL
from msg_node.kernel.catalogue_questions import CATALOGUE, SCHEMA
from msg_node.kernel.domain_records import RECORDS_CHANNEL
from msg_node.kernel.service import Answer, Inquiry, Service, ServiceRequest
from msg_node.node_state import NodeState
from msg_node.qos.core.domain_quotas import QUOTAS, RELEASES
from msg_node.qos.core.qos_service import BROKER, QosService
from msg_node.registries.core.catalogue_service import catalogue_service, without_guest_code
from msg_node.registries.core.registry_cache import RegistryCache
from msg_node.registries.core.registry_relay import REGISTRY, RegistryRelay
from msg_node.registries.policy_documents import PolicyDocuments
from msg_node.registries.validation import Validation
from msg_node.requests.core.push_service import PushService
from msg_node.settings.model import Settings
from msg_node.settings.push import origin_of
from msg_node.settings.tables.push import PushSettings
from msg_node.settings.tables.registries import BackendSettings, QosSettings, RegistrySettings
from msg_node.site.site import Site
from msg_node.wiring.cluster import HeldName
from msg_node.wiring.connectors import Connectors
from msg_node.wiring.identity import IdentityServices, registry_client
from protofly.documents import SigningKey
from protofly.limits import BACKEND_ANSWER_BYTES, DESCRIPTOR_BYTES


class LoadedBackends(NamedTuple):
    """Clients of external systems in the settings; loading them is all that can fail.

    Attributes:
        registry: The way to the domain registry, None where the settings name none; the same for the others.
        qos: To the QoS broker.
        catalogue: To our own catalogue.
        global_registry: To the global registry.
        push: Key and push services.
    """

    registry: BackendHttp | None
    qos: BackendHttp | None
    catalogue: BackendHttp | None
    global_registry: GlobalRegistryRest | None
    push: LoadedPush | None


class LoadedPush(NamedTuple):
    """The key by which push services know us, and the ways to them, by origin."""

    key: PushKey
    services: Mapping[str, PushOrigin]


def load_backends(settings: Settings, kept: tuple[Settings, LoadedBackends] | None = None) -> LoadedBackends:
    """Read what the settings name; nothing is asked yet. Blocks.

    Args:
        settings: Loaded and checked.
        kept: Other settings, and what was read for them: it stays where both say the same.

    Raises:
        SettingsError: A file that the settings name cannot be used.
    """
    readers: Mapping[str, Callable[[Settings], object]] = {
        "registry": lambda one: _http("registry", one.registry, BACKEND_ANSWER_BYTES),
        "qos": lambda one: _http("qos", one.qos, BACKEND_ANSWER_BYTES),
        "catalogue": lambda one: _http("catalogue.own", one.catalogue.own, DESCRIPTOR_BYTES),
        "global_registry": lambda one: None if one.global_registry is None else registry_client(one.global_registry),
        "push": lambda one: None if one.push is None else _load_push(one.push),
    }
    made: dict[str, Any] = {}
    for table, read in readers.items():
        if kept is not None and getattr(kept[0], table) == getattr(settings, table):
            made[table] = getattr(kept[1], table)
        else:
            made[table] = read(settings)
    return LoadedBackends(**made)


def _load_push(settings: PushSettings) -> LoadedPush:
    return LoadedPush(PushKey(settings.key, settings.subject), _origins(settings))


def _http(table: str, settings: BackendSettings | None, max_bytes: int) -> BackendHttp | None:
    return None if settings is None else BackendHttp(settings.url, BackendTls(table, settings), max_bytes=max_bytes)


def _origins(settings: PushSettings) -> dict[str, PushOrigin]:
    return {
        origin_of(one): PushOrigin(
            BackendHttp(origin_of(one), BackendTls("push.service", one), max_bytes=ANSWER_BYTES), one.attempt_seconds
        )
        for one in settings.service
    }


class Backends:
    """The systems elsewhere that the settings name.

    Use: `services` go into the table of services, then `connect`, then `run` in a nursery.

    Attributes:
        documents: Policies of objects; None: nobody may name any.
        connectors: Those that are sandboxed code of the operator's.
        validation: Holds changes against schemas, while the settings want it.
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
        self._loaded = loaded = load_backends(settings)
        self._relay = self._registry = None
        if settings.registry is not None and loaded.registry is not None:
            self._relay = RegistryRelay(state, cache_seconds=settings.registry.cache_seconds)
            seconds = settings.registry.attempt_seconds
            self._registry = Backend("the domain registry", loaded.registry, attempt_seconds=seconds)
        self._watch: RegistryWatch | None = None
        self._qos = self._broker = None
        if settings.qos is not None and loaded.qos is not None:
            self._qos = QosService(state, max_lease_seconds=settings.qos.max_lease_seconds)
            self._broker = Backend("the QoS broker", loaded.qos, attempt_seconds=settings.qos.attempt_seconds)
        self._qos_watch: QosWatch | None = None
        self._push: PushCalls | None = None
        if settings.push is not None and loaded.push is not None:
            self._push = PushCalls(settings.push, loaded.push, state)
        self._catalogues: Catalogues | None = None
        self.connectors = Connectors(settings)
        self.documents = PolicyDocuments(state, state.policy_names) if settings.policy.documents else None
        self.validation = Validation(state)

    @property
    def services(self) -> Mapping[str, Service]:
        """Services by canonical key, for `Services(at=…)`."""
        services: dict[str, Service] = {**self.identity.services}
        domains = self._settings.own_domains
        closed = without_guest_code(domains)

        def catalogue(request: ServiceRequest) -> Answer | Inquiry:
            return (catalogue_service if self._settings.catalogue.guest_stubs else closed)(request)

        for domain in domains:
            if self._relay is not None:
                services[f"domain://registry.{domain}"] = self._relay
            if self._qos is not None:
                services[f"domain://qos.{domain}"] = services[f"domain://qos-broker.{domain}"] = self._qos
            services[f"domain://catalogue.{domain}"] = catalogue
            if self._push is not None:
                services[f"domain://msg-node.{domain}/push"] = self._push.service
        services["hyperty-catalogue://*"] = catalogue
        return services

    @property
    def identify(self) -> Identify | None:
        """Says who sends a message that crosses our border, for links."""
        return self.identity.identify

    def connect(self, bus: Bus) -> None:
        """Connect inquiries and news to the bus; once, before anything runs."""
        self.identity.connect(bus)
        if self._push is not None:
            self._push.connect(bus)
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
        """Have descriptors fetched, while the settings let runtimes read them; once, before anything runs.

        `site` has those that this node publishes itself.
        """

        async def resolve(domain: str, asked_by: str) -> Location:
            return await resolver.resolve(domain, asked_by=asked_by)

        published = None if site is None or site.publisher is None else site.publisher.objects.read
        reader = CatalogueReader(
            fetcher,
            resolve=resolve,
            own=OwnCatalogue(self._settings.own_domains, self._loaded.catalogue, published),
            cache_seconds=self._settings.catalogue.cache_seconds,
            asker_of=partial(asker_of, self._state),
        )
        self._catalogues = Catalogues(bus, reader)
        self._catalogues.serve(wanted=self._settings.catalogue.serve)

    def load(self, settings: Settings) -> LoadedBackends:
        """Read what other settings name and those of now do not; see `load_backends`."""
        return load_backends(settings, (self._settings, self._loaded))

    def follow(self, settings: Settings, loaded: LoadedBackends) -> None:
        """Ask the systems of other settings from now on; which of them there are stays."""
        before, self._settings, self._loaded = self._settings, settings, loaded
        registry, qos, guids = settings.registry, settings.qos, settings.global_registry
        if registry != before.registry and registry is not None and loaded.registry is not None:
            self._follow_registry(registry, loaded.registry)
        if qos != before.qos and qos is not None and loaded.qos is not None:
            self._follow_broker(qos, loaded.qos)
        if guids != before.global_registry and guids is not None and loaded.global_registry is not None:
            assert self.identity.guids is not None
            self.identity.guids.follow(loaded.global_registry, guids)
        if settings.push != before.push and settings.push is not None and loaded.push is not None:
            assert self._push is not None
            self._push.follow(settings.push, loaded.push)
        if settings.catalogue != before.catalogue and self._catalogues is not None:
            self._catalogues.reader.follow(loaded.catalogue, cache_seconds=settings.catalogue.cache_seconds)
            self._catalogues.serve(wanted=settings.catalogue.serve)
        if self._relay is not None:
            self._relay.domains = self._state.domains.union(one.domain for one in settings.interworking)
        self.connectors.follow(settings)

    def _follow_registry(self, chosen: RegistrySettings, http: BackendHttp) -> None:
        assert self._relay is not None
        assert self._registry is not None
        assert self._watch is not None
        self._registry.follow(http, attempt_seconds=chosen.attempt_seconds)
        self._relay.cache = RegistryCache(max_seconds=chosen.cache_seconds)  # what another one said counts no longer
        self._watch.pause.change(chosen.poll_seconds)

    def _follow_broker(self, chosen: QosSettings, http: BackendHttp) -> None:
        assert self._qos is not None
        assert self._broker is not None
        assert self._qos_watch is not None
        self._broker.follow(http, attempt_seconds=chosen.attempt_seconds)
        self._qos.max_lease_seconds = chosen.max_lease_seconds
        self._qos_watch.pause.change(chosen.watch_seconds)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Do what is to be done without requests, until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.identity.run)
            if self._catalogues is not None:
                await nursery.start(self.validation.run, self._catalogues.schemas)
                if self.documents is not None:
                    await nursery.start(self.documents.run, self._catalogues.policies)
            await nursery.start(self.connectors.run)
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
            status["push"] = {**self._push.counters(), "subscriptions": len(self._state.push)}
        if self._settings.middleware.schema.validate:
            status["schemas"] = self.validation.counters.shown()
        if self.documents is not None:
            status["documents"] = self.documents.counters.shown()
        if self._broker is not None and self._qos_watch is not None:
            status["qos"] = self._broker.status() | self._qos_watch.counters.as_members()
        if self._settings.connector:
            status["connectors"] = self.connectors.status()
        return status


class PushCalls:
    """Wake-up calls, and the service at which runtimes subscribe to them."""

    def __init__(self, settings: PushSettings, loaded: LoadedPush, state: NodeState) -> None:
        self._settings = settings
        self._loaded = loaded
        self._state = state
        self._calls: WebPush | None = None
        self.service = PushService(state, public_key=loaded.key.public, origins=loaded.services.keys())

    def connect(self, bus: Bus) -> None:
        """Wake who is waited for; once, before anything runs."""
        self._calls = WebPush(
            self._loaded.key,
            self._loaded.services,
            self._state.push,
            _push_options(self._settings),
            is_away=bus.absences.is_away,
            keep=partial(bus.effects.publish_events, []),  # what has changed is kept with the events that it leads to
        )
        bus.parked_actions.recorder.on_parked = self._calls.somebody_waits

    def follow(self, settings: PushSettings, loaded: LoadedPush) -> None:
        """Use another key, other push services and times from now on."""
        assert self._calls is not None
        self._calls.follow(loaded.key, loaded.services, _push_options(settings))
        self.service.follow(public_key=loaded.key.public, origins=loaded.services.keys())

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Call until cancelled."""
        assert self._calls is not None
        await self._calls.run(task_status=task_status)

    def counters(self) -> dict[str, object]:
        """Counts of the results of calls, by name, for operators."""
        return {} if self._calls is None else {**self._calls.counters.shown()}


def _push_options(settings: PushSettings) -> PushOptions:
    return PushOptions(settings.ttl_seconds, settings.rest_seconds)


class Catalogues:
    """Descriptors for runtimes, and what this node reads of them itself: schemas and policies."""

    def __init__(self, bus: Bus, reader: CatalogueReader) -> None:
        self._bus = bus
        self.reader = reader
        self.schemas = schema_reader(reader)
        self.policies = document_reader(reader)

    def serve(self, *, wanted: bool) -> None:
        """Answer runtimes from now on, or do not."""
        inquiries = self._bus.inquiries
        if wanted:
            inquiries.connect(CATALOGUE, self.reader)
            inquiries.connect(SCHEMA, self.schemas)
        else:
            inquiries.disconnect(CATALOGUE)
            inquiries.disconnect(SCHEMA)
