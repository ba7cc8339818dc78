"""A pipeline that serves: the same jobs as those of the command line, round after round, by a schedule.

Theory of operation. A round looks for sealed segments. When there are some, they are ingested and refined, and the days
that they belong to are watched for abuse; other jobs run when their time has come. All jobs share one Spark and run one
after the other, so no two of this process meet. What is done is in tables, so a process that starts, or takes over,
goes on where the last one ended, whatever it was doing then.

Of several processes, the holder of the lease works and the others wait. A job that fails is tried again later, and the
others go on; anything that is no failure of a lake, spool or receiver ends the process, whose supervisor starts it
again. See docs/adr/0032.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Event
from typing import Final

from pipeline.core.schedule import Schedule
from pipeline.core.utc_days import end_us
from pipeline.jobs import abuse, compact, partners, reconcile, refine, report, retention, settle, stubs
from pipeline.jobs.ingest import Ingest
from pipeline.jobs.result import ExitCode, JobResult
from pipeline.lake.store_path import location
from pipeline.lake.table_log import LakeError
from pipeline.lake.tables import Lake
from pipeline.segments.node_keys import Trust
from pipeline.serving import exchanging
from pipeline.serving.alert_sinks import send_new, sinks_of
from pipeline.serving.lease import Lease, Renewal
from pipeline.serving.metrics import Metrics, MetricsServer, measure
from pipeline.serving.settings import ServeSettings, periods
from protofly.errors import SettingsError

MEASURE_S: Final = 15.0
STAND_BY_S: Final = 5.0
LONG_S: Final = 3600.0
"""A job that takes longer than this makes the process unhealthy."""
FAILURES_TEXT: Final = "How often a job has failed."
FAILURES: Final = 3
"""So does a job that fails so often in a row."""
NEWS_S: Final = 2 * 86_400
"""Alerts of earlier hours are no news."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Health:
    """The state of the process, for those who ask from outside."""

    job: str = ""
    since: float = 0.0
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)

    def problem(self) -> str:
        """Reason why the process is not healthy; "" if it is."""
        job, since = self.job, self.since
        if job and time.monotonic() - since > LONG_S:
            return f"{job} runs for more than {LONG_S:.0f} s"
        failures = self.failures.copy().items()
        return "; ".join(f"{name} failed {times} times: {why}" for name, (times, why) in failures if times >= FAILURES)


@dataclass(slots=True)
class Work:
    """The jobs of one lake, by name.

    Args:
        lake: Which.
        settings: With absolute paths.
        trust: Whose signatures count.
        metrics: Get how far the exchange with each partner is.
    """

    lake: Lake
    settings: ServeSettings
    trust: Trust
    metrics: Metrics = field(default_factory=Metrics)
    _ingest: Ingest = field(init=False)

    def __post_init__(self) -> None:
        self._ingest = Ingest(self.lake, [location(spool) for spool in self.settings.spools], self.trust)

    def jobs(self) -> dict[str, Callable[[], JobResult]]:
        """The function that runs each job."""
        settles = periods(self.settings)["settle"] is not None
        return {
            "ingest": self._ingest.run,
            "refine": self._refine,
            "abuse": lambda: abuse.watch(self.lake, is_settled_later=settles),
            "alerts": self._send,
            "settle": lambda: settle.run(self.lake),
            "reconcile": self._reconcile,
            "usage": self._report_usage,
            "exchange": self._exchange,
            "block-list": self._list,
            "stubs": lambda: stubs.run(self.lake),
            "report": lambda: report.run(self.lake, out=location(self.settings.report)),
            "retention": self._retain,
            "compact": lambda: compact.run(self.lake),
        }

    def _refine(self) -> JobResult:
        """Refine what has come, and merge the small files of rounds where there are very many."""
        result = refine.run(self.lake)
        if result.rows:
            compact.bound(self.lake)
        return result

    def _send(self) -> JobResult:
        since_us = int((time.time() - NEWS_S) * 1e6)
        alerts, exchange = self.settings.alerts, self.settings.exchange
        domain = exchange.domain if exchange is not None else ""
        return send_new(self.lake, sinks_of(alerts), least=alerts.severity, since_us=since_us, domain=domain)

    def _reconcile(self) -> JobResult:
        """Compare what records of several domains are here; `exchange` compares with partners of the settings."""
        result = reconcile.run(self.lake)
        if periods(self.settings)["exchange"] is not None:
            result.warnings = [one for one in result.warnings if one != reconcile.ONE_DOMAIN]
        return result

    def _report_usage(self) -> JobResult:
        """Let reports of high usage wait for the partners that they are about."""
        return exchanging.report_usage(self.lake, exchanging.exchange_of(self.settings))

    def _exchange(self) -> JobResult:
        result = partners.run(self.lake, exchanging.exchange_of(self.settings))
        for domain, facts in result.details["partners"].items():
            said = "Files that a partner did not take yet."
            self.metrics.set("partner_files_waiting", facts["waiting"], said, partner=domain)
            if facts["reconciled"]:
                newest = end_us(max(facts["reconciled"])) / 1e6
                said = "End of the day that was reconciled last with a partner, Unix time."
                self.metrics.set("partner_reconciled_day", newest, said, partner=domain)
        return result

    def _list(self) -> JobResult:
        return exchanging.publish_list(self.lake, self.settings)

    def _retain(self) -> JobResult:
        assert self.settings.retention_days is not None
        return retention.run(self.lake, today=datetime.now(UTC).date(), keep_days=self.settings.retention_days)


_NEXT: Final = {
    "usage": ("exchange",),
    "exchange": ("alerts",),
    "ingest": ("refine",),
    "refine": ("abuse",),
    "settle": ("abuse",),
    "abuse": ("alerts",),
}
"""What is to be done as soon as a job has brought rows."""


@dataclass(slots=True)
class Rounds:
    """Rounds of jobs, as long as the lease is held.

    Args:
        lake: Which.
        jobs: By name, in the order in which they run.
        schedule: When each is due.
        metrics: What the process says about itself.
        health: What it is doing.
    """

    lake: Lake
    jobs: dict[str, Callable[[], JobResult]]
    schedule: Schedule
    metrics: Metrics
    health: Health
    _measured: float = -MEASURE_S
    _warned: dict[str, list[str]] = field(default_factory=dict)
    """What each job has warned of the last time: the same again is no news."""

    def __post_init__(self) -> None:
        for name in self.jobs:  # a counter that begins at its first failure hides that one from `increase`
            self.metrics.count("job_failures", FAILURES_TEXT, 0, job=name)

    def run(self, is_over: Event) -> None:
        """Go round until it is over. Raises whatever is no failure of the lake."""
        while not is_over.is_set():
            for name in self.schedule.due(time.monotonic()):
                if is_over.is_set():
                    return
                self._run_job(name)
            now = time.monotonic()
            if now - self._measured >= MEASURE_S:
                self._measured = now
                self._measure()
            is_over.wait(min(self.schedule.wait_s(time.monotonic()), MEASURE_S))

    def _run_job(self, name: str) -> None:
        health, begun = self.health, time.monotonic()
        health.job, health.since = name, begun
        try:
            result = self.jobs[name]()
        except (LakeError, SettingsError, OSError) as exc:
            self._failed(name, str(exc))
        else:
            health.failures.pop(name, None)
            is_incomplete = name == "alerts" and result.exit_code is ExitCode.INCOMPLETE
            if result.rows:
                _log.info("%s: %s", name, result.outcome or ", ".join(f"{k} {v:,}" for k, v in result.rows.items()))
                for follower in _NEXT.get(name, ()):
                    self.schedule.hasten(follower, time.monotonic())
            if result.rows or result.exit_code is ExitCode.INCOMPLETE:
                self._warn(name, result.warnings)
            self.metrics.set("job_success_time", time.time(), "When a job last ended well, Unix time.", job=name)
            self.metrics.count("job_rows", "Rows that a job has written.", sum(result.rows.values()), job=name)
            if is_incomplete:
                self._failed(name, "; ".join(result.warnings))
            else:
                self.schedule.done(name, time.monotonic(), is_failed=False)
        finally:
            health.job = ""
        seconds = time.monotonic() - begun
        self.metrics.set("job_seconds", seconds, "How long a job took the last time.", job=name)

    def _warn(self, name: str, warnings: list[str]) -> None:
        """Log what a job warns of, unless it has done so the last time."""
        last = self._warned.get(name, ())
        self._warned[name] = list(warnings)
        for warning in warnings:
            if warning not in last:
                _log.warning("%s: %s", name, warning)

    def _failed(self, name: str, why: str) -> None:
        """Note a failure: an error once the process is unhealthy by it, a warning while the next try may do."""
        count = self.health.failures.get(name, (0, ""))[0] + 1
        self.health.failures[name] = count, why
        if count < FAILURES:
            _log.warning("%s failed and is tried again: %s", name, why)
        else:
            _log.error("%s failed %d times in a row: %s", name, count, why)
        self.metrics.count("job_failures", FAILURES_TEXT, job=name)
        self.schedule.done(name, time.monotonic(), is_failed=True)

    def _measure(self) -> None:
        try:
            measure(self.lake, self.metrics, now=time.time())
        except LakeError as exc:
            _log.warning("metrics stay as they were until the next try: %s", exc)


def serve(
    lake: Lake, settings: ServeSettings, trust: Trust, *, stop: Event, on_listen: Callable[[int], None] = lambda _: None
) -> None:
    """Serve a lake until `stop` is set; the job that runs then is finished first.

    Args:
        lake: Which.
        settings: With absolute paths.
        trust: Whose signatures count.
        stop: Set by somebody else.
        on_listen: Called with the port of metrics and health.

    Raises:
        LakeError: The lease cannot be read or written.
        OSError: The port is taken.
    """
    metrics, health = Metrics(), Health()
    lease = Lease(lake, settings.lease_seconds, f"{socket.gethostname()} process {os.getpid()}")
    by_job = Work(lake, settings, trust, metrics).jobs()
    listen = settings.listen
    with MetricsServer(metrics, health.problem, host=listen.host, port=listen.port) as server:
        on_listen(server.port)
        is_standing_by = False
        while not stop.is_set():
            is_leader = lease.take()
            metrics.set("leader", float(is_leader), "1 while this process holds the lease.")
            if is_leader:
                is_standing_by = False
                _log.info("this process works: it holds the lease")
                _lead(lease, Rounds(lake, by_job, Schedule(periods(settings), time.monotonic()), metrics, health), stop)
                continue
            if not is_standing_by:
                _log.warning("standing by: %s serves this lake", lease.holder_now() or "another process")
                is_standing_by = True
            stop.wait(STAND_BY_S)
        lease.release()


def _lead(lease: Lease, rounds: Rounds, stop: Event) -> None:
    """Work until the process is to stop or the lease is lost."""
    is_over = _Either(stop)

    def lost(why: str) -> None:
        _log.warning("this process stops working: %s", why)
        is_over.set()

    with Renewal(lease, lost):
        rounds.run(is_over)
    lease.clean_up()


class _Either(Event):
    """Set when it is set itself, or another event is."""

    def __init__(self, other: Event) -> None:
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        """True if one of them is."""
        return super().is_set() or self._other.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for either, looking at the other one each half second."""
        until = None if timeout is None else time.monotonic() + timeout
        while not self.is_set() and (until is None or time.monotonic() < until):
            rest = 0.5 if until is None else min(0.5, max(0.0, until - time.monotonic()))
            self._other.wait(rest)
        return self.is_set()
