"""The state that survives `kill -9`.

One SQLite file, one writer thread, one transaction for everything that has gathered meanwhile.

The trio side submits changes and a callback; the callback runs, in the task of `run`, after the commit. While one
commit waits for the disk the next batch gathers, so a burst of a thousand requests costs a few commits.

When the disk refuses (full, read-only, broken) nothing is lost silently: who waits is told through `on_failed`, the
rows stay with us and are tried again every `STATE_RETRY_SECONDS` until the disk takes them, and `statistics()` says
so. Rows coalesce by key meanwhile, so what waits is never larger than the state itself; beyond `STATE_WAITING_ROWS`
new changes are refused at once. Source: design, section 6.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import trio

from msg_node.core.changes import Change, Table
from protofly.errors import Code, HostError, MisuseError
from protofly.limits import STATE_RETRY_SECONDS, STATE_WAITING_ROWS

SCHEMA_VERSION = 1
_LOG = logging.getLogger(__name__)

OnDurable = Callable[[], None]
OnFailed = Callable[[HostError], None]


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """What the store did since its start. `last_error` is "" while the disk takes what it gets."""

    commits: int
    changes: int
    failures: int
    waiting_rows: int
    last_error: str


@dataclass(slots=True)
class _Waiting:
    """Rows for the next transaction, and who waits for it."""

    rows: dict[tuple[Table, str], bytes | None] = field(default_factory=dict)
    waiters: list[tuple[OnDurable, OnFailed | None]] = field(default_factory=list)
    changes: int = 0

    def is_empty(self) -> bool:
        return not self.rows and not self.waiters

    def put_before(self, newer: _Waiting) -> None:
        """Take what came later behind what is here already."""
        self.rows.update(newer.rows)
        self.waiters += newer.waiters
        self.changes += newer.changes


class StateStore:
    """Rows by table and key, durable.

    Use: `load()` once, then `run` in a nursery, then `submit`. One process has a file open at a time.
    """

    def __init__(self, path: Path) -> None:
        """Take the file `path`; its folder must exist.

        Raises:
            HostError: STORAGE, when the file cannot be opened, belongs to a running node or is no state file of ours.
        """
        self._path = path
        self._connection = _open(path)
        self._lock = threading.Condition()
        self._waiting = _Waiting()
        self._is_stopping = False
        self._is_running = False
        self._settled: list[tuple[_Waiting, HostError | None]] = []
        self._commits = 0
        self._changes = 0
        self._failures = 0
        self._last_error = ""

    def load(self) -> dict[Table, dict[str, bytes]]:
        """Read all rows.

        Raises:
            HostError: STORAGE.
        """
        try:
            return {
                table: dict(self._connection.execute(f"SELECT key, row FROM {table.value} ORDER BY rowid"))  # noqa: S608 - names of ours
                for table in Table
            }
        except sqlite3.Error as exc:
            raise _storage_error(self._path, exc) from exc

    def submit(self, changes: Collection[Change], on_durable: OnDurable, on_failed: OnFailed | None = None) -> None:
        """Have changes committed; never blocks.

        Args:
            changes: Applied in order, all in one transaction.
            on_durable: Called in the task of `run` after the commit.
            on_failed: Called instead when the disk refused. The rows are then still ours and are tried again, since
                memory already holds what they say; whoever waited is to be told that it is not durable.

        Raises:
            HostError: STORAGE, when the disk has refused for so long that too much waits; nothing was taken.
        """
        with self._lock:
            if self._is_stopping:
                raise MisuseError("the state store is closed")
            if self._last_error and len(self._waiting.rows) + len(changes) > STATE_WAITING_ROWS:
                raise HostError(Code.STORAGE, self._last_error)
            _add(self._waiting, changes)
            self._waiting.waiters.append((on_durable, on_failed))
            self._lock.notify()

    def statistics(self) -> StoreStatistics:
        """How it goes."""
        with self._lock:
            return StoreStatistics(
                self._commits, self._changes, self._failures, len(self._waiting.rows), self._last_error
            )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled; then write what is left, and close the file.

        The writer is never abandoned: after a stop it makes one last attempt for what waits and returns.
        """
        if self._is_running:
            raise MisuseError("the state store runs already")
        self._is_running = True
        settled = trio.Event()
        token = trio.lowlevel.current_trio_token()

        def settle(batch: _Waiting, error: HostError | None) -> None:
            self._settled.append((batch, error))
            settled.set()

        def report(batch: _Waiting, error: HostError | None) -> None:
            token.run_sync_soon(settle, batch, error)

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_in_thread, report)
                task_status.started()
                try:
                    while True:
                        await settled.wait()
                        settled = trio.Event()
                        self._call_back()
                finally:
                    self._stop()
        finally:
            self._call_back()
            self._connection.close()

    async def _write_in_thread(self, report: Callable[[_Waiting, HostError | None], None]) -> None:
        # Shielded, so that it also runs when the cancellation comes before its start; `_stop` is what ends it, soon.
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(self._write_until_stopped, report, limiter=trio.CapacityLimiter(1))

    def _stop(self) -> None:
        with self._lock:
            self._is_stopping = True
            self._lock.notify()

    def _call_back(self) -> None:
        settled, self._settled = self._settled, []
        for batch, error in settled:
            for on_durable, on_failed in batch.waiters:
                if error is None:
                    on_durable()
                elif on_failed is not None:
                    on_failed(error)

    # In the writer thread.

    def _write_until_stopped(self, report: Callable[[_Waiting, HostError | None], None]) -> None:
        while True:
            with self._lock:
                while self._waiting.is_empty() and not self._is_stopping:
                    self._lock.wait()
                if self._waiting.is_empty():
                    return
                batch, self._waiting = self._waiting, _Waiting()
            error = self._commit(batch)
            report(_Waiting(waiters=batch.waiters), error)
            if error is not None and self._wait_for_retry(batch):
                return

    def _commit(self, batch: _Waiting) -> HostError | None:
        """One transaction; on failure the file is as it was before."""
        try:
            with self._connection:
                for table in Table:
                    self._write(table, [(key, row) for (one, key), row in batch.rows.items() if one is table])
        except sqlite3.Error as exc:
            error = _storage_error(self._path, exc)
            with self._lock:
                self._failures += 1
                is_news, self._last_error = not self._last_error, error.detail
            if is_news:
                _LOG.error("state cannot be written; trying again: %s", error.detail)
            return error
        with self._lock:
            self._commits += 1
            self._changes += batch.changes
            was_failing, self._last_error = bool(self._last_error), ""
        if was_failing:
            _LOG.info("state is written again")
        return None

    def _write(self, table: Table, rows: Iterable[tuple[str, bytes | None]]) -> None:
        rows = list(rows)
        gone = [(key,) for key, row in rows if row is None]
        put = [(key, row) for key, row in rows if row is not None]
        if gone:
            self._connection.executemany(f"DELETE FROM {table.value} WHERE key = ?", gone)  # noqa: S608 - names of ours
        if put:
            sql = (
                f"INSERT INTO {table.value} (key, row) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET row = excluded.row"  # noqa: S608
            )
            self._connection.executemany(sql, put)

    def _wait_for_retry(self, failed: _Waiting) -> bool:
        """Keep what was refused, in front of what came meanwhile; wait a little. True when the store is stopping."""
        with self._lock:
            kept = _Waiting(rows=failed.rows, changes=failed.changes)
            kept.put_before(self._waiting)
            self._waiting = kept
            if not self._is_stopping:
                self._lock.wait_for(lambda: self._is_stopping, timeout=STATE_RETRY_SECONDS)
                return False
            is_over = not self._waiting.waiters
        if is_over:
            _LOG.error("state store closed with %d rows that the disk did not take", len(kept.rows))
        return is_over


def _add(waiting: _Waiting, changes: Collection[Change]) -> None:
    for change in changes:
        waiting.rows[change.table, change.key] = change.row
    waiting.changes += len(changes)


def _open(path: Path) -> sqlite3.Connection:
    """Open or create the file, exclusively, with a commit that has reached the disk when it returns."""
    try:
        path.touch(mode=0o600)
        connection = sqlite3.connect(path, timeout=0.0, check_same_thread=False)
    except (OSError, sqlite3.Error) as exc:
        raise _storage_error(path, exc) from exc
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > SCHEMA_VERSION:
                raise HostError(Code.STORAGE, f"{path} was written by a newer version of this program")
            for table in Table:
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {table.value} (key TEXT NOT NULL UNIQUE, row BLOB NOT NULL)"
                )
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    except sqlite3.Error as exc:
        connection.close()
        raise _storage_error(path, exc) from exc
    except HostError:
        connection.close()
        raise
    return connection


def _storage_error(path: Path, exc: sqlite3.Error | OSError) -> HostError:
    if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
        return HostError(Code.STORAGE, f"{path} is in use by a running node")
    return HostError(Code.STORAGE, f"{path}: {exc}")
