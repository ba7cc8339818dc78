from __future__ import annotations

import io
import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.footprint import Footprint
from benchmarks.load_client import FIRST_NUMBER, Connection, LoadClient, Template, pattern_of
from benchmarks.plan import BARS, NO_SANDBOX, RELAYS, TRAPEZOID, VERTX_PEER, Measured, Traffic, compared, shapes
from benchmarks.process_time import cpu_ns, process_tree, resident_kib
from benchmarks.report import show_report
from benchmarks.sides import Load, Run
from benchmarks.variants import PlainVariant, RelayVariant

A_RUN = Run(
    messages_per_second=50_000.0,
    p50_ms=1.0,
    p99_ms=2.0,
    cpu_us_per_message=30.0,
    lost=0,
    duplicated=0,
    reordered=0,
    refused=0,
    foreign_cores=0.0,
)
FLOOD = Traffic(name="flood", width=1, body_bytes=200, bars=BARS["flood"])


def payload_of(frame: bytes) -> bytes:
    size = frame[1] & 0x7F
    return frame[6:] if size < 126 else frame[8:]


@pytest.mark.parametrize("body_bytes", [60, 200, 300, 1000])
def test_bodies_have_exactly_the_wanted_size_and_frames_fit_their_head(body_bytes: int) -> None:
    template = Template(3, "hyperty://a.example/x", "hyperty://b.example/y", body_bytes)
    now = time.monotonic_ns()
    frame = template.frame(FIRST_NUMBER + 5, now)
    message = json.loads(payload_of(frame))
    assert (message["body"]["n"], message["id"], message["type"]) == (FIRST_NUMBER + 5, FIRST_NUMBER + 5, "event")
    assert len(json.dumps(message["body"], separators=(",", ":"))) == body_bytes
    assert len(payload_of(frame)) == int.from_bytes(frame[2:4], "big") or frame[1] & 0x7F == len(payload_of(frame))


@given(cuts=st.lists(st.integers(1, 400), min_size=1, max_size=30), body_bytes=st.integers(60, 400))
def test_messages_are_found_wherever_the_stream_is_cut(cuts: list[int], body_bytes: int) -> None:
    template = Template(7, "hyperty://a.example/x", "hyperty://b.example/y", body_bytes)
    stream = b"".join(template.frame(FIRST_NUMBER + number, 10**13) for number in range(10))
    near, far = socket.socketpair()
    with near, far:
        connection, begin, pattern = Connection(near), 0, pattern_of(7)
        for cut in [*cuts, len(stream)]:
            connection.take(stream[begin : begin + cut], pattern, 10**13 + 5)
            begin += cut
    assert connection.numbers() == [FIRST_NUMBER + number for number in range(10)]
    assert connection.latencies_ns() == [5] * 10


@pytest.mark.parametrize(
    ("numbers", "faults"),
    [
        ([0, 1, 2, 3], {"lost": 0, "duplicated": 0, "reordered": 0}),
        ([0, 1, 3], {"lost": 1, "duplicated": 0, "reordered": 0}),
        ([0, 2, 1, 3], {"lost": 0, "duplicated": 0, "reordered": 1}),
        ([0, 1, 1, 3], {"lost": 1, "duplicated": 1, "reordered": 0}),
    ],
)
def test_a_receiver_sees_what_was_dropped_doubled_or_out_of_order(numbers: list[int], faults: dict[str, int]) -> None:
    template = Template(7, "hyperty://a.example/x", "hyperty://b.example/y", 100)
    near, far = socket.socketpair()
    with near, far:
        client = LoadClient()
        client.connections.append(Connection(near))
        far.sendall(b"".join(template.frame(FIRST_NUMBER + number, 10**13) for number in numbers))
        answer = client.receive(run=7, count=4, idle_seconds=0.01)
    assert {name: answer[name] for name in faults} == faults


def test_messages_of_an_earlier_run_do_not_count() -> None:
    near, far = socket.socketpair()
    with near, far:
        client = LoadClient()
        client.connections.append(Connection(near))
        for run in (6, 7):
            far.sendall(Template(run, "hyperty://a.example/x", "hyperty://b.example/y", 100).frame(FIRST_NUMBER, 1))
        answer = client.receive(run=7, count=2, idle_seconds=0.01)
    assert (answer["received"], answer["lost"]) == (1, 1)


async def test_relays_carry_a_flood_and_many_connections_without_loss(tmp_path: Path) -> None:
    variant = RelayVariant(RELAYS, tmp_path, tls=False)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(variant.run)
            flood = await (await variant.pair(1)).run(Load(count=640, rate=0, body_bytes=200), variant.pids())
            many = await (await variant.pair(5)).run(Load(count=100, rate=1000, body_bytes=300), variant.pids())
            nursery.cancel_scope.cancel()
    assert flood.is_faultless
    assert many.is_faultless
    assert flood.messages_per_second > 0
    assert flood.cpu_us_per_message > 0
    assert many.p50_ms is not None


async def test_relays_carry_tls(tmp_path: Path) -> None:
    variant = RelayVariant(RELAYS, tmp_path, tls=True)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(variant.run)
            run = await (await variant.pair(1)).run(Load(count=64, rate=0, body_bytes=200), variant.pids())
            nursery.cancel_scope.cancel()
    assert run.is_faultless


async def test_a_plain_domain_gets_a_flood_without_loss(tmp_path: Path) -> None:
    variant = PlainVariant(VERTX_PEER, tmp_path)
    with trio.fail_after(90):
        async with trio.open_nursery() as nursery:
            await nursery.start(variant.run)
            pair = await variant.pair(1)
            assert (await pair.run(Load(count=1, rate=1.0, body_bytes=200), variant.pids())).is_faultless
            flood = await pair.run(Load(count=640, rate=0, body_bytes=200), variant.pids())
            nursery.cancel_scope.cancel()
    assert flood.is_faultless


def test_a_rate_is_held_against_that_of_the_first_variant_of_its_shape() -> None:
    shape = next(one for one in shapes(quick=True) if one.judged == VERTX_PEER)
    runs = {TRAPEZOID: 100.0, VERTX_PEER: 69.0}
    measured = compared(
        [
            Measured(variant=name, shape=shape, runs=(replace(A_RUN, messages_per_second=rate),))
            for name, rate in runs.items()
        ]
    )
    assert [one.row.rate_ratio for one in measured] == [1.0, 0.69]
    assert [one.missed_bars for one in measured] == [(), ("rate_ratio ≥ 0.7",)]


def test_rows_are_medians_and_losses_are_summed() -> None:
    runs = tuple(replace(A_RUN, messages_per_second=speed, lost=1) for speed in (10.0, 30.0, 20.0))
    measured = Measured(variant=TRAPEZOID, shape=FLOOD, runs=runs)
    assert (measured.row.messages_per_second, measured.row.lost) == (20.0, 3)
    assert not measured.is_faultless
    assert set(json.loads(msgspec.json.encode(measured.row))) == {
        "name",
        "body_bytes",
        "tls",
        "messages_per_second",
        "p50_ms",
        "p99_ms",
        "cpu_us_per_message",
        "lost",
    }


def test_bars_are_those_of_the_issue_and_concern_the_whole_trapezoid_only() -> None:
    assert [bar.text for bar in BARS["flood"]] == ["messages_per_second ≥ 40000", "cpu_us_per_message ≤ 40"]
    assert Measured(variant=TRAPEZOID, shape=FLOOD, runs=(A_RUN,)).missed_bars == ()
    late = Traffic(name="500/s", width=1, body_bytes=200, rate=500.0, seconds=1.0, bars=BARS["500/s"])
    assert Measured(variant=TRAPEZOID, shape=late, runs=(A_RUN,)).missed_bars == ()
    slow = replace(A_RUN, messages_per_second=10.0)
    assert Measured(variant=TRAPEZOID, shape=FLOOD, runs=(slow,)).missed_bars == ("messages_per_second ≥ 40000",)
    assert Measured(variant=RELAYS, shape=FLOOD, runs=(slow,)).missed_bars == ()


def test_costs_are_compared_with_the_first_variant_of_the_shape() -> None:
    runs = {TRAPEZOID: 30.0, RELAYS: 45.0}
    measured = compared(
        [
            Measured(variant=name, shape=FLOOD, runs=(replace(A_RUN, cpu_us_per_message=cost),))
            for name, cost in runs.items()
        ]
    )
    assert [one.row.cpu_ratio for one in measured] == [1.0, 1.5]


@pytest.mark.parametrize("quick", [True, False])
def test_every_plan_has_both_shapes_all_variants_and_tls(quick: bool) -> None:
    plan = shapes(quick=quick)
    assert {"flood", "500/s", "many"} <= {shape.name for shape in plan}
    assert {name for shape in plan for name in shape.variants} == {TRAPEZOID, NO_SANDBOX, RELAYS, VERTX_PEER}
    assert any(shape.tls for shape in plan)
    many = next(shape for shape in plan if shape.name == "many")
    assert (many.width, many.body_bytes, many.rate) == (100, 300, 4000.0)


def test_the_report_shows_rows_missed_bars_and_memory() -> None:
    lossy = Measured(variant=TRAPEZOID, shape=FLOOD, runs=(A_RUN,))
    console = Console(file=io.StringIO(), width=160)
    footprint = Footprint(
        node_rss_kib=60 * 1024, worker_private_kib=9 * 1024, worker_start_ms=12.0, idle_runtime_kib=30.0
    )
    show_report(console, [lossy], footprint)
    text = cast("io.StringIO", console.file).getvalue()
    for expected in ("flood", "trapezoid", "50,000", "60.0 MiB", "! idle local runtime, RSS: 30.0 KiB (bar 18 KiB)"):
        assert expected in text, expected


def test_the_process_tree_of_this_process_has_cpu_time_and_memory() -> None:
    tree = process_tree(os.getpid())
    assert os.getpid() in tree
    assert cpu_ns(tree) > 0
    assert resident_kib(os.getpid()) > 1000
