"""The state that survives `kill -9`.

One writer thread over durable rows (a SQLite file, or the rows of a node in an engine), one transaction for everything
that has gathered meanwhile.

The trio side submits changes and a callback; the callback runs, in the task of `run`, after the commit. What gathers
within one scheduler round, and while the last commit waits for the disk, goes into one transaction, so that a burst of
a thousand requests costs a few commits. Changes that nobody waits for, such as those of a sweep, gather a little
longer (`STATE_GATHER_SECONDS`), unless something comes meanwhile for which somebody does.

When the rows are refused (disk full, read-only, broken; engine out of reach) nothing is lost silently: `on_failed` is
called, and the rows are kept and tried again every `STATE_RETRY_SECONDS` until they are taken, and `statistics()` says
so. Rows coalesce by key meanwhile, so what waits is never larger than the state itself; beyond `STATE_WAITING_ROWS`
new changes are refused at once. A row that has no JSON text, which only a defect of ours could make, is reported and
left out; the others follow. A callback that fails is reported and costs its own. Source: design, section 6.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import trio

from msg_node.kernel.changes import Change, NewRow, Table
from msg_node.kernel.histograms import Histogram
from msg_node.storage.state_file import Rows
from protofly.errors import HostError, MisuseError
from protofly.limits import STATE_GATHER_SECONDS, STATE_RETRY_SECONDS, STATE_WAITING_ROWS

_LOG = logging.getLogger(__name__)

OnDurable = Callable[[], None]
OnFailed = Callable[[HostError], None]
_Waiter = tuple[OnDurable, OnFailed | None]


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """Counters since the start. `last_error` is empty while commits succeed."""

    commits: int
    changes: int
    failures: int
    waiting_rows: int
    last_error: str


@dataclass(slots=True)
class _Waiting:
    """Rows for the next transaction, and the callbacks for its end."""

    rows: defaultdict[Table, dict[str, NewRow | None]] = field(default_factory=lambda: defaultdict(dict))
    waiters: list[_Waiter] = field(default_factory=list)
    changes: int = 0
    is_to_scrub: bool = False

    def is_empty(self) -> bool:
        return not self.waiters and not self.count()

    def count(self) -> int:
        """Rows that wait."""
        return sum(map(len, self.rows.values()))

    def put_before(self, newer: _Waiting) -> None:
        """Append newer changes."""
        for table, rows in newer.rows.items():
            self.rows[table].update(rows)
        self.waiters += newer.waiters
        self.changes += newer.changes
        self.is_to_scrub |= newer.is_to_scrub


@dataclass(slots=True)
class _Totals:
    """Commits since the start; `times` are those of all attempts."""

    commits: int = 0
    changes: int = 0
    failures: int = 0
    times: Histogram = field(default_factory=Histogram)


class DurableRows(Protocol):
    """Rows of one node, by table and key, that one process may change. Blocks; one thread uses them at a time."""

    def load(self) -> dict[Table, dict[str, bytes]]:
        """Read all rows, each table in the order in which its rows came. Raises HostError."""

    def commit(self, rows: Rows) -> None:
        """Write rows in one transaction, which is durable on return; None removes a row.

        Raises:
            HostError: STORAGE or STATE_UNAVAILABLE. The same rows are committed again later; rows that can never be
                written have been removed from `rows`.
        """

    def scrub(self) -> None:
        """Leave nothing on the disk of rows that were removed. Raises HostError."""

    def close(self) -> None:
        """Let the rows go."""


class StateStore:
    """Rows by table and key, durable.

    Use: `load()` once, then `run` in a nursery, then `submit`.

    Args:
        rows: Where they become durable; closed at the end of `run`.
    """

    def __init__(self, rows: DurableRows) -> None:
        self.on_called_back: Callable[[], None] = _nothing
        """Called in the task of `run` after the callbacks of a commit."""
        self._totals = _Totals()
        self._rows = rows
        self._lock = threading.Condition()
        self._waiting = _Waiting()
        self._gathering = _Waiting()  # of this scheduler round; the writer does not see it
        self._gathered = trio.Event()
        self._hurried = trio.Event()
        self._is_stopping = False
        self._is_running = False
        self._has_settled = trio.Event()
        self._settled: list[tuple[_Waiting, HostError | None]] = []
        self._refusal: HostError | None = None
        self._unsettled = 0  # submissions that nobody was called back for

    def load(self) -> dict[Table, dict[str, bytes]]:
        """Read all rows.

        Raises:
            HostError: STORAGE.
        """
        return self._rows.load()

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
            on_failed: Called instead if the disk refused: the change is not durable. Its rows are kept and tried again,
                since memory holds them already.
            is_awaited: Commit without delay, because `on_durable` is waited for.

        Raises:
            HostError: The last refusal, when it has lasted for so long that too much waits; nothing was taken.
        """
        if self._is_stopping:
            raise MisuseError("the state store is closed")
        refusal = self._refusal
        if refusal is not None and self.statistics().waiting_rows + len(changes) > STATE_WAITING_ROWS:
            raise HostError(refusal.code, refusal.detail)
        gathering = self._gathering
        rows = gathering.rows
        for change in changes:
            rows[change.table][change.key] = change.row
        gathering.changes += len(changes)
        self._unsettled += 1
        gathering.waiters.append((on_durable, on_failed))
        if len(gathering.waiters) == 1:
            self._gathered.set()
        if is_awaited and not self._hurried.is_set():
            self._hurried.set()

    def scrub(self) -> None:
        """Leave nothing on the disk of what is removed up to now.

        The callbacks of the next submission come after that; it takes as long as to write the whole state.
        """
        self._gathering.is_to_scrub = True

    @property
    def is_settled(self) -> bool:
        """True if everything that was submitted is durable."""
        return not self._unsettled and self._refusal is None

    @property
    def is_failing(self) -> bool:
        """True while the last commit was refused."""
        return self._refusal is not None

    def statistics(self) -> StoreStatistics:
        """Counters since the start."""
        with self._lock:
            waiting_rows = self._waiting.count() + self._gathering.count()
            last_error = "" if self._refusal is None else self._refusal.detail
            totals = self._totals
            return StoreStatistics(totals.commits, totals.changes, totals.failures, waiting_rows, last_error)

    @property
    def commit_times(self) -> Histogram:
        """Times of all commits since the start, those that failed included."""
        return self._totals.times

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write until cancelled; then write what is left, and close the rows.

        The writer is never abandoned: after a stop it makes one last attempt for what waits and returns. What was not
        taken then is in the statistics.
        """
        if self._is_running:
            raise MisuseError("the state store runs already")
        self._is_running = True
        token = trio.lowlevel.current_trio_token()

        def settle(batch: _Waiting, error: HostError | None) -> None:
            self._settled.append((batch, error))
            self._has_settled.set()

        def report(batch: _Waiting, error: HostError | None) -> None:
            token.run_sync_soon(settle, batch, error)

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write_in_thread, report)
                nursery.start_soon(self._hand_over_rounds)
                task_status.started()
                try:
                    await self._call_back_until_cancelled()
                finally:
                    self._stop()
        finally:
            self._call_back()
            self._rows.close()

    async def _call_back_until_cancelled(self) -> None:
        while True:
            await self._has_settled.wait()
            self._has_settled = trio.Event()
            self._call_back()

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
            self._unsettled -= len(batch.waiters)
            for waiter in batch.waiters:
                _call_back_one(waiter, error)
        if settled:
            attempt(self.on_called_back)

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
        """One transaction, and its result in the statistics and the log; none if there is nothing to write."""
        if not self.is_failing and not batch.count():
            return None  # those who only waited for the commits before
        began_ns = time.monotonic_ns()
        try:
            self._rows.commit(batch.rows)
            if batch.is_to_scrub:
                self._rows.scrub()
        except HostError as error:
            self._totals.times.observe((time.monotonic_ns() - began_ns) // 1000)
            with self._lock:
                self._totals.failures += 1
                is_news, self._refusal = self._refusal is None, error
            if is_news:
                _LOG.error("state cannot be written; trying again: %s", error.detail)
            return error
        self._totals.times.observe((time.monotonic_ns() - began_ns) // 1000)
        with self._lock:
            self._totals.commits += 1
            self._totals.changes += batch.changes
            was_failing, self._refusal = self._refusal is not None, None
        if was_failing:
            _LOG.info("state is written again")
        return None

    def _keep(self, failed: _Waiting) -> None:
        """Put refused rows in front of newer ones."""
        with self._lock:
            kept = _Waiting(rows=failed.rows, changes=failed.changes, is_to_scrub=failed.is_to_scrub)
            kept.put_before(self._waiting)
            self._waiting = kept

    def _wait_for_retry(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: self._is_stopping, timeout=STATE_RETRY_SECONDS)

    def _is_over(self) -> bool:
        """After the last attempt: return True if no callback waits."""
        with self._lock:
            return not self._waiting.waiters


def attempt(callback: Callable[[], None]) -> None:
    """Call back one of those who wait for the same disk; an error is logged, so that the others are called as well."""
    try:
        callback()
    except Exception:  # a defect of ours may cost who waits here, never the node
        _LOG.exception("what waited for the disk cannot go on")


def _call_back_one(waiter: _Waiter, error: HostError | None) -> None:
    on_durable, on_failed = waiter
    if error is None:
        attempt(on_durable)
    elif on_failed is not None:
        attempt(partial(on_failed, error))


def _nothing() -> None:
    """Do nothing."""
