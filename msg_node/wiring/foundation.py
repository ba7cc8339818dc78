"""The foundation of every other part of a node: its identity, its stored state, its records."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_bytes
from typing import TYPE_CHECKING

from federation.core.stub_status import StubAddresses
from msg_node.addresses.core.allocation import Owners
from msg_node.addresses.core.subscriptions import Listeners
from msg_node.admin.core.traffic import Traffic
from msg_node.identity.local_clients import stored_credentials
from msg_node.kernel.changes import Journal, Rows, Table
from msg_node.kernel.credentials import Credential
from msg_node.kernel.own_names import OwnNames
from msg_node.node_state import NodeState, StateParts, make_state, restore
from msg_node.records.segment_writer import SegmentOptions
from msg_node.records.writer import Observe, RecordsWriter, WriterOptions
from msg_node.registries.core.twin import Twin
from msg_node.requests.core.delivery_state import DeliveryState
from msg_node.sessions.core.transitions import SessionTransitions
from msg_node.settings.addresses import build_pools, build_rules, kept_objects
from msg_node.settings.delivery import build_delivery_rules
from msg_node.settings.interworking import build_interworking
from msg_node.settings.model import Settings
from msg_node.settings.sessions import build_credentials
from msg_node.site.site import Site
from msg_node.storage.state_store import StateStore
from msg_node.wiring import meaning
from msg_node.wiring.accounts import clients_of
from msg_node.wiring.cluster import HeldName, rows_of
from msg_node.wiring.traces import build_span_export
from protofly.address import canonical_key
from protofly.documents import SigningKey
from protofly.record_runs import Recorded
from protofly.record_segments import Signer
from protofly.records import address_key
from stubs_cache.store import load_secret

if TYPE_CHECKING:
    from msg_node.admin.span_export import SpanExport


class CurrentSettings:
    """Holds the settings in force."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def get(self) -> Settings:
        """Those in force."""
        return self._settings

    def put(self, settings: Settings) -> None:
        """Put others in force."""
        self._settings = settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundation:
    """The foundation of one node.

    Attributes:
        settings: Loaded and checked; those of the start.
        current: Those in force.
        node_url: Our runtime address.
        secret: Of this data directory.
        key: Signs for the node: its published key, or one of the moment while nothing is published.
        stub_addresses: Which address the stub of a domain has here.
        store: Where changes become durable.
        state: All tables, with what was stored.
        site: Our published documents, None when the node serves none.
        records: Writes audit records.
        traffic: What these say about the last hour.
        spans: Exports spans of messages, None when the settings ask for none.
    """

    settings: Settings
    current: CurrentSettings
    node_url: str
    secret: bytes
    key: SigningKey
    stub_addresses: StubAddresses
    store: StateStore
    state: NodeState
    site: Site | None
    records: RecordsWriter
    traffic: Traffic
    spans: SpanExport | None


def build_foundation(settings: Settings, name: HeldName | None) -> Foundation:
    """Read what is stored, and make what writes; nothing runs yet.

    Args:
        settings: Loaded and checked.
        name: The node's name in the engine that it shares with others; None: it keeps its state itself.

    Raises:
        SettingsError: Something that the settings name cannot be used.
        HostError: STORAGE, when the data directory cannot be used.
    """
    data_dir = settings.node.data_dir
    node_url = _node_url(settings)
    secret = load_secret(data_dir / "secret")
    store = StateStore(rows_of(settings, name))
    stub_addresses = _stub_addresses(settings, secret)
    managed = stored_credentials(clients_of(data_dir, None if name is None else name.records))
    state = _restore_state(settings, store.load(), (stub_addresses, managed), now=time.time())
    site = Site.from_settings(settings) if settings.site is not None else None
    if site is not None:
        site.is_shared = settings.node.processes != 1
    if name is not None and site is not None and site.publisher is not None:
        site.publisher.shared = name.live(settings.node.domain)
    published_key = site.node_key if site is not None else None
    # Without a publication nobody can check who we are; then a key of the moment stands in.
    key = published_key or SigningKey.from_seed("unpublished", token_bytes(32))
    traffic = Traffic(meaning.classes(settings))
    spans = build_span_export(settings)
    return Foundation(
        settings=settings,
        current=CurrentSettings(settings),
        node_url=node_url,
        secret=secret,
        key=key,
        stub_addresses=stub_addresses,
        store=store,
        state=state,
        site=site,
        records=_build_records(settings, key, secret, _observers(traffic, spans)),
        traffic=traffic,
        spans=spans,
    )


def restored_state(settings: Settings, rows: Mapping[Table, Rows], secret: bytes, *, now: float) -> NodeState:
    """Restore the tables of a node that does not run, as its start does.

    Args:
        settings: Loaded and checked.
        rows: What is stored.
        secret: Of the data directory.
        now: Seconds since the Unix epoch.

    Raises:
        SettingsError: Something that the settings name cannot be used.
        HostError: STORAGE.
    """
    managed = stored_credentials(clients_of(settings.node.data_dir, None))
    return _restore_state(settings, rows, (_stub_addresses(settings, secret), managed), now=now)


def _stub_addresses(settings: Settings, secret: bytes) -> StubAddresses:
    seed = hashlib.sha256(b"trapezoid stub addresses\0" + secret).digest()
    return StubAddresses(_node_url(settings), seed)


def _node_url(settings: Settings) -> str:
    return f"runtime://{settings.node.domain}/{settings.node.name}"


def _restore_state(
    settings: Settings, rows: Mapping[Table, Rows], known: tuple[StubAddresses, Iterable[Credential]], *, now: float
) -> NodeState:
    """Restore the tables; `known` are addresses of stubs, and credentials besides those of the settings."""
    journal, (stub_addresses, managed) = Journal(), known
    credentials = build_credentials(settings)
    credentials.manage(managed)
    own = OwnNames.of(settings.own_domains, [canonical_key(stub_addresses.node)])
    parts = StateParts(
        transitions=SessionTransitions(journal, credentials, meaning.session_rules(settings)),
        owners=Owners(journal, per_session=settings.limits.allocation_per_session, pools=build_pools(settings)),
        listeners=Listeners(journal, per_session=settings.limits.subscriptions_per_session),
        journal=journal,
        rules=build_rules(settings),
        interworking=build_interworking(settings, stub_addresses),
        twin=Twin(journal, objects=kept_objects(settings)),
        delivery=DeliveryState(
            journal,
            build_delivery_rules(settings.delivery),
            first_number=random.SystemRandom().randrange(1, 1 << 31),
        ),
    )
    state = make_state(own, parts)
    restore(state, rows, now=now)
    return state


def _observers(traffic: Traffic, spans: SpanExport | None) -> Observe:
    """The observers that see each batch of records before it is written."""
    if spans is None:
        return traffic.observe

    def observe(records: Sequence[Recorded], now: float) -> None:
        traffic.observe(records, now)
        spans.observe(records, now)

    return observe


def _build_records(settings: Settings, node_key: SigningKey, secret: bytes, observe: Observe) -> RecordsWriter:
    hashed_with = address_key(secret) if settings.records.hash_addresses else None
    options = writer_options(settings, hashed_with)
    signer = Signer(node_key.key_id, node_key.sign)
    return RecordsWriter(settings.spool_dir, settings.node_id, signer=signer, options=options, observe=observe)


def writer_options(settings: Settings, hashed_with: bytes | None = None) -> WriterOptions:
    """Return how records wait and are written; `hashed_with` is the key of addresses, None for plain ones."""
    chosen = settings.records
    return WriterOptions(
        is_strict=chosen.durability == "strict",
        queue_records=chosen.queue_records,
        sync_seconds=chosen.sync_seconds,
        segments=SegmentOptions(
            segment_bytes=chosen.segment_bytes,
            segment_seconds=chosen.segment_seconds,
            has_blocks=chosen.segment_format == "columns",
            address_key=hashed_with,
        ),
    )
