"""The way of single messages: bounded in every direction, whatever foreign bytes say."""

from __future__ import annotations

import json
import time

from hypothesis import given
from hypothesis import strategies as st

from federation.links.traces import MAX_TRACES, Traces


def hops_of(traces: Traces, trace: str) -> list[str]:
    [found] = [entry for entry in traces.snapshot() if entry["id"] == trace]
    return [hop["name"] for hop in found["hops"]]  # type: ignore[attr-defined]


def test_hops_are_kept_in_order_with_their_times() -> None:
    traces = Traces()
    traces.hop(b'"t-1"', "gate out", 1.5)
    traces.hop(b'"t-1"', "stub", 1.500042)
    assert traces.snapshot() == [
        {"id": "t-1", "hops": [{"name": "gate out", "at_us": 1_500_000}, {"name": "stub", "at_us": 1_500_042}]}
    ]


def test_a_hop_without_a_time_happens_now() -> None:
    traces = Traces()
    before = int(time.monotonic() * 1e6)
    traces.hop(b'"t"', "bus")
    [entry] = traces.snapshot()
    assert before <= entry["hops"][0]["at_us"] <= time.monotonic() * 1e6  # type: ignore[index]


def test_traces_of_different_messages_do_not_mix() -> None:
    traces = Traces()
    for name in ("one", "two"):
        traces.hop(b'"x"', name)
        traces.hop(b'"y"', name)
    assert hops_of(traces, "x") == hops_of(traces, "y") == ["one", "two"]


def test_only_the_last_traces_are_kept_oldest_first() -> None:
    traces = Traces()
    for number in range(MAX_TRACES + 5):
        traces.hop(json.dumps(f"t-{number}").encode(), "bus")
    kept = [entry["id"] for entry in traces.snapshot()]
    assert kept == [f"t-{number}" for number in range(5, MAX_TRACES + 5)]


def test_a_trace_used_again_and_again_grows_to_its_bound() -> None:
    traces = Traces()
    for _ in range(1_000):
        traces.hop(b'"same"', "bus")
    assert 1 < len(hops_of(traces, "same")) <= 64


def test_a_name_is_cut_so_that_a_sender_cannot_fill_the_memory() -> None:
    traces = Traces()
    traces.hop(json.dumps("x" * 100_000).encode(), "bus")
    [entry] = traces.snapshot()
    assert len(str(entry["id"])) <= 128


@given(raw=st.binary(max_size=200) | st.text(max_size=50).map(lambda text: json.dumps(text).encode()))
def test_any_bytes_are_a_trace_or_nothing(raw: bytes) -> None:
    traces = Traces()
    traces.hop(raw, "bus")
    json.dumps(traces.snapshot())


def test_what_is_no_text_is_not_followed() -> None:
    traces = Traces()
    for raw in (b"1", b"null", b"{}", b'["a"]', b"", b"[" * 100_000, b'"\\ud800"', b'"\xff"'):
        traces.hop(raw, "bus")
    assert [entry for entry in traces.snapshot() if not isinstance(entry["id"], str)] == []
