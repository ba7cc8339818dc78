"""One connection to PostgreSQL, the engine that nodes of one domain share. Blocking.

It is opened when it is needed, and again after it was lost. What an acknowledged change needs is checked each time: an
engine that answers before its disk has the change is refused, and so is one of another domain or a newer version.

Statements of one transaction go out together (pipeline), so that a transaction costs one or two times the way to the
engine and back, however many statements it has. The engine ends a transaction whose node says nothing more, and a node
gives up an engine that says nothing more (`EngineLine`).

The engine keeps a plan for what is asked often, and one that it made for small tables until it analyses them, a minute
or more later: it reads all rows of tables that have grown meanwhile. So what finds several keys is planned anew each
time (`prepare=False`); single keys are found by primary keys, whatever is known of a table.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.rows import TupleRow

from msg_node.storage import engine_line
from msg_node.storage.engine_errors import SILENT, EngineError, FencedError
from msg_node.storage.engine_line import EngineLine, SilentEngineError, Worker, end_work
from msg_node.storage.engine_options import EngineOptions
from msg_node.storage.engine_schema import ADD, CREATE, FENCED, LAST_ADDED, SCHEMA_VERSION

_LOG = logging.getLogger(__name__)
logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of each line that was lost; we say it once

LEAST_VERSION: Final = 130_000
CONNECT_SECONDS: Final = 3
_SCHEMA_LOCK: Final = 0x7472_6170  # any number of ours: who makes the tables holds it
_SESSION: Final = {
    "default_transaction_isolation": "read\\ committed",
    "statement_timeout": "10000",
    "lock_timeout": "5000",
    "idle_in_transaction_session_timeout": "5000",
    "tcp_keepalives_idle": "2",
    "tcp_keepalives_interval": "1",
    "tcp_keepalives_count": "3",
}
"""Milliseconds, and seconds for the lines. A node that is paused in a transaction would hold its own name for ever."""
_IN_FORCE: Final = "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)"
POOLED_ACTION: Final = "let storage.engine lead to the server itself: connections through a pooler lose their settings"
_REASONS: Final = (
    ("authentication failed", "engine-credentials", "check user, password and pg_hba.conf"),
    ("no password supplied", "engine-credentials", "set storage.password_file, or PGPASSWORD in the environment"),
    ("no pg_hba.conf entry", "engine-credentials", "allow this user, database and address in pg_hba.conf"),
    ("certificate", "engine-tls", "check storage.ca_file, and the names in the engine's certificate"),
    ("SSL", "engine-tls", "check storage.tls, and ssl in postgresql.conf"),
    ("read-only", "engine-read-only", "promote a replica, or start the server that takes writes"),
    ("startup parameter", "engine-pooled", POOLED_ACTION),
    ("the database system is", "engine-starting", "wait: nodes connect again by themselves"),
    ("does not exist", "engine-missing", "create it: CREATE ROLE … LOGIN; CREATE DATABASE … OWNER …"),
    ("too many clients", "engine-full", "raise max_connections: each process of a node uses six"),
    ("remaining connection slots", "engine-full", "raise max_connections: each process of a node uses six"),
)
"""Words of libpq and the engine for what has no code yet, since there is no connection: word and action for each."""


class Engine:
    """One connection; one thread uses it at a time.

    Args:
        options: Nothing is opened yet.

    Attributes:
        options: How it is reached.
    """

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self._connection: EngineLine | None = None
        self._lost: Worker | None = None  # may still do what was asked over a connection that was lost
        self._warnings: list[str] = []

    @property
    def place(self) -> str:
        """The engine for people."""
        return self.options.place

    @contextmanager
    def transaction(self, patience_seconds: float | None = None) -> Iterator[psycopg.Connection[TupleRow]]:
        """Run statements in one transaction; it is durable when the block has been left without an error.

        Args:
            patience_seconds: How long the engine may be silent meanwhile; None: as usual.

        Raises:
            EngineError: Nothing of it counts; or, when `is_lost`, perhaps all of it. Of that, nothing is done any more
                when the next transaction begins.
        """
        with self.connected(patience_seconds) as connection:
            self._warnings.clear()
            with connection.pipeline(), connection.transaction():
                yield connection
        if self._warnings:  # a commit whose wait for a replica was ended succeeds with a warning
            action = "look for what cancels sessions of nodes there, and at its replicas"
            raise EngineError("engine-unconfirmed", self.place, self._warnings[0], action)

    @contextmanager
    def connected(self, patience_seconds: float | None = None) -> Iterator[psycopg.Connection[TupleRow]]:
        """The connection, for statements that are each a transaction, or for none. Raises EngineError."""
        connection = self.open()
        connection.patience_seconds = patience_seconds or engine_line.ANSWER_SECONDS
        try:
            yield connection
        except psycopg.Error as exc:
            raise self._error(exc, connection) from exc

    def open(self) -> EngineLine:
        """The connection, opened and checked if there is none.

        Raises:
            EngineError: It cannot be opened, or the engine would not keep what it acknowledged.
        """
        if self._connection is None or self._connection.closed:
            if self._connection is not None:
                self._lost = self._connection.worker or self._lost
            connection = self._connect()
            connection.patience_seconds = engine_line.ANSWER_SECONDS
            try:
                _check_server(connection, self.options)
                self._end_lost(connection)
                _make_schema(connection, self.options)
                connection.find_worker()
            except psycopg.Error as exc:
                connection.close()
                raise self._error(exc, connection) from exc
            except EngineError:
                connection.close()
                raise
            connection.add_notice_handler(self._note)
            self._connection = connection
        return self._connection

    def close(self) -> None:
        """Close the connection, if there is one; it may be opened again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def durability(self) -> str:
        """Describe the failures that an acknowledged change survives, by the engine's settings. Raises EngineError."""
        with self.connected() as connection:
            row = connection.execute(
                "SELECT current_setting('server_version'), current_setting('synchronous_commit'),"
                " current_setting('synchronous_standby_names')"
            ).fetchone()
        version, commit, standbys = row or ("", "", "")
        if standbys and commit != "local":
            return (
                f"PostgreSQL {version}: a change is acknowledged when it is on disk here and at {standbys} ({commit})"
            )
        return f"PostgreSQL {version}: a change is acknowledged when it is on the disk of this server ({commit})"

    def _end_lost(self, connection: EngineLine) -> None:
        """End the work of a connection that was lost, so that it does not happen after what is asked from now on."""
        if self._lost is not None and not end_work(connection, self._lost):
            action = "wait, or end its process there with pg_terminate_backend"
            text = f"process {self._lost.pid} there still works for a connection that was lost"
            raise EngineError("engine-busy", self.place, text, action, is_lost=True)
        self._lost = None

    def _note(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(notice.message_primary or "a warning")

    def _connect(self) -> EngineLine:
        options = self.options
        tls: dict[str, Any] = _tls(options)
        try:
            return EngineLine.connect(
                host=",".join(host for host, _ in options.hosts),
                port=",".join(str(port) for _, port in options.hosts),
                user=options.user,
                password=options.password,
                dbname=options.database,
                application_name=options.application,
                client_encoding="utf8",
                target_session_attrs="read-write",
                connect_timeout=CONNECT_SECONDS,
                keepalives_idle=2,
                keepalives_interval=1,
                keepalives_count=3,
                tcp_user_timeout=5_000,
                options=" ".join(f"-c {name}={value}" for name, value in _SESSION.items()),
                autocommit=True,
                **tls,
            )
        except psycopg.Error as exc:
            raise _unreachable(options.place, exc) from exc

    def _error(self, exc: psycopg.Error, connection: EngineLine) -> EngineError:
        """What an error of the engine means; a connection that was lost is closed."""
        if exc.sqlstate == FENCED:
            return FencedError(self.place, (exc.diag.message_primary or "").partition(" of node ")[2].split(" ")[0])
        if isinstance(exc, psycopg.errors.InsufficientPrivilege):
            action = "make the role the owner of its database: ALTER DATABASE … OWNER TO …"
            return EngineError("engine-rights", self.place, _first_line(exc), action)
        is_lost = connection.closed or connection.broken or exc.sqlstate is None
        if not is_lost:
            return EngineError("engine-failed", self.place, _first_line(exc))
        self._lost = connection.worker or self._lost
        self.close()
        cause = _cause(exc)
        word = SILENT if isinstance(cause, SilentEngineError) else "engine-lost"
        action = "see whether it runs: nodes connect again by themselves"
        return EngineError(word, self.place, _first_line(cause), action, is_lost=True)


def _tls(options: EngineOptions) -> dict[str, str]:
    if options.tls == "off":
        return {"sslmode": "disable", "gssencmode": "disable"}
    authorities = options.ca_file or ssl.get_default_verify_paths().cafile or "system"
    parameters = {"sslmode": options.tls, "sslrootcert": str(authorities), "gssencmode": "disable"}
    if options.certificate is not None and options.key is not None:
        parameters |= {"sslcert": str(options.certificate), "sslkey": str(options.key)}
    return parameters


def _unreachable(place: str, exc: psycopg.Error) -> EngineError:
    text = _first_line(exc)
    for sign, word, action in _REASONS:
        if sign in str(exc):
            return EngineError(word, place, text, action, is_lost=True)
    action = "check host, port, and listen_addresses in postgresql.conf"
    return EngineError("engine-unreachable", place, text, action, is_lost=True)


def _first_line(exc: psycopg.Error) -> str:
    lines = [line.strip() for line in str(exc).splitlines() if line.strip()]
    return lines[0] if lines else type(exc).__name__


def _cause(exc: psycopg.Error) -> psycopg.Error:
    """The first error of those that followed from each other: a pipeline that cannot end hides why."""
    before = exc.__context__
    return _cause(before) if isinstance(before, psycopg.Error) else exc


def _check_server(connection: psycopg.Connection[TupleRow], options: EngineOptions) -> None:
    """Refuse an engine that loses what it acknowledged, or cannot hold our text, and what stands between it and us."""
    if connection.info.server_version < LEAST_VERSION:
        text = f"version {connection.info.parameter_status('server_version')} is too old"
        raise EngineError("engine-old", options.place, text, "use PostgreSQL 13 or newer")
    asked = {name: value for name, value in _SESSION.items() if name.endswith("_timeout")}
    in_force: dict[str, str] = dict(connection.execute(_IN_FORCE, (list(asked),)).fetchall())
    if changed := sorted(name for name, value in asked.items() if in_force.get(name) != value):
        text = f"{', '.join(changed)} of this connection are not as the node has set them"
        raise EngineError("engine-pooled", options.place, text, POOLED_ACTION)
    found = connection.execute(
        "SELECT current_setting('server_encoding'), current_setting('fsync'), current_setting('full_page_writes'),"
        " current_setting('synchronous_commit')"
    ).fetchone()
    encoding, fsync, pages, commit = found or ("", "", "", "")
    if encoding != "UTF8":
        action = "create the database with ENCODING 'UTF8' TEMPLATE template0"
        raise EngineError("engine-encoding", options.place, f"the database is in {encoding}", action)
    for name, value in (("fsync", fsync), ("full_page_writes", pages), ("synchronous_commit", commit)):
        if value == "off":
            action = f"set {name} = on; nothing that a node acknowledges would be safe"
            raise EngineError("engine-unsafe", options.place, f"{name} is off", action)


def _make_schema(connection: EngineLine, options: EngineOptions) -> None:
    """Make the tables in a database that has none; refuse those of another domain or a newer program."""
    if _schema_of(connection) is None or not _is_complete(connection):
        # Locked outside of the transaction: inside it, the engine goes on to miss a table that it has missed before.
        connection.execute("SELECT pg_advisory_lock(%s)", (_SCHEMA_LOCK,))
        try:
            with connection.transaction():
                _create_tables(connection, options)
            connection.patience_seconds = engine_line.LONG_SECONDS
            with connection.transaction():
                _add_indexes(connection)
        finally:
            if not connection.closed:
                connection.execute("SELECT pg_advisory_unlock(%s)", (_SCHEMA_LOCK,))
    version, domain = _schema_of(connection) or (0, "")
    if version > SCHEMA_VERSION:
        action = "update this program"
        raise EngineError("engine-newer", options.place, "was written by a newer version of this program", action)
    if domain != options.domain:
        action = "give each domain a database of its own"
        raise EngineError("engine-foreign", options.place, f"serves {domain}, and not {options.domain}", action)


def _create_tables(connection: psycopg.Connection[TupleRow], options: EngineOptions) -> None:
    """Make the tables, unless another node has made them while we waited."""
    if _schema_of(connection) is not None:
        return
    for statement in CREATE:
        connection.execute(statement)
    values = (SCHEMA_VERSION, options.domain)
    connection.execute("INSERT INTO trapezoid_schema (version, domain) VALUES (%s, %s)", values)
    _LOG.info("tables made in %s", options.place)


def _add_indexes(connection: psycopg.Connection[TupleRow]) -> None:
    """Make what tables of an older program do not have. Who writes waits so long, and nobody is refused."""
    if _is_complete(connection):
        return
    connection.execute("SET LOCAL statement_timeout = 0")  # a million rows take longer than a usual statement
    for statement in ADD:
        connection.execute(statement)


def _is_complete(connection: psycopg.Connection[TupleRow]) -> bool:
    found = connection.execute("SELECT to_regclass(%s)", (LAST_ADDED,)).fetchone()
    return found is not None and found[0] is not None


def _schema_of(connection: psycopg.Connection[TupleRow]) -> tuple[int, str] | None:
    there = connection.execute("SELECT to_regclass('trapezoid_schema')").fetchone()
    if there is None or there[0] is None:
        return None
    found = connection.execute("SELECT version, domain FROM trapezoid_schema").fetchone()
    return None if found is None else (int(found[0]), str(found[1]))
