"""Where users, clients and GUIDs are kept: in files of the data folder, or as records of a domain of several nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from msg_node.identity.client_store import CLIENTS_FILE, Clients, ClientStore
from msg_node.identity.core.local_clients import LocalClient
from msg_node.identity.engine_clients import EngineClients
from msg_node.identity.engine_users import EngineUsers
from msg_node.identity.user_store import USERS_FILE, LocalUser, Users, UserStore
from msg_node.kernel.domain_records import DomainRecords
from msg_node.registries.engine_guids import EngineGuids
from msg_node.registries.guid_store import Guids, GuidStore, Kept
from msg_node.settings.model import Settings
from msg_node.wiring.cluster import needed_engine, open_engine

_GUIDS_FILE = "guids.sqlite"
ADOPTED = ".adopted"
"""Added to the name of a file whose contents the engine has."""


@dataclass(frozen=True, slots=True)
class LeftInFiles:
    """Counts of the accounts that a node kept in its data folder before it shared an engine."""

    users: int = 0
    clients: int = 0
    guids: int = 0

    def __bool__(self) -> bool:
        return bool(self.users or self.clients or self.guids)


def left_in_files(data_dir: Path) -> LeftInFiles:
    """Count what is in files that nobody reads where nodes share an engine. Raises HostError."""
    users, clients, guids = _in_files(data_dir)
    return LeftInFiles(len(users), len(clients), len(guids))


def adopt_files(data_dir: Path, records: DomainRecords) -> LeftInFiles:
    """Take users, clients and GUIDs of files over into the engine, and give the files another name.

    What the engine has under the same name stays as it is there; of a GUID what has come further counts.

    Returns:
        How many of each were taken over.

    Raises:
        HostError: Some of it may have been taken over; the next call goes on with the rest.
    """
    users, clients, guids = _in_files(data_dir)
    engine_users, engine_clients, engine_guids = EngineUsers(records), EngineClients(records), EngineGuids(records)
    known_users, known_clients = {one.name for one in engine_users.load()}, {one.name for one in engine_clients.load()}
    new_users = [one for one in users if one.name not in known_users]
    new_clients = [one for one in clients if one.name not in known_clients]
    for user in new_users:
        engine_users.replace(None, user)
    for client in new_clients:
        engine_clients.replace(client.name, None, client)
    new_guids = [guid for guid, kept in guids if engine_guids.adopt(guid, kept)]
    for name in (USERS_FILE, CLIENTS_FILE, _GUIDS_FILE):
        if (data_dir / name).is_file():
            (data_dir / name).rename(data_dir / (name + ADOPTED))
    return LeftInFiles(len(new_users), len(new_clients), len(new_guids))


def _in_files(data_dir: Path) -> tuple[list[LocalUser], list[LocalClient], list[tuple[str, Kept]]]:
    users, guids = list[LocalUser](), list[tuple[str, Kept]]()
    if (data_dir / USERS_FILE).is_file():
        with UserStore(data_dir / USERS_FILE) as user_store:
            users = user_store.load()
    with ClientStore(data_dir / CLIENTS_FILE) as client_store:
        clients = client_store.load()
    if (data_dir / _GUIDS_FILE).is_file():
        with GuidStore(data_dir / _GUIDS_FILE) as guid_store:
            guids = guid_store.all()
    return users, clients, guids


def users_of(data_dir: Path, records: DomainRecords | None) -> Users:
    """Local users; nothing is opened yet."""
    return UserStore(data_dir / USERS_FILE) if records is None else EngineUsers(records)


def clients_of(data_dir: Path, records: DomainRecords | None) -> Clients:
    """Clients that operators manage; nothing is opened yet."""
    return ClientStore(data_dir / CLIENTS_FILE) if records is None else EngineClients(records)


def guids_of(data_dir: Path, records: DomainRecords | None) -> Guids:
    """Open the store of GUIDs: a file of the node, or the records of the domain. Raises HostError."""
    return GuidStore(data_dir / _GUIDS_FILE) if records is None else EngineGuids(records)


def forget_guid(data_dir: Path, records: DomainRecords | None, guid: str) -> None:
    """Drop the record of a GUID, and not how far it had come. Raises HostError."""
    if records is not None:
        EngineGuids(records).forget(guid)
    elif (data_dir / _GUIDS_FILE).is_file():
        with GuidStore(data_dir / _GUIDS_FILE) as store:
            store.forget(guid)


@contextmanager
def records_for_commands(settings: Settings) -> Iterator[DomainRecords]:
    """Records of the domain, for a command beside nodes that may run.

    Raises:
        SettingsError: The settings name no engine; see `needed_engine`.
    """
    engine = needed_engine(settings)
    from msg_node.storage.engine_records import EngineRecords

    records = EngineRecords(engine)
    try:
        yield records
    finally:
        records.close()


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
