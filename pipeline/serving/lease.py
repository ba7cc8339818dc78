"""The lease of a lake: of several processes that serve it, one works, and another takes over when it is gone.

A lease is a row of table `lease`, changed by commits that hold only if nobody else has committed meanwhile. Its end is
a time of the holder's clock; another one takes it when that is past by its own clock and a margin. The lease saves
work: that nothing is done twice does not depend on it, because every commit of every job holds or fails by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.lake.table_log import ConflictError
from pipeline.lake.tables import Change, Lake
from pipeline.schemas import LEASE

MARGIN_S: Final = 10.0
"""What clocks of two machines may differ by."""
_KEEP_S: Final = 3600.0


@dataclass(slots=True)
class Lease:
    """One holder's view of the lease.

    Args:
        lake: Whose.
        seconds: How long it lasts when it is not renewed.
        who: Machine and process, for people.
        clock: Seconds since the Unix epoch.
    """

    lake: Lake
    seconds: float
    who: str
    clock: Callable[[], float] = time.time
    holder: str = field(default_factory=lambda: uuid4().hex)
    until: float = 0.0
    """Until when we hold it; 0 when we do not."""

    @property
    def is_held(self) -> bool:
        """True if we hold it now."""
        return self.clock() < self.until

    def take(self) -> bool:
        """Take or renew the lease; False: somebody else holds it. Raises LakeError."""
        now = self.clock()
        version = max(self.lake.version(LEASE), 0)
        rows = self.lake.read_small(LEASE).to_pylist()
        others = [row for row in rows if row["holder"] != self.holder and row["until_us"] / 1e6 + MARGIN_S > now]
        if others:
            self.until = 0.0
            return False
        until = now + self.seconds
        if not self._write(until, version):
            self.until = 0.0
            return False
        self.until = until
        return True

    def holder_now(self) -> str:
        """Name of the current holder, for people; "" if there is none. Raises LakeError."""
        rows = self.lake.read_small(LEASE, ("who", "until_us")).to_pylist()
        return next((row["who"] for row in rows if row["until_us"] / 1e6 > self.clock()), "")

    def release(self) -> None:
        """Give it up, so that another one need not wait. Raises LakeError."""
        if self.is_held:
            self._write(0.0, max(self.lake.version(LEASE), 0))
        self.until = 0.0

    def clean_up(self) -> None:
        """Remove the files of earlier leases. Raises LakeError."""
        self.lake.vacuum(LEASE, older_than_s=_KEEP_S)

    def _write(self, until: float, version: int) -> bool:
        row = {"holder": self.holder, "who": self.who, "until_us": int(until * 1e6)}
        rows = pa.Table.from_pylist([row], to_arrow_schema(LEASE.schema))
        try:
            self.lake.commit(rows, LEASE, Change("overwrite", base_version=version))
        except ConflictError:
            return False
        return True


class Renewal:
    """Renews a lease in a thread of its own while jobs run; a context.

    Args:
        lease: Held.
        on_lost: Called once, in that thread, when the lease is lost or cannot be renewed in time.
    """

    def __init__(self, lease: Lease, on_lost: Callable[[str], None]) -> None:
        self._lease = lease
        self._on_lost = on_lost
        self._end = Event()
        self._thread = Thread(target=self._run, name="lease", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._lease.seconds / 3):
            try:
                is_held = self._lease.take()
                why = "another process has taken the lease"
            except Exception as exc:  # a moment's failure may pass before the lease ends
                is_held, why = self._lease.is_held, f"the lease cannot be renewed: {exc}"
            if not is_held:
                self._on_lost(why)
                return
