"""Legacy users in the domain registry, embedded and behind REST: registered by their stub, for as long as it lives."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
import trio

from federation.core.interworking import Admission, Interworking
from federation.core.stub_status import StubAddresses
from msg_node.kernel.rules import Rules
from msg_node.registries.stub_leases import StubLeases
from protofly.legacy_range import parse_range
from tests.federation.test_interworking import manifest
from tests.support.registry_entries import DOMAIN, HYPERTY, USER, hyperty
from tests.support.registry_rig import ADDRESS, Registry, create, embedded_registry, read, rest_registry
from tests.support.runtime_rig import (
    NODE,
    PATIENCE_SECONDS,
    SM,
    Json,
    Runtime,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)

STUB = "sip.legacy.example"
OTHER_STUB = "tel.legacy.example"
BO = "sip://bo@legacy.example"
BO_HYPERTY = f"hyperty://{STUB}/bo"
ROOM = f"comm://{STUB}/room"
GRANTS = {STUB: "sip://legacy.example", OTHER_STUB: "tel:*"}


def all_verified() -> Interworking:
    admissions = [Admission(domain=one, ranges=(parse_range(text),)) for one, text in GRANTS.items()]
    made = Interworking(admissions, own_domains={DOMAIN}, addresses=StubAddresses(NODE))
    for one, text in GRANTS.items():
        made.verified(manifest(text, domain=one))
    return made


@pytest.fixture(params=["embedded", "rest"])
async def registry(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Registry]:
    rig = embedded_registry if request.param == "embedded" else rest_registry
    async with rig(tmp_path, interworking=all_verified()) as made:
        yield made


class Stub:
    """An interworking stub that is live: says things, and has its lease."""

    def __init__(self, registry: Registry, domain: str = STUB) -> None:
        self._registry = registry
        self._domain = domain
        rig = registry.rig
        self.address = rig.state.interworking.stub_address(domain)
        self.leases = StubLeases(rig.state, rig.bus.effects.publish_statuses, clock=registry.clock)
        self.leases.came(domain)

    async def ask_all(self, requests: Iterable[tuple[str, dict[str, object]]], *, from_: str = BO) -> list[Json]:
        """Requests to the registry, in one batch; the replies in the order of the requests."""
        rig = self._registry.rig
        messages = [
            parsed(a_message(type_, from_, ADDRESS, body, id_=number))
            for number, (type_, body) in enumerate(requests, 1)
        ]
        assert rig.bus.from_links.take(self._domain, messages) == [None] * len(messages)
        with trio.fail_after(PATIENCE_SECONDS):
            while len(rig.domains.sent) < len(messages):
                await trio.lowlevel.checkpoint()
        return sorted(rig.domains.take(), key=lambda reply: int(reply["id"]))

    async def ask(self, type_: str, body: dict[str, object]) -> Json:
        [reply] = await self.ask_all([(type_, body)])
        return reply

    async def register(self, **changes: object) -> Json:
        return await self.ask("create", {"value": user_entry(**changes)})

    def stop(self) -> None:
        self.leases.went(self._domain)

    def start(self) -> None:
        self.leases.came(self._domain)


def user_entry(**changes: object) -> dict[str, object]:
    """What a stub registers for bo."""
    value = {
        "url": BO_HYPERTY,
        "user": BO,
        "descriptor": f"hyperty-catalogue://catalogue.{STUB}/x",
        "resources": ["chat"],
    }
    return {**value, "expires": 300, **changes}


def room_entry(**changes: object) -> dict[str, object]:
    return {
        "url": ROOM,
        "name": "room",
        "schema": f"hyperty-catalogue://catalogue.{STUB}/s",
        "resources": ["chat"],
        **changes,
    }


async def listening(registry: Registry, *urls: str) -> Runtime:
    runtime = await registry.rig.opened("rt-listener")
    reply = await runtime.subscribed(*(f"{url}/registration" for url in urls), to=SM)
    assert reply["body"]["code"] == 200
    return runtime


async def news(registry: Registry, listener: Runtime) -> list[tuple[str, str]]:
    await registry.settled()
    return [(one["to"].removesuffix("/registration"), one["body"]["value"]) for one in await listener.heard()]


# Registered by the stub, in its name.


async def test_user_and_object_of_a_legacy_are_registered_with_the_stub_as_runtime_and_reporter(
    registry: Registry,
) -> None:
    stub, ana = Stub(registry), await registry.rig.opened("rt-ana")
    assert code_and_reason(await stub.register(runtime="runtime://alpha.example/rt-ana", p2pHandler="x")) == (200, "")
    room = await stub.ask("create", {"value": room_entry(reporter=HYPERTY, runtime="runtime://alpha.example/rt-ana")})
    assert code_and_reason(room) == (200, "")
    user = (await read(ana, BO_HYPERTY))["body"]["value"]
    assert (user["userID"], user["runtime"], user["legacy"]) == (BO, stub.address, True)
    assert "p2pHandler" not in user
    shown = (await read(ana, ROOM))["body"]["value"]
    assert (shown["reporter"], shown["runtime"], shown["legacy"]) == (stub.address, stub.address, True)


async def test_a_legacy_address_finds_the_hyperties_registered_for_it(registry: Registry) -> None:
    stub, ana = Stub(registry), await registry.rig.opened("rt-ana")
    await stub.register()
    for resource in (BO, f"/hyperty/user/{BO}", BO_HYPERTY):
        assert BO_HYPERTY in str((await read(ana, resource))["body"]["value"])


async def test_entries_of_our_users_are_marked_for_nobody(registry: Registry) -> None:
    ana = await registry.rig.opened("rt-ana")
    assert (await create(ana, hyperty()))["body"]["code"] == 200
    assert "legacy" not in (await read(ana, HYPERTY))["body"]["value"]


# What it may not.

FOREIGN_ENTRIES: list[dict[str, object]] = [
    user_entry(url=HYPERTY),
    user_entry(url="hyperty://alpha.example/bo"),
    user_entry(url="hyperty://beta.example/bo"),
    user_entry(url=f"hyperty://{OTHER_STUB}/bo"),
    user_entry(url=f"hyperty://bo@{STUB}/bo"),
    room_entry(url=BO, user=BO),
    user_entry(user=USER),
    user_entry(user="user://alpha.example/ana"),
    user_entry(user="user://beta.example/bo"),
    user_entry(user="tel:110"),
    user_entry(user="sip://bo@legacy.example.evil"),
    user_entry(guid="user-guid://kS3Qd0xv1n2mTz7q6w5e4r3t2y1u0i9o8p7a6s5d4f3"),
]


@pytest.mark.parametrize("value", FOREIGN_ENTRIES)
async def test_a_stub_registers_nobody_elses_address_user_or_guid(registry: Registry, value: dict[str, object]) -> None:
    stub, ana = Stub(registry), await registry.rig.opened("rt-ana")
    assert (await create(ana, hyperty()))["body"]["code"] == 200
    assert code_and_reason(await stub.ask("create", {"value": value})) == (403, "not-owner")
    found = (await read(ana, USER))["body"]["value"]
    assert list(found) == [HYPERTY]
    assert (await read(ana, BO_HYPERTY))["body"]["code"] == 404


async def test_a_stub_changes_and_ends_its_own_entries_only(registry: Registry) -> None:
    stub, other, ana = Stub(registry), Stub(registry, OTHER_STUB), await registry.rig.opened("rt-ana")
    assert (await create(ana, hyperty()))["body"]["code"] == 200
    await other.ask_all(
        [("create", {"value": user_entry(url=f"hyperty://{OTHER_STUB}/x", user="tel:110")})], from_="tel:110"
    )
    await stub.register()
    for url in (HYPERTY, f"hyperty://{OTHER_STUB}/x"):
        ended = await stub.ask("update", {"resource": url, "value": "disconnected", "attribute": "status"})
        deleted = await stub.ask("delete", {"resource": url})
        assert code_and_reason(ended) == code_and_reason(deleted) == (403, "not-owner")
        assert (await read(ana, url))["body"]["code"] == 200
    grab = await stub.ask("update", {"resource": BO_HYPERTY, "value": {"user": USER}})
    assert code_and_reason(grab) == (403, "not-owner")
    assert code_and_reason(await stub.ask("delete", {"resource": BO_HYPERTY})) == (200, "")
    assert (await read(ana, BO_HYPERTY))["body"]["code"] == registry.code_after_delete


async def test_our_runtimes_do_not_write_what_is_a_stubs(registry: Registry) -> None:
    stub, ana = Stub(registry), await registry.rig.opened("rt-ana")
    await stub.register()
    assert code_and_reason(await create(ana, user_entry(runtime=ana.address))) == (403, "not-owner")
    taken = await ana.ask("delete", ADDRESS, {"resource": BO_HYPERTY})
    assert code_and_reason(taken) == (403, "not-owner")
    assert (await read(ana, BO_HYPERTY))["body"]["value"]["runtime"] == stub.address


async def test_a_flood_of_registrations_ends_at_the_quota_and_others_are_unharmed(registry: Registry) -> None:
    registry.rig.state.registry._held._per_session = 20
    stub, ana = Stub(registry), await registry.rig.opened("rt-ana")
    values = [user_entry(url=f"hyperty://{STUB}/u{number}") for number in range(50)]
    replies = await stub.ask_all([("create", {"value": value}) for value in values])
    codes = [code_and_reason(reply) for reply in replies]
    assert codes.count((200, "")) == 20
    assert codes.count((429, "quota")) == 30
    assert (await create(ana, hyperty()))["body"]["code"] == 200


# The lease.


async def test_end_of_the_stub_disconnects_what_it_registered_and_its_return_brings_it_back(registry: Registry) -> None:
    stub = Stub(registry)
    await stub.register()
    await stub.ask("create", {"value": room_entry()})
    listener = await listening(registry, BO_HYPERTY, ROOM)
    stub.stop()
    assert sorted(await news(registry, listener)) == [(ROOM, "disconnected"), (BO_HYPERTY, "disconnected")]
    stub.stop()
    assert await news(registry, listener) == []
    stub.start()
    assert code_and_reason(await stub.register()) == (200, "")
    assert await news(registry, listener) == [(BO_HYPERTY, "live")]


async def test_what_a_stub_registers_after_its_return_survives_the_end_of_what_it_had(registry: Registry) -> None:
    stub, ana = Stub(registry), await registry.rig.opened("rt-ana")
    values = [user_entry(url=f"hyperty://{STUB}/u{number}") for number in range(60)]  # more than one step disconnects
    await stub.ask_all([("create", {"value": value}) for value in values])
    stub.stop()
    stub.start()
    await stub.ask_all([("create", {"value": value}) for value in values[30:]])
    rig = registry.rig
    for _ in range(5):
        rig.bus.effects.apply(rig.services.sweep_registry(now=registry.clock()), rig.bus.refusals.own.send)
    entries = [registry.rig.state.registry.get(str(value["url"])) for value in values]
    assert [entry is not None and entry.is_connected for entry in entries] == [False] * 30 + [True] * 30
    await ana.wire.cut()


async def test_what_a_stub_does_not_renew_expires_while_it_lives(registry: Registry) -> None:
    stub = Stub(registry)
    await stub.register(expires=300)
    listener = await listening(registry, BO_HYPERTY)
    await registry.later(301)
    assert await news(registry, listener) == [(BO_HYPERTY, "disconnected")]


async def test_restart_of_the_node_leaves_nobody_behind_a_stub_until_it_is_back(tmp_path: Path) -> None:
    async with embedded_registry(tmp_path, interworking=all_verified()) as before:
        await Stub(before).register()
    async with embedded_registry(tmp_path, interworking=all_verified()) as after:
        ana = await after.rig.opened("rt-ana")
        assert (await read(ana, BO_HYPERTY))["body"]["code"] == 408
        assert code_and_reason(await Stub(after).register()) == (200, "")
        assert (await read(ana, BO_HYPERTY))["body"]["code"] == 200


# Known by the descriptor.


async def test_legacy_user_whom_nobody_registered_is_known_by_the_descriptor(registry: Registry) -> None:
    ana = await registry.rig.opened("rt-ana")
    carl = "sip://carl@legacy.example"
    away = await read(ana, carl)
    assert (away["body"]["code"], away["body"]["value"][carl]["status"]) == (408, "disconnected")
    stub = Stub(registry)
    value = (await read(ana, f"/hyperty/user/{carl}"))["body"]["value"]
    assert value == {
        carl: {
            "hypertyID": carl,
            "userID": carl,
            "resources": [],
            "dataSchemes": [],
            "status": "live",
            "runtime": stub.address,
            "legacy": True,
        }
    }
    narrowed = await read(ana, carl, criteria={"resources": ["video"]})
    assert narrowed["body"]["code"] == 404


@pytest.mark.parametrize(
    "look_alike",
    ["sip://carl@other.example", "sips://carl@legacy.example", "slack://legacy.example/carl", f"user://{STUB}/carl"],
)
async def test_what_only_looks_like_a_legacy_user_is_none(registry: Registry, look_alike: str) -> None:
    Stub(registry)
    ana = await registry.rig.opened("rt-ana")
    assert (await read(ana, look_alike))["body"]["code"] == 404


async def test_without_a_verified_descriptor_nobody_is_a_legacy_user(registry: Registry) -> None:
    registry.rig.state.interworking.withdrawn(STUB)
    ana = await registry.rig.opened("rt-ana")
    assert (await read(ana, BO))["body"]["code"] == 404


async def test_other_domains_do_not_learn_of_users_whom_they_cannot_reach(registry: Registry) -> None:
    Stub(registry)
    rig = registry.rig
    asked = a_message("read", "runtime://beta.example/rt", ADDRESS, {"resource": "sip://carl@legacy.example"}, id_=1)
    rig.bus.from_links.take("beta.example", [parsed(asked)])
    with trio.fail_after(PATIENCE_SECONDS):
        while not rig.domains.sent:
            await trio.lowlevel.checkpoint()
    assert [one["body"]["code"] for one in rig.domains.take()] == [404]


async def test_messages_to_legacy_users_go_to_the_stub_by_each_of_their_names(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, interworking=all_verified(), rules=Rules(resolves_users=True)) as rig:
        ana = await rig.opened("rt-ana")
        names = (BO, "sip:carl@legacy.example", BO_HYPERTY, f"user://{STUB}/bo")
        await ana.say(*(a_message("create", ana.address, to) for to in (*names, "tel:110", "sip://bo@other.example")))
        await ana.heard()
        sent = [(domain, message.to) for domain, message in rig.domains.sent]
        assert sent == [
            *((STUB, name) for name in names),
            (OTHER_STUB, "tel:110"),
            ("other.example", "sip://bo@other.example"),
        ]


@pytest.mark.parametrize("sender", [BO, "tel:110", "sip:bo@legacy.example"])
async def test_our_runtimes_do_not_speak_as_legacy_users(tmp_path: Path, sender: str) -> None:
    async with runtime_rig(tmp_path, interworking=all_verified()) as rig:
        ana = await rig.opened("rt-ana")
        assert code_and_reason(await ana.ask("read", HYPERTY, from_=sender)) == (403, "spoofed-source")


async def test_runtimes_listen_to_legacy_objects_through_the_stub(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path, interworking=all_verified()) as rig:
        ana, changes = await rig.opened("rt-ana"), f"{BO}/changes"
        node = f"domain://msg-node.{STUB}/sm"
        await ana.say(a_message("subscribe", ana.address, node, {"resources": [changes]}, id_=5))
        await rig.until("frames in", 2)
        [upstream] = rig.domains.take()
        assert (upstream["to"], upstream["body"]["resources"]) == (node, [changes])
        answer = a_message("response", node, upstream["from"], {"code": 200}, id_=upstream["id"])
        assert rig.bus.from_links.take(STUB, [parsed(answer)]) == [None]
        assert (await ana.next())["body"]["code"] == 200
        said = a_message("update", BO, changes, {"value": 1})
        assert rig.bus.from_links.take(STUB, [parsed(said)]) == [None]
        assert (await ana.next())["body"]["value"] == 1
        forged = parsed(a_message("update", "hyperty://beta.example/x", changes, {"value": 2}))
        rig.bus.from_links.take("beta.example", [forged])
        assert await ana.heard() == []


async def test_a_legacy_user_whom_the_reporter_accepted_may_observe_through_their_stub(tmp_path: Path) -> None:
    rules = Rules(require_consent=True)
    async with runtime_rig(tmp_path, interworking=all_verified(), rules=rules) as rig:
        ana = await rig.opened("rt-ana")
        room = await ana.allocated()

        async def wish(number: int) -> int:
            body = {"resources": [f"{room}/changes"], "source": BO}
            assert rig.bus.from_links.take(STUB, [parsed(a_message("subscribe", BO, SM, body, id_=number))]) == [None]
            with trio.fail_after(PATIENCE_SECONDS):
                while not rig.domains.sent:
                    await trio.lowlevel.checkpoint()
            return int(rig.domains.take()[0]["body"]["code"])

        assert await wish(1) == 403
        asking = a_message("subscribe", BO, f"{room}/subscription", {"resource": room}, id_=9)
        assert rig.bus.from_links.take(STUB, [parsed(asking)]) == [None]
        await ana.say(a_message("response", f"{room}/subscription", BO, {"code": 200}, id_=9))
        await rig.until("frames in", 3)
        rig.domains.take()
        assert await wish(2) == 200
