from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest
from rich.console import Console

from interop.demo_report import show_report
from interop.demo_view import DemoView, shown_ms
from interop.group_chat import ChatStep, GroupChat, Refusal, Traced
from interop.ledger import Ledger
from interop.node_status import NodeStatus
from interop.runtime_client import Answer
from interop.scene import Scene
from interop.summary import WarmContact, passed_hops, summarise

MS = 1_000_000

STATUS_A = {
    "domain": "a.example",
    "node": "runtime://a.example/mn-1",
    "pid": 11,
    "from-the-future": [1],
    "links": [
        {
            "domain": "b.example",
            "state": "live",
            "worker_pid": 12,
            "cache": "miss",
            "stub": {"name": "trapezoid-link", "version": "1.0.0", "sha256": "ab" * 32},
            "steps": [{"name": "resolve", "ms": 3.5}, {"name": "start", "ms": 9.25}],
        }
    ],
    "traces": [{"id": "t1", "hops": [{"name": "gate out", "at_us": 120}, {"name": "stub", "at_us": 150}]}],
}
STATUS_B = {"domain": "b.example", "pid": 21, "traces": [{"id": "t1", "hops": [{"name": "gate in", "at_us": 300}]}]}
TRACED = Traced(
    trace="t1",
    speaker="runtime://a.example/rt-a",
    receiver="runtime://b.example/rt-b",
    sent_at_us=100,
    arrived_at_us=400,
)


@pytest.fixture
def nodes() -> dict[str, NodeStatus]:
    decode = msgspec.json.Decoder(NodeStatus).decode
    return {"a.example": decode(json.dumps(STATUS_A)), "b.example": decode(json.dumps(STATUS_B))}


def a_chat(scene: Scene, *, arrived: int, refused_with: str = "policy") -> GroupChat:
    """The records of a chat, without the chat."""
    ledger = Ledger()
    flow = ledger.flow("alice", "bob", "chat", crosses=True)
    for number in range(1, 4):
        flow.enter_due(number, "text", 0)
    for number in range(1, arrived + 1):
        flow.enter_arrival(number, "text", number * MS)
    answer = Answer(code=403, reason=refused_with, value=None, body={}, taken_ns=1)
    refusal = Refusal(item=scene.forbidden[0], answer=answer)
    facts = SimpleNamespace(
        ledger=ledger, refusals=[refusal], uncalled_for=[], first_contact_ns=250 * MS, traced=TRACED
    )
    return cast("GroupChat", facts)


def test_a_faultless_run_balances_and_says_ok(scene: Scene, nodes: dict[str, NodeStatus]) -> None:
    summary = summarise(a_chat(scene, arrived=3), nodes, WarmContact(taken_ns=90 * MS, link=None))
    assert summary.ok
    assert (summary.sent, summary.delivered, summary.denied, summary.lost) == (4, 3, 1, 0)
    assert (summary.first_contact_ms, summary.warm_contact_ms) == (250.0, 90.0)
    assert (summary.p50_ms, summary.p99_ms) == (2.0, 3.0)
    assert (summary.cache, summary.worker_pids, summary.node_pids) == (
        "miss",
        {"a.example": 12},
        {"a.example": 11, "b.example": 21},
    )
    assert [step.name for step in summary.steps] == ["resolve", "start"]


def test_a_loss_is_a_fault_in_words(scene: Scene, nodes: dict[str, NodeStatus]) -> None:
    summary = summarise(a_chat(scene, arrived=2), nodes, None)
    assert not summary.ok
    assert summary.lost == 1
    assert summary.faults == ("chat from alice to bob: 1 lost",)


def test_a_wrong_refusal_is_a_fault(scene: Scene, nodes: dict[str, NodeStatus]) -> None:
    summary = summarise(a_chat(scene, arrived=3, refused_with="no-route"), nodes, None)
    assert not summary.ok
    assert summary.denied == 0
    assert summary.sent == summary.delivered + summary.denied + summary.lost
    assert "expected 403 policy" in summary.faults[0]


def test_the_summary_has_the_promised_members(scene: Scene, nodes: dict[str, NodeStatus]) -> None:
    members = json.loads(msgspec.json.encode(summarise(a_chat(scene, arrived=3), nodes, None)))
    counts = {"sent", "delivered", "lost", "denied"}
    times = {"first_contact_ms", "warm_contact_ms", "p50_ms", "p99_ms", "steps"}
    assert counts | times <= set(members)


def test_hops_of_both_nodes_and_runtimes_are_in_order_of_time(nodes: dict[str, NodeStatus]) -> None:
    hops = passed_hops(TRACED, nodes)
    assert [hop.since_start_us for hop in hops] == [0, 20, 50, 200, 300]
    assert [hop.place for hop in hops][1:4] == ["a.example: gate out", "a.example: stub", "b.example: gate in"]


@pytest.mark.parametrize(("milliseconds", "text"), [(0.25, "250 µs"), (12.34, "12.3 ms"), (1500, "1.50 s")])
def test_times_are_shown_in_a_fitting_unit(milliseconds: float, text: str) -> None:
    assert shown_ms(milliseconds) == text


def test_the_report_names_processes_steps_hops_and_faults(
    scene: Scene, nodes: dict[str, NodeStatus], tmp_path: Path
) -> None:
    records = tmp_path / "a.example" / "data" / "records"
    records.mkdir(parents=True)
    (records / "1.jsonl.zst").write_bytes(b"x" * 2048)
    summary = summarise(a_chat(scene, arrived=2), nodes, None)
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    show_report(
        console,
        domains=("a.example", "b.example"),
        summary=summary,
        link=nodes["a.example"].link_to("b.example"),
        hops=passed_hops(TRACED, nodes),
        state_dir=tmp_path,
    )
    text = cast("io.StringIO", console.file).getvalue()
    for expected in ("pid 11", "pid 12", "pid 21", "resolve", "gate in", "1 lost", "a.example/data/records", "2.0"):
        assert expected in text, expected


def test_the_view_prints_steps_without_a_terminal() -> None:
    console = Console(file=io.StringIO(), width=120)
    with DemoView(console) as view:
        view.doing("something")
        view.stepped(ChatStep(title="a step", detail="in detail", taken_ms=3.0))
    text = cast("io.StringIO", console.file).getvalue()
    assert "a step in detail" in text
    assert "3.0 ms" in text
