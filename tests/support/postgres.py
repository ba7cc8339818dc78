"""A real PostgreSQL on loopback, from Debian's package, for tests of what nodes of one domain share.

Where there is none, its tests are skipped with the command that would install it; with TRAPEZOID_REQUIRE_BROKER in the
environment they fail instead. It never runs as root.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interop.engine_server import INSTALL, EngineServer, engine_programs
from interop.free_ports import free_ports
from msg_node.storage import engine_line
from msg_node.storage.engine import Engine
from msg_node.storage.engine_options import EngineOptions
from msg_node.storage.engine_rows import EngineRows

USER = "trapezoid"
PASSWORD = "open sesame"
_NUMBERS = count(1)


def needs_postgres() -> Path:
    """Skip (or, where it is required, fail) a test that cannot have an engine."""
    folder = engine_programs()
    if folder is None:
        if os.environ.get("TRAPEZOID_REQUIRE_BROKER"):
            pytest.fail(f"no PostgreSQL here: {INSTALL}")
        pytest.skip(f"no PostgreSQL here: {INSTALL}")
    return folder


class Postgres(EngineServer):
    """A server whose superuser the tests are."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, free_ports(1)[0], USER)

    def run(self, *statements: str, database: str = "postgres") -> None:
        """Run statements as the superuser, outside of a transaction."""
        with psycopg.connect(self.conninfo(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self, query: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """The answer to a query of the superuser."""
        with psycopg.connect(self.conninfo(database)) as connection:
            return connection.execute(query.encode()).fetchall()

    def conninfo(self, database: str = "postgres") -> str:
        """For psycopg, as the superuser."""
        return f"host=127.0.0.1 port={self.port} user={USER} password='{PASSWORD}' dbname={database} sslmode=disable"

    def replica(self, folder: Path) -> Postgres:
        """A replica of this server, not started, in a folder of its own; from then on commits wait for its disk."""
        other = Postgres(folder)
        self.give(folder)
        self.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
        command = [str(self.programs / "pg_basebackup"), "-R", "-c", "fast", "-D", str(folder / "data")]
        self.run_program([*command, "-d", self.conninfo()])
        return other

    def new_database(self) -> str:
        """Make an empty database; returns its name."""
        name = f"test_{next(_NUMBERS)}"
        self.run(f"CREATE DATABASE {name}")
        return name

    def options(self, database: str, **changed: Any) -> EngineOptions:
        """To reach a database as a node of a.example does."""
        chosen: dict[str, Any] = {
            "hosts": (("127.0.0.1", self.port),), "user": USER, "password": PASSWORD, "database": database,
            "domain": "a.example", "application": "trapezoid test", "tls": "off",
        }  # fmt: skip
        return EngineOptions(**chosen | changed)


def engine_settings(server: Postgres) -> str:
    """`[storage]` of a node over a new database of this server; the password is in a file."""
    secret = server.folder / "password"
    url = f"postgresql://{USER}@127.0.0.1:{server.port}/{server.new_database()}"
    return f'[storage]\nengine = "{url}"\npassword_file = "{secret}"\ntls = "off"\n'


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server of its own, with files that are gone afterwards."""
    needs_postgres()
    with tempfile.TemporaryDirectory(prefix="trapezoid-pg-") as files:
        server = Postgres(Path(files))
        server.create(PASSWORD)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def paused(server: Postgres) -> Iterator[None]:
    """A server that answers nothing and closes nothing; nobody waits long for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_line, "ANSWER_SECONDS", 0.3)
        server.pause()
        try:
            yield
        finally:
            server.go_on()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for all tests of a process; who stops it uses `running_postgres`."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def shared_database(postgres: Postgres) -> EngineOptions:
    """One database for tests whose nodes have names of their own."""
    return postgres.options(postgres.new_database())


def held_rows(options: EngineOptions, node: str, epoch: int = 1) -> EngineRows:
    """The rows of a node whose name is held under an epoch, which another process may have held before."""
    engine = Engine(options)
    with engine.transaction() as connection:
        connection.execute(
            "INSERT INTO trapezoid_node (name, epoch, instance, facts) VALUES (%s, %s, '', '{}')"
            " ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch, is_held = true",
            (node, epoch),
        )
    return EngineRows(engine, node, epoch)
