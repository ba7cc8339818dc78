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

from msg_node.services import VERSION
from msg_node.settings.model import Settings
from msg_node.settings.storage import engine_options
from msg_node.site.publication import SiteFolder
from msg_node.storage.state_file import StateFile
from msg_node.storage.state_store import DurableRows
from protofly.documents import key_set_fingerprint
from protofly.errors import PeerError, SettingsError

if TYPE_CHECKING:
    from msg_node.cluster.lease_keeper import LeaseKeeper
    from msg_node.cluster.names import NodeFacts
    from msg_node.storage.engine import Engine
    from msg_node.storage.engine_rows import EngineRows

_LOG = logging.getLogger("msg_node")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class HeldName:
    """The name of this node, while its lease is held.

    Args:
        keeper: Holds it.
        rows: The state under that name.
    """

    def __init__(self, keeper: LeaseKeeper, rows: EngineRows) -> None:
        self.keeper = keeper
        self.rows = rows

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
    leases, states = open_engine(settings), open_engine(settings)
    if leases is None or states is None:
        yield None
        return
    from msg_node.cluster.lease_keeper import LeaseKeeper, Wanted
    from msg_node.cluster.names import Names
    from msg_node.storage.engine_rows import EngineRows

    own = node_facts(settings, policy=revision())
    wanted = Wanted(
        name=settings.node.name,
        instance=instance_of(settings.node.data_dir),
        is_standby=settings.cluster.standby,
        facts=lambda: msgspec.structs.replace(own, policy=revision()),
    )
    keeper = LeaseKeeper(Names(leases), wanted)
    try:
        await keeper.take()
        _LOG.info("state in %s; %s", states.place, states.durability())
        yield HeldName(keeper, EngineRows(states, keeper.name, keeper.epoch))
    finally:
        await keeper.leave()


def rows_of(settings: Settings, name: HeldName | None) -> DurableRows:
    """The state of this node: under its name in the engine, or in a file. Raises HostError: STORAGE."""
    return StateFile(settings.node.data_dir / "state.sqlite") if name is None else name.rows


def instance_of(data_dir: Path) -> str:
    """A text that differs for all data folders of all running machines; a copy of a folder is another one.

    One process runs on a data folder at a time, so nobody of the same instance has to be waited for.
    """
    facts = data_dir.stat()
    boot = _BOOT_ID.read_text() if _BOOT_ID.exists() else socket.gethostname()
    return hashlib.sha256(f"{boot.strip()} {facts.st_dev} {facts.st_ino}".encode()).hexdigest()


def node_facts(settings: Settings, *, policy: str) -> NodeFacts:
    """What this node says about itself to the others; `policy` is the revision of its policies."""
    from msg_node.cluster.names import NodeFacts

    scheme = "ws" if settings.listen.certificate is None else "wss"
    return NodeFacts(
        version=VERSION,
        endpoint=f"{scheme}://{settings.listen.host}:{settings.listen.port}/ws",
        host=socket.gethostname(),
        root=_root_of(settings),
        policy=policy,
        limits=hashlib.sha256(msgspec.json.encode(settings.limits)).hexdigest()[:16],
        bus=settings.cluster.advertise or settings.cluster.listen,
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
