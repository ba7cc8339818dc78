"""The engine: what it refuses, in which words; what a lost connection costs; who may write."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trustme
from msgspec import Raw

from interop.free_ports import free_ports
from msg_node.cluster.names import Names, NodeFacts
from msg_node.kernel.changes import Table
from msg_node.storage import engine_line
from msg_node.storage.engine import Engine
from msg_node.storage.engine_errors import SILENT, EngineError, FencedError
from msg_node.storage.engine_options import EngineOptions
from msg_node.storage.engine_rows import EngineRows
from msg_node.storage.state_file import Rows
from protofly.errors import Code
from tests.support.postgres import PASSWORD, Postgres, held_rows, paused, running_postgres

Change = Callable[[EngineOptions], EngineOptions]


def rows(**sessions: bytes | None) -> Rows:
    return {Table.SESSIONS: {key: None if row is None else Raw(row) for key, row in sessions.items()}}


def refusal(options: EngineOptions) -> EngineError:
    """What opening an engine raises."""
    engine = Engine(options)
    with pytest.raises(EngineError) as caught:
        engine.open()
    engine.close()
    assert caught.value.code is Code.STATE_UNAVAILABLE
    assert PASSWORD not in str(caught.value)
    assert str(options.hosts[0][1]) in caught.value.place
    return caught.value


def test_nobody_there_is_unreachable(shared_database: EngineOptions) -> None:
    error = refusal(dataclasses.replace(shared_database, hosts=(("127.0.0.1", free_ports(1)[0]),)))
    assert (error.word, error.is_lost) == ("engine-unreachable", True)
    assert "listen_addresses" in error.action


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"password": "wrong"}, "engine-credentials"),
        ({"user": "nobody_here"}, "engine-credentials"),
        ({"database": "none"}, "engine-missing"),
        ({"tls": "verify-full"}, "engine-tls"),
        ({"domain": "b.example"}, "engine-foreign"),
    ],
)
def test_what_does_not_fit_has_a_word_and_an_action(
    shared_database: EngineOptions, changed: dict[str, str], word: str
) -> None:
    Engine(shared_database).open().close()
    error = refusal(dataclasses.replace(shared_database, **changed))  # type: ignore[arg-type]
    assert error.word == word
    assert error.action


def test_password_that_nobody_gave_is_asked_for(
    shared_database: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = dataclasses.replace(shared_database, password=None)
    assert "storage.password_file" in refusal(options).action
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    Engine(options).open().close()


def test_database_that_loses_or_garbles_what_it_is_given_is_refused(postgres: Postgres) -> None:
    name = postgres.new_database()
    postgres.run(f"ALTER DATABASE {name} SET synchronous_commit = off")
    error = refusal(postgres.options(name))
    assert (error.word, "synchronous_commit" in error.action) == ("engine-unsafe", True)
    postgres.run("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    assert refusal(postgres.options("latin")).word == "engine-encoding"


def test_role_without_rights_and_newer_tables_are_refused(postgres: Postgres) -> None:
    name = postgres.new_database()
    postgres.run(f"CREATE ROLE guest_of_{name} LOGIN PASSWORD '{PASSWORD}'")
    guest = postgres.options(name, user=f"guest_of_{name}")
    assert refusal(guest).word == "engine-rights"  # it may not make the tables
    Engine(postgres.options(name)).open().close()
    assert refusal(guest).word == "engine-rights"  # it may not read them
    postgres.run("UPDATE trapezoid_schema SET version = 99", database=name)
    assert refusal(postgres.options(name)).word == "engine-newer"


def test_engine_that_only_a_replica_of_answers_is_said_to_be_read_only(postgres: Postgres) -> None:
    name = postgres.new_database()
    postgres.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    error = refusal(postgres.options(name))
    assert (error.word, "promote" in error.action) == ("engine-read-only", True)


@pytest.mark.parametrize(
    "words",
    [
        "the database system is starting up",
        "the database system is not yet accepting connections",
        "the database system is shutting down",
        "the database system is in recovery mode",
    ],
)
def test_engine_that_starts_or_stops_is_to_be_waited_for(
    shared_database: EngineOptions, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    def refused(**_options: object) -> None:
        raise psycopg.OperationalError(f'connection to server at "127.0.0.1", port 5 failed: FATAL:  {words}')

    monkeypatch.setattr("msg_node.storage.engine.EngineLine.connect", refused)
    error = refusal(shared_database)
    assert (error.word, error.is_lost, error.action.partition(":")[0]) == ("engine-starting", True, "wait")


def test_pooler_that_refuses_settings_of_a_connection_is_named_as_one(
    shared_database: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(**_options: object) -> None:  # in the words of pgbouncer 1.18
        raise psycopg.OperationalError("connection failed: FATAL:  unsupported startup parameter: options")

    monkeypatch.setattr("msg_node.storage.engine.EngineLine.connect", refused)
    error = refusal(shared_database)
    assert (error.word, "pooler" in error.action) == ("engine-pooled", True)


def test_pooler_that_ignores_settings_of_a_connection_is_refused(
    shared_database: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = engine_line.EngineLine.connect

    def ignoring(**options: Any) -> engine_line.EngineLine:
        return connect(**options | {"options": ""})

    monkeypatch.setattr("msg_node.storage.engine.EngineLine.connect", ignoring)
    error = refusal(shared_database)
    assert (error.word, "lock_timeout" in error.what) == ("engine-pooled", True)


def test_connection_that_ends_in_a_transaction_is_lost_and_the_first_cause_is_named(postgres: Postgres) -> None:
    engine = Engine(postgres.options(postgres.new_database()))
    with pytest.raises(EngineError) as caught, engine.transaction() as connection:
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    engine.close()
    assert (caught.value.word, caught.value.is_lost) == ("engine-lost", True)
    assert "pipeline" not in caught.value.what


def test_durability_is_stated_as_the_engine_has_it(shared_database: EngineOptions) -> None:
    engine = Engine(shared_database)
    assert "on the disk of this server (on)" in engine.durability()
    engine.close()


def test_certificate_is_verified(postgres: Postgres, tmp_path: Path) -> None:
    """The server has none; the client then refuses to speak in plain text."""
    authority = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(authority)
    name = postgres.new_database()
    for tls in ("verify-full", "verify-ca"):
        assert refusal(postgres.options(name, tls=tls, ca_file=authority)).word == "engine-tls"


# Rows.


def test_keys_and_rows_of_any_size_and_character_come_back(shared_database: EngineOptions) -> None:
    awkward = {"": b"", "\0": b"\0", "k" * 100_000: b"x" * 1_000_000, "ü'\"\\;--": b"\xff{}", "hyperty://a/ 1": b"{}"}
    node = held_rows(shared_database, "awkward")
    node.commit(rows(**awkward))
    assert node.load()[Table.SESSIONS] == awkward
    node.commit(rows(**dict.fromkeys(awkward)))
    assert node.load()[Table.SESSIONS] == {}
    node.close()


def test_rows_of_two_nodes_never_meet(shared_database: EngineOptions) -> None:
    one, other = held_rows(shared_database, "one"), held_rows(shared_database, "other")
    one.commit(rows(key=b"1"))
    other.commit(rows(key=b"2", more=b"3"))
    one.commit(rows(key=None))
    assert one.load()[Table.SESSIONS] == {}
    assert other.load()[Table.SESSIONS] == {"key": b"2", "more": b"3"}
    one.close()
    other.close()


def test_older_epoch_writes_and_reads_nothing_any_more(shared_database: EngineOptions) -> None:
    before = held_rows(shared_database, "fenced", 1)
    before.commit(rows(key=b"before"))
    after = held_rows(shared_database, "fenced", 2)
    with pytest.raises(FencedError, match="taken over the name fenced"):
        before.commit(rows(key=b"late", other=b"late"))
    with pytest.raises(FencedError):
        before.load()
    assert after.load()[Table.SESSIONS] == {"key": b"before"}
    after.commit(rows(key=b"after"))
    assert after.load()[Table.SESSIONS] == {"key": b"after"}
    before.close()
    after.close()


def test_long_transaction_keeps_a_name_from_others_and_not_from_its_own_renewals(
    shared_database: EngineOptions,
) -> None:
    node, engine = held_rows(shared_database, "long"), Engine(shared_database)
    names, standby = Names(Engine(shared_database)), Names(Engine(shared_database))
    seen = names.read("long")
    taken: list[int | None] = []
    with engine.transaction() as connection:
        connection.execute("SELECT trapezoid_hold('long', 1)").fetchone()
        assert names.renew("long", 1, NodeFacts())  # does not wait for the transaction
        renewed = names.read("long")
        taking = threading.Thread(target=lambda: taken.append(standby.take("long", renewed, "b", NodeFacts())))
        taking.start()
        wait_for_lock(names)
        assert taken == []
    taking.join(10)
    assert taken == [2]
    assert standby.take("long", seen, "c", NodeFacts()) is None  # it has been renewed since, and taken
    for one in (node, names, standby, engine):
        one.close()


def wait_for_lock(names: Names) -> None:
    """Until somebody waits for a lock."""
    for _ in range(10_000):
        if names._one("SELECT count(*) FROM pg_locks WHERE NOT granted", ()) != (0,):
            return
    raise AssertionError("nobody waits")


def test_commit_whose_wait_for_a_replica_was_ended_is_none(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    node = held_rows(options, "unconfirmed")
    try:
        postgres.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
        ended = threading.Thread(target=end_wait, args=(postgres,))
        ended.start()
        with pytest.raises(EngineError, match="engine-unconfirmed"):
            commit_again_and_again(node)
        ended.join(30)
    finally:
        postgres.run("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
    node.commit(rows(key=b"1"))
    assert node.load()[Table.SESSIONS] == {"key": b"1"}
    node.close()


def commit_again_and_again(node: EngineRows) -> None:
    """The engine may take over a setting some commits after it was asked to."""
    for _ in range(10_000):
        node.commit(rows(key=b"1"))


def end_wait(postgres: Postgres) -> None:
    """Cancel what waits for a replica, as an operator may."""
    for _ in range(10_000):
        if postgres.rows("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"):
            return
    raise AssertionError("nobody waits")


def test_name_that_was_never_held_writes_nothing(shared_database: EngineOptions) -> None:
    stranger = EngineRows(Engine(shared_database), "stranger", 1)
    with pytest.raises(FencedError):
        stranger.commit(rows(key=b"1"))
    stranger.close()


def test_connection_that_the_engine_ended_meanwhile_costs_nothing(
    postgres: Postgres, shared_database: EngineOptions
) -> None:
    node = held_rows(shared_database, "cut")
    node.commit(rows(key=b"1"))
    postgres.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IS NOT NULL"
    )
    node.commit(rows(key=b"2"))
    assert node.load()[Table.SESSIONS] == {"key": b"2"}
    node.close()


@pytest.fixture
def silent() -> Iterator[Postgres]:
    """A server that a test may pause."""
    with running_postgres() as server:
        yield server


def test_engine_that_falls_silent_is_given_up_and_does_nothing_of_that_after_what_comes_later(silent: Postgres) -> None:
    node = held_rows(silent.options(silent.new_database()), "silent")
    node.commit(rows(key=b"1"))
    with paused(silent), pytest.raises(EngineError) as caught:
        node.commit(rows(key=b"2", other=b"2"))
    assert (caught.value.word, caught.value.is_lost, caught.value.code) == (SILENT, True, Code.STATE_UNAVAILABLE)
    node.commit(rows(key=b"3", other=None))
    workers = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'trapezoid test'"
    assert silent.rows(workers) == [(1,)], "the process that was given up could still write"
    assert node.load()[Table.SESSIONS] == {"key": b"3"}
    node.close()


def test_statement_that_the_engine_still_works_at_is_ended_before_anything_else_is_asked(postgres: Postgres) -> None:
    """Here it waits for a lock: what was given up would be done as soon as the lock is let go."""
    options = postgres.options(postgres.new_database())
    node, other = held_rows(options, "given-up"), Engine(options)
    node.commit(rows(key=b"1"))
    with other.transaction() as connection:
        connection.execute("UPDATE trapezoid_row SET row = row WHERE node = 'given-up'")
        connection.execute("SELECT 1").fetchone()  # both have been done then
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine_line, "ANSWER_SECONDS", 0.3)
            with pytest.raises(EngineError, match=SILENT):
                node.commit(rows(key=b"late"))
        assert node.load()[Table.SESSIONS] == {"key": b"1"}
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        assert postgres.rows(waiting) == [(0,)]
    assert node.load()[Table.SESSIONS] == {"key": b"1"}
    node.commit(rows(key=b"2"))
    assert node.load()[Table.SESSIONS] == {"key": b"2"}
    node.close()
    other.close()


def test_worker_that_does_not_end_is_reported_and_nothing_is_asked(
    shared_database: EngineOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = held_rows(shared_database, "busy")
    node.commit(rows(key=b"1"))
    connection = node._engine.open()
    connection.pgconn.finish()
    monkeypatch.setattr("msg_node.storage.engine.end_work", lambda *_: False)
    for _ in range(2):
        with pytest.raises(EngineError, match="engine-busy"):
            node.commit(rows(key=b"2"))
    monkeypatch.undo()
    node.commit(rows(key=b"3"))
    assert node.load()[Table.SESSIONS] == {"key": b"3"}
    node.close()


def test_transaction_that_fails_leaves_everything_as_it_was(postgres: Postgres) -> None:
    options = postgres.options(postgres.new_database())
    node = held_rows(options, "whole")
    node.commit(rows(key=b"1"))
    postgres.run("ALTER TABLE trapezoid_row ADD CHECK (row <> 'no')", database=options.database)
    with pytest.raises(EngineError, match="engine-failed") as caught:
        node.commit(rows(key=b"2", other=b"no"))
    assert not caught.value.is_lost
    assert node.load()[Table.SESSIONS] == {"key": b"1"}
    node.commit(rows(key=b"3"))
    assert node.load()[Table.SESSIONS] == {"key": b"3"}
    node.close()


def test_nodes_that_start_at_the_same_time_make_the_tables_once(postgres: Postgres) -> None:
    options, start = postgres.options(postgres.new_database()), threading.Barrier(6)
    errors: list[Exception] = []

    def begin() -> None:
        engine = Engine(options)
        start.wait()
        try:
            engine.open()
        except EngineError as exc:
            errors.append(exc)
        engine.close()

    threads = [threading.Thread(target=begin) for _ in range(start.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
