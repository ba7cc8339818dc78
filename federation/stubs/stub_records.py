"""The audit records of what happens to the stub of one domain. Source: design, section 7."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Literal

import trio

from federation.core.stub_status import StubStatus
from protofly.errors import Code, StubFaultError
from protofly.records import Record, StubEvent
from protofly.stub import VerifiedStub

SUMMARY_SECONDS: Final = 60.0
DETAIL_CHARS: Final = 256
_ENDED_FROM_OUTSIDE: Final = frozenset({"deadline", "died"})
"""Faults of the worker process, and not of the code in it: our own deadline, or the kernel, has ended it."""

_Name = Literal["verified", "compiled", "started", "stopped", "state", "fault", "killed", "circuit", "summary"]
ReleaseName = Literal["updating", "canary", "took-over", "turned-down", "rolled-back", "proved"]
"""Event of a newer version: started beside the old one, took over, did not take over, or was rolled back."""


class StubRecords:
    """Records events of one stub; each has with it what the stub has used so far.

    Args:
        stub: The stub, and its meters.
        record: Takes records; never blocks.
        now: The clock, in monotonic seconds.
    """

    def __init__(self, stub: StubStatus, record: Callable[[Record], None], now: Callable[[], float]) -> None:
        self._stub = stub
        self._record = record
        self._now = now
        self._summed_up = now()

    def verified(self, stub: VerifiedStub) -> None:
        """Another package than before passed every check."""
        self._write("verified", detail=f"{stub.name} {stub.version}")

    def compiled(self, seconds: float) -> None:
        """It was compiled; that took so long."""
        self._record(self._event("compiled", seconds))

    def started(self, pid: int, seconds: float, module_sha256: str) -> None:
        """A module has a worker process, after so long."""
        event = self._event("started", seconds)
        event.pid, event.stub_ver = pid, module_sha256
        self._record(event)

    def stopped(self, pid: int, module_sha256: str) -> None:
        """The worker process of a module is gone; what its exchanges were like is summed up before."""
        self.sum_up()
        event = self._event("stopped")
        event.pid, event.stub_ver = pid, module_sha256
        self._record(event)

    def release(self, name: ReleaseName, stub: VerifiedStub, detail: str = "") -> None:
        """Something happened to a version; `detail` says what was wrong."""
        event = self._event(name)
        event.stub_ver = stub.module_sha256
        event.detail = f"{stub.name} {stub.version} {detail}".strip()[:DETAIL_CHARS]
        self._stub.update = f"{name} {event.detail}"
        event.code = Code.STUB_ROLLED_BACK.word if name == "rolled-back" else None
        self._record(event)

    def state(self, state: str, detail: str) -> None:
        """It says that it is in a state."""
        event = self._event("state")
        event.state, event.detail = state, detail[:DETAIL_CHARS] or None
        self._record(event)

    def fault(self, error: StubFaultError) -> None:
        """It failed; a worker that was ended from outside is an event of its own besides."""
        self._write("fault", error.code, error.detail, error.fault)
        if error.fault in _ENDED_FROM_OUTSIDE:
            self._write("killed", error.code, error.detail, error.fault)

    def circuit(self, seconds: float) -> None:
        """It failed too often, and is not started for so long."""
        self._write("circuit", Code.CIRCUIT_OPEN, f"open for {seconds:.0f} s")

    async def sum_up_often(self) -> None:
        """Sum up every minute, until cancelled."""
        while True:
            await trio.sleep(SUMMARY_SECONDS)
            self.sum_up()

    def sum_up(self) -> None:
        """Record what the exchanges were like since the last time, if there were any."""
        now, meters = self._now(), self._stub.meters
        if meters.has_news:
            summary = self._event("summary", now - self._summed_up)
            summary.exchange_us, summary.exchange_fuel = meters.take_histograms()
            self._record(summary)
        self._summed_up = now

    def _write(self, name: _Name, code: Code | None = None, detail: str = "", trap: str = "") -> None:
        event = self._event(name)
        event.code = None if code is None else code.word
        event.detail, event.trap = detail[:DETAIL_CHARS] or None, trap[:DETAIL_CHARS] or None
        self._record(event)

    def _event(self, name: _Name | ReleaseName, seconds: float | None = None) -> StubEvent:
        meters = self._stub.meters
        return StubEvent(
            ts_us=int(time.time() * 1e6),
            domain=self._stub.domain,
            event=name,
            stub_ver=self._stub.started_sha256 or None,
            duration_us=None if seconds is None else int(seconds * 1e6),
            calls=meters.calls,
            messages=meters.messages,
            traps=meters.traps,
            fuel=meters.fuel,
            cpu_us=meters.cpu_us,
            mem_peak_kib=meters.memory_bytes >> 10,
        )
