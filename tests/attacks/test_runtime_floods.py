"""Runtimes that ask for as much as they can get reach a bound with a name, and the others do not notice."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from msg_node.bus import session_traffic
from protofly.limits import (
    ALLOCATION_NUMBER,
    ALLOCATION_PER_SESSION,
    REQUEST_PARTS,
    RESOURCES_ENTRIES,
    SUBSCRIPTIONS_PER_SESSION,
    UNPROVED_OPENS,
)
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    FOREIGN,
    FOREIGN_SM,
    SESSION,
    SM,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    runtime_address,
    runtime_rig,
)

CONNECTIONS = 200


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


async def check_served(rig: RuntimeRig, bo: Runtime, cleo: Runtime) -> None:
    """Two who were there before talk, allocate and listen as if nothing had happened."""
    room = await bo.allocated()
    assert code_and_reason(await cleo.subscribed(f"{room}/changes")) == (200, "")
    await bo.say(*(a_message("update", room, f"{room}/changes", {"value": number}) for number in range(50)))
    await bo.heard()
    assert [one["body"]["value"] for one in await cleo.heard()] == list(range(50))
    assert rig.listener is not None
    assert rig.listener.counters["internal errors"] == 0


def rooms(number: int, domain: str = DOMAIN, *, first: int = 0) -> list[str]:
    return [f"comm://{domain}/room-{one}/changes" for one in range(first, first + number)]


@pytest.mark.parametrize(("to", "domain"), [(SM, DOMAIN), (SM, FOREIGN), (FOREIGN_SM, FOREIGN)])
async def test_a_request_for_ten_thousand_resources_is_refused_whole(rig: RuntimeRig, to: str, domain: str) -> None:
    eve, bo, cleo = [await rig.opened(name) for name in ("eve", "bo", "cleo")]
    reply = await eve.subscribed(*rooms(10_000, domain), to=to)
    assert code_and_reason(reply) == (413, "too-large")
    assert (await eve.ask("read", SM))["body"]["value"] == {"resources": []}
    assert rig.domains.take() == []
    assert rig.state.owners.count(rig.port_of("eve").sid or 0) == 0
    await check_served(rig, bo, cleo)


@pytest.mark.parametrize("part", ["[]", '{"name":[]}'])
async def test_a_body_of_very_many_parts_is_refused_before_they_are_made(rig: RuntimeRig, part: str) -> None:
    eve, bo, cleo = [await rig.opened(name) for name in ("eve", "bo", "cleo")]
    parts = ",".join([part] * REQUEST_PARTS)
    for to, type_ in ((SM, "subscribe"), (FOREIGN_SM, "subscribe"), (ALLOCATION, "delete"), (SESSION, "open")):
        text = f'{{"id":1,"type":"{type_}","from":"{eve.address}","to":"{to}","body":{{"resources":[{parts}]}}}}'
        await eve.say_raw(text.encode())
        assert code_and_reason(await eve.next()) == (413, "too-large")
    await check_served(rig, bo, cleo)


async def test_a_message_to_ten_thousand_is_refused_whole(rig: RuntimeRig) -> None:
    eve, bo, cleo = [await rig.opened(name) for name in ("eve", "bo", "cleo")]
    message = a_message("event", eve.address, "", {"value": 1}, id_=1)
    await eve.say({**message, "to": [bo.address, *(runtime_address(f"x{number}") for number in range(10_000))]})
    (answer,) = await eve.heard()
    assert code_and_reason(answer) == (400, "bad-header")
    assert await bo.heard() == []
    await check_served(rig, bo, cleo)


@pytest.mark.long
async def test_a_session_listens_to_so_much_and_no_more(rig: RuntimeRig) -> None:
    eve, bo, cleo = [await rig.opened(name) for name in ("eve", "bo", "cleo")]
    for first in range(0, SUBSCRIPTIONS_PER_SESSION, RESOURCES_ENTRIES):
        assert code_and_reason(await eve.subscribed(*rooms(RESOURCES_ENTRIES, first=first))) == (200, "")
    reply = await eve.subscribed(*rooms(1, first=SUBSCRIPTIONS_PER_SESSION))
    assert code_and_reason(reply) == (429, "quota")
    assert len((await eve.ask("read", SM))["body"]["value"]["resources"]) == SUBSCRIPTIONS_PER_SESSION
    await check_served(rig, bo, cleo)
    assert (await eve.ask("unsubscribe", SM, {"resources": rooms(1)}))["body"]["code"] == 200
    assert code_and_reason(await eve.subscribed(*rooms(1, first=SUBSCRIPTIONS_PER_SESSION))) == (200, "")


@pytest.mark.long
async def test_others_have_their_turn_between_dear_requests_of_one_read(
    rig: RuntimeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_traffic, "TURN_SECONDS", 0.0)  # every request is a dear one
    eve = await rig.opened("eve")
    turns: list[int] = []

    async def look_on() -> None:
        while True:
            turns.append(rig.counters["frames in"])
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look_on)
        await eve.say(*(a_message("read", eve.address, SM, id_=number) for number in range(20)))
        assert [(await eve.next())["id"] for _ in range(20)] == list(range(20))
        nursery.cancel_scope.cancel()
    assert max(after - before for before, after in pairwise(turns)) <= 2  # one before it, one behind it


async def test_who_asks_for_more_than_it_reads_is_closed_once_and_asked_nothing_more(rig: RuntimeRig) -> None:
    eve, bo, cleo = [await rig.opened(name) for name in ("eve", "bo", "cleo")]
    for first in range(0, SUBSCRIPTIONS_PER_SESSION, RESOURCES_ENTRIES):
        await eve.ask("subscribe", SM, {"resources": rooms(RESOURCES_ENTRIES, first=first)})
    taken = rig.counters["frames in"]
    await eve.say(*[a_message("read", eve.address, SM, id_=1)] * 300)  # a megabyte each
    await rig.until("stuck runtimes")
    await check_served(rig, bo, cleo)
    assert rig.counters["stuck runtimes"] == 1
    assert rig.counters["frames in"] < taken + 200


async def test_a_flood_of_allocations_ends_at_the_quota_and_gives_all_back(rig: RuntimeRig) -> None:
    eve, bo, cleo = [await rig.opened(name) for name in ("eve", "bo", "cleo")]
    blocks = ALLOCATION_PER_SESSION // ALLOCATION_NUMBER
    body = {"scheme": "comm", "value": {"number": ALLOCATION_NUMBER}}
    flood = [a_message("create", eve.address, ALLOCATION, body, id_=number) for number in range(1, blocks + 21)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(eve.say, *flood)
        replies = [await eve.next() for _ in flood]
    replies.sort(key=lambda one: int(one["id"]))  # refusals need not wait for the disk
    assert [one["id"] for one in replies] == list(range(1, blocks + 21))
    assert [code_and_reason(one) for one in replies[:blocks]] == [(200, "")] * blocks
    assert [code_and_reason(one) for one in replies[blocks:]] == [(429, "quota")] * 20
    given = [address for one in replies[:blocks] for address in one["body"]["value"]["allocated"]]
    assert len(set(given)) == ALLOCATION_PER_SESSION
    await check_served(rig, bo, cleo)
    await eve.say(a_message("close", eve.address, SESSION))
    await eve.close_code()
    assert rig.state.owners.owner(given[0]) is None
    assert rig.state.owners.owner(given[-1]) is None


async def test_a_thousand_attempts_at_a_live_runtime_leave_it_where_it_is(rig: RuntimeRig) -> None:
    ana, bo = await rig.opened("ana"), await rig.opened("bo")
    address = await ana.allocated()
    opening = json.dumps(a_message("open", ana.address, SESSION, id_=1)).encode()
    for _ in range(CONNECTIONS):
        eve = await rig.runtime()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(eve.say_raw, *[opening] * UNPROVED_OPENS)
            replies = [await eve.next() for _ in range(UNPROVED_OPENS)]
        assert {code_and_reason(one) for one in replies} == {(409, "address-taken")}
        assert ana.token not in str(replies)
        await eve.wire.cut()
    assert rig.counters["sessions refused"] == CONNECTIONS * UNPROVED_OPENS
    assert await ana.heard() == []
    assert rig.state.owners.owner(address) == rig.port_of("ana").sid
    assert rig.bus.runtimes.live_sessions == 2
    await check_served(rig, ana, bo)


async def test_sessions_beyond_the_bound_are_refused_and_those_below_it_go_on(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, max_sessions=20) as rig:
        crowd = [await rig.opened(f"rt-{number}") for number in range(20)]
        late = [await rig.runtime() for _ in range(10)]
        for number, one in enumerate(late):
            assert code_and_reason(await one.open(f"late-{number}")) == (503, "overload")
        assert rig.bus.runtimes.live_sessions == 20
        await check_served(rig, crowd[0], crowd[19])
        await crowd[1].say(a_message("close", crowd[1].address, SESSION))
        await crowd[1].close_code()
        assert code_and_reason(await late[0].open("late-0")) == (200, "")
