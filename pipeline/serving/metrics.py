"""Metrics and health of a pipeline that serves, over HTTP in a thread of its own."""

from __future__ import annotations

from collections import Counter as Counted
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from socketserver import ThreadingMixIn
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pyarrow.compute as pc
from prometheus_client import CollectorRegistry, Counter, Gauge, make_wsgi_app

from pipeline.core.statement_choice import DRAFT
from pipeline.core.utc_days import end_us
from pipeline.jobs.proofs import proved_completeness
from pipeline.lake.lake_files import LakeFiles
from pipeline.lake.table_log import DataFile
from pipeline.schemas import NODE_OWNER, RECON_PAIR, STATEMENT_DAILY, TABLES
from pipeline.segments.ledger import read_stretches
from protofly.records import RecordKind

_DAY_S: Final = 86_400
_AGES: Final = (("today", 0), ("1d", 1), ("2d-6d", 2), ("7d", 7))


@dataclass(slots=True)
class Metrics:
    """Prometheus metrics of the pipeline; names begin with `trapezoid_pipeline_`."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    _gauges: dict[str, Gauge] = field(default_factory=dict)
    _counters: dict[str, Counter] = field(default_factory=dict)

    def set(self, name: str, value: float, meaning: str, **labels: str) -> None:
        """Set a gauge, for these labels."""
        if name not in self._gauges:
            full = f"trapezoid_pipeline_{name}"
            self._gauges[name] = Gauge(full, meaning, list(labels), registry=self.registry)
        gauge = self._gauges[name]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def clear(self, name: str) -> None:
        """Forget all labels of a gauge, because what they name may be gone."""
        if name in self._gauges:
            self._gauges[name].clear()

    def count(self, name: str, meaning: str, by: float = 1, **labels: str) -> None:
        """Count up, for these labels."""
        if name not in self._counters:
            full = f"trapezoid_pipeline_{name}"
            self._counters[name] = Counter(full, meaning, list(labels), registry=self.registry)
        counter = self._counters[name]
        (counter.labels(**labels) if labels else counter).inc(by)


def measure(lake: LakeFiles, metrics: Metrics, *, now: float) -> None:
    """Look at the lake, from tables that are small. Raises LakeError."""
    newest = Counted[str]()
    for one in read_stretches(lake):
        if one.kind == RecordKind.MESSAGE.value:
            newest[one.node] = max(newest[one.node], one.newest_closed_us)
    _set_all(
        metrics,
        "node_lag_seconds",
        "Time since the end of the newest segment of a node.",
        "node",
        [(node, now - closed_us / 1e6) for node, closed_us in newest.items()],
    )
    proved = proved_completeness(lake)
    _set_all(
        metrics,
        "proof_lag_seconds",
        "Time up to which the records of a domain are not proved complete.",
        "domain",
        [(domain, now - min(known.until_us / 1e6, now)) for domain, known in proved.items()],
    )
    _set_all(metrics, "last_final_day", "End of the last final day of a domain, Unix time.", "domain", _finals(lake))
    _set_all(metrics, "pending_messages", "Messages that wait for a proof, by age.", "age", _pending(lake, now))
    _set_all(
        metrics,
        "table_files",
        "Files of a table.",
        "table",
        [(name, float(len(lake.files(name)))) for name in TABLES if lake.has(name)],
    )


def _set_all(metrics: Metrics, name: str, meaning: str, label: str, values: Iterable[tuple[str, float]]) -> None:
    metrics.clear(name)
    for value, number in values:
        metrics.set(name, number, meaning, **{label: value})


def _finals(lake: LakeFiles) -> list[tuple[str, float]]:
    domains = set(lake.read_small(NODE_OWNER, ("our_domain",)).column("our_domain").to_pylist())
    files = defaultdict[str, list[DataFile]](list)
    for file in lake.files(STATEMENT_DAILY):
        if file.may_have("status", "final", "restated"):
            files[file.partition["dt"]].append(file)
    newest: dict[str, str] = {}
    for day in sorted(files, reverse=True):  # years of statements are not read each time
        if domains and domains <= newest.keys():
            break
        rows = lake.read_files_small(STATEMENT_DAILY, files[day], ("our_domain", "status"))
        signed = rows.filter(pc.not_equal(rows.column("status"), DRAFT)).column("our_domain").unique().to_pylist()
        newest |= dict.fromkeys(set(signed) - newest.keys(), day)
    return [(domain, end_us(day) / 1e6) for domain, day in sorted(newest.items())]


def _pending(lake: LakeFiles, now: float) -> list[tuple[str, float]]:
    found = dict.fromkeys((word for word, _ in _AGES), 0.0)
    files = [file for file in lake.files(RECON_PAIR) if file.may_have("pending", 1, 1 << 62)]
    for row in lake.read_files_small(RECON_PAIR, files, ("dt", "pending")).to_pylist():
        days = max(0.0, now - end_us(row["dt"]) / 1e6) / _DAY_S
        age = next(word for word, least in reversed(_AGES) if days >= least)
        found[age] += row["pending"] or 0
    return sorted(found.items())


class MetricsServer:
    """Serves `/metrics`, and `/healthz`: 200 while the loop goes round, else 503; a context.

    Args:
        metrics: What `/metrics` shows.
        problem: Why the process is not healthy; empty when it is. Called from another thread.
        host, port: Where; port 0 takes a free one.

    Raises:
        OSError: The port is taken.
    """

    def __init__(self, metrics: Metrics, problem: Callable[[], str], *, host: str, port: int) -> None:
        self._metrics_app = make_wsgi_app(metrics.registry)
        self._problem = problem
        self._server = make_server(host, port, self._answer, _Server, _Quiet)
        self._thread = Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self.port: int = self._server.server_port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            answer: Iterable[bytes] = self._metrics_app(environ, start_response)
            return answer
        problem = self._problem()
        status, text = ("503 Service Unavailable", problem) if problem else ("200 OK", "ok")
        if path != "/healthz":
            status, text = "404 Not Found", "there is /metrics and /healthz"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]


class _Server(ThreadingMixIn, WSGIServer):
    """Serves each client in a thread: one that is slow to say what it wants keeps nobody else waiting."""

    daemon_threads = True
    block_on_close = False


class _Quiet(WSGIRequestHandler):
    timeout = 10

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is that of the base class
        """Requests are no news."""
