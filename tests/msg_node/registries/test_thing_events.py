"""Events of things over real sockets: who hears them, who may send them, receipts, and acknowledged delivery."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.rules import Rules
from msg_node.requests.core.guaranteed_events import GuaranteedEvents
from protofly.limits import GUARANTEED_RETRY_SECONDS
from tests.msg_node.requests.test_actions import AGENT, action, an_agent, answer_to
from tests.msg_node.requests.test_outbox import sent
from tests.support.runtime_rig import (
    DOMAIN,
    FOREIGN,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_address,
    runtime_rig,
)

MOTION = f"{AGENT}/lamp-1/events/motion"
LAMP = f"{AGENT}/lamp-1"


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as made:
        yield made


def motion(id_: object = 121, **members: object) -> Json:
    return a_message("update", LAMP, MOTION, {"class": "event", "value": True, **members}, id_=id_)


async def a_listener(rig: RuntimeRig, name: str, address: str) -> Runtime:
    listener = await rig.opened(name)
    assert code_and_reason(await listener.subscribed(address)) == (200, "")
    return listener


@pytest.mark.parametrize("address", [f"{AGENT}/*", f"{LAMP}/*", f"{LAMP}/events/*", MOTION])
async def test_subscribers_of_an_agent_a_thing_or_a_name_hear_its_events_and_no_requests(
    rig: RuntimeRig, address: str
) -> None:
    agent = await an_agent(rig)
    listener, ana = await a_listener(rig, "listener", address), await rig.opened("ana")
    await agent.say(motion())
    assert await agent.heard() == []
    assert await listener.heard() == [motion()]
    await ana.say(action(ana.address, 1), a_message("read", ana.address, f"{LAMP}/properties/on", id_=2))
    assert [one["type"] for one in [await agent.next(), await agent.next()]] == ["execute", "read"]
    assert await listener.heard() == []


async def test_with_receipt_the_event_is_confirmed_as_taken_whether_anybody_listens_or_not(rig: RuntimeRig) -> None:
    agent = await an_agent(rig)
    for listeners in (0, 1):
        await agent.say(motion(receipt=True))
        (receipt,) = await agent.heard()
        assert (receipt["id"], receipt["from"], receipt["to"], receipt["body"]["code"]) == (121, MOTION, LAMP, 200)
        if not listeners:
            await a_listener(rig, "listener", f"{AGENT}/*")


async def test_who_is_away_gets_no_event_later(rig: RuntimeRig) -> None:
    agent, listener = await an_agent(rig), await a_listener(rig, "listener", f"{AGENT}/*")
    await listener.wire.cut()
    await rig.until("sessions lost")
    await agent.say(motion(receipt=True))
    assert [one["body"]["code"] for one in await agent.heard()] == [200]
    back = await rig.runtime()
    back.address = listener.session_address
    await back.ask("re-open", "mn:/session")
    assert await back.heard() == []


async def test_only_the_agent_speaks_for_its_things(rig: RuntimeRig) -> None:
    await an_agent(rig)
    listener, eve = await a_listener(rig, "listener", f"{AGENT}/*"), await rig.opened("eve")
    forged = {**motion(), "from": eve.address}
    await eve.say(forged)
    assert [code_and_reason(one) for one in await eve.heard()] == [(403, "not-owner")]
    assert await listener.heard() == []


async def test_an_event_of_an_agent_that_is_not_there_comes_from_nobody(rig: RuntimeRig) -> None:
    eve = await rig.opened("eve")
    await a_listener(rig, "listener", f"{AGENT}/*")
    await eve.say({**motion(receipt=True), "from": eve.address})
    assert [code_and_reason(one) for one in await eve.heard()] == [(403, "not-owner")]


async def test_other_domains_and_sessions_without_the_role_do_not_listen_to_things(tmp_path: Path) -> None:
    token = Credential(digest_of("secret"), runtime_address("watcher"), frozenset({"watcher"}))
    rules = Rules(thing_roles=frozenset({"watcher"}))
    async with runtime_rig(tmp_path, rules=rules, credentials=[token]) as rig:
        eve = await rig.opened("eve")
        assert code_and_reason(await eve.subscribed(f"{AGENT}/*")) == (403, "not-owner")
        watcher = await rig.runtime()
        await watcher.open("watcher", {"credentials": {"kind": "bearer", "token": "secret"}})
        assert code_and_reason(await watcher.subscribed(f"{AGENT}/*")) == (200, "")
        body = {"resources": [f"{AGENT}/*"], "source": f"hyperty://{FOREIGN}/h"}
        request = a_message("subscribe", f"hyperty://{FOREIGN}/h", f"domain://msg-node.{DOMAIN}/sm", body, id_=1)
        rig.bus.from_links.take(FOREIGN, [parsed(request)])
        assert [code_and_reason(one) for one in await sent(rig)] == [(403, "not-owner")]


async def test_a_guaranteed_event_is_sent_again_until_every_subscriber_has_acknowledged_it(rig: RuntimeRig) -> None:
    agent = await an_agent(rig)
    first, second = await a_listener(rig, "first", MOTION), await a_listener(rig, "second", f"{AGENT}/*")
    event = motion(guarantee="ack", ttl=60)
    await agent.say(event)
    assert await agent.heard() == []
    assert len(await first.heard()) == len(await second.heard()) == 1
    await first.say(answer_to(event, {"code": 200}))
    await first.heard()
    now = time.time()
    rig.bus.parked_actions.sweep(now + GUARANTEED_RETRY_SECONDS + 1)
    assert await first.heard() == []
    assert len(await second.heard()) == 1
    await second.say(answer_to(event, {"code": 200}))
    assert await second.heard() == []
    rig.bus.parked_actions.sweep(now + 3 * GUARANTEED_RETRY_SECONDS)
    assert await second.heard() == []
    assert await agent.heard() == []
    assert rig.counters["unacknowledged events"] == 0


async def test_a_guarantee_ends_with_the_time_or_the_session_of_the_subscriber(rig: RuntimeRig) -> None:
    agent = await an_agent(rig)
    slow, gone = await a_listener(rig, "slow", MOTION), await a_listener(rig, "gone", MOTION)
    await agent.say(motion(guarantee="ack", ttl=20))
    await agent.heard()
    await gone.say(a_message("close", gone.address, "mn:/session"))
    await gone.close_code()
    now = time.time()
    rig.bus.parked_actions.sweep(now + 6)
    assert len(await slow.heard()) == 2
    rig.bus.parked_actions.sweep(now + 21)
    assert rig.counters["unacknowledged events"] == 1
    rig.bus.parked_actions.sweep(now + 30)
    assert await slow.heard() == []


def test_no_more_events_are_watched_than_allowed_and_none_without_an_id() -> None:
    events = GuaranteedEvents(max_events=1)
    assert not events.begin(parsed(motion(None)), [1], 0.0, 60.0)
    assert events.begin(parsed(motion(1)), [1, 2], 0.0, 60.0)
    assert not events.begin(parsed(motion(2)), [1], 0.0, 60.0)
    reply = parsed(answer_to(motion(1), {"code": 200}))
    assert not events.acknowledged(reply, 3)
    assert events.acknowledged(reply, 1)
    assert not events.acknowledged(reply, 1)
    assert events.acknowledged(reply, 2)
    assert len(events) == 0


def test_no_more_bytes_of_events_are_watched_than_allowed() -> None:
    first, other = parsed(motion(1)), parsed(motion(2))
    events = GuaranteedEvents(max_bytes=len(first.raw))
    for _ in range(3):  # again is not once more
        assert events.begin(first, [1], 0.0, 60.0)
        assert not events.begin(other, [1], 0.0, 60.0)
    assert events.due(61.0, lives=lambda _: True) == []
    assert events.begin(other, [1], 0.0, 60.0)
