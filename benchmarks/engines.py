"""`python -m benchmarks.engines`: what PostgreSQL and Redis do of what a domain needs of its engine.

Claims are conditional writes of which one succeeds. Each variant is a server with other settings: how many claims it
takes in a second, and how many acknowledged ones are missing after its first process was killed and started again on
its files, or after a replica has taken its place whose line was cut a second before. What a power failure takes beyond
that is what had not reached the disk; it is not measured.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Final, Protocol

import psycopg

from interop.domain_files import HOST
from interop.engine_server import INSTALL, EngineServer, engine_programs
from interop.free_ports import free_ports
from interop.patience import Patience
from protofly.errors import SettingsError

SECONDS: Final = 3.0
CUT_SECONDS: Final = 1.0
"""For how long the line to the replica is cut when the first server is killed."""
WAITING: Final = (1, 16)
CONNECTIONS: Final = 4
LEAST_CLAIMS: Final = 10
"""Acknowledged before a server is killed."""
PATIENCE_SECONDS: Final = 30.0
ANSWER_SECONDS: Final = 5.0
USER: Final = "trapezoid"
PASSWORD: Final = "benchmark"  # noqa: S105 - of servers on loopback that are gone afterwards
_LOOK_SECONDS: Final = 0.05

Claim = Callable[[str], bool]
"""Claims one address for an owner; True once that is acknowledged."""


class Server(Protocol):
    """A server that takes claims."""

    def connect(self) -> Claim:
        """A new connection."""

    def kill(self) -> None:
        """End its first process by SIGKILL."""

    def start(self) -> None:
        """Start it on its files."""

    def stop(self) -> None:
        """End it; nothing is asked of it any more."""

    def promote(self) -> None:
        """Make it take claims, if it was a replica."""

    def claimed(self) -> set[str]:
        """All addresses that have an owner there."""


class Line:
    """A port that leads to another one, until it is cut: then nothing arrives, and nothing is closed."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._is_cut = threading.Event()
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let nothing pass any more."""
        self._is_cut.set()

    def close(self) -> None:
        """End it."""
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((HOST, self._target))
                self._sockets += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if not self._is_cut.is_set():
                    sink.sendall(data)


class PostgresClaims:
    """PostgreSQL, with settings of a commit; `waits` makes each commit wait for these replicas."""

    def __init__(self, folder: Path, settings: dict[str, str], primary: PostgresClaims | None = None) -> None:
        self._settings = {name: value for name, value in settings.items() if name != "waits"}
        self.server = EngineServer(folder, free_ports(1)[0], USER)
        self._connections = ExitStack()
        self.line: Line | None = None
        if primary is None:
            self.server.create(PASSWORD)
            self.start()
            with psycopg.connect(self._conninfo(), autocommit=True) as connection:
                connection.execute("CREATE TABLE claim (key text PRIMARY KEY, owner text NOT NULL)")
            return
        self.line = Line(primary.server.port)
        self.server.give(folder)
        command = [str(self.server.programs / "pg_basebackup"), "-R", "-c", "fast", "-D", str(folder / "data")]
        self.server.run_program([*command, "-d", self._conninfo(self.line.port)])
        self.start()
        if "waits" in settings:
            primary.wait_for(settings["waits"])

    def _conninfo(self, port: int = 0) -> str:
        return f"host={HOST} port={port or self.server.port} user={USER} password={PASSWORD} dbname=postgres"

    def wait_for(self, replicas: str) -> None:
        """Have each commit wait for the disk of a replica from now on."""
        with psycopg.connect(self._conninfo(), autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{replicas}'".encode())
            connection.execute("SELECT pg_reload_conf()")
            states = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            _until(lambda: connection.execute(states).fetchone() == (1,))

    def connect(self) -> Claim:
        """See `Server`."""
        connection = psycopg.connect(self._conninfo(), autocommit=True)
        self._connections.callback(connection.close)
        warnings: list[object] = []  # a commit whose wait for a replica was ended succeeds, with a warning only
        connection.add_notice_handler(warnings.append)

        def claim(key: str) -> bool:
            found = connection.execute(
                "INSERT INTO claim VALUES (%s, 'n1') ON CONFLICT DO NOTHING RETURNING key", (key,), prepare=True
            )
            return found.fetchone() is not None and not warnings

        return claim

    def kill(self) -> None:
        """See `Server`."""
        self.server.kill()

    def start(self) -> None:
        """See `Server`."""
        self.server.start(**self._settings)

    def stop(self) -> None:
        """See `Server`."""
        self._connections.close()
        self.server.stop()
        if self.line is not None:
            self.line.close()

    def promote(self) -> None:
        """See `Server`."""
        with psycopg.connect(self._conninfo(), autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    def claimed(self) -> set[str]:
        """See `Server`."""
        with psycopg.connect(self._conninfo()) as connection:
            return {key for (key,) in connection.execute("SELECT key FROM claim").fetchall()}


class _Redis:
    """One connection, by the protocol of Redis (RESP 2)."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=PATIENCE_SECONDS)
        self._file = self._socket.makefile("rb")

    def ask(self, *words: str) -> str | None:
        """The answer to a command, as far as it is one line; None if it is null."""
        parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
        self._socket.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
        return self._line()

    def text(self, *words: str) -> str:
        """The answer to a command that is a text of any length."""
        return self._rest_of(self.ask(*words))

    def list(self, *words: str) -> list[str]:
        """The answer to a command that is a list of texts."""
        return [self._rest_of(self._line()) for _ in range(int(self.ask(*words) or "0"))]

    def close(self) -> None:
        """End it."""
        self._file.close()
        self._socket.close()

    def _line(self) -> str | None:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("the server has closed the connection")
        kind, text = chr(line[0]), line[1:-2].decode()
        if kind == "-":
            raise OSError(text)
        return None if text == "-1" else text

    def _rest_of(self, size: str | None) -> str:
        return self._file.read(int(size or "0") + 2)[:-2].decode()


class RedisClaims:
    """Redis, with settings of its log; `waits` makes each claim wait for a replica."""

    def __init__(self, folder: Path, settings: dict[str, str], primary: RedisClaims | None = None) -> None:
        self._settings = {name: value for name, value in settings.items() if name != "waits"}
        self._waits = settings.get("waits", "")
        self._folder = folder
        self.port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        self._connections = ExitStack()
        self.line: Line | None = None
        if primary is not None:
            self.line = Line(primary.port)
            self._settings["replicaof"] = f"{HOST} {self.line.port}"
        self.start()
        if primary is not None:
            _until(lambda: "master_link_status:up" in self._connection().text("INFO", "replication"))

    def connect(self) -> Claim:
        """See `Server`."""
        connection = self._connection()

        def claim(key: str) -> bool:
            is_ours = connection.ask("SET", key, "n1", "NX") == "OK"
            if is_ours and self._waits:
                return connection.ask("WAIT", "1", self._waits) == "1"
            return is_ours

        return claim

    def kill(self) -> None:
        """See `Server`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE_SECONDS)

    def start(self) -> None:
        """See `Server`."""
        chosen = {"port": str(self.port), "bind": HOST, "dir": str(self._folder), "save": "", **self._settings}
        words = [word for name, value in chosen.items() for word in (f"--{name}", *value.split(" "))]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([_redis_program(), *words], stdout=log, stderr=log)  # noqa: S603 - ours
        _until(lambda: self._connection().ask("PING") == "PONG")

    def stop(self) -> None:
        """See `Server`."""
        self._connections.close()
        self.kill()
        if self.line is not None:
            self.line.close()

    def promote(self) -> None:
        """See `Server`."""
        self._connection().ask("REPLICAOF", "NO", "ONE")

    def claimed(self) -> set[str]:
        """See `Server`."""
        return set(self._connection().list("KEYS", "*"))

    def _connection(self) -> _Redis:
        """A connection that is there until the server is stopped."""
        one = _Redis(self.port)
        self._connections.callback(one.close)
        return one


def _until(condition: Callable[[], bool]) -> None:
    """Raises SettingsError if it does not hold for long."""
    patience = Patience(PATIENCE_SECONDS)
    while not patience.is_over():
        with suppress(OSError):
            if condition():
                return
        time.sleep(_LOOK_SECONDS)
    raise SettingsError("a server does not answer")


def _redis_program() -> str:
    """Raises SettingsError if it is not installed."""
    found = shutil.which("redis-server")
    if found is None:
        raise SettingsError("no Redis here: apt-get install -y --no-install-recommends redis-server")
    return found


Kind = type[PostgresClaims] | type[RedisClaims]


@dataclass(frozen=True, slots=True)
class Variant:
    """One server with settings; those with `replicated` have a replica as well."""

    name: str
    kind: Kind
    settings: dict[str, str] = field(default_factory=dict)
    is_replicated: bool = False


_ALWAYS: Final = {"appendonly": "yes", "appendfsync": "always"}
_EVERY_SECOND: Final = {"appendonly": "yes", "appendfsync": "everysec"}
VARIANTS: Final = (
    Variant("PostgreSQL, synchronous_commit on", PostgresClaims),
    Variant("PostgreSQL, synchronous_commit off", PostgresClaims, {"synchronous_commit": "off"}),
    Variant("PostgreSQL, replica, synchronous", PostgresClaims, {"waits": "*"}, is_replicated=True),
    Variant("PostgreSQL, replica, asynchronous", PostgresClaims, is_replicated=True),
    Variant("Redis, appendfsync always", RedisClaims, _ALWAYS),
    Variant("Redis, appendfsync everysec", RedisClaims, _EVERY_SECOND),
    Variant("Redis, no log", RedisClaims),
    Variant("Redis, replica, always and WAIT 1", RedisClaims, {**_ALWAYS, "waits": "3000"}, is_replicated=True),
    Variant("Redis, replica, always", RedisClaims, _ALWAYS, is_replicated=True),
)


class Claimants:
    """Connections that claim one address after the other, until they are stopped or their server is gone."""

    def __init__(self, server: Server, connections: int) -> None:
        self.acknowledged: set[str] = set()
        self.took: list[float] = []
        self._numbers = count(1)
        self._is_over = threading.Event()
        claims = [server.connect() for _ in range(connections)]
        self._threads = [threading.Thread(target=self._claim, args=(one,), daemon=True) for one in claims]
        self._prefix = f"hyperty://a.example/{time.monotonic_ns()}-"
        for one in self._threads:
            one.start()

    def end(self) -> None:
        """Stop; what has not been answered by then counts as not acknowledged."""
        self._is_over.set()
        for one in self._threads:
            one.join(ANSWER_SECONDS)

    def _claim(self, claim: Claim) -> None:
        with suppress(OSError, psycopg.Error):
            while not self._is_over.is_set():
                key = f"{self._prefix}{next(self._numbers)}"
                began = time.perf_counter()
                if claim(key):
                    self.took.append(time.perf_counter() - began)
                    self.acknowledged.add(key)


@contextmanager
def servers_of(variant: Variant) -> Iterator[list[PostgresClaims] | list[RedisClaims]]:
    """Its server, and its replica if it has one."""
    with ExitStack() as stack:
        found: list[PostgresClaims] = []
        others: list[RedisClaims] = []
        for _ in range(1 + variant.is_replicated):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trapezoid-engine-")))
            if variant.kind is PostgresClaims:
                found.append(PostgresClaims(folder, variant.settings, found[0] if found else None))
                stack.callback(found[-1].stop)
            else:
                others.append(RedisClaims(folder, variant.settings, others[0] if others else None))
                stack.callback(others[-1].stop)
        yield found or others


def measure_rate(server: Server, connections: int) -> tuple[float, float]:
    """Claims per second of so many that wait at a time, and the milliseconds that half of them took at most."""
    claimants = Claimants(server, connections)
    time.sleep(SECONDS)
    claimants.end()
    return len(claimants.took) / SECONDS, 1000 * median(claimants.took)


def measure_loss(servers: Sequence[PostgresClaims] | Sequence[RedisClaims]) -> tuple[int, int]:
    """Kill the first server amid claims; how many were acknowledged, and how many of these are missing afterwards."""
    first, last = servers[0], servers[-1]
    claimants = Claimants(first, CONNECTIONS)
    time.sleep(SECONDS)
    _until(lambda: len(claimants.acknowledged) >= LEAST_CLAIMS)
    if last.line is not None:
        last.line.cut()
        time.sleep(CUT_SECONDS)
    first.kill()
    claimants.end()
    if last is first:
        first.start()
    else:
        last.promote()
    return len(claimants.acknowledged), len(claimants.acknowledged - last.claimed())


def main() -> int:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description="Measure claims of PostgreSQL and Redis, and what a failure takes.")
    parser.add_argument("--only", default="", metavar="TEXT", help="variants whose name has this text")
    arguments = parser.parse_args()
    if engine_programs() is None:
        raise SettingsError(f"no PostgreSQL here: {INSTALL}")
    for variant in VARIANTS:
        if arguments.only not in variant.name:
            continue
        with servers_of(variant) as servers:
            figures = []
            for waiting in WAITING:
                rate, p50 = measure_rate(servers[0], waiting)
                figures.append(f"{waiting:2} waiting {rate:7,.0f}/s p50 {p50:6.2f} ms")
            acknowledged, lost = measure_loss(servers)
        sys.stdout.write(f"{variant.name:36} {'  '.join(figures)}  {lost:,} of {acknowledged:,} lost\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
