"""Traces of real nodes: both domains export spans that fit together, and follow the trace of a runtime."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.span_files import read_spans

from .systems import System, running_system

TRACES = '[traces]\nshare = 1.0\nfile = "spans.jsonl"\n\n[[peer]]'
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
NOT_SAMPLED = f"00-{'ab' * 16}-{SPAN}-00"


async def talk(system: System) -> None:
    """Messages with a trace of their runtime, with one that is not sampled, and without."""
    anna, bruno = await system.couple()
    for trace in (f"00-{TRACE}-{SPAN}-01", NOT_SAMPLED):
        assert (await anna.client.request("read", anna.hyperty, bruno.hyperty, {"trace": trace})).is_ok


async def test_spans_of_both_domains_fit_together_and_follow_the_trace_of_a_runtime(tmp_path: Path) -> None:
    async with running_system(tmp_path) as system:
        for node in (system.a, system.b):
            await system.change_settings(node, old="[[peer]]", new=TRACES)
        await talk(system)
        await system.laboratory.stop_nodes()
        folders = [tmp_path / domain for domain in ("a.example", "b.example")]
    ours, theirs = (read_spans(next(folder.rglob("spans.jsonl"))) for folder in folders)
    sent = {one["spanId"]: one for one in ours if one["name"].startswith("send ")}
    received = [one for one in theirs if one["name"].startswith("receive ")]
    assert len(received) >= 3
    assert all(one["traceId"] == sent[one["parentSpanId"]]["traceId"] for one in received)
    assert all(one["parentSpanId"] in sent for one in ours if one["name"] in {"queue", "stub", "acknowledgement"})
    [of_runtime] = [one for one in sent.values() if one["traceId"] == TRACE]
    assert of_runtime["parentSpanId"] == SPAN
    assert [one["parentSpanId"] for one in received if one["traceId"] == TRACE] == [of_runtime["spanId"]]
    assert "ab" * 16 not in {one["traceId"] for one in [*ours, *theirs]}
    assert "hyperty" not in json.dumps([ours, theirs])
