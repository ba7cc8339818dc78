"""Actions for users: one place gets each, where it is kept like any other action; over real sockets."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from federation.links.link_context import Refusal
from msg_node.kernel.rules import Rules
from protofly.errors import Code, HostError, TransportError
from protofly.guid_record import GuidRecord
from tests.msg_node.bus.test_user_routing import TO, USER, Registry, record, registered, rig_with, sent_abroad
from tests.support.runtime_rig import (
    DOMAIN,
    FOREIGN,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)

OTHER = "gamma.example"


def switch(sender: str, *, to: str = TO, id_: int = 5) -> Json:
    return a_message("execute", sender, to, {"class": "action", "method": "switch"}, id_=id_)


def done(request: Json) -> Json:
    return a_message("response", request["to"], request["from"], {"code": 200, "value": 7}, id_=request["id"])


async def returned(rig: RuntimeRig, lost: Runtime) -> Runtime:
    runtime = await rig.runtime()
    runtime.address, runtime.token = lost.address, lost.token
    assert (await runtime.ask("re-open", "mn:/session", from_=lost.session_address))["body"]["code"] == 200
    return runtime


async def lost(rig: RuntimeRig, runtime: Runtime) -> None:
    await runtime.wire.cut()
    await rig.until("sessions lost")


@pytest.mark.parametrize("to", [TO, USER])
async def test_one_live_hyperty_gets_an_action_and_its_answer_ends_it(tmp_path: Path, to: str) -> None:
    async with runtime_rig(tmp_path, rules=Rules(resolves_users=True)) as rig:
        user = f"user://{DOMAIN}/bo" if to == USER else USER
        to = user if to == USER else to
        ana, bo, phone = (
            await rig.opened("ana"),
            *[await registered(rig, name, guid=TO, user=user) for name in ("bo", "phone")],
        )
        await ana.say(switch(ana.address, to=to))
        heard = [(one, message) for one in (bo, phone) for message in await one.heard()]
        ((agent, asked),) = heard
        assert (asked["to"], asked["from"]) == (to, ana.address)
        await agent.say(done(asked))
        reply = await ana.next()
        assert (reply["id"], reply["from"], reply["body"]["status"], reply["body"]["value"]) == (5, to, "completed", 7)


async def test_an_action_for_a_user_who_is_away_waits_on_disk_and_comes_when_the_user_is_back(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, rules=Rules(resolves_users=True)) as rig:
        ana, bo = await rig.opened("ana"), await registered(rig, "bo", guid=TO)
        await lost(rig, bo)
        await ana.say(switch(ana.address))
        reply = await ana.next()
        assert (*code_and_reason(reply), reply["body"]["status"]) == (202, "queued", "pending")
    async with runtime_rig(tmp_path, rules=Rules(resolves_users=True)) as rig:  # and the node was away
        bo, ana = await returned(rig, bo), await returned(rig, ana)
        asked = await bo.next()
        assert (asked["to"], asked["body"]["requestId"]) == (TO, reply["body"]["requestId"])
        await bo.say(done(asked))
        event = await ana.next()
        assert (event["to"], event["body"]["status"], event["body"]["value"]) == (
            f"{ana.address}/inbox",
            "completed",
            7,
        )


async def test_an_action_for_a_user_elsewhere_goes_into_the_outbox_of_their_domain(tmp_path: Path) -> None:
    async with rig_with(tmp_path, Registry(record(OTHER, FOREIGN))) as (rig, ana):
        rig.domains.refusals[OTHER] = Refusal(Code.DOMAIN_BLOCKED)
        rig.domains.away |= {OTHER, FOREIGN}
        await ana.say(switch(ana.address))
        reply = await ana.next()
        assert (*code_and_reason(reply), reply["body"]["status"]) == (202, "queued", "pending")
        assert rig.domains.reached == [FOREIGN]
        assert list(rig.state.delivery.parking.queues.names()) == [FOREIGN]
        rig.domains.away.clear()
        rig.bus.from_links.link_is_live(FOREIGN)
        (handed,) = await sent_abroad(rig)
        assert (handed["to"], handed["body"]["requestId"]) == (TO, reply["body"]["requestId"])
        answer = a_message("response", TO, ana.address, {"code": 200, "value": 7}, id_=5)
        assert rig.bus.from_links.take(FOREIGN, [parsed(answer)]) == [None]
        event = await ana.next()
        assert (event["to"], event["body"]["status"]) == (f"{ana.address}/inbox", "completed")


async def test_an_action_for_a_user_whose_address_names_another_domain_goes_there(tmp_path: Path) -> None:
    async with rig_with(tmp_path, None) as (rig, ana):
        rig.domains.away.add(FOREIGN)
        await ana.say(switch(ana.address, to=f"user://{FOREIGN}/bo"))
        assert code_and_reason(await ana.next()) == (202, "queued")
        assert list(rig.state.delivery.parking.queues.names()) == [FOREIGN]
        third = parsed(switch(f"hyperty://{FOREIGN}/x", to=f"user://{OTHER}/bo"))
        assert rig.bus.from_links.take(FOREIGN, [third]) == [Code.TRANSIT]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (HostError(Code.NOT_REGISTERED), (404, "not-registered")),
        (TransportError(Code.CONNECT_FAILED), (504, "connect-failed")),
        (record(), (404, "not-registered")),
        (record(OTHER), (403, "domain-blocked")),
    ],
)
async def test_an_action_for_somebody_whom_nobody_finds_is_answered_with_the_reason(
    tmp_path: Path, outcome: GuidRecord | HostError, expected: tuple[int, str]
) -> None:
    async with rig_with(tmp_path, Registry(outcome)) as (rig, ana):
        rig.domains.refusals[OTHER] = Refusal(Code.DOMAIN_BLOCKED)
        rig.domains.away.add(OTHER)
        await ana.say(switch(ana.address))
        assert code_and_reason(await ana.next()) == expected
        assert not rig.state.delivery.parking.queues.names()


async def test_another_domain_s_action_for_a_user_of_ours_is_kept_here(tmp_path: Path) -> None:
    async with rig_with(tmp_path, Registry(record(DOMAIN))) as (rig, ana):
        bo = await registered(rig, "bo", guid=TO)
        await lost(rig, bo)
        sender = f"hyperty://{FOREIGN}/x"
        assert rig.bus.from_links.take(FOREIGN, [parsed(switch(sender))]) == [None]
        (kept,) = await sent_abroad(rig)
        assert (code_and_reason(kept), kept["body"]["status"]) == ((202, "queued"), "pending")
        bo = await returned(rig, bo)
        await bo.say(done(await bo.next()))
        (final,) = await sent_abroad(rig)
        assert (final["to"], final["body"]["status"]) == (f"{sender}/inbox", "completed")
        assert await ana.heard() == []


async def test_another_domain_s_action_for_a_stranger_is_not_sent_to_a_third(tmp_path: Path) -> None:
    async with rig_with(tmp_path, Registry(record(OTHER))) as (rig, _):
        assert rig.bus.from_links.take(FOREIGN, [parsed(switch(f"hyperty://{FOREIGN}/x"))]) == [None]
        (refused,) = await sent_abroad(rig)
        assert (refused["to"], code_and_reason(refused)) == (f"hyperty://{FOREIGN}/x", (404, "not-registered"))


async def test_what_the_policy_denies_is_not_kept(tmp_path: Path) -> None:
    async with rig_with(tmp_path, Registry(record(DOMAIN))) as (rig, ana):
        bo = await registered(rig, "bo")  # under a name that only the record says
        rig.judge_local = lambda _message, _roles: Refusal(Code.POLICY)
        await ana.say(switch(ana.address))
        assert code_and_reason(await ana.next()) == (403, "policy")
        assert await bo.heard() == []


async def test_an_action_that_waits_for_a_record_is_answered_when_the_node_stops(tmp_path: Path) -> None:
    registry = Registry(record(FOREIGN))
    registry.open = trio.Event()
    async with rig_with(tmp_path, registry) as (rig, ana):
        await ana.say(switch(ana.address))
        await registry.until_asked()
        rig.stop()
        assert (await ana.next())["body"]["value"] == "draining"
        assert code_and_reason(await ana.next()) == (503, "draining")
        assert not rig.state.delivery.parking.queues.names()
