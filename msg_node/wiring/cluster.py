"""The name of this node in the engine that it shares with others, and its rows there. See docs/adr/0028."""

from __future__ import annotations

import hashlib
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from catalogue_client.trust_store import TrustStore
from msg_node.cluster.core.published import Published
from msg_node.kernel.node_figures import FiguresBoard
from msg_node.services import VERSION
from msg_node.settings.model import Settings
from msg_node.settings.storage import engine_options, state_keys
from msg_node.site.publication import SiteFolder
from msg_node.storage.engine_options import EngineOptions
from msg_node.storage.key_files import load_online_keys
from msg_node.storage.state_file import StateFile
from msg_node.storage.state_store import DurableRows
from protofly.documents import key_set_fingerprint
from protofly.errors import PeerError, SettingsError

if TYPE_CHECKING:
    from msg_node.cluster.engine_notices import EngineNotices
    from msg_node.cluster.lease_keeper import LeaseKeeper
    from msg_node.cluster.names import NodeFacts
    from msg_node.cluster.shared_trust import SharedTrust
    from msg_node.identity.engine_token_marks import EngineTokenMarks
    from msg_node.site.shared_live import LiveOfDomain
    from msg_node.storage.engine import Engine
    from msg_node.storage.engine_rows import EngineRows, SharedRows

_LOG = logging.getLogger("msg_node")
_ANY_HOST = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  what is shown in their place
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ReachedNode:
    """Facts about this node that others of its domain learn from its settings.

    Attributes:
        facts: Those that are written with its lease.
    """

    def __init__(self, facts: NodeFacts) -> None:
        self.facts = facts

    def follow(self, settings: Settings) -> None:
        """Say that the node is reached elsewhere, or under other keys of its certificate, from the next lease on."""
        if settings.publish is not None:
            url, pins = settings.publish.endpoint_url, settings.publish.endpoint_spki
            published = msgspec.structs.replace(self.facts.published, url=url, pins=pins)
            self.facts = msgspec.structs.replace(self.facts, endpoint=url, published=published)


class HeldName:
    """The name of this node, while its lease is held.

    Args:
        options: How the engine is reached.
        keeper: Holds it.
        rows: The state under that name.
        shared: Reads the state of the domain.
        notices: What other nodes announce.
        board: Where the node puts its figures.

    Attributes:
        records: Of the domain.
        reached: What other nodes read about where this one is reached.
    """

    def __init__(
        self,
        options: EngineOptions,
        keeper: LeaseKeeper,
        rows: EngineRows,
        shared: SharedRows,
        notices: EngineNotices,
        board: FiguresBoard,
    ) -> None:
        from msg_node.storage.engine import Engine
        from msg_node.storage.engine_records import EngineRecords

        self.options = options
        self.keeper = keeper
        self.rows = rows
        self.shared = shared
        self.notices = notices
        self.board = board
        self.records = EngineRecords(Engine(options))
        self.reached: ReachedNode | None = None

    def close(self) -> None:
        """Close the connections that are no part's own. Blocks for what uses one of them."""
        self.shared.close()
        self.records.close()

    def token_marks(self) -> EngineTokenMarks:
        """The marks of the domain's session tokens in the engine."""
        from msg_node.identity.engine_token_marks import EngineTokenMarks
        from msg_node.storage.engine import Engine

        return EngineTokenMarks(Engine(self.options))

    def live(self, domain: str) -> LiveOfDomain:
        """The part of the `live` document that the nodes of the domain share."""
        from msg_node.cluster.names import Names
        from msg_node.site.engine_live import EngineLive
        from msg_node.storage.engine import Engine
        from msg_node.storage.engine_documents import EngineDocuments

        documents = EngineDocuments(Engine(self.options), self.keeper.name, self.keeper.epoch)
        return EngineLive(domain, Names(Engine(self.options)), documents)

    def trust(self, store: TrustStore) -> SharedTrust:
        """Make the service that shares trust marks with the other nodes; it follows their announcements."""
        from msg_node.cluster.shared_trust import SharedTrust
        from msg_node.storage.engine import Engine
        from msg_node.storage.engine_documents import TRUST, EngineDocuments

        documents = EngineDocuments(Engine(self.options), self.keeper.name, self.keeper.epoch, TRUST)
        shared = SharedTrust(store, documents, self.shared.read)
        self.notices.follow(self.shared.channel, shared.heard)
        return shared

    def problems(self) -> list[str]:
        """Describe what keeps the node from answering for its name."""
        problem = self.keeper.problem()
        return [f"cluster: {problem}"] if problem else []


def open_engine(settings: Settings) -> Engine | None:
    """The engine of the settings, None for a node that keeps its state itself; nothing is connected yet.

    Raises:
        SettingsError: The password cannot be read, or the library is not installed.
    """
    options = engine_options(settings)
    if options is None:
        return None
    try:
        from msg_node.storage.engine import Engine
    except ImportError as exc:
        text = f"storage.engine needs a library that is not installed: pip install 'trapezoid[cluster]' ({exc})"
        raise SettingsError(text) from exc
    return Engine(options)


def needed_engine(settings: Settings) -> Engine:
    """The engine of the settings, for what only nodes with a shared state have.

    Raises:
        SettingsError: The settings name no engine; and as `open_engine`.
    """
    engine = open_engine(settings)
    if engine is None:
        raise SettingsError("storage.engine is not set: this node keeps its state for itself, and shares nothing")
    return engine


@asynccontextmanager
async def held_name(settings: Settings, revision: Callable[[], str]) -> AsyncIterator[HeldName | None]:
    """Hold the name of this node in the engine; None for a node that keeps its state itself.

    A node that is a standby waits here. The name is left when all has been written.

    Args:
        settings: Loaded and checked.
        revision: Of the policies in force; asked in another thread.

    Raises:
        SettingsError: As `open_engine`.
        EngineError: The engine cannot be used, or another process holds the name.
    """
    states = open_engine(settings)
    if states is None:
        yield None
        return
    from msg_node.cluster.engine_notices import EngineNotices
    from msg_node.cluster.lease_keeper import LeaseKeeper, Wanted
    from msg_node.cluster.names import Names
    from msg_node.storage.engine import Engine
    from msg_node.storage.engine_rows import EngineRows, SharedRows

    reached, board = ReachedNode(node_facts(settings, policy=revision())), FiguresBoard()
    wanted = Wanted(
        name=settings.node.name,
        instance=instance_of(settings.node.data_dir),
        is_standby=settings.cluster.standby,
        facts=lambda: msgspec.structs.replace(reached.facts, policy=revision(), figures=board.newest),
    )
    options = states.options
    keeper = LeaseKeeper(Names(Engine(options)), wanted)
    shared, notices = SharedRows(Engine(options)), EngineNotices(Engine(options))
    try:
        await keeper.take()
        _LOG.info("state in %s; %s", states.place, states.durability())
        held = HeldName(options, keeper, EngineRows(states, keeper.name, keeper.epoch), shared, notices, board)
        held.reached = reached
        try:
            yield held
        finally:
            held.close()
    finally:
        await keeper.leave()


def rows_of(settings: Settings, name: HeldName | None) -> DurableRows:
    """The state of this node: under its name in the engine, or in a file.

    Raises:
        HostError: STORAGE.
        SettingsError: The file is sealed, and the keys of the settings are not its own.
    """
    return StateFile(settings.node.data_dir / "state.sqlite", state_keys(settings)) if name is None else name.rows


def instance_of(data_dir: Path) -> str:
    """A text that differs for all data folders of all running machines; a copy of a folder is another one.

    One process runs on a data folder at a time, so nobody of the same instance has to be waited for.
    """
    facts = data_dir.stat()
    boot = _BOOT_ID.read_text() if _BOOT_ID.exists() else socket.gethostname()
    return hashlib.sha256(f"{boot.strip()} {facts.st_dev} {facts.st_ino}".encode()).hexdigest()


def node_facts(settings: Settings, *, policy: str) -> NodeFacts:
    """Collect the facts about this node for the others; `policy` is the revision of its policies."""
    from msg_node.cluster.names import NodeFacts

    return NodeFacts(
        version=VERSION,
        endpoint=_endpoint(settings),
        host=socket.gethostname(),
        root=_root_of(settings),
        policy=policy,
        limits=hashlib.sha256(msgspec.json.encode(settings.limits)).hexdigest()[:16],
        bus=settings.cluster.advertise or settings.cluster.listen,
        published=_published(settings),
    )


def _endpoint(settings: Settings) -> str:
    """Where the node is reached, for people: as it is published, else where it listens on this machine."""
    if settings.publish is not None:
        return settings.publish.endpoint_url
    listen = settings.listen
    host = (
        socket.gethostname() if listen.host in _ANY_HOST else f"[{listen.host}]" if ":" in listen.host else listen.host
    )
    return f"{'ws' if listen.certificate is None else 'wss'}://{host}:{listen.port}/ws"


def _published(settings: Settings) -> Published:
    """What this node adds to `live`; nothing if it publishes nothing or its keys cannot be read."""
    publish = settings.publish
    if publish is None:
        return Published()
    try:
        keys = load_online_keys(publish.keys_dir, "node", domain=settings.node.domain)
    except SettingsError:
        return Published()  # the publisher says so
    return Published(
        url=publish.endpoint_url, pins=publish.endpoint_spki, keys={key.key_id: key.record() for key in keys}
    )


def _root_of(settings: Settings) -> str:
    """Fingerprint of the keys that this node publishes, "" if it publishes none or they cannot be read."""
    if settings.publish is None:
        return ""
    try:
        newest = SiteFolder(settings.publish.site_dir).newest_root(settings.node.domain)
    except (SettingsError, PeerError):
        return ""
    return "" if newest is None else key_set_fingerprint(newest[1])
