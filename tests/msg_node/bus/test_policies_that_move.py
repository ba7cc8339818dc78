"""Policies of single objects at several nodes: they move with the session of the owner, and hold at every node."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio

from federation.links.decision_records import DecisionRecords
from federation.links.link_context import Refusal
from msg_node.bus.policies_of_nodes import PoliciesOfNodes
from msg_node.kernel.catalogue_questions import CatalogueQuestion
from msg_node.kernel.changes import Table
from msg_node.registries.core.policy_names import PolicyNameRow
from msg_node.registries.policy_documents import PolicyDocuments
from msg_node.wiring.bus import ServicesOfNodes
from msg_node.wiring.session_steps import LocalGate
from policy.core.engine import CompiledPolicies
from policy.core.object_policies import compile_document
from protofly.errors import Code, PeerError
from protofly.message import Message
from protofly.records import DecisionRecord
from tests.support.cluster_rig import cluster_rig, node_of
from tests.support.runtime_rig import DOMAIN, SESSION, SM, Runtime, RuntimeRig, a_message, code_and_reason

DOCUMENT = f"hyperty-catalogue://catalogue.{DOMAIN}/.well-known/policy/room"
TWIN = f"domain://msg-node.{DOMAIN}/twin"
NOT_CY = {"id": "room", "rules": [{"id": "not-cy", "effect": "deny", "condition": {"msgFrom": {"like": "*/cy*"}}}]}


async def read_document(question: CatalogueQuestion) -> CompiledPolicies:
    await trio.lowlevel.checkpoint()
    return compile_document(json.dumps(NOT_CY), "document")


class Documents:
    """The policies of objects at one node."""

    def __init__(self, rig: RuntimeRig) -> None:
        gate = LocalGate(DecisionRecords(rig.gate, rig.records.append))
        self.named = PolicyDocuments(rig.state, rig.state.policy_names)
        self.named.connect(lambda: rig.gate.narrow_by(self.named))

        def judge(message: Message, roles: frozenset[str]) -> Refusal | None:
            key = message.from_key.removesuffix("/subscription").removesuffix("/changes")
            sid = rig.state.owners.owner(key) or 0
            refusal = gate.judge(message, roles, sid)
            return refusal or self.named.step(message, sid, roles, "", time.time())

        rig.judge_local = judge
        assert rig.bus.from_nodes is not None
        rig.bus.from_nodes.narrow_by(gate)
        node = node_of(rig)
        cluster: Any = SimpleNamespace(
            parts=node.parts,
            directory=node.directory,
            identity=SimpleNamespace(node=node.name),
            unreachable=list,
        )
        services = ServicesOfNodes(rig.state, cluster)
        services.guard(rig.services, gate)
        services.connect(rig.bus, rig.services)
        self.of_nodes = services.policies


@dataclass
class Pair:
    """Two nodes, with policies of objects at both."""

    one: RuntimeRig
    two: RuntimeRig
    of_nodes: list[PoliciesOfNodes]

    def stored_at(self, rig: RuntimeRig) -> dict[str, PolicyNameRow]:
        rows = rig.store._rows.load().get(Table.OBJECT_POLICIES, {})
        return {key: msgspec.json.decode(row, type=PolicyNameRow) for key, row in rows.items()}

    async def closed_room(self) -> tuple[Runtime, str]:
        """A room of Ana's at the first node, whose policy is known there."""
        ana, dan = await self.one.opened("ana"), await self.one.opened("dan")
        room = await ana.allocated()
        assert code_and_reason(await ana.subscribed(room, f"{room}/subscription")) == (200, "")
        await ana.say(a_message("create", f"{room}/subscription", dan.address, {"policy": DOCUMENT}, id_=7))
        assert (await dan.next())["type"] == "create"
        return ana, room


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    async with cluster_rig(folder, kept_objects=[f"comm://{DOMAIN}/*"]) as (one, two), trio.open_nursery() as nursery:
        documents = [Documents(rig) for rig in (one, two)]
        for each in documents:
            await nursery.start(each.named.run, read_document)
        yield Pair(one, two, [each.of_nodes for each in documents])
        nursery.cancel_scope.cancel()


async def moved(ana: Runtime, two: RuntimeRig) -> Runtime:
    """Ana, who has brought her session back at the second node."""
    again = await two.runtime()
    again.address, again.token = ana.address, ana.token
    reply = await again.ask("re-open", SESSION, None, from_=again.session_address)
    assert code_and_reason(reply) == (200, "")
    return again


async def update(ana: Runtime, room: str, value: int) -> None:
    await ana.say(a_message("update", room, f"{room}/changes", {"attribute": "x", "value": value}))


async def test_the_policy_of_an_object_goes_along_with_the_session_of_its_owner(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        ana, room = await both.closed_room()
        again = await moved(ana, both.two)
        for rig in (both.one, both.two):  # whose runtimes are, by now, elsewhere and here
            cy, bo = await rig.opened(f"cy-{node_of(rig).name}"), await rig.opened(f"bo-{node_of(rig).name}")
            refused = await cy.ask("read", room)
            assert code_and_reason(refused) == (403, "policy")
            assert refused["body"]["value"]["rule"] == f"document: {DOCUMENT} room/not-cy"
            assert code_and_reason(await cy.subscribed(f"{room}/changes")) == (403, "policy")
            assert code_and_reason(await bo.subscribed(f"{room}/changes")) == (200, "")
        assert len(both.one.state.policy_names) == 0
        row = both.two.state.policy_names.find(room)
        assert row is not None
        assert (row.document, row.sid) == (DOCUMENT, both.two.state.sessions.by_runtime(again.address))
        assert both.stored_at(both.two) == {room: row}
        assert both.stored_at(both.one) == {}


async def test_a_policy_moves_back_and_ends_with_the_session(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        ana, room = await both.closed_room()
        back = await moved(await moved(ana, both.two), both.one)
        assert [len(rig.state.policy_names) for rig in (both.one, both.two)] == [1, 0]
        cy = await both.two.opened("cy")
        assert code_and_reason(await cy.ask("read", room)) == (403, "policy")
        await back.say(a_message("close", back.session_address, SESSION, None))
        assert await back.close_code() == 1000
        assert [len(rig.state.policy_names) for rig in (both.one, both.two)] == [0, 0]


async def test_whom_the_policy_of_an_object_denies_does_not_observe_it_from_another_node(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        ana, room = await both.closed_room()
        cy, bo = await both.two.opened("cy"), await both.two.opened("bo")
        refused = await cy.subscribed(f"{room}/changes")
        assert code_and_reason(refused) == (403, "policy")
        [denied] = [one for one in both.one.records.taken if isinstance(one, DecisionRecord)]
        assert refused["body"]["value"] == {"msgId": denied.msg_id}
        assert DOCUMENT in refused["body"]["description"]
        for body in (
            {"resource": room, "childrenResources": ["x"]},
            {"resources": [f"comm://{DOMAIN}/other", f"{room}/children/x"]},
            {"subscribe": [room.replace("comm", "COMM")]},
        ):
            assert code_and_reason(await cy.ask("subscribe", SM, body)) == (403, "policy")
        assert code_and_reason(await bo.subscribed(f"{room}/changes")) == (200, "")
        await update(ana, room, 1)
        assert [one["body"]["value"] for one in await bo.heard()] == [1]
        assert await cy.heard() == []


async def test_the_twin_of_an_object_is_read_at_another_node_by_those_whom_its_policy_lets(tmp_path: Path) -> None:
    async with pair(tmp_path) as both:
        ana, room = await both.closed_room()
        await update(ana, room, 5)
        for rig in (both.one, both.two):
            cy, bo = await rig.opened(f"cy-{node_of(rig).name}"), await rig.opened(f"bo-{node_of(rig).name}")
            assert code_and_reason(await cy.ask("read", TWIN, {"resource": room})) == (403, "policy")
            read = (await bo.ask("read", TWIN, {"resource": room}))["body"]
            assert read["value"]["values"]["x"]["value"] == 5


async def test_while_the_node_of_an_object_cannot_be_asked_nobody_elsewhere_begins_to_observe_it(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as both:
        _ana, room = await both.closed_room()
        bo = await both.two.opened("bo")
        node_of(both.one).bus.cut("n2")
        refused = await bo.subscribed(f"{room}/changes")
        assert code_and_reason(refused) == (503, "policy-unavailable")
        assert code_and_reason(await bo.ask("read", SM, {"resource": room})) == (200, "")
        assert code_and_reason(await bo.ask("unsubscribe", SM, {"resource": room})) == (200, "")
        assert code_and_reason(await bo.subscribed(f"comm://{DOMAIN}/nobodys/changes")) == (200, "")


@pytest.mark.parametrize("text", [b"", b"{", b'{"message":"!"}', b'{"message":"e30="}', b"[" * 40_000])
async def test_a_question_that_cannot_be_read_is_a_broken_protocol(tmp_path: Path, text: bytes) -> None:
    async with pair(tmp_path) as both:
        with pytest.raises(PeerError) as caught:
            both.of_nodes[0]._answer(text)
        assert caught.value.code is Code.PROTOCOL_ERROR
