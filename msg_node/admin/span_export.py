"""Exports spans by OpenTelemetry's library: over OTLP/HTTP to a collector, or into a file of OTLP/JSON lines.

Spans are made in the thread that writes audit records, and leave in a thread of the library: messages wait for neither.
What a collector does not take in time is left out and counted.
"""

from __future__ import annotations

import base64
import json
import logging
import logging.handlers
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace import (
    SpanKind as LibraryKind,
)

from msg_node.admin.core.spans import Span, SpanKind, is_sampled, spans_of
from protofly.errors import SettingsError
from protofly.record_runs import Recorded, records_in
from protofly.records import MessageRecord

logger = logging.getLogger("msg_node")

FILE_BYTES: Final = 64 << 20
"""A file of spans is set aside at this size, as `<name>.1`; the one set aside before is gone then."""
QUEUE_SPANS: Final = 4096
BATCH_SPANS: Final = 512
SEND_SECONDS: Final = 5.0
FLUSH_MS: Final = 3000
_KINDS: Final = {
    SpanKind.SEND: LibraryKind.PRODUCER,
    SpanKind.RECEIVE: LibraryKind.CONSUMER,
    SpanKind.STAGE: LibraryKind.INTERNAL,
}
_IDS: Final = ("traceId", "spanId", "parentSpanId")


@dataclass(frozen=True, slots=True)
class SpanTarget:
    """Destination of spans, and the share of messages that is traced.

    Attributes:
        share: Of messages between domains, 0.0 to 1.0.
        per_second: Most messages of one foreign domain that are traced in a second.
        file: Of OTLP/JSON lines, or None.
        endpoint: URL of a collector, "" for none.
        token: That the collector wants, "" for none.
        ca_file: Authorities of the collector, None for those of the system.
    """

    share: float
    per_second: int
    file: Path | None = None
    endpoint: str = ""
    token: str = ""
    ca_file: Path | None = None


@dataclass(slots=True)
class ExportFigures:
    """Spans since the start, and messages that were to be traced but had too many beside them in that second."""

    exported: int = 0
    failed: int = 0
    left_out: int = 0


class SpanExport:
    """Makes spans of the records that it is shown, and exports them.

    Args:
        node: Name and domain of this node, unique among all.
        version: Of the program.
        target: Where they go.

    Raises:
        SettingsError: The file cannot be written.
    """

    def __init__(self, node: str, version: str, target: SpanTarget) -> None:
        self.figures = ExportFigures()
        self._target = target
        self._ids = _DerivedIds()
        attributes = {"service.name": "trapezoid", "service.instance.id": node, "service.version": version}
        self._provider = TracerProvider(
            sampler=ALWAYS_ON, resource=Resource(attributes), id_generator=self._ids, shutdown_on_exit=False
        )
        for exporter in _exporters(target):
            counted = _Counted(exporter, self.figures)
            self._provider.add_span_processor(
                BatchSpanProcessor(counted, max_queue_size=QUEUE_SPANS, max_export_batch_size=BATCH_SPANS)
            )
        self._tracer = self._provider.get_tracer("trapezoid", version)
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it reports each batch; `_Counted` each change
        self._second, self._taken = 0, Counter[str]()

    def observe(self, recorded: Sequence[Recorded], now: float) -> None:
        """Export the spans of a batch of records; `now` is in seconds since the Unix epoch. Called by one thread."""
        if int(now) != self._second:
            self._second, self._taken = int(now), Counter()
        for record in records_in(recorded):
            if record.__class__ is MessageRecord and _has_id(record) and is_sampled(record, self._target.share):
                self._export(record)

    def take(self, share: float, per_second: int) -> None:
        """Export so many of the messages from now on; where spans go stays."""
        self._target = replace(self._target, share=share, per_second=per_second)

    def flush(self) -> None:
        """Export what waits, for a few seconds at most."""
        self._provider.force_flush(FLUSH_MS)

    def close(self) -> None:
        """Export what waits, for a few seconds at most; afterwards nothing is exported."""
        self.flush()
        self._provider.shutdown()

    def _export(self, record: MessageRecord) -> None:
        peer = record.dst_domain if record.role == "out" else record.src_domain
        self._taken[peer] += 1
        if self._taken[peer] > self._target.per_second:
            self.figures.left_out += 1
            return
        for span in spans_of(record):
            self._emit(span)

    def _emit(self, span: Span) -> None:
        self._ids.trace_id, self._ids.span_id = span.trace_id, span.span_id
        context = None
        if span.parent_id:
            above = SpanContext(
                span.trace_id, span.parent_id, is_remote=span.is_parent_remote, trace_flags=TraceFlags(1)
            )
            context = set_span_in_context(NonRecordingSpan(above))
        made = self._tracer.start_span(
            span.name, context, _KINDS[span.kind], attributes=span.attributes, start_time=span.begin_ns
        )
        if span.error:
            made.set_status(Status(StatusCode.ERROR, span.error))
        made.end(span.end_ns)


class _DerivedIds(IdGenerator):
    """Gives the library the ids that follow from the record."""

    def __init__(self) -> None:
        self.trace_id = self.span_id = 0

    def generate_span_id(self) -> int:
        return self.span_id

    def generate_trace_id(self) -> int:
        return self.trace_id


class _Counted(SpanExporter):
    """Counts what an exporter does, and logs when it begins to fail and when it works again."""

    def __init__(self, exporter: SpanExporter, figures: ExportFigures) -> None:
        self._exporter = exporter
        self._figures = figures
        self._has_failed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except OSError as exc:
            result = SpanExportResult.FAILURE
            if not self._has_failed:
                logger.warning("spans cannot be exported: %s", exc)
        if result is SpanExportResult.SUCCESS:
            self._figures.exported += len(spans)
        else:
            self._figures.failed += len(spans)
        self._note(has_failed=result is not SpanExportResult.SUCCESS)
        return result

    def _note(self, *, has_failed: bool) -> None:
        if has_failed != self._has_failed:
            self._has_failed = has_failed
            if has_failed:
                logger.warning("the collector takes no spans; they are left out until it does")
            else:
                logger.info("spans are exported again")

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


class _Lines(logging.handlers.RotatingFileHandler):
    """Writes lines into a file that is renamed when it is full; what fails is raised."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802, ARG002 - the library's name
        """Raise what went wrong; the class above writes it to standard error."""
        raise


class _FileExporter(SpanExporter):
    """Writes OTLP/JSON, a line for each batch. Source: OTLP 1.0, "JSON Protobuf Encoding"."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lines = _Lines(path, maxBytes=FILE_BYTES, backupCount=1, encoding="utf-8")
        except OSError as exc:
            raise SettingsError(f"traces.file: {path}: {exc.strerror}") from exc

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        facts = _with_plain_ids(MessageToDict(encode_spans(spans), use_integers_for_enums=True))
        self._lines.emit(logging.LogRecord("spans", logging.INFO, "", 0, json.dumps(facts), None, None))
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self._lines.close()


def _exporters(target: SpanTarget) -> Iterable[SpanExporter]:
    if target.file is not None:
        yield _FileExporter(target.file)
    if target.endpoint:
        headers = {"authorization": f"Bearer {target.token}"} if target.token else {}
        ca_file = None if target.ca_file is None else str(target.ca_file)
        yield OTLPSpanExporter(
            endpoint=target.endpoint, certificate_file=ca_file, headers=headers, timeout=SEND_SECONDS
        )


def _has_id(record: MessageRecord) -> bool:
    return bool(record.msg_id.strip("0"))


def _with_plain_ids(value: object) -> object:
    """Ids of traces and spans in hexadecimal digits, as OTLP/JSON has them, and not in Base64."""
    if isinstance(value, list):
        return [_with_plain_ids(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: base64.b64decode(one).hex() if name in _IDS else _with_plain_ids(one) for name, one in value.items()}
