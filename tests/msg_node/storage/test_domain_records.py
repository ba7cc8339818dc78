"""What users, clients and GUIDs are kept by: one battery for files and for the engine that several nodes share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest
import trio
from msgspec.structs import replace

from msg_node.admin.core.proposals import Author, Proposals, proposal_of
from msg_node.cluster.engine_notices import EngineNotices
from msg_node.cluster.followed_tables import FollowedTable, FollowedTables
from msg_node.identity.core.local_clients import LocalClient
from msg_node.identity.engine_clients import MANAGED, EngineClients
from msg_node.identity.engine_users import USERS, EngineUsers
from msg_node.identity.local_clients import LocalClients
from msg_node.identity.user_store import LocalUser
from msg_node.kernel.changes import Journal, NewRow, Table
from msg_node.kernel.credentials import Credential
from msg_node.kernel.domain_records import RECORDS_CHANNEL, DomainRecords, announcement, keys_of
from msg_node.registries.engine_guids import GUIDS, EngineGuids
from msg_node.registries.guid_store import GuidStore
from msg_node.requests.core.agent_queues import AgentQueues, QueueRules
from msg_node.requests.core.push_targets import PushTarget, PushTargets
from msg_node.storage.engine import Engine
from msg_node.storage.engine_records import EngineRecords
from msg_node.storage.engine_rows import ANNOUNCED_AT_ONCE
from msg_node.wiring.accounts import clients_of, guids_of, users_of
from protofly.errors import Code, PeerError
from protofly.guid_record import Flaw, RecordError, read_record
from tests.support.guid_holder import GuidHolder
from tests.support.postgres import Postgres, held_rows

NOW = time.time()
_OLD_ROW = """INSERT INTO trapezoid_row (node, kind, digest, key, row)
    VALUES ('n1', 'agent_queues', sha256(%(key)b), %(key)b, %(row)b)"""
ANA = LocalUser(name="ana", hash="$hash", roles=("guard",))
GAUGE = LocalClient(name="gauge", kind="device", runtime="runtime://a.example/gauge", code="c", code_ends_at=9e9)


class Place:
    """A data folder, or a database; who opens it again is another process."""

    def __init__(self, folder: Path, engine: Engine | None) -> None:
        self.folder = folder
        self.records: DomainRecords | None = None if engine is None else EngineRecords(engine)


@pytest.fixture(params=["file", "engine"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "file":
        yield Place(tmp_path, None)
        return
    with _engine_of(request.getfixturevalue("postgres")) as engine:
        yield Place(tmp_path, engine)


@contextmanager
def _engine_of(server: Postgres) -> Iterator[Engine]:
    engine = Engine(server.options(server.new_database()))
    yield engine
    engine.close()


def refused_as_changed(work: object) -> bool:
    assert callable(work)
    with pytest.raises(PeerError) as caught:
        work()
    return caught.value.code is Code.DUPLICATE


def test_a_user_is_replaced_only_by_who_has_seen_the_newest_one(place: Place) -> None:
    users = users_of(place.folder, place.records)
    assert users.find("ana") is None
    users.replace(None, ANA)
    assert refused_as_changed(lambda: users.replace(None, replace(ANA, hash="$other")))
    disabled = replace(ANA, is_disabled=True, ended_at=NOW)
    users.replace(ANA, disabled)
    assert refused_as_changed(lambda: users.replace(ANA, replace(ANA, hash="$chosen by ana meanwhile")))
    assert users.known("ana") == disabled
    gone = LocalUser(name="bo", hash="", ended_at=NOW)
    users.replace(None, gone)
    assert users.load() == [disabled, gone]
    users.forget_removed(NOW)
    assert users.find("bo") == gone
    users.forget_removed(NOW + 1)
    assert users.load() == [disabled]
    users.close()


def test_a_client_is_replaced_only_by_who_has_seen_the_newest_one(place: Place) -> None:
    clients = clients_of(place.folder, place.records)
    assert clients.load() == []
    clients.replace("gauge", None, GAUGE)
    assert refused_as_changed(lambda: clients.replace("gauge", None, GAUGE))
    enrolled = GAUGE.enrolled("digest", NOW)
    clients.replace("gauge", GAUGE, enrolled)
    assert refused_as_changed(lambda: clients.replace("gauge", GAUGE, GAUGE.enrolled("another", NOW)))
    assert clients.load() == [enrolled]
    clients.replace("gauge", enrolled, None)
    assert refused_as_changed(lambda: clients.replace("gauge", enrolled, None))
    assert clients.load() == []
    clients.close()


def test_a_guid_never_goes_back(place: Place) -> None:
    guids, ana = guids_of(place.folder, place.records), GuidHolder("ana")
    assert guids.load(ana.guid) is None
    old, new = ana.record(updated=NOW - 60), ana.record(updated=NOW)
    guids.accept(read_record(new), new, now=NOW)
    with pytest.raises(RecordError):
        guids.accept(read_record(old), old, now=NOW)
    kept = guids.load(ana.guid)
    assert kept is not None
    assert (kept.jwt, kept.seen_at) == (new, NOW)
    assert guids.forget(ana.guid)
    assert not guids.forget(ana.guid)
    with pytest.raises(RecordError):
        guids.accept(read_record(old), old, now=NOW)
    ended = ana.record(updated=NOW + 1, revoked=1)
    guids.accept(read_record(ended), ended, now=NOW + 1)
    with pytest.raises(RecordError) as caught:
        guids.accept(read_record(new), new, now=NOW + 2)
    assert caught.value.flaw is Flaw.REVOKED
    if isinstance(guids, GuidStore):
        guids.close()


def test_beyond_the_bound_the_engine_forgets_the_oldest_guids_and_revocations_last(postgres: Postgres) -> None:
    holders = [GuidHolder(f"holder {number}") for number in range(4)]
    with _engine_of(postgres) as engine:
        records = EngineRecords(engine)
        guids = EngineGuids(records)
        for number, holder in enumerate(holders):
            jwt = holder.record(updated=NOW, revoked=int(number == 0))
            guids.accept(read_record(jwt), jwt, now=NOW + number)
        records.forget_oldest(GUIDS, 2)
        assert [guids.load(holder.guid) is not None for holder in holders] == [True, False, False, True]


async def test_of_two_nodes_that_raise_one_guid_the_second_is_held_against_the_first(postgres: Postgres) -> None:
    options, ana = postgres.options(postgres.new_database()), GuidHolder("ana")
    records = [EngineRecords(Engine(options)) for _ in range(2)]
    versions = [ana.record(updated=NOW + number) for number in range(20)]

    async def accept(guids: EngineGuids, jwt: str) -> None:
        with suppress(RecordError):  # it came after a newer one
            await trio.to_thread.run_sync(lambda: guids.accept(read_record(jwt), jwt, now=NOW))

    async with trio.open_nursery() as nursery:
        for number, jwt in enumerate(reversed(versions)):
            nursery.start_soon(accept, EngineGuids(records[number % 2]), jwt)
    kept = EngineGuids(records[0]).load(ana.guid)
    assert kept is not None
    assert kept.jwt == versions[-1]
    for one in records:
        one.close()


async def test_nodes_hear_of_each_others_users_and_follow_their_clients(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    here, there = (EngineRecords(Engine(options)) for _ in range(2))
    users, clients, notices = EngineUsers(here), LocalClients(EngineClients(here)), EngineNotices(Engine(options))
    followed: list[list[Credential]] = []
    clients.connect(
        follow=lambda credentials: followed.append(list(credentials)),
        move=lambda _session, _credential: None,
        credential_of=lambda _session: "",
    )
    notices.follow(RECORDS_CHANNEL, users.heard)
    notices.follow(RECORDS_CHANNEL, lambda payloads: None if keys_of(MANAGED, payloads) == [] else clients.heard())
    async with trio.open_nursery() as nursery:
        await nursery.start(notices.run)
        nursery.start_soon(clients.run)
        with trio.fail_after(30):
            while users.version() == 0:  # noqa: ASYNC110  another thread listens
                await trio.sleep(0.01)
            before = users.version()
            await trio.to_thread.run_sync(EngineUsers(there).replace, None, ANA)
            while users.version() == before:  # noqa: ASYNC110
                await trio.sleep(0.01)
            added = replace(GAUGE, digest="digest")
            await trio.to_thread.run_sync(EngineClients(there).replace, "gauge", None, added)
            while clients.find("gauge") != added:  # noqa: ASYNC110
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert [one.digest for one in followed[-1]] == [one.digest for one in added.credentials()]
    for one in (here, there):
        one.close()


class Member:
    """What one node has in memory of the domain, over its own rows in the engine."""

    def __init__(self, server: Postgres, database: str, name: str) -> None:
        options = server.options(database)
        self.journal = Journal()
        self.queues = AgentQueues(self.journal, defaults=QueueRules(60.0, 1), longest_seconds=1e9)
        self.push = PushTargets(self.journal)
        self.rows = held_rows(options, name)
        self.records, self._notices = EngineRecords(Engine(options)), EngineNotices(Engine(options))
        self.proposals = Proposals(self.journal, f"runtime://a.example/{name}")
        tables: dict[Table, FollowedTable] = {
            Table.AGENT_QUEUES: self.queues,
            Table.PUSH_TARGETS: self.push,
            Table.PROPOSALS: self.proposals,
        }
        self._followed = FollowedTables(tables, self.records)
        self._notices.follow(RECORDS_CHANNEL, self._followed.heard)

    def restore(self) -> None:
        loaded = self.rows.load()
        self.queues.restore(loaded[Table.AGENT_QUEUES])
        self.push.restore(loaded[Table.PUSH_TARGETS])
        self.proposals.restore(loaded[Table.PROPOSALS])

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self._notices.run)
            nursery.start_soon(self._followed.run)
            task_status.started()

    async def commit(self) -> None:
        rows: dict[Table, dict[str, NewRow | None]] = {}
        for change in self.journal.take():
            rows.setdefault(change.table, {})[change.key] = change.row
        await trio.to_thread.run_sync(self.rows.commit, rows)

    async def until(self, agents: set[str], wakes: int) -> None:
        with trio.fail_after(60):
            while (set(self.queues.agents()), len(self.push)) != (agents, wakes):  # noqa: ASYNC110
                await trio.sleep(0.01)

    def close(self) -> None:
        self.rows.close()
        self.records.close()


async def test_queue_rules_and_wake_ups_of_one_node_count_at_all_and_outlive_it(postgres: Postgres) -> None:
    database, wake = postgres.new_database(), PushTarget("thing://a.example/lamps", "https://push/1", "runtime", 9e9)
    old = Member(postgres, database, "n1")
    with psycopg.connect(postgres.conninfo(database)) as connection:  # as an older program left it, under its name
        connection.execute(_OLD_ROW, {"key": b"thing://a.example/old", "row": b'{"unanswered":7}'})
    one, two = (Member(postgres, database, name) for name in ("n1", "n2"))
    async with trio.open_nursery() as nursery:
        await nursery.start(two.run)
        one.restore()
        await nursery.start(one.run)
        await two.until({"thing://a.example/old"}, 0)
        assert two.queues.rules("thing://a.example/old").unanswered == 7

        one.queues.announce(wake.key, {"expires": 600, "max": 3})
        one.push.add(wake)
        await one.commit()
        await two.until({"thing://a.example/old", wake.key}, 1)
        assert two.queues.rules(wake.key) == (600.0, 3)
        assert two.push.of(wake.key) == [wake]

        two.queues.forget("thing://a.example/old")
        two.push.gone(wake.endpoint)
        await two.commit()
        await one.until({wake.key}, 0)

        many = [f"thing://a.example/{number}" for number in range(ANNOUNCED_AT_ONCE + 1)]
        for agent in many:
            two.queues.announce(agent, {"max": 2})
        await two.commit()
        await one.until({wake.key, *many}, 0)
        nursery.cancel_scope.cancel()
    late = Member(postgres, database, "n3")
    late.restore()
    assert late.queues.rules(wake.key) == (600.0, 3)
    for member in (old, one, two, late):
        member.close()


async def test_a_proposal_of_one_node_is_confirmed_at_another_and_outlives_both(postgres: Postgres) -> None:
    database, now = postgres.new_database(), time.time()
    one, two = (Member(postgres, database, name) for name in ("n1", "n2"))
    change = proposal_of("group create", {"group": "staff"}, {}, Author("ana", "user 1", "m1"), now)

    async def seen_at(member: Member, confirmed: bool) -> None:
        with trio.fail_after(60):
            while [bool(each.confirmed_by) for each in member.proposals.waiting(now)] != [confirmed]:  # noqa: ASYNC110
                await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        await nursery.start(one.run)
        await nursery.start(two.run)
        one.proposals.add(change, now)
        await one.commit()
        await seen_at(two, False)
        (there,) = two.proposals.find(change.id, now)
        assert not two.proposals.is_ours(there)
        two.proposals.confirm(there, Author("bo", "user 2", "m1"))
        await two.commit()
        await seen_at(one, True)
        nursery.cancel_scope.cancel()
    for member in (one, two):
        member.close()
    again, other = (Member(postgres, database, name) for name in ("n1", "n2"))
    for member in (again, other):
        member.restore()
    assert [each.confirmed_by for each in again.proposals.confirmed()] == ["bo"]
    assert other.proposals.confirmed() == []  # it is made where it was proposed
    again.proposals.remove(again.proposals.confirmed()[0])
    await again.commit()
    late = Member(postgres, database, "n3")
    late.restore()
    assert len(late.proposals) == 0
    for member in (again, other, late):
        member.close()


def test_an_announcement_names_what_was_replaced_or_everything_of_its_kind() -> None:
    heard = [announcement(USERS, "ana"), announcement(GUIDS, "x" * 8_000)]
    assert keys_of(USERS, heard) == ["ana"]
    assert keys_of(GUIDS, heard) is None
    assert keys_of(MANAGED, heard) == []
    assert keys_of(MANAGED, None) is None
