"""Replies that come after the final answer: for those who asked for them, marked, over every binding.

Source: message specification, section 3, rule 3.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protofly.errors import Code
from protofly.late_replies import marked_late
from protofly.message import Message
from tests.support.bindings import BoundRuntime, MakeRuntime
from tests.support.runtime_rig import DOMAIN, FOREIGN, SESSION, Json, RuntimeRig, a_message, parsed, runtime_rig

FAR = f"hyperty://{FOREIGN}/h-bo"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path, returns_by_address=True) as made:
        yield made


def a_reply(to: str, body: Json | None = None, *, id_: object = 7) -> Json:
    return a_message("response", FAR, to, {"code": 200} if body is None else body, id_=id_)


def late(rig: RuntimeRig, *replies: Json) -> list[Code | None]:
    """What a link brings when it knows that it comes too late."""
    return rig.bus.from_links.take(FOREIGN, [marked_late(parsed(one)) for one in replies])


async def bodies(runtime: BoundRuntime) -> list[Json]:
    return [message["body"] for message in await runtime.heard()]


async def test_a_late_reply_comes_marked_to_who_asked_for_such_and_to_nobody_else(
    rig: RuntimeRig, make: MakeRuntime
) -> None:
    ana, bob = await make("ana", {"late": True}), await make("bob")
    assert late(rig, a_reply(ana.address), a_reply(bob.address)) == [None, Code.GATEWAY_TIMEOUT]
    rig.bus.from_links.take(FOREIGN, [parsed(a_reply(one.address, {"code": 200, "value": 1})) for one in (ana, bob)])
    in_time = {"code": 200, "value": 1}
    assert await bodies(ana) == [{"code": 200, "late": True}, in_time]
    assert await bodies(bob) == [in_time]
    assert (rig.counters["late replies"], rig.counters["late replies kept back"]) == (1, 1)


async def test_the_wish_outlives_the_connection(rig: RuntimeRig, make: MakeRuntime) -> None:
    ana, bob = await make("ana", {"late": True}), await make("bob")
    for one in (ana, bob):
        one.wishes = None
        await one.lose()
        assert late(rig, a_reply(one.address)) == [Code.GATEWAY_TIMEOUT]  # nobody is there: it is not kept
        await one.begin()
    late(rig, a_reply(ana.address), a_reply(bob.address))
    has_re_open = rig.port_of("ana").line.dialect.has_token  # a second `open` says anew what it wants
    assert await bodies(ana) == ([{"code": 200, "late": True}] if has_re_open else [])
    assert await bodies(bob) == []


async def test_a_wish_that_is_neither_true_nor_false_is_refused(rig: RuntimeRig) -> None:
    runtime = await rig.runtime()
    for wish in ("yes", 1, ["true"]):
        reply = await runtime.open("ana", {"late": wish})
        assert (reply["body"]["code"], reply["body"]["reason"]) == (400, "bad-body")
    assert (await runtime.open("ana", {"late": None}))["body"]["code"] == 200


async def test_open_and_re_open_say_what_holds_and_re_open_may_change_it(rig: RuntimeRig) -> None:
    first = await rig.runtime()
    opened = await first.open("ana", {"late": True})
    assert opened["body"]["session"]["late"] is True
    steps: list[tuple[Json, bool]] = [({}, True), ({"late": False}, False), ({}, False), ({"late": True}, True)]
    for wish, holds in steps:
        again = await rig.runtime()
        again.address, again.token = first.address, first.token
        reply = await again.ask("re-open", SESSION, wish, from_=first.session_address)
        assert (reply["body"]["code"], reply["body"]["session"].get("late", False)) == (200, holds)
        assert late(rig, a_reply(first.address)) == [None if holds else Code.GATEWAY_TIMEOUT]


async def test_a_mark_of_the_far_end_decides_nothing(rig: RuntimeRig) -> None:
    """The member may be an application's own: what counts is what this node knows."""
    bob = await rig.opened("bob")
    rig.bus.from_links.take(FOREIGN, [parsed(a_reply(bob.address, {"code": 200, "late": True}))])
    assert [one["body"]["late"] for one in await bob.heard()] == [True]
    for lie in (b'"late":false', b'"l\\u0061te":false', b'"late":false,"late":null', b'"late":"later"'):
        raw = b'{"code":200,%s}' % lie
        marked = marked_late(Message(b"7", "response", FAR, bob.address, raw, b'{"id":7,"body":%s}' % raw))
        assert (marked.body.count(b'"late"'), marked.is_late) == (1, True)
        assert json.loads(marked.raw)["body"] == {"code": 200, "late": True}


async def test_of_several_listeners_those_who_asked_get_it(rig: RuntimeRig) -> None:
    ana, bob = await rig.runtime(), await rig.runtime()
    await ana.open("ana", {"late": True})
    await bob.open("bob")
    sids = [rig.state.sessions.by_runtime(one.address) or 0 for one in (ana, bob)]
    reply = marked_late(parsed(a_reply(f"comm://{DOMAIN}/shared")))
    assert rig.bus.send_queues.to_listeners(tuple(sids), reply, set()) is None
    rig.bus.send_queues.wake()
    assert [one["body"]["late"] for one in await ana.heard()] == [True]
    assert await bob.heard() == []


async def test_the_wish_survives_a_restart_of_the_node(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        ana = await rig.runtime()
        await ana.open("ana", {"late": True})
        address, token = ana.address, ana.token
    async with runtime_rig(tmp_path) as rig:
        again = await rig.runtime()
        again.address, again.token = address, token
        reply = await again.ask("re-open", SESSION, from_=f"{address}/{token}")
        assert reply["body"]["session"]["late"] is True
        assert late(rig, a_reply(address)) == [None]


async def test_a_late_reply_to_another_domain_goes_on_marked(rig: RuntimeRig) -> None:
    """Their node knows who of theirs wants it."""
    bob = await rig.opened("bob")
    reply = marked_late(parsed(a_message("response", bob.address, FAR, {"code": 200}, id_=7)))
    rig.bus.refusals.own.send(reply)
    [gone] = rig.domains.take()
    assert gone["body"] == {"code": 200, "late": True}
