"""Messages to a GUID whose holder is somewhere else: found, forwarded, answered, bounded; over real sockets."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from federation.links.link_context import Refusal
from msg_node.kernel.registrations import Index
from msg_node.kernel.rules import Rules
from msg_node.registries.core.user_places import places_of
from protofly.errors import Code, HostError, TransportError
from protofly.guid import guid_address
from protofly.guid_record import Flaw, GuidRecord, RecordError, read_record
from protofly.limits import USER_MISSING_SECONDS, USER_PLACES_SECONDS, USER_WAITING_PER_SENDER
from tests.support.guid_holder import GuidHolder
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

BO = GuidHolder("bo")
TO = guid_address(BO.guid)
USER = "user://idp.example/bo"
OTHER = "gamma.example"
NOW = time.time()


def record(*domains: str) -> GuidRecord:
    """A record that says that BO is known at these domains."""
    users = [{"uid": USER, "domain": domain} for domain in domains]
    return read_record(BO.record(updated=NOW, userIDs=users))


class Registry:
    """What is known of GUIDs, given out when it is asked to."""

    def __init__(self, *outcomes: GuidRecord | HostError) -> None:
        self.outcomes = list(outcomes)
        self.asked: list[str] = []
        self.open = trio.Event()
        self.open.set()

    async def __call__(self, guid: str) -> GuidRecord:
        self.asked.append(guid)
        await self.open.wait()
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, HostError):
            raise outcome
        return outcome

    async def until_asked(self) -> None:
        with trio.fail_after(10):
            while not self.asked:
                await trio.lowlevel.checkpoint()


@asynccontextmanager
async def rig_with(folder: Path, registry: Registry | None) -> AsyncIterator[tuple[RuntimeRig, Runtime]]:
    async with runtime_rig(folder, rules=Rules(resolves_users=True)) as rig:
        if registry is not None:
            rig.bus.users.record_of = registry
        yield rig, await rig.opened("ana")


async def sent_abroad(rig: RuntimeRig, number: int = 1) -> list[Json]:
    with trio.fail_after(10):
        while len(rig.domains.sent) < number:
            await trio.lowlevel.checkpoint()
    return rig.domains.take()


async def registered(rig: RuntimeRig, name: str, **members: str) -> Runtime:
    """A runtime with a hyperty that the registry has for BO."""
    runtime = await rig.opened(name)
    hyperty = await runtime.allocated("hyperty")
    value = {"url": hyperty, "user": USER, "runtime": runtime.address, "descriptor": "d", **members}
    reply = await runtime.ask("create", f"domain://registry.{DOMAIN}", {"value": value})
    assert reply["body"]["code"] == 200, reply
    return runtime


def hello(sender: str, *, id_: object = 1, to: str = TO, body: Mapping[str, object] | None = None) -> Json:
    return a_message("create", sender, to, body if body is not None else {"value": "hello"}, id_=id_)


# Found.


async def test_a_user_of_another_domain_is_reached_by_guid_and_known_from_then_on(tmp_path: Path) -> None:
    registry = Registry(record(FOREIGN))
    async with rig_with(tmp_path, registry) as (rig, ana):
        for number in (1, 2):
            message = hello(ana.address, id_=number)
            await ana.say(message)
            assert await sent_abroad(rig) == [message]
        assert registry.asked == [BO.guid]
        assert rig.bus.users.statistics() == {"found": 1, "known": 1, "waiting": 0}


async def test_messages_that_wait_keep_their_order_and_cost_one_look_up(tmp_path: Path) -> None:
    registry = Registry(record(FOREIGN))
    registry.open = trio.Event()
    async with rig_with(tmp_path, registry) as (rig, ana):
        bo = await rig.opened("bo")
        messages = [hello(ana.address, id_=number) for number in range(5)]
        await ana.say(*messages[:3])
        await registry.until_asked()
        await ana.say(*messages[3:], a_message("event", ana.address, bo.address, {"value": 1}))
        assert len(await bo.heard()) == 1  # who waits holds nobody up
        assert rig.bus.users.statistics()["waiting"] == 5
        registry.open.set()
        assert await sent_abroad(rig, 5) == messages
        assert registry.asked == [BO.guid]


async def test_a_user_of_our_domain_is_found_by_the_name_that_the_record_says(tmp_path: Path) -> None:
    async with rig_with(tmp_path, Registry(record(FOREIGN, DOMAIN))) as (rig, ana):
        bo = await registered(rig, "bo")
        await ana.say(hello(ana.address, body={"value": "hello", "receipt": True}))
        heard = await bo.next()
        assert (heard["to"], heard["from"]) == (TO, ana.address)
        assert code_and_reason(await ana.next()) == (200, "")  # the receipt
        await bo.say(a_message("response", TO, ana.address, {"code": 200}, id_=1))
        reply = await ana.next()
        assert (reply["from"], reply["body"]["code"]) == (TO, 200)
        assert rig.domains.take() == []


async def test_a_guid_that_our_registry_knows_needs_no_look_up(tmp_path: Path) -> None:
    registry = Registry(record(FOREIGN))
    async with rig_with(tmp_path, registry) as (rig, ana):
        bo = await registered(rig, "bo", guid=TO)
        await ana.say(hello(ana.address))
        assert (await bo.next())["to"] == TO
        assert registry.asked == []


async def test_the_first_domain_that_we_talk_to_gets_the_message(tmp_path: Path) -> None:
    async with rig_with(tmp_path, Registry(record(FOREIGN, OTHER))) as (rig, ana):
        rig.domains.refusals[FOREIGN] = Refusal(Code.DOMAIN_BLOCKED)
        await ana.say(hello(ana.address))
        await sent_abroad(rig)
        rig.domains.refusals[OTHER] = Refusal(Code.OVERLOAD)
        assert code_and_reason(await ana.ask("create", TO, {})) == (403, "domain-blocked")


async def test_an_action_for_a_user_is_sent_on_and_not_kept_here(tmp_path: Path) -> None:
    async with rig_with(tmp_path, Registry(record(FOREIGN))) as (rig, ana):
        message = hello(ana.address, body={"class": "action", "value": 1})
        await ana.say(message)
        assert await sent_abroad(rig) == [message]


async def test_what_another_domain_sends_reaches_our_users_and_is_never_sent_on(tmp_path: Path) -> None:
    async with rig_with(tmp_path, Registry(record(OTHER), record(DOMAIN, OTHER))) as (rig, _):
        asker = f"hyperty://{FOREIGN}/x"
        assert rig.bus.from_links.take(FOREIGN, [parsed(hello(asker))]) == [None]
        (reply,) = await sent_abroad(rig)
        assert (reply["from"], reply["to"]) == (TO, asker)
        assert code_and_reason(reply) == (404, "not-registered")
        rig.bus.users._awaited._known.clear()
        bo = await registered(rig, "bo")
        assert rig.bus.from_links.take(FOREIGN, [parsed(hello(asker, id_=2))]) == [None]
        assert (await bo.next())["from"] == asker
        assert rig.domains.take() == []


def test_places_are_read_from_every_form_of_user_identifier() -> None:
    users = [USER, {"uID": "user://beta.example/b", "domain": ""}, {"uid": "x", "domain": "Gamma.Example"}]
    found = places_of(read_record(BO.record(updated=NOW, userIDs=[*users, "reTHINK://a.b/", ""])), {DOMAIN})
    assert found.domains == ("idp.example", "beta.example", "gamma.example")
    many = [{"uid": "x", "domain": f"d{number}.example"} for number in range(200)]
    assert len(places_of(read_record(BO.record(updated=NOW, userIDs=many)), {DOMAIN}).domains) == 8
    mine = [{"uid": f"user://idp.example/{number}", "domain": DOMAIN} for number in range(200)]
    nobody = {"uid": "user://anonymous", "domain": DOMAIN}
    found = places_of(read_record(BO.record(updated=NOW, userIDs=[nobody, *mine])), {DOMAIN})
    assert len(found.here) == 8
    assert found.here[:2] == ((Index.GUID, TO), (Index.USER, "user://idp.example/0"))
    bad = [{"uid": "x", "domain": domain} for domain in ("localhost", "127.0.0.1", "a..example", "-a.example", "a b.c")]
    assert places_of(read_record(BO.record(updated=NOW, userIDs=bad)), {DOMAIN}).domains == ()


# Not found.


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (HostError(Code.NOT_REGISTERED), (404, "not-registered")),
        (TransportError(Code.CONNECT_FAILED), (504, "connect-failed")),
        (RecordError(Flaw.REVOKED, "x"), (410, "revoked")),
        (RecordError(Flaw.SIGNATURE, "x"), (502, "bad-reply")),
        (record(), (404, "not-registered")),
    ],
)
async def test_a_user_that_cannot_be_found_is_answered_for_and_left_alone_for_a_moment(
    tmp_path: Path, outcome: GuidRecord | HostError, expected: tuple[int, str]
) -> None:
    registry = Registry(outcome)
    async with rig_with(tmp_path, registry) as (rig, ana):
        for _ in range(2):
            reply = await ana.ask("create", TO, {})
            assert code_and_reason(reply) == expected
            assert (reply["from"], reply["body"]["source"]) == (TO, "runtime://alpha.example/mn-1")
        assert registry.asked == [BO.guid]
        await ana.say(a_message("event", ana.address, TO, {"value": 1}))
        assert await ana.heard() == []
        assert rig.bus.users.statistics()["waiting"] == 0


async def test_what_is_known_is_forgotten_in_time(tmp_path: Path) -> None:
    registry = Registry(HostError(Code.NOT_REGISTERED), record(FOREIGN))
    async with rig_with(tmp_path, registry) as (rig, ana):
        assert (await ana.ask("create", TO, {}))["body"]["code"] == 404
        started = time.monotonic()
        rig.bus.users.clock = lambda: started + USER_MISSING_SECONDS + 1
        await ana.say(hello(ana.address))
        await sent_abroad(rig)
        rig.bus.users.clock = lambda: started + USER_MISSING_SECONDS + USER_PLACES_SECONDS + 2
        await ana.say(hello(ana.address))
        await sent_abroad(rig)
        assert len(registry.asked) == 3


async def test_a_disconnected_user_is_said_to_be_away(tmp_path: Path) -> None:
    async with rig_with(tmp_path, Registry(record(DOMAIN))) as (rig, ana):
        bo = await registered(rig, "bo")
        await bo.say(a_message("close", bo.address, "mn:/session"))
        await bo.close_code()
        assert code_and_reason(await ana.ask("create", TO, {})) == (408, "temporarily-unavailable")


async def test_a_message_whose_time_was_over_while_it_waited_is_answered(tmp_path: Path) -> None:
    registry = Registry(record(FOREIGN))
    registry.open = trio.Event()
    async with rig_with(tmp_path, registry) as (rig, ana):
        await ana.say(hello(ana.address, body={"ttl": 5}))
        await registry.until_asked()
        started = time.monotonic()
        rig.bus.users.clock = lambda: started + 6
        registry.open.set()
        assert code_and_reason(await ana.next()) == (408, "timeout")
        assert rig.domains.take() == []


async def test_one_sender_cannot_have_everybody_waited_for(tmp_path: Path) -> None:
    registry = Registry(record(FOREIGN))
    registry.open = trio.Event()
    async with rig_with(tmp_path, registry) as (rig, ana):
        bo = await rig.opened("bo")
        messages = [hello(ana.address, id_=number) for number in range(USER_WAITING_PER_SENDER + 1)]
        await ana.say(*messages)
        assert code_and_reason(await ana.next()) == (503, "overload")
        await bo.say(hello(bo.address))
        registry.open.set()
        assert len(await sent_abroad(rig, USER_WAITING_PER_SENDER + 1)) == USER_WAITING_PER_SENDER + 1
        statistics = rig.bus.users.statistics()
        assert (statistics["waiting"], statistics["refused overload"]) == (0, 1)
        assert not rig.bus.users._awaited.senders
        assert rig.bus.users._awaited.size_bytes == 0


async def test_a_sender_that_left_is_not_answered_and_its_message_goes_on(tmp_path: Path) -> None:
    registry = Registry(record(FOREIGN))
    registry.open = trio.Event()
    async with rig_with(tmp_path, registry) as (rig, ana):
        await ana.say(hello(ana.address))
        await registry.until_asked()
        await ana.say(a_message("close", ana.address, "mn:/session", id_=9))
        registry.open.set()
        assert len(await sent_abroad(rig)) == 1


async def test_a_node_that_stops_answers_who_waits(tmp_path: Path) -> None:
    registry = Registry(record(FOREIGN))
    registry.open = trio.Event()
    async with rig_with(tmp_path, registry) as (rig, ana):
        await ana.say(hello(ana.address))
        await registry.until_asked()
        rig.stop()
        assert "draining" in {(await ana.next())["body"].get("reason") for _ in range(2)}


@pytest.mark.parametrize("to", ["user-guid://anonymous", "user-guid://short", f"{TO}/x", f"user-guid://a@{BO.guid}"])
async def test_what_is_no_guid_is_not_looked_up(tmp_path: Path, to: str) -> None:
    registry = Registry(record(FOREIGN))
    async with rig_with(tmp_path, registry) as (_, ana):
        assert code_and_reason(await ana.ask("create", to, {})) == (404, "no-route")
        assert registry.asked == []


@pytest.mark.parametrize("resolves", [True, False])
async def test_without_registry_or_switch_there_is_no_way_to_a_guid(tmp_path: Path, resolves: bool) -> None:
    registry = Registry(record(FOREIGN))
    async with runtime_rig(tmp_path, rules=Rules(resolves_users=resolves)) as rig:
        if not resolves:
            rig.bus.users.record_of = registry
        ana = await rig.opened("ana")
        assert code_and_reason(await ana.ask("create", TO, {})) == (404, "no-route")
        assert registry.asked == []
