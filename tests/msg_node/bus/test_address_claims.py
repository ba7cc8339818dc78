"""Claims while they are under way: nobody is found by one, and of one that is lost its runtime alone pays."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from msg_node.bus.core.moved_session import move_out
from msg_node.cluster.directory import NO_CLAIMS, Claim, MemoryDirectory
from msg_node.kernel.counts import NodeCount
from tests.support.cluster_rig import cluster_rig, node_of
from tests.support.runtime_rig import ALLOCATION, SM, Json, Runtime, RuntimeRig, a_message, code_and_reason

THING = "comm://alpha.example/contested"


class Held(MemoryDirectory):
    """A directory that answers claims and look-ups one after the other, when it may."""

    may_answer: trio.Event
    is_asked: trio.Event
    turn: trio.Lock
    frees_after_first = ""

    async def claim(
        self, keys: Collection[str], replaced: Mapping[str, Claim] = NO_CLAIMS, **more: Any
    ) -> dict[str, Claim]:
        async with self.turn:
            self.is_asked.set()
            await self.may_answer.wait()
            owners = await super().claim(keys, replaced, **more)
            if self.frees_after_first:
                for other in self._others:
                    await MemoryDirectory.release(other, [self.frees_after_first])
                self.frees_after_first = ""
            return owners

    async def find(self, keys: Collection[str]) -> dict[str, Claim]:
        async with self.turn:
            return await super().find(keys)


def held(rig: RuntimeRig) -> Held:
    directory = node_of(rig).directory
    directory.__class__ = Held
    assert isinstance(directory, Held)
    directory.may_answer, directory.is_asked, directory.turn = trio.Event(), trio.Event(), trio.Lock()
    return directory


def claiming(runtime: Runtime, *addresses: str, id_: int = 1) -> Json:
    return a_message("subscribe", runtime.address, SM, {"resources": addresses, "source": runtime.address}, id_=id_)


async def released(runtime: Runtime, address: str) -> None:
    reply = await runtime.ask("delete", ALLOCATION, {"childrenResources": [address]})
    assert reply["body"]["code"] == 200, reply


async def next_of(runtime: Runtime, type_: str) -> Json:
    while (message := await runtime.next()).get("type") != type_:
        pass
    return message


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_request_by_a_stale_place_waits_until_the_claim_there_is_decided(
    tmp_path: Path, *, is_lost: bool
) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three):
        ana, bo, cy = await one.opened("ana"), await two.opened("bo"), await three.opened("cy")
        assert (await bo.subscribed(THING))["body"]["code"] == 200
        await ana.say(a_message("message", ana.address, THING, {"n": 1}))
        await next_of(bo, "message")
        node_of(one).directory.on_ended = lambda _: None  # the notice that bo lets it go is late
        await released(bo, THING)
        if is_lost:
            assert (await cy.subscribed(THING))["body"]["code"] == 200
        directory = held(two)
        await bo.say(claiming(bo, THING))
        await directory.is_asked.wait()
        await ana.say(a_message("read", ana.address, THING, {}, id_=7))
        await ana.heard()
        assert await bo.heard() == [], "it has claimed the address, and may be refused"
        directory.may_answer.set()
        owner = cy if is_lost else bo
        assert (await next_of(owner, "read"))["id"] == 7
        answer = await next_of(bo, "response") if is_lost else None
        assert answer is None or answer["body"]["code"] == 409


async def test_a_place_whose_claim_ended_while_it_was_looked_up_is_not_remembered(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as (one, two, three):
        ana, bo, cy = await one.opened("ana"), await two.opened("bo"), await three.opened("cy")
        assert (await bo.subscribed(THING))["body"]["code"] == 200
        directory, is_read, may_answer = node_of(one).directory, trio.Event(), trio.Event()
        find = directory.find

        async def read_and_answer_late(keys: Collection[str]) -> dict[str, Claim]:
            found = await find(keys)
            is_read.set()
            await may_answer.wait()
            return found

        directory.find = read_and_answer_late  # type: ignore[method-assign]
        await ana.say(a_message("message", ana.address, THING, {"n": 1}))
        await is_read.wait()
        await released(bo, THING)
        assert (await cy.subscribed(THING))["body"]["code"] == 200
        may_answer.set()
        assert (await next_of(cy, "message"))["body"] == {"n": 1}, "the former owner's node passes it on"
        assert node_of(one).parts.routing.place(THING) is None
        await ana.say(a_message("message", ana.address, THING, {"n": 2}))
        assert (await next_of(cy, "message"))["body"] == {"n": 2}
        assert node_of(one).parts.routing.look_ups == 2


async def test_a_claim_that_is_let_go_in_the_same_write_is_refused_when_another_node_has_the_address(
    tmp_path: Path,
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        assert (await ana.subscribed(THING))["body"]["code"] == 200
        directory = held(two)
        await bo.say(claiming(bo, "comm://alpha.example/free"))
        await directory.is_asked.wait()
        await bo.say(claiming(bo, THING, id_=2))
        await bo.say(a_message("delete", bo.address, ALLOCATION, {"childrenResources": [THING]}, id_=3))
        assert await bo.heard() == []
        directory.may_answer.set()
        answers = {reply["id"]: reply["body"]["code"] for reply in [await bo.next() for _ in range(3)]}
        assert answers == {1: 200, 2: 409, 3: 409}
        await bo.say(a_message("message", bo.address, THING, {"n": 1}))
        assert (await next_of(ana, "message"))["body"] == {"n": 1}
        assert THING not in two.state.owners.pending


async def test_a_lost_claim_costs_its_runtime_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    inbox = "domain://msg-node.alpha.example/inbox"
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo, eve = await one.opened("ana"), await two.opened("bo"), await two.opened("eve")
        assert (await ana.subscribed(THING))["body"]["code"] == 200
        directory = held(two)
        await bo.say(claiming(bo, THING))
        await directory.is_asked.wait()
        await bo.say(claiming(bo, THING, id_=2))
        await eve.say(a_message("read", eve.address, inbox, {}, id_=1))
        await eve.say(claiming(eve, "comm://alpha.example/other", id_=2))
        await bo.heard()
        assert await eve.heard() == []
        directory.may_answer.set()
        of_bo = {reply["id"]: code_and_reason(reply) for reply in [await bo.next() for _ in range(2)]}
        assert of_bo == {1: (409, "address-taken"), 2: (503, "state-unavailable")}
        of_eve = {reply["id"]: reply["body"]["code"] for reply in [await eve.next() for _ in range(2)]}
        assert of_eve == {1: 200, 2: 200}
        assert two.bus.counters[NodeCount.STORAGE_FAILURES] == 0
        assert [one for one in caplog.records if one.levelname == "ERROR"] == []


async def test_an_address_that_is_claimed_by_a_neighbour_while_a_claim_is_lost_is_the_neighbours(
    tmp_path: Path,
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo, eve = await one.opened("ana"), await two.opened("bo"), await two.opened("eve")
        assert (await ana.subscribed(THING))["body"]["code"] == 200
        directory = held(two)
        await bo.say(claiming(bo, THING))
        await directory.is_asked.wait()
        await bo.say(a_message("delete", bo.address, ALLOCATION, {"childrenResources": [THING]}, id_=2))
        await bo.heard()
        await eve.say(claiming(eve, THING))
        await eve.heard()
        let_go: list[str] = []
        two_lost = node_of(two).claims.on_lost

        def lost(keys: Sequence[str]) -> None:
            let_go.extend(keys)
            two_lost(keys)

        node_of(two).claims.on_lost = lost
        directory.frees_after_first = THING
        directory.may_answer.set()
        assert code_and_reason(await next_of(bo, "response"))[0] == 409
        assert (await next_of(eve, "response"))["body"]["code"] == 200
        assert let_go == []
        await ana.say(a_message("message", ana.address, THING, {"n": 1}))
        assert (await next_of(eve, "message"))["body"] == {"n": 1}


async def test_an_address_that_somebody_has_claimed_since_does_not_come_back_with_the_session_of_a_dead_node(
    tmp_path: Path,
) -> None:
    other = "comm://alpha.example/other"
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        assert (await bo.subscribed(THING, other))["body"]["code"] == 200
        session = two.state.sessions.get(two.state.sessions.by_runtime(bo.address) or 0)
        assert session is not None
        node_of(one).stored[bo.address] = move_out(two.state, session)
        await node_of(two).directory.release([THING])  # the node died before its rows said so, too
        node_of(two).bus.leave()
        node_of(one).dead.add("n2")
        assert (await ana.subscribed(THING))["body"]["code"] == 200
        back = await one.runtime()
        back.address = bo.address
        reply = await back.ask("re-open", "mn:/session", None, from_=bo.session_address)
        assert reply["body"]["code"] == 200, reply
        owned = await back.ask("read", ALLOCATION, {})
        assert [row["url"] for row in owned["body"]["value"]["resources"]] == [other]
        await released(back, THING)
        await back.say(a_message("message", back.address, THING, {"n": 1}))
        assert (await next_of(ana, "message"))["body"] == {"n": 1}
        await released(ana, THING)
        for runtime in (ana, back):
            assert code_and_reason(await runtime.ask("read", THING)) == (404, "no-route")
