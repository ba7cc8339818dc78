"""What rules want beside their decisions, on a bus: events for operators, and copies of messages in quarantine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio

from federation.links.decision_records import DecisionRecords
from msg_node.bus.policy_duties import PolicyDuties
from msg_node.kernel.counts import NodeCount
from msg_node.records.quarantine import Quarantine
from msg_node.wiring.session_steps import LocalGate
from policy.core.gate import Gate, PeerRule
from policy.core.model import Facts
from policy.core.text import PolicyText, load_policies
from protofly.limits import NOTICES_PER_SOURCE, QUARANTINE_WAITING
from tests.support.policies import a_message as own_message
from tests.support.policies import some_facts
from tests.support.runtime_rig import DOMAIN, FOREIGN, RuntimeRig, runtime_rig

NODE = f"runtime://{DOMAIN}/mn-1"


def gate_with(obligations: str, *, effect: str = "deny") -> Gate:
    condition = '{ actionType = { in = ["delete", "event"] } }'
    text = f'id = "s"\n[[rules]]\nid = "r"\neffect = "{effect}"\ncondition = {condition}\nobligations = {obligations}\n'
    return Gate(load_policies([PolicyText("p.toml", text, "toml")]), {"*": PeerRule()})


def duties_of(folder: Path, gate: Gate) -> PolicyDuties:
    return PolicyDuties(NODE, {DOMAIN}, Quarantine(folder / "quarantine", gate.names))


@asynccontextmanager
async def watched(folder: Path, obligations: str) -> AsyncIterator[tuple[RuntimeRig, PolicyDuties]]:
    gate = gate_with(obligations.replace("OPS", f"hyperty://{DOMAIN}/ops"))
    async with runtime_rig(folder, gate=gate) as rig:
        duties = duties_of(folder, gate)
        rig.judge_local = LocalGate(DecisionRecords(gate, rig.records.append, carry_out=duties.take)).judge
        async with trio.open_nursery() as nursery:
            await nursery.start(duties.run, rig.bus.effects.publish_events)
            yield rig, duties
            nursery.cancel_scope.cancel()


def judge(gate: Gate, duties: PolicyDuties, facts: Facts) -> None:
    DecisionRecords(gate, lambda _record: None, carry_out=duties.take).judge(facts, group="g", source="s")


def copies(folder: Path) -> dict[str, int]:
    return {place.name: len(list(place.iterdir())) for place in sorted((folder / "quarantine" / "rules").glob("*"))}


async def test_a_listener_of_an_address_hears_of_decisions_with_rule_and_header_and_without_the_body(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path, '{ notify = "OPS" }') as (rig, duties):
        ana, ops = await rig.opened("ana"), await rig.opened("ops")
        from_, to = await ana.allocated(), f"hyperty://{DOMAIN}/ops"
        await ops.subscribed(to)
        refused = await ana.ask("delete", to, {"value": "secret"}, from_=from_)
        assert refused["body"]["code"] == 403
        notice = await ops.next()
        value = notice["body"]["value"]
        assert (notice["type"], notice["from"], notice["to"]) == ("event", rig.bus.options.node, to)
        assert (value["rule"], value["decision"], value["hook"], value["type"]) == ("s/r", "deny", "local", "delete")
        assert (value["from"], value["to"], value["linkDomain"]) == (from_, to, "")
        assert (value["id"], "secret" in json.dumps(notice)) == (refused["id"], False)
        assert duties.counters[NodeCount.NOTICES] == 1
        assert await ops.heard() == []  # the event is of a type that the rule denies, and caused no other


async def test_a_copy_is_kept_with_what_was_decided(tmp_path: Path) -> None:
    async with watched(tmp_path, "{ quarantine = true }") as (rig, duties):
        ana = await rig.opened("ana")
        from_ = await ana.allocated()
        await ana.ask("delete", from_, {"value": "evidence"}, from_=from_)
        folder = tmp_path / "quarantine" / "rules" / "local"
        with trio.fail_after(5):
            while not duties.counters[NodeCount.COPIES]:
                await trio.lowlevel.checkpoint()
        (path,) = folder.iterdir()
        kept = json.loads(path.read_bytes())
        assert (kept["rule"], kept["permitted"], kept["message"]["body"]["value"]) == ("s/r", False, "evidence")
        assert folder.stat().st_mode & 0o077 == 0


async def test_copies_that_wait_when_the_node_stops_are_written(tmp_path: Path) -> None:
    gate = gate_with("{ quarantine = true }")
    duties = duties_of(tmp_path, gate)
    judge(gate, duties, some_facts(own_message(type_="delete"), hook="local"))
    with trio.CancelScope() as scope:
        scope.cancel()
        await duties.run(lambda _events: None)
    assert copies(tmp_path) == {"local": 1}
    assert duties.counters[NodeCount.COPIES] == 1


async def test_a_full_disk_costs_the_copy_and_is_counted(tmp_path: Path) -> None:
    (tmp_path / "quarantine").write_text("no folder")
    gate = gate_with("{ quarantine = true }")
    duties = duties_of(tmp_path, gate)
    judge(gate, duties, some_facts(own_message(type_="delete"), hook="local"))
    with trio.CancelScope() as scope:
        scope.cancel()
        await duties.run(lambda _events: None)
    assert (duties.counters[NodeCount.COPIES], duties.counters[NodeCount.COPIES_LEFT_OUT]) == (0, 1)


def test_one_who_floods_leaves_room_for_notices_about_others_and_the_next_one_says_how_many_were_left_out(
    tmp_path: Path,
) -> None:
    gate = gate_with(f'{{ notify = "hyperty://{DOMAIN}/ops" }}')
    duties = duties_of(tmp_path, gate)
    flood = some_facts(
        own_message(type_="delete", from_=f"hyperty://{FOREIGN}/x", to=f"hyperty://{DOMAIN}/y"), hook="in"
    )
    for _ in range(NOTICES_PER_SOURCE + 7):
        judge(gate, duties, flood)
    assert duties.counters == {NodeCount.NOTICES: NOTICES_PER_SOURCE, NodeCount.NOTICES_LEFT_OUT: 7}
    judge(gate, duties, some_facts(own_message(type_="delete"), hook="local"))
    assert duties.counters[NodeCount.NOTICES] == NOTICES_PER_SOURCE + 1


def test_an_address_of_another_domain_is_sent_nothing(tmp_path: Path) -> None:
    gate = gate_with(f'{{ notify = "hyperty://{FOREIGN}/ops" }}')
    duties = duties_of(tmp_path, gate)
    judge(gate, duties, some_facts(own_message(type_="delete"), hook="local"))
    assert duties.counters == {NodeCount.NOTICES_LEFT_OUT: 1}


def test_what_waits_to_be_written_has_a_bound_for_each_source(tmp_path: Path) -> None:
    gate = gate_with("{ quarantine = true }")
    duties = duties_of(tmp_path, gate)
    message = own_message(type_="delete", from_=f"hyperty://{FOREIGN}/x", to=f"hyperty://{DOMAIN}/y")
    for _ in range(QUARANTINE_WAITING + 3):
        judge(gate, duties, some_facts(message, hook="in"))
    judge(gate, duties, some_facts(own_message(type_="delete"), hook="local"))
    assert duties.counters == {NodeCount.COPIES_LEFT_OUT: 3}
