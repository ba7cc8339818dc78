from __future__ import annotations

import io
import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import trio
from rich.console import Console

from benchmarks import suite
from benchmarks.domain.client import _judge
from benchmarks.domain.neighbours import ATTACKER, run_beside
from benchmarks.domain.node_package import SOURCES, install_ws_relay
from benchmarks.domain.plan import (
    ALONE,
    ATTACKS,
    CROWDS,
    NODE,
    TRIO_RELAY,
    WS_RELAY,
    Allocation,
    FanOut,
    PairFlood,
    Parking,
    crowd_name,
    crowd_shapes,
    neighbours_shape,
    shapes,
)
from benchmarks.domain.suite import _start
from benchmarks.domain.variants import BroadcastRelay, DomainVariant, OneNode
from benchmarks.load_client import FIRST_NUMBER
from benchmarks.plan import Measured, compared
from benchmarks.report import DOMAIN_TITLE, show_absent, show_crowds, show_neighbours, show_report
from benchmarks.sides import Run, Side
from protofly.errors import Code, TransportError
from tests.support.services import running

PAIR = PairFlood(name="pair", body_bytes=100, count=640, slow_count=320)
FAN = FanOut(name="observers", body_bytes=100, observers=7, count=60, slow_count=30)
ALLOCATE = Allocation(name="allocate", count=300, window=64)
PARK = Parking(name="park", count=300, window=16)
A_RUN = Run(
    messages_per_second=70_000.0,
    p50_ms=1.0,
    p99_ms=2.0,
    longest_ms=3.0,
    cpu_us_per_message=10.0,
    lost=0,
    duplicated=0,
    reordered=0,
    refused=0,
    foreign_cores=0.0,
)


async def measured_with(variant: DomainVariant, *todo: PairFlood | FanOut) -> list[Run]:
    runs = []
    async with running(variant.run, seconds=60):
        for shape in todo:
            if isinstance(shape, FanOut):
                runs.append(await variant.fan_out(shape))
            else:
                await variant.warm_up(shape)
                runs.append(await variant.flood(shape))
    return runs


async def test_a_broadcast_relay_reaches_the_other_one_and_all_observers(tmp_path: Path) -> None:
    variant = BroadcastRelay(TRIO_RELAY, tmp_path, in_node_js=False)
    pair, fan = await measured_with(variant, PAIR, FAN)
    assert pair.is_faultless
    assert fan.is_faultless
    assert pair.cpu_us_per_message > 0
    assert fan.messages_per_second > 0


@pytest.mark.long
async def test_a_node_carries_all_shapes_beside_a_crowd_without_a_fault(tmp_path: Path) -> None:
    variant = OneNode(NODE, tmp_path, sessions=30)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(variant.run)
            await variant.warm_up(PAIR)
            runs = [
                await variant.flood(PAIR),
                await variant.fan_out(FAN),
                await variant.allocate(ALLOCATE),
                await variant.allocate(replace(ALLOCATE, count=10, window=1)),
                await variant.park(PARK),
                await variant.park(replace(PARK, drains=True)),
            ]
            missing = await variant.missing_sessions()
            nursery.cancel_scope.cancel()
    assert [run.is_faultless for run in runs] == [True] * 6
    assert all(run.messages_per_second > 0 and run.cpu_us_per_message > 0 for run in runs)
    assert (runs[2].p50_ms, runs[3].p50_ms is None) == (None, False)
    assert missing == 0
    assert variant.session_kib is not None


def answers(*numbers: int, address: str = "hyperty://a.example/{}") -> bytes:
    return b"".join(
        b"\x81\x7e\x00\x00"
        + json.dumps(
            {
                "id": FIRST_NUMBER + number,
                "type": "response",
                "body": {"code": 200, "value": {"allocated": [address.format(number)]}},
            },
            separators=(",", ":"),
        ).encode()
        for number in numbers
    )


REFUSED = b'{"id":10000002,"type":"response","body":{"code":429,"desc":"quota"}}'


@pytest.mark.parametrize(
    ("stream", "fault"),
    [
        (answers(0, 1, 2), None),
        (answers(0, 2), "lost"),
        (answers(0, 2, 1), "reordered"),
        (answers(0, 1) + REFUSED, "refused"),
        (answers(0, 1, 2, address="hyperty://a.example/same"), "duplicated"),
    ],
)
def test_answers_to_allocation_are_judged(stream: bytes, fault: str | None) -> None:
    answer = _judge(stream, 3)
    faults = [name for name in ("lost", "reordered", "refused", "duplicated") if answer[name]]
    assert faults == ([fault] if fault else [])


def test_the_plan_has_our_own_bars_and_every_relay_beside_pairs_and_observers() -> None:
    plan = shapes(quick=False)
    bars = {(shape.name, shape.body_bytes): [bar.text for bar in shape.bars] for shape in plan}
    assert bars == {
        ("pair", 100): ["messages_per_second ≥ 60000"],
        ("pair", 1_000): ["messages_per_second ≥ 40000"],
        ("pair", 10_000): ["messages_per_second ≥ 10000"],
        ("observers", 100): ["messages_per_second ≥ 150000"],
        ("allocate", 0): ["messages_per_second ≥ 25000"],
        ("sequential", 0): [],
        ("park", 0): ["messages_per_second ≥ 5000", "p99_ms ≤ 20"],
        ("drain", 0): ["messages_per_second ≥ 5000"],
    }
    for shape in plan:
        if not isinstance(shape, Allocation | Parking):
            assert shape.variants == (NODE, WS_RELAY, TRIO_RELAY)
    assert {shape.name for shape in shapes(quick=True)} == {
        "pair",
        "observers",
        "allocate",
        "sequential",
        "park",
        "drain",
    }


def test_crowds_are_judged_by_their_cost_over_that_of_the_smallest() -> None:
    flood, paced = crowd_shapes()
    assert paced.is_paced
    assert flood.judged == crowd_name(CROWDS[-1])
    runs = {
        name: replace(A_RUN, cpu_us_per_message=cost) for name, cost in zip(flood.variants, (10, 11, 14), strict=True)
    }
    measured = compared(
        [
            Measured(variant=name, shape=flood, runs=(run,), session_kib=31.0 if name == flood.judged else 60.0)
            for name, run in runs.items()
        ]
    )
    assert [one.row.cpu_ratio for one in measured] == [1.0, 1.1, 1.4]
    assert [one.missed_bars for one in measured] == [(), (), ("cpu_ratio ≤ 1.3", "session_kib ≤ 30")]


def test_the_report_shows_crowds_and_what_could_not_be_compared_with() -> None:
    paced = crowd_shapes()[1]
    measured = [Measured(variant=paced.variants[-1], shape=paced, runs=(A_RUN,), session_kib=21.5)]
    console = Console(file=io.StringIO(), width=100)
    show_report(console, measured, None, title=DOMAIN_TITLE)
    show_crowds(console, measured)
    show_absent(console, {WS_RELAY: "there is no npm [here]"})
    text = cast("io.StringIO", console.file).getvalue()
    for expected in (
        DOMAIN_TITLE,
        "70,000",
        "10,000 sessions: 21.5 KiB each",
        "ws (Node.js) is not in the table: there is no npm [here]",
    ):
        assert expected in text, expected


async def test_without_node_js_the_relay_is_absent_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    absent: dict[str, str] = {}
    async with trio.open_nursery() as nursery:
        await _start(nursery, BroadcastRelay(WS_RELAY, tmp_path / "ws", in_node_js=True), absent)
    assert list(absent) == [WS_RELAY]
    assert "there is no node" in absent[WS_RELAY]


async def test_a_node_that_does_not_start_costs_only_its_own_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> list[Measured]:
        raise TransportError(Code.NOT_CONNECTED, "the port is taken")

    monkeypatch.setattr(suite, "measure_domain", fail)
    results = suite.Results([])
    await suite._measure_domain(tmp_path, True, lambda _: None, results)
    assert results.left_out == {DOMAIN_TITLE: "not-connected: the port is taken"}
    assert not results.is_faultless


async def test_npm_that_cannot_install_is_quoted_and_asked_again_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, script in (("node", "exit 0"), ("npm", "echo no such registry; exit 1")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path))
    for _ in range(2):
        with pytest.raises(TransportError, match="npm cannot install ws: no such registry"):
            await install_ws_relay(tmp_path / "package")
    (tmp_path / "npm").write_text("#!/bin/sh\nexit 0\n")
    assert await install_ws_relay(tmp_path / "package") == tmp_path / "package" / "relay.js"
    (tmp_path / "npm").write_text("#!/bin/sh\nexit 1\n")
    await install_ws_relay(tmp_path / "package")  # is there already: npm is not asked


def test_the_lockfile_fixes_every_package_and_names_no_registry() -> None:
    lock = json.loads((SOURCES / "package-lock.json").read_text())
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert packages
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert not any("resolved" in package for package in packages.values())
    assert "omit-lockfile-registry-resolved=true" in (SOURCES / ".npmrc").read_text()


@pytest.mark.long
async def test_beside_each_attack_a_pair_loses_nothing_and_the_node_counts_what_was_refused(tmp_path: Path) -> None:
    node = OneNode(NODE, tmp_path, has_site=True)
    attacker = Side("attacker", log_file=tmp_path / "attacker.log", program=ATTACKER)
    shape = PairFlood(name="neighbours", body_bytes=100, rate=200.0, count=100)
    async with running(node.run, seconds=60):
        await attacker.start_process()
        try:
            for name in (ALONE, *ATTACKS):
                run = await run_beside(name, shape, node, attacker)
                assert run.is_faultless
                assert run.p50_ms is not None
        finally:
            await attacker.stop()


def test_what_neighbours_notice_is_reported_for_each_attack() -> None:
    shape = neighbours_shape()
    assert shape.variants == (ALONE, *ATTACKS)
    waits = dict(zip(shape.variants, (1.0, 1.1, 1.5, 0.9, 1.0, 2.0), strict=True))
    measured = [
        Measured(variant=name, shape=shape, runs=(replace(A_RUN, p50_ms=wait, p99_ms=2 * wait),))
        for name, wait in waits.items()
    ]
    text = io.StringIO()
    show_neighbours(Console(file=text, width=100), measured)
    assert [line.split(": ")[1] for line in text.getvalue().splitlines()] == [
        "p50 +10%, p99 +10%",
        "p50 +50%, p99 +50%",
        "p50 -10%, p99 -10%",
        "p50 +0%, p99 +0%",
        "p50 +100%, p99 +100%",
    ]
