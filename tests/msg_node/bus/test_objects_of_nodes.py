"""Policies of single objects, where who asks for an object is at another node of the domain than its owner."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from federation.links.decision_records import DecisionRecords
from federation.links.link_context import Refusal
from msg_node.wiring.session_steps import LocalGate
from policy.core.object_policies import ObjectPolicy, compile_document
from protofly.codec import decode
from protofly.errors import Code
from protofly.message import Message
from protofly.records import DecisionRecord
from tests.support.cluster_rig import cluster_rig
from tests.support.runtime_rig import FOREIGN, Runtime, RuntimeRig, a_message, code_and_reason

DOCUMENT = "hyperty-catalogue://catalogue.a.example/.well-known/policy/room"
NOT_CY = {"id": "room", "rules": [{"id": "not-cy", "effect": "deny", "condition": {"msgFrom": {"like": "*/cy*"}}}]}


class OneObject:
    """The policy of one object; `is_here` says whether its document was read."""

    def __init__(self) -> None:
        self.room = ""
        self.is_here = True
        self.policies = compile_document(json.dumps(NOT_CY), "room")

    def about(self, message: Message) -> list[ObjectPolicy]:
        if not self.room or message.to_key != self.room:
            return []
        return [ObjectPolicy(DOCUMENT, self.policies if self.is_here else None, not message.is_response)]


@asynccontextmanager
async def room_at_the_other_node(
    folder: Path,
) -> AsyncIterator[tuple[RuntimeRig, OneObject, Runtime, Runtime, Runtime]]:
    """A room of Ana's at one node, and Bo and Cy at another."""
    async with cluster_rig(folder) as (one, two):
        objects = OneObject()
        one.gate.narrow_by(objects)
        assert one.bus.from_nodes is not None
        one.bus.from_nodes.narrow_by(LocalGate(DecisionRecords(one.gate, one.records.append)))
        ana, bo, cy = await one.opened("ana"), await two.opened("bo"), await two.opened("cy")
        objects.room = await ana.allocated()
        await ana.subscribed(objects.room)
        yield one, objects, ana, bo, cy


async def test_who_is_denied_by_the_policy_of_an_object_is_denied_at_every_node(tmp_path: Path) -> None:
    async with room_at_the_other_node(tmp_path) as (one, objects, ana, bo, cy):
        room = objects.room
        refused = await cy.ask("read", room)
        assert code_and_reason(refused) == (403, "policy")
        assert refused["body"]["value"]["rule"] == f"document: {DOCUMENT} room/not-cy"
        for number in range(50):  # a flow, which goes in runs
            await cy.say(a_message("update", cy.address, room, {"value": number}))
        await bo.say(a_message("update", bo.address, room, {"value": "bo"}))
        heard = await ana.next()
        assert heard["body"]["value"] == "bo"
        found = [record for record in one.records.taken if isinstance(record, DecisionRecord)]
        assert {(record.hook, record.permitted, record.rule_id) for record in found} == {
            ("local", False, f"document: {DOCUMENT} room/not-cy")
        }


async def test_a_sender_of_another_domain_is_not_given_the_rule_that_denies_it(tmp_path: Path) -> None:
    async with room_at_the_other_node(tmp_path) as (one, objects, *_):
        gate = LocalGate(DecisionRecords(one.gate, one.records.append))
        asked = decode(json.dumps(a_message("read", f"hyperty://{FOREIGN}/cy", objects.room)).encode())[0]
        refusal = gate.narrow(asked, frozenset(), is_from_abroad=True)
        [denied] = [record for record in one.records.taken if isinstance(record, DecisionRecord)]
        assert refusal == Refusal(Code.POLICY, {"msgId": denied.msg_id})
        assert denied.rule_id == f"document: {DOCUMENT} room/not-cy"


async def test_object_whose_policy_is_not_here_yet_is_closed_to_runtimes_of_other_nodes(tmp_path: Path) -> None:
    async with room_at_the_other_node(tmp_path) as (_one, objects, ana, bo, _cy):
        objects.is_here = False
        refused = await bo.ask("read", objects.room)
        assert code_and_reason(refused) == (503, "policy-unavailable")
        objects.is_here = True
        await bo.say(a_message("update", bo.address, objects.room, {"value": 1}))
        assert (await ana.next())["body"]["value"] == 1


async def test_action_for_an_object_that_its_policy_denies_is_not_parked(tmp_path: Path) -> None:
    async with room_at_the_other_node(tmp_path) as (one, objects, ana, bo, cy):
        refused = await cy.ask("execute", objects.room, {"class": "action", "method": "ring"})
        assert code_and_reason(refused) == (403, "policy")
        assert len(one.state.delivery.parking) == 0
        await bo.say(a_message("update", bo.address, objects.room, {"value": 2}))
        assert (await ana.next())["body"]["value"] == 2
