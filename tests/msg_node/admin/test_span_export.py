"""Spans leave over OTLP/HTTP and into files, counted and bounded; a collector that is not there costs nothing else."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from msg_node.admin import span_export
from msg_node.admin.span_export import SpanExport, SpanTarget
from protofly.errors import SettingsError
from tests.support.span_files import read_spans

from .test_spans import GIVEN, ID, crossed, record

NOW = 1_800_000_000.0


class Collector(HTTPServer):
    """Takes what is posted to it."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, self.headers.get("Authorization", ""), body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_file_has_spans_as_otlp_writes_json(tmp_path: Path) -> None:
    path = tmp_path / "made" / "spans.jsonl"
    export = SpanExport("mn-1.a.example", "0.1.0", SpanTarget(1.0, 100, file=path))
    export.observe(crossed(), NOW)
    export.close()
    spans = {str(one["name"]): one for one in read_spans(path)}
    assert spans.keys() == {"send update", "queue", "stub", "acknowledgement", "receive update"}
    assert {one["traceId"] for one in spans.values()} == {ID}
    assert spans["receive update"]["parentSpanId"] == spans["send update"]["spanId"]
    assert (spans["send update"]["kind"], spans["receive update"]["kind"], spans["queue"]["kind"]) == (4, 5, 1)
    assert spans["send update"]["startTimeUnixNano"] == "1800000000000000000"
    resource = json.loads(path.read_text().splitlines()[0])["resourceSpans"][0]["resource"]["attributes"]
    assert {"key": "service.instance.id", "value": {"stringValue": "mn-1.a.example"}} in resource
    assert export.figures.exported == 5


def test_collector_gets_spans_with_the_token(collector: Collector) -> None:
    export = SpanExport("mn-1.a.example", "0.1.0", SpanTarget(0.0, 100, endpoint=collector.url, token="secret"))
    export.observe([record(), record(trace_id=GIVEN, outcome="timeout", outcome_code="timeout")], NOW)
    export.close()
    ((path, authorization, body),) = collector.requests
    assert (path, authorization) == ("/v1/traces", "Bearer secret")
    ((span,),) = (
        scope.spans
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
    )
    assert span.trace_id.hex() == "ab" * 16
    assert span.parent_span_id.hex() == "cd" * 8
    assert (span.status.code, span.status.message) == (2, "timeout")


def test_domain_that_marks_everything_is_traced_within_its_bound_and_others_as_before(tmp_path: Path) -> None:
    path = tmp_path / "spans.jsonl"
    export = SpanExport("mn-1.a.example", "0.1.0", SpanTarget(0.0, 10, file=path))
    flood = [record(role="in", src_domain="evil.example", trace_id=GIVEN)] * 1000
    export.observe([*flood, record(trace_id=GIVEN)], NOW)
    export.observe(flood[:3], NOW + 1)
    export.close()
    names = [one["name"] for one in read_spans(path)]
    assert names == [*["receive update"] * 10, "send update", *["receive update"] * 3]
    assert export.figures.left_out == 990


@pytest.mark.parametrize("msg_id", ["", "0" * 32])
def test_record_without_an_id_has_no_span(tmp_path: Path, msg_id: str) -> None:
    path = tmp_path / "spans.jsonl"
    export = SpanExport("mn-1.a.example", "0.1.0", SpanTarget(1.0, 10, file=path))
    export.observe([record(msg_id=msg_id)], NOW)
    export.close()
    assert read_spans(path) == []


def test_collector_that_is_away_is_logged_once_and_its_spans_are_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(span_export, "SEND_SECONDS", 0.2)
    caplog.set_level(logging.WARNING, "msg_node")
    server = Collector()
    server.server_close()
    export = SpanExport("mn-1.a.example", "0.1.0", SpanTarget(1.0, 100, endpoint=server.url))
    for at in range(3):
        export.observe([record()], NOW + at)
        export.flush()
    export.close()
    assert (export.figures.exported, export.figures.failed) == (0, 3)
    said = [one.message for one in caplog.records if one.name == "msg_node"]
    assert len(said) == 1
    assert "takes no spans" in said[0]


def test_full_file_is_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_export, "FILE_BYTES", 3000)
    path = tmp_path / "spans.jsonl"
    export = SpanExport("mn-1.a.example", "0.1.0", SpanTarget(1.0, 100, file=path))
    for at in range(9):
        export.observe([record()], NOW + at)
        export.flush()
    export.close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["spans.jsonl", "spans.jsonl.1"]
    assert all(one.stat().st_size <= 3000 for one in tmp_path.iterdir())
    assert export.figures.exported == 9


def test_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "spans.jsonl").mkdir()
    with pytest.raises(SettingsError, match=r"traces\.file.*spans\.jsonl"):
        SpanExport("mn-1.a.example", "0.1.0", SpanTarget(1.0, 10, file=tmp_path / "spans.jsonl"))
