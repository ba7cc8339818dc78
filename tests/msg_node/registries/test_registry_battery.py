"""What runtimes see of the domain registry, embedded and behind REST: one battery for both, over real sockets.

The server behind REST is written from the description of the published interface (`tests/peers/domain_registry`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.registry_entries import DOMAIN, HYPERTY, QUERIES, ROOM, RUNTIME, USER, hyperty, room
from tests.support.registry_rig import ADDRESS, Registry, create, embedded_registry, read, rest_registry
from tests.support.runtime_rig import FOREIGN, SM, Json, Runtime, a_message, code_and_reason, parsed

DATES = ("startingTime", "lastModified")


@pytest.fixture(params=["embedded", "rest"])
async def registry(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Registry]:
    async with embedded_registry(tmp_path) if request.param == "embedded" else rest_registry(tmp_path) as made:
        yield made


@pytest.fixture
async def ana(registry: Registry) -> Runtime:
    runtime = await registry.rig.opened("rt-ana")
    for value in (hyperty(), room()):
        assert (await create(runtime, value))["body"]["code"] == 200
    return runtime


def found(reply: Json) -> list[str]:
    return list(reply["body"].get("value", {}))


async def listening(registry: Registry, *urls: str) -> Runtime:
    """A runtime that listens to the status of entries."""
    runtime = await registry.rig.opened("rt-listener")
    reply = await runtime.subscribed(*(f"{url}/registration" for url in urls), to=SM)
    assert reply["body"]["code"] == 200
    return runtime


async def news(listener: Runtime) -> list[tuple[str, str]]:
    """Which entries have which status now, as the listener heard."""
    messages = await listener.heard()
    assert all(one["type"] == "update" and one["from"] == ADDRESS for one in messages)
    assert all(one["body"]["attribute"] == "status" for one in messages)
    assert len({one["id"] for one in messages}) == len(messages)
    return [(one["to"], one["body"]["value"]) for one in messages]


# Create and read.


async def test_a_registered_entry_is_read_with_all_its_members(registry: Registry, ana: Runtime) -> None:
    value: dict[str, Any] = (await read(ana, HYPERTY))["body"]["value"]
    assert all(value.pop(date).endswith("Z") for date in DATES)
    assert value == {
        "hypertyID": HYPERTY,
        "userID": USER,
        "guid": "user-guid://kS3Qd0x",
        "descriptor": "hyperty-catalogue://catalogue.alpha.example/.well-known/hyperty/Chat",
        "resources": ["chat"],
        "dataSchemes": ["comm"],
        "status": "live",
        "expires": 3600,
        "runtime": RUNTIME,
        "p2pHandler": f"{RUNTIME}/p2phandler/6f1",
    }
    value = (await read(ana, ROOM))["body"]["value"]
    assert all(value.pop(date).endswith("Z") for date in DATES)
    assert value == {**room(), "status": "live", "expires": 3600}


@pytest.mark.parametrize(("resource", "more", "expected"), QUERIES)
async def test_every_query_form_finds_what_it_means(
    registry: Registry, ana: Runtime, resource: str, more: dict[str, object], expected: list[str]
) -> None:
    reply = await read(ana, resource, **more)
    assert (reply["body"]["code"], found(reply)) == (200 if expected else 404, expected)


async def test_lists_are_maps_unless_a_list_is_asked_for(registry: Registry, ana: Runtime) -> None:
    second = f"hyperty://{DOMAIN}/h-2"
    await create(ana, hyperty(second))
    assert found(await read(ana, USER)) == [HYPERTY, second]
    listed = (await read(ana, USER, shape="list"))["body"]["value"]
    assert [one["hypertyID"] for one in listed] == [HYPERTY, second]


async def test_what_is_not_there_is_answered_so(registry: Registry, ana: Runtime) -> None:
    reply = await read(ana, f"hyperty://{DOMAIN}/nobody")
    assert code_and_reason(reply) == (404, "not-registered")
    assert reply["body"]["description"] == "Not Found"


async def test_missing_members_are_named_and_nothing_is_registered(registry: Registry) -> None:
    ana = await registry.rig.opened("rt-ana")
    reply = await create(ana, {"url": HYPERTY, "runtime": RUNTIME})
    assert (code_and_reason(reply), reply["body"]["value"]) == ((400, "bad-body"), {"missing": ["user", "descriptor"]})
    assert (await read(ana, HYPERTY))["body"]["code"] == 404


async def test_registering_again_replaces_the_members(registry: Registry, ana: Runtime) -> None:
    await create(ana, hyperty(resources=["audio"]))
    assert (await read(ana, HYPERTY))["body"]["value"]["resources"] == ["audio"]


async def test_requests_of_one_session_keep_their_order(registry: Registry) -> None:
    ana = await registry.rig.opened("rt-ana")
    await ana.say(
        a_message("create", ana.address, ADDRESS, {"value": hyperty()}, id_=1),
        a_message("read", ana.address, ADDRESS, {"resource": HYPERTY}, id_=2),
        a_message("update", ana.address, ADDRESS, {"resource": HYPERTY, "value": {"resources": ["av"]}}, id_=3),
        a_message("read", ana.address, ADDRESS, {"resource": HYPERTY}, id_=4),
        a_message(
            "update", ana.address, ADDRESS, {"resource": HYPERTY, "attribute": "status", "value": "disconnected"}, id_=5
        ),
        a_message("read", ana.address, ADDRESS, {"resource": HYPERTY}, id_=6),
    )
    replies = sorted([await ana.next() for _ in range(6)], key=lambda one: int(one["id"]))
    assert [one["body"]["code"] for one in replies] == [200, 200, 200, 200, 200, 408]
    assert [replies[index]["body"]["value"]["resources"] for index in (1, 3, 5)] == [["chat"], ["av"], ["av"]]


async def test_what_was_disconnected_in_the_same_breath_is_brought_back_by_an_update(registry: Registry) -> None:
    ana = await registry.rig.opened("rt-ana")
    await create(ana, hyperty())
    await ana.say(
        a_message(
            "update", ana.address, ADDRESS, {"resource": HYPERTY, "attribute": "status", "value": "disconnected"}, id_=1
        ),
        a_message("update", ana.address, ADDRESS, {"resource": HYPERTY, "value": {"resources": ["av"]}}, id_=2),
        a_message("read", ana.address, ADDRESS, {"resource": HYPERTY}, id_=3),
    )
    replies = sorted([await ana.next() for _ in range(3)], key=lambda one: int(one["id"]))
    assert [one["body"]["code"] for one in replies] == [200, 200, 200]
    value = replies[2]["body"]["value"]
    assert (value["status"], value["resources"]) == ("live", ["av"])


async def test_a_runtime_that_comes_back_registers_all_it_has_in_one_go(registry: Registry) -> None:
    ana = await registry.rig.opened("rt-ana")
    urls = [f"hyperty://{DOMAIN}/h-{number}" for number in range(200)]
    await ana.say(
        *(a_message("create", ana.address, ADDRESS, {"value": hyperty(url)}, id_=id_) for id_, url in enumerate(urls))
    )
    assert {(await ana.next())["body"]["code"] for _ in urls} == {200}
    assert len(found(await read(ana, USER))) == 200


# Who may.


async def test_nobody_writes_about_an_entry_of_another(registry: Registry, ana: Runtime) -> None:
    mallory = await registry.rig.opened("rt-mallory")
    for type_, body in (
        ("create", {"value": hyperty(user=f"user://{DOMAIN}/mallory")}),
        ("update", {"resource": HYPERTY, "value": {"resources": ["evil"]}}),
        ("update", {"resource": HYPERTY, "attribute": "status", "value": "disconnected"}),
        ("delete", {"value": {"url": HYPERTY}}),
        ("delete", {"value": {"name": "Room 51"}}),
    ):
        assert code_and_reason(await mallory.ask(type_, ADDRESS, body)) == (403, "not-owner")
    value = (await read(mallory, HYPERTY))["body"]["value"]
    assert (value["status"], value["resources"], value["userID"]) == ("live", ["chat"], USER)


async def test_addresses_of_other_domains_are_not_registered(registry: Registry) -> None:
    ana = await registry.rig.opened("rt-ana")
    reply = await create(ana, hyperty(f"hyperty://{FOREIGN}/h"))
    assert code_and_reason(reply) == (403, "not-owner")
    assert (await read(ana, USER))["body"]["code"] == 404


async def test_another_domain_reads_and_does_not_write(registry: Registry, ana: Runtime) -> None:
    asker = f"runtime://{FOREIGN}/rt"
    messages = [
        a_message("read", asker, ADDRESS, {"resource": USER}, id_=1),
        a_message("create", asker, ADDRESS, {"value": hyperty()}, id_=2),
        a_message("read", asker, ADDRESS, {"resource": USER, "criteria": {"domain": "c.example"}}, id_=3),
    ]
    registry.rig.bus.from_links.take(FOREIGN, [parsed(one) for one in messages])
    while len(registry.rig.domains.sent) < 3:
        await ana.heard()
    replies = {reply["id"]: reply for reply in registry.rig.domains.take()}
    assert found(replies[1]) == [HYPERTY]
    assert code_and_reason(replies[2]) == (403, "policy")
    assert code_and_reason(replies[3]) == (403, "transit")


# Update, keep-alive, un-registration.

UN_REGISTRATIONS: list[dict[str, object]] = [
    {"resource": HYPERTY, "attribute": "status", "value": "disconnected"},
    {"resource": f"/hyperty/{HYPERTY}", "attribute": "status", "value": "disconnected"},
    {"resource": "/hyperty/h-ana", "value": {"status": "disconnected"}},
    {"value": {"url": HYPERTY, "status": "disconnected"}},
]
KEEP_ALIVES: list[dict[str, object]] = [
    {"resource": HYPERTY},
    {"resource": HYPERTY, "method": "refresh", "value": {"status": "live"}},
    {"resource": "/hyperty/h-ana", "method": "refresh"},
]


@pytest.mark.parametrize("body", UN_REGISTRATIONS)
async def test_un_registration_disconnects_and_notifies_every_subscriber_once(
    registry: Registry, ana: Runtime, body: dict[str, object]
) -> None:
    listener = await listening(registry, HYPERTY)
    await ana.subscribed(f"{HYPERTY}/registration")
    registry.rig.bus.from_links.take(
        FOREIGN,
        [
            parsed(
                a_message("subscribe", f"runtime://{FOREIGN}/sm", SM, {"resources": [f"{HYPERTY}/registration"]}, id_=1)
            )
        ],
    )
    await ana.heard()
    registry.rig.domains.take()
    for _ in range(2):
        assert (await ana.ask("update", ADDRESS, body))["body"]["code"] == 200
    reply = await read(ana, HYPERTY)
    assert code_and_reason(reply) == (408, "temporarily-unavailable")
    assert reply["body"]["description"] == "Temporarily Unavailable"
    assert reply["body"]["value"]["hypertyID"] == HYPERTY
    assert (await read(ana, USER))["body"]["code"] == 408
    await registry.later(1)
    assert await news(listener) == [(f"{HYPERTY}/registration", "disconnected")]
    abroad = [one for one in registry.rig.domains.take() if one["type"] == "update"]
    assert [(one["to"], one["body"]["value"]) for one in abroad] == [(f"{HYPERTY}/registration", "disconnected")]


@pytest.mark.parametrize("body", KEEP_ALIVES)
async def test_keep_alive_is_silent_keeps_alive_and_brings_back_to_life(
    registry: Registry, ana: Runtime, body: dict[str, object]
) -> None:
    listener = await listening(registry, HYPERTY)
    assert (await ana.ask("update", ADDRESS, body))["body"]["code"] == 200
    assert await news(listener) == []
    await ana.ask("update", ADDRESS, {"resource": HYPERTY, "attribute": "status", "value": "disconnected"})
    assert (await ana.ask("update", ADDRESS, body))["body"]["code"] == 200
    assert (await read(ana, HYPERTY))["body"]["code"] == 200
    assert await news(listener) == [(f"{HYPERTY}/registration", word) for word in ("disconnected", "live")]


async def test_an_update_changes_what_is_read_and_what_is_found(registry: Registry, ana: Runtime) -> None:
    assert found(await read(ana, "Room 51")) == [ROOM]
    for body in ({"resource": ROOM, "value": {"name": "Room 52"}}, {"resource": HYPERTY, "value": {"expires": 60}}):
        assert (await ana.ask("update", ADDRESS, body))["body"]["code"] == 200
    assert (await read(ana, "Room 51"))["body"]["code"] == 404
    assert found(await read(ana, "Room 52")) == [ROOM]
    assert (await read(ana, HYPERTY))["body"]["value"]["expires"] == 60


async def test_updates_that_mean_nothing_are_refused(registry: Registry, ana: Runtime) -> None:
    unknown = {"resource": f"hyperty://{DOMAIN}/unknown", "value": {"resources": []}}
    assert code_and_reason(await ana.ask("update", ADDRESS, unknown)) == (404, "not-registered")
    for body in ({}, {"resource": "/dataObject/room"}, {"resource": HYPERTY, "value": {"status": "asleep"}}):
        assert (await ana.ask("update", ADDRESS, body))["body"]["code"] == 400
    assert (await ana.ask("execute", ADDRESS, {}))["body"]["code"] == 405


# Soft state.


async def test_an_entry_that_nobody_refreshes_is_disconnected_and_its_subscribers_are_notified_once(
    registry: Registry, ana: Runtime
) -> None:
    listener = await listening(registry, HYPERTY, ROOM)
    await ana.ask("update", ADDRESS, {"resource": HYPERTY, "value": {"expires": 60}})
    await registry.later(70)
    await registry.later(1)
    assert await news(listener) == [(f"{HYPERTY}/registration", "disconnected")]
    assert (await read(ana, HYPERTY))["body"]["code"] == 408
    assert (await read(ana, ROOM))["body"]["code"] == 200


async def test_the_end_of_a_session_disconnects_what_it_had(registry: Registry, ana: Runtime) -> None:
    listener = await listening(registry, HYPERTY)
    await ana.say(a_message("close", ana.address, "mn:/session", id_=1))
    assert await ana.close_code() == 1000
    assert await news(listener) == [(f"{HYPERTY}/registration", "disconnected")]


# Delete.


@pytest.mark.parametrize(
    ("body", "url"),
    [
        ({"value": {"user": USER, "url": HYPERTY}}, HYPERTY),
        ({"resource": HYPERTY}, HYPERTY),
        ({"resource": ROOM}, ROOM),
        ({"value": {"name": "Room 51"}}, ROOM),
    ],
)
async def test_what_is_deleted_cannot_be_reached_and_its_subscribers_know(
    registry: Registry, ana: Runtime, body: dict[str, object], url: str
) -> None:
    listener = await listening(registry, HYPERTY, ROOM)
    assert (await ana.ask("delete", ADDRESS, body))["body"]["code"] == 200
    assert (await read(ana, url))["body"]["code"] == registry.code_after_delete
    await registry.later(1)
    assert await news(listener) == [(f"{url}/registration", "disconnected")]


async def test_a_name_of_several_objects_deletes_none(registry: Registry, ana: Runtime) -> None:
    await create(ana, room(f"comm://{DOMAIN}/room-52"))
    reply = await ana.ask("delete", ADDRESS, {"value": {"name": "Room 51"}})
    assert code_and_reason(reply) == (409, "duplicate")
    assert len(found(await read(ana, "Room 51"))) == 2
    assert (await ana.ask("delete", ADDRESS, {"value": {"name": "nothing"}}))["body"]["code"] == 404
    assert (await ana.ask("delete", ADDRESS, {}))["body"]["code"] == 400
