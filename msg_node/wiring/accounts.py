"""Where users, clients and GUIDs are kept: in files of the data folder, or as records of a domain of several nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msg_node.identity.client_store import CLIENTS_FILE, Clients, ClientStore
from msg_node.identity.engine_clients import EngineClients
from msg_node.identity.engine_users import EngineUsers
from msg_node.identity.user_store import USERS_FILE, Users, UserStore
from msg_node.kernel.domain_records import DomainRecords
from msg_node.registries.engine_guids import EngineGuids
from msg_node.registries.guid_store import Guids, GuidStore
from msg_node.settings.model import Settings
from msg_node.wiring.cluster import open_engine

_GUIDS_FILE = "guids.sqlite"


def users_of(data_dir: Path, records: DomainRecords | None) -> Users:
    """Local users; nothing is opened yet."""
    return UserStore(data_dir / USERS_FILE) if records is None else EngineUsers(records)


def clients_of(data_dir: Path, records: DomainRecords | None) -> Clients:
    """Clients that operators manage; nothing is opened yet."""
    return ClientStore(data_dir / CLIENTS_FILE) if records is None else EngineClients(records)


def guids_of(data_dir: Path, records: DomainRecords | None) -> Guids:
    """What is known of GUIDs. Raises HostError."""
    return GuidStore(data_dir / _GUIDS_FILE) if records is None else EngineGuids(records)


def forget_guid(data_dir: Path, records: DomainRecords | None, guid: str) -> None:
    """Drop the record of a GUID, and not how far it had come. Raises HostError."""
    if records is not None:
        EngineGuids(records).forget(guid)
    elif (data_dir / _GUIDS_FILE).is_file():
        with GuidStore(data_dir / _GUIDS_FILE) as store:
            store.forget(guid)


@contextmanager
def users_for_commands(settings: Settings) -> Iterator[Users]:
    """Local users, for a command beside nodes that may run.

    Raises:
        SettingsError: See `open_engine`.
    """
    engine = open_engine(settings)
    if engine is None:
        settings.node.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with UserStore(settings.node.data_dir / USERS_FILE) as users:
            yield users
        return
    from msg_node.storage.engine_records import EngineRecords

    records = EngineRecords(engine)
    try:
        yield EngineUsers(records)
    finally:
        records.close()
