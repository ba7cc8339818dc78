"""The link to another domain is at one node of ours: the others send through it, and it moves only when it is down."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio

from federation.link_context import Refusal
from msg_node.bus.cluster_links import MORE_SECONDS
from protofly.errors import Code, PeerError
from protofly.limits import REQUEST_TTL_SECONDS
from tests.support.cluster_rig import cluster_rig, node_of
from tests.support.runtime_rig import (
    FOREIGN,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_address,
)

ZOE = f"runtime://{FOREIGN}/zoe"


async def sent_by(rig: RuntimeRig, count: int) -> list[int]:
    """The numbers in the messages that a node has sent over its links, once there are so many."""
    with trio.fail_after(10):
        while len(rig.domains.sent) < count:  # noqa: ASYNC110
            await trio.sleep(0.01)
    return [one["body"]["n"] for one in rig.domains.take()]


async def say_from(runtime: Runtime, numbers: range) -> None:
    for number in numbers:
        await runtime.say(a_message("message", runtime.address, ZOE, {"n": number}))


async def test_the_first_node_that_needs_a_link_has_it_and_the_others_send_through_it(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        await say_from(bo, range(20))
        assert await sent_by(two, 20) == list(range(20))
        await say_from(ana, range(20))
        assert await sent_by(two, 20) == list(range(20))
        assert one.domains.sent == []

        # What the link refuses is answered where its sender is.
        two.domains.refusals[FOREIGN] = Refusal(Code.OVERLOAD)
        assert code_and_reason(await ana.ask("read", ZOE)) == (503, "overload")
        two.domains.refusals.clear()

        # A domain that our policy does not talk to is not looked for.
        one.domains.refusals["barred.example"] = Refusal(Code.DOMAIN_BLOCKED)
        assert code_and_reason(await ana.ask("read", "runtime://barred.example/x")) == (403, "domain-blocked")
        assert node_of(one).places.known() == {FOREIGN: "n2"}


async def test_a_connection_takes_a_link_that_is_down_elsewhere_and_none_that_is_up(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        await say_from(bo, range(1))
        await sent_by(two, 1)
        with pytest.raises(PeerError) as refused:
            await node_of(one).places.take(FOREIGN)
        assert refused.value.code is Code.LINK_ELSEWHERE

        two.domains.away.add(FOREIGN)
        assert await node_of(one).places.take(FOREIGN) == {"f" * 32: 7}
        assert two.domains.given_away == [FOREIGN]
        assert await node_of(one).places.take(FOREIGN) == {}
        await say_from(bo, range(5))
        await say_from(ana, range(5, 6))
        assert sorted(await sent_by(one, 6)) == list(range(6))
        assert two.domains.sent == []


async def test_the_link_of_a_node_that_has_died_is_claimed_by_who_needs_it(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        await say_from(bo, range(1))
        await sent_by(two, 1)
        await say_from(ana, range(1))
        await sent_by(two, 1)
        node_of(two).bus.leave()
        assert code_and_reason(await ana.ask("read", ZOE)) == (503, "not-connected")
        node_of(one).dead.add("n2")
        with trio.fail_after(10):
            while not one.domains.sent:
                await say_from(ana, range(7, 8))
                await trio.sleep(0.05)
        assert node_of(one).directory.claims[f"link {FOREIGN}"].node == "n1"


async def test_a_request_that_a_node_took_along_when_it_died_is_answered_once_and_others_not_again(
    tmp_path: Path,
) -> None:
    async with cluster_rig(tmp_path) as (one, two):
        ana, bo = await one.opened("ana"), await two.opened("bo")
        await say_from(bo, range(1))
        await sent_by(two, 1)
        await ana.say(a_message("read", ana.address, ZOE, {"n": 1}, id_=41))
        await ana.say(a_message("read", ana.address, ZOE, {"n": 2}, id_=42))
        await sent_by(two, 2)
        reply = parsed(a_message("response", ZOE, ana.address, {"code": 200}, id_=42))
        two.bus.from_links.take(FOREIGN, [reply])
        assert (await ana.next())["id"] == 42
        links = node_of(one).links
        links.clock = lambda: time.monotonic() + REQUEST_TTL_SECONDS + MORE_SECONDS
        late = await ana.next()
        assert (late["id"], code_and_reason(late)) == (41, (504, "timeout"))
        assert code_and_reason(await ana.ask("read", runtime_address("nobody"))) == (
            404,
            "no-route",
        )  # and nothing else


async def test_nodes_that_need_a_link_at_the_same_time_agree(tmp_path: Path) -> None:
    async with cluster_rig(tmp_path, ("n1", "n2", "n3")) as rigs:
        people = [await rig.opened(f"bo{number}") for number, rig in enumerate(rigs)]
        async with trio.open_nursery() as nursery:
            for one in people:
                nursery.start_soon(say_from, one, range(10))
        with trio.fail_after(10):
            while sum(len(rig.domains.sent) for rig in rigs) < 30:  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert sorted(len(rig.domains.sent) for rig in rigs) == [0, 0, 30]
