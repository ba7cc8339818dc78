"""Takes the state and the marks of tokens of a node that had no engine over into the engine of its domain."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
import trio

from msg_node.addresses.core.allocation import OwnedRow
from msg_node.cluster.core.published import Published
from msg_node.identity.token_store import TokenStore
from msg_node.kernel.changes import Rows, Table, decode_row
from msg_node.kernel.session import SessionRow
from msg_node.running import running_alone
from msg_node.settings.model import Settings
from msg_node.storage.engine_options import EngineOptions
from msg_node.storage.file_checks import FileError
from msg_node.storage.state_file import StateFile
from msg_node.wiring.accounts import ADOPTED
from msg_node.wiring.cluster import instance_of, needed_engine, node_facts

_STATE: Final = "state.sqlite"
_TOKENS: Final = "tokens.sqlite"


def stored_before(data_dir: Path) -> list[str]:
    """Names of the files of before the engine that nobody reads any more."""
    return [name for name in (_STATE, _TOKENS) if (data_dir / name).is_file()]


def adopt_stored(settings: Settings, name: str) -> dict[str, int]:
    """Move the state and the marks of tokens from files into the engine, and give the files other names.

    It may be called again after any failure: what is in the engine already is not adopted twice.

    Args:
        settings: Of the node, with its engine.
        name: Whose the rows are there from now on.

    Returns:
        How many sessions, addresses, subscriptions, parked requests, reports and marks of tokens were found.

    Raises:
        SettingsError: A node runs on the data folder, or the state is sealed, or the settings name no engine.
        HostError: The state cannot be read, or the engine not be used; the state is where it was.
    """
    engine, data_dir = needed_engine(settings), settings.node.data_dir
    if not stored_before(data_dir):
        return {}
    with running_alone(data_dir, ()):
        tokens = _adopt_tokens(data_dir, engine.options)  # first: what was revoked is never worth anything there
        tables = _tables(data_dir / _STATE)
        if any(tables.values()):
            trio.run(_adopt, settings, engine.options, name, tables)
        for left in stored_before(data_dir):
            (data_dir / left).rename(data_dir / (left + ADOPTED))
    found = (Table.SESSIONS, Table.ADDRESSES, Table.SUBSCRIPTIONS, Table.PARKED, Table.INBOX)
    return {table.value: len(tables.get(table, {})) for table in found} | {"tokens": tokens}


def _adopt_tokens(data_dir: Path, options: EngineOptions) -> int:
    from msg_node.identity.engine_token_marks import EngineTokenMarks
    from msg_node.storage.engine import Engine

    if not (data_dir / _TOKENS).is_file():
        return 0
    store, shared = TokenStore(data_dir / _TOKENS), EngineTokenMarks(Engine(options))
    try:
        marks, now = store.load(), time.time()
        for mark in marks:
            shared.keep(mark, now=now)
        return len(marks)
    finally:
        store.close()
        shared.close()


def _tables(path: Path) -> dict[Table, Rows]:
    if not path.is_file():
        return {}
    try:
        file = StateFile(path)
    except FileError as exc:
        action = "first write it in plain text, with the settings of before: `trapezoid state unseal`"
        raise FileError(exc.word, path, exc.what, action) from exc
    try:
        return dict(file.load())
    finally:
        file.close()


def _claimed(tables: Mapping[Table, Rows]) -> Iterator[str]:
    """What sessions of the state own: runtimes, and addresses. Guests of other domains claim nothing."""
    guests = set()
    for key, raw in tables.get(Table.SESSIONS, {}).items():
        session = decode_row(raw, SessionRow, table=Table.SESSIONS, key=key)
        if session.is_guest:
            guests.add(session.sid)
        else:
            yield session.runtime_key
    for key, raw in tables.get(Table.ADDRESSES, {}).items():
        if decode_row(raw, OwnedRow, table=Table.ADDRESSES, key=key).sid not in guests:
            yield key


async def _adopt(settings: Settings, options: EngineOptions, name: str, tables: dict[Table, Rows]) -> None:
    """Hold the name while its rows are written."""
    from msg_node.cluster.adopted_state import adopt_state
    from msg_node.cluster.lease_keeper import LeaseKeeper, Wanted
    from msg_node.cluster.names import Names
    from msg_node.storage.engine import Engine

    facts = msgspec.structs.replace(node_facts(settings, policy=""), published=Published())  # it serves nobody yet
    wanted = Wanted(name=name, instance=instance_of(settings.node.data_dir), is_standby=False, facts=lambda: facts)
    keeper, engine = LeaseKeeper(Names(Engine(options)), wanted), Engine(options)
    try:
        await keeper.take()
        await trio.to_thread.run_sync(adopt_state, engine, (name, keeper.epoch), tables, set(_claimed(tables)))
    finally:
        engine.close()
        await keeper.leave()
