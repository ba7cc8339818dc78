"""A connection to the engine that does not wait for ever: what the engine leaves without an answer ends with an error.

A server that is stopped, or a network that drops packets, closes nothing: only our own clock ends a wait for it. What
was asked may have been done all the same, or may still be done. So who asks again over another connection first ends
what the engine has of this one (`end_work`): nothing that was given up is done after what came later.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final, NamedTuple

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.rows import TupleRow

ANSWER_SECONDS: Final = 8.0
"""Longest silence of the engine while it is asked: it gives up a lock before that, and clients wait little longer."""
LONG_SECONDS: Final = 600.0
"""The same for what reads or writes all rows of a node."""
ROWS_A_SECOND: Final = 500
"""Slowest engine that still gets a batch of rows done: the more rows, the longer its silence may last."""
ENDED_SECONDS: Final = 5.0
"""Time in which the engine ends what it has of a connection that was lost."""
_LOOK_SECONDS: Final = 0.02
_END: Final = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s AND backend_start = %s"
_SELF: Final = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()"


def patience_seconds(rows: int) -> float:
    """Seconds that the engine may be silent over a batch of so many rows."""
    return ANSWER_SECONDS + rows / ROWS_A_SECOND


class SilentEngineError(psycopg.OperationalError):
    """The engine did not answer in time; the connection is closed, and what was asked may have been done."""


class Worker(NamedTuple):
    """The process of the engine that serves a connection; no two are alike."""

    pid: int
    started_at: datetime


class EngineLine(psycopg.Connection[TupleRow]):
    """A connection whose every wait for the engine has an end.

    Attributes:
        patience_seconds: The longest silence; set for what takes longer.
        worker: Who serves it, None until `find_worker`.
    """

    patience_seconds = ANSWER_SECONDS
    worker: Worker | None = None

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        """Wait for an answer. Raises SilentEngineError."""
        return super().wait(self._answered(gen), interval, timeout)

    def find_worker(self) -> None:
        """Ask who serves this connection."""
        row = self.execute(_SELF).fetchone()
        self.worker = None if row is None else Worker(*row)

    def _answered(self, gen: PQGen[RV]) -> PQGen[RV]:
        until = time.monotonic() + self.patience_seconds
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    until = time.monotonic() + self.patience_seconds
                elif time.monotonic() >= until:
                    self.pgconn.finish()
                    raise SilentEngineError(f"it did not answer for {self.patience_seconds:g} s")
                wanted = gen.send(ready)
        except StopIteration as done:
            value: RV = done.value
            return value


def end_work(connection: EngineLine, worker: Worker) -> bool:
    """Have the engine end what it still has of a connection that was lost; False if it does not in time."""
    until = time.monotonic() + ENDED_SECONDS
    while connection.execute(_END, worker).fetchone() is not None:
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_SECONDS)
    return True
