"""The state that survives `kill -9`.

One SQLite file, one writer thread, one transaction for everything that has gathered meanwhile.

The trio side submits changes and a callback; the callback runs, in the task of `run`, after the commit. What gathers
within one scheduler round, and while the last commit waits for the disk, goes into one transaction, so that a burst of
a thousand requests costs a few commits. Changes that nobody waits for, such as those of a sweep, gather a little
longer (`STATE_GATHER_SECONDS`), unless something comes meanwhile for which somebody does.

When the disk refuses (full, read-only, broken) nothing is lost silently: who waits is told through `on_failed`, the
rows stay with us and are tried again every `STATE_RETRY_SECONDS` until the disk takes them, and `statistics()` says
so. Rows coalesce by key meanwhile, so what waits is never larger than the state itself; beyond `STATE_WAITING_ROWS`
new changes are refused at once. A row that has no JSON text, which only a defect of ours could make, is told and left
out; the others follow. Source: design, section 6.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec
import trio

from msg_node.kernel.changes import LOGGED, Change, NewRow, Table
from msg_node.storage.state_log import StateLog
from protofly.errors import Code, HostError, MisuseError
from protofly.limits import STATE_GATHER_SECONDS, STATE_RETRY_SECONDS, STATE_WAITING_ROWS

SCHEMA_VERSION = 2
BLOCK_ROWS = (256, 64, 16, 4, 1)
"""Rows of one statement. SQLite runs a statement without Python's lock: with one per row, the writer has to wait for a
busy bus after every row; with very many, the bus waits for the writer, which has the lock while it makes their text."""
_PUT = "INSERT INTO {} (key, row) VALUES {} ON CONFLICT (key) DO UPDATE SET row = excluded.row"
_DELETE = "DELETE FROM {} WHERE key IN ({})"
_LOG = logging.getLogger(__name__)
_NO_TEXT = (ValueError, TypeError, RecursionError, msgspec.EncodeError)

_T = TypeVar("_T")
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

    rows: dict[Table, dict[str, NewRow | None]] = field(default_factory=lambda: {table: {} for table in Table})
    waiters: list[tuple[OnDurable, OnFailed | None]] = field(default_factory=list)
    changes: int = 0

    def is_empty(self) -> bool:
        return not self.waiters and not self.count()

    def count(self) -> int:
        """Rows that wait."""
        return sum(map(len, self.rows.values()))

    def put_before(self, newer: _Waiting) -> None:
        """Take what came later behind what is here already."""
        for table, rows in newer.rows.items():
            self.rows[table].update(rows)
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
        self.on_called_back: Callable[[], None] = _nothing
        """Called in the task of `run` when all have been called back whom a commit concerned."""
        self._path = path
        self._connection, self._logs = _open(path)
        self._lock = threading.Condition()
        self._waiting = _Waiting()
        self._gathering = _Waiting()  # of this scheduler round; the writer does not see it
        self._gathered = trio.Event()
        self._hurried = trio.Event()
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
            return {table: self._load(table) for table in Table}
        except sqlite3.Error as exc:
            raise _storage_error(self._path, exc) from exc

    def _load(self, table: Table) -> dict[str, bytes]:
        if table in self._logs:
            return self._logs[table].load()
        return dict(self._connection.execute(f"SELECT key, row FROM {table.value} ORDER BY rowid"))  # noqa: S608 - a name of ours

    def submit(
        self,
        changes: Collection[Change],
        on_durable: OnDurable,
        on_failed: OnFailed | None = None,
        *,
        is_awaited: bool = True,
    ) -> None:
        """Have changes committed; never blocks.

        Args:
            changes: Applied in order, all in one transaction.
            on_durable: Called in the task of `run` after the commit.
            on_failed: Called instead when the disk refused. The rows are then still ours and are tried again, since
                memory already holds what they say; whoever waited is to be told that it is not durable.
            is_awaited: Somebody waits for `on_durable`, so that there is no time to lose.

        Raises:
            HostError: STORAGE, when the disk has refused for so long that too much waits; nothing was taken.
        """
        if self._is_stopping:
            raise MisuseError("the state store is closed")
        if self._last_error and self.statistics().waiting_rows + len(changes) > STATE_WAITING_ROWS:
            raise HostError(Code.STORAGE, self._last_error)
        gathering = self._gathering
        rows = gathering.rows
        for change in changes:
            rows[change.table][change.key] = change.row
        gathering.changes += len(changes)
        gathering.waiters.append((on_durable, on_failed))
        if len(gathering.waiters) == 1:
            self._gathered.set()
        if is_awaited and not self._hurried.is_set():
            self._hurried.set()

    def statistics(self) -> StoreStatistics:
        """How it goes."""
        with self._lock:
            waiting_rows = self._waiting.count() + self._gathering.count()
            return StoreStatistics(self._commits, self._changes, self._failures, waiting_rows, self._last_error)

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
                nursery.start_soon(self._hand_over_rounds)
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

    async def _hand_over_rounds(self) -> None:
        """Once per scheduler round, give the writer what has gathered: at least what one read of a socket brought."""
        while True:
            await self._gathered.wait()
            if not self._hurried.is_set():
                with trio.move_on_after(STATE_GATHER_SECONDS):
                    await self._hurried.wait()
            self._gathered, self._hurried = trio.Event(), trio.Event()
            with self._lock:
                self._hand_over()

    def _hand_over(self) -> None:
        """With the lock held."""
        gathered, self._gathering = self._gathering, _Waiting()
        if self._waiting.is_empty():
            self._waiting = gathered
        else:
            self._waiting.put_before(gathered)
        self._lock.notify()

    def _stop(self) -> None:
        with self._lock:
            self._is_stopping = True
            self._hand_over()

    def _call_back(self) -> None:
        settled, self._settled = self._settled, []
        for batch, error in settled:
            for on_durable, on_failed in batch.waiters:
                if error is None:
                    on_durable()
                elif on_failed is not None:
                    on_failed(error)
        if settled:
            self.on_called_back()

    # In the writer thread.

    def _write_until_stopped(self, report: Callable[[_Waiting, HostError | None], None]) -> None:
        while True:
            with self._lock:
                while self._waiting.is_empty() and not self._is_stopping:
                    self._lock.wait()
                if self._waiting.is_empty():
                    return
                batch, self._waiting = self._waiting, _Waiting()
                is_last_attempt = self._is_stopping
            error = self._commit(batch)
            waiters = _Waiting(waiters=batch.waiters)
            if error is None:
                report(waiters, None)
                continue
            self._keep(batch)
            report(waiters, error)
            if not is_last_attempt:
                self._wait_for_retry()
            elif self._is_over():
                return

    def _commit(self, batch: _Waiting) -> HostError | None:
        """One transaction; on failure the file is as it was before."""
        before = [(log, log.counts) for log in self._logs.values()]
        try:
            with self._connection:
                for table, rows in batch.rows.items():
                    self._write(table, rows)
        except (sqlite3.Error, HostError, *_NO_TEXT) as exc:
            for log, counts in before:
                log.rolled_back(counts)
            if isinstance(exc, HostError):
                error = exc
            elif isinstance(exc, sqlite3.Error):
                error = _storage_error(self._path, exc)
            elif names := _leave_out_unwritable(batch):
                error = HostError(Code.STORAGE, f"rows that no text can say: {', '.join(names)}")
            else:
                raise
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

    def _write(self, table: Table, rows: dict[str, NewRow | None]) -> None:
        if table in self._logs:
            self._logs[table].append(rows)
            return
        for keys in _blocks([key for key, row in rows.items() if row is None]):
            self._connection.execute(_DELETE.format(table.value, ", ".join("?" * len(keys))), keys)
        for keys in _blocks([key for key, row in rows.items() if row is not None]):
            values = [value for key in keys for value in (key, msgspec.json.encode(rows[key]))]
            self._connection.execute(_PUT.format(table.value, ", ".join(["(?, ?)"] * len(keys))), values)

    def _keep(self, failed: _Waiting) -> None:
        """Put what was refused in front of what came meanwhile."""
        with self._lock:
            kept = _Waiting(rows=failed.rows, changes=failed.changes)
            kept.put_before(self._waiting)
            self._waiting = kept

    def _wait_for_retry(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: self._is_stopping, timeout=STATE_RETRY_SECONDS)

    def _is_over(self) -> bool:
        """Whether nobody waits for an answer any more, after the last attempt."""
        with self._lock:
            is_over, count = not self._waiting.waiters, self._waiting.count()
        if is_over:
            _LOG.error("state store closed with %d rows that the disk did not take", count)
        return is_over


def _nothing() -> None:
    """Nobody is to be told."""


def _leave_out_unwritable(batch: _Waiting) -> list[str]:
    """Take out the rows that have no text; their names."""
    names = []
    for table, rows in batch.rows.items():
        for key in [key for key, row in rows.items() if not _has_text(key, row)]:
            del rows[key]
            names.append(f"{table.value}/{key!a:.80}")
    return names


def _has_text(key: str, row: NewRow | None) -> bool:
    try:
        msgspec.json.encode({key: row})
    except _NO_TEXT:
        return False
    return True


def _blocks(rows: list[_T]) -> Iterator[list[_T]]:
    """Cut rows into blocks of few different sizes, so that the statements for them are prepared once."""
    first = 0
    for size in BLOCK_ROWS:
        while len(rows) - first >= size:
            yield rows[first : first + size]
            first += size


def _open(path: Path) -> tuple[sqlite3.Connection, dict[Table, StateLog]]:
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
                if table not in LOGGED:
                    connection.execute(
                        f"CREATE TABLE IF NOT EXISTS {table.value} (key TEXT NOT NULL UNIQUE, row BLOB NOT NULL)"
                    )
            logs = {table: StateLog(connection, table) for table in LOGGED}
            for log in logs.values():
                log.create()
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    except sqlite3.Error as exc:
        connection.close()
        raise _storage_error(path, exc) from exc
    except HostError:
        connection.close()
        raise
    return connection, logs


def _storage_error(path: Path, exc: sqlite3.Error | OSError) -> HostError:
    if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
        return HostError(Code.STORAGE, f"{path} is in use by a running node")
    return HostError(Code.STORAGE, f"{path}: {exc}")
