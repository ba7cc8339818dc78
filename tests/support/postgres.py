"""A real PostgreSQL on loopback, from Debian's package, for tests of what nodes of one domain share.

Where there is none, its tests are skipped with the command that would install it; with TRAPEZOID_REQUIRE_BROKER in the
environment they fail instead. It never runs as root.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interop.free_ports import free_ports
from msg_node.storage.engine import Engine
from msg_node.storage.engine_options import EngineOptions
from msg_node.storage.engine_rows import EngineRows

INSTALL = "apt-get install -y postgresql"
USER = "trapezoid"
PASSWORD = "open sesame"
PATIENCE_SECONDS = 30
_NUMBERS = count(1)


def programs() -> Path | None:
    """The folder of the server's programs, that of the newest version."""
    found = shutil.which("postgres")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


def needs_postgres() -> Path:
    """Skip (or, where it is required, fail) a test that cannot have an engine."""
    folder = programs()
    if folder is None:
        if os.environ.get("TRAPEZOID_REQUIRE_BROKER"):
            pytest.fail(f"no PostgreSQL here: {INSTALL}")
        pytest.skip(f"no PostgreSQL here: {INSTALL}")
    return folder


class Postgres:
    """One server process after the other over the same files.

    Args:
        folder: For its files; belongs to the user that it runs as.
        owner: That user; "" for the one that runs the tests.
    """

    def __init__(self, folder: Path, programs: Path, owner: str) -> None:
        self.port = free_ports(1)[0]
        self.folder = folder
        self._programs = programs
        self._as: dict[str, Any] = {}
        if owner:
            self._as = {"user": owner, "group": pwd.getpwnam(owner).pw_gid, "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Make the files of a new server, whose superuser is `USER`."""
        secret = self.folder / "password"
        secret.touch(0o600)
        secret.write_text(PASSWORD)
        if self._as:
            shutil.chown(self.folder, self._as["user"], self._as["group"])
            shutil.chown(secret, self._as["user"], self._as["group"])
        command = [
            str(self._programs / "initdb"), "--no-sync", "--encoding=UTF8", "--locale=C", f"--username={USER}",
            "--auth=scram-sha-256", f"--pwfile={secret}", "-D", str(self.folder / "data"),
        ]  # fmt: skip
        subprocess.run(command, check=True, cwd="/", stdout=subprocess.DEVNULL, timeout=PATIENCE_SECONDS, **self._as)

    def start(self, **settings: str) -> None:
        """Start it, and wait until it answers."""
        chosen = {"port": str(self.port), "listen_addresses": "127.0.0.1", "unix_socket_directories": str(self.folder)}
        chosen |= {"max_connections": "60", "shared_buffers": "16MB", "logging_collector": "off", **settings}
        command = [str(self._programs / "postgres"), "-D", str(self.folder / "data")]
        command += [word for name, value in chosen.items() for word in ("-c", f"{name}={value}")]
        self._process = subprocess.Popen(command, cwd="/", stderr=subprocess.DEVNULL, **self._as)
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port), "-t", "1"]
        for _ in range(PATIENCE_SECONDS * 100):
            assert self._process.poll() is None, "PostgreSQL has ended"
            if subprocess.run(ready, check=False, timeout=PATIENCE_SECONDS).returncode == 0:
                return
        raise AssertionError("PostgreSQL does not answer")

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it: SIGQUIT at once, so that it recovers at the next start; SIGINT in order."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

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
        other = Postgres(folder, self._programs, str(self._as.get("user", "")))
        if self._as:
            shutil.chown(folder, self._as["user"], self._as["group"])
        self.run("ALTER SYSTEM SET synchronous_standby_names = '*'")
        command = [str(self._programs / "pg_basebackup"), "-R", "-c", "fast", "-D", str(folder / "data")]
        command += ["-d", self.conninfo()]
        subprocess.run(command, check=True, cwd="/", timeout=PATIENCE_SECONDS, stderr=subprocess.DEVNULL, **self._as)
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
    folder = needs_postgres()
    owner = "" if os.getuid() else next(name for name in ("postgres", "nobody") if _is_user(name))
    with tempfile.TemporaryDirectory(prefix="trapezoid-pg-") as files:
        server = Postgres(Path(files), folder, owner)
        server.create()
        server.start()
        try:
            yield server
        finally:
            server.stop()


def _is_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


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
