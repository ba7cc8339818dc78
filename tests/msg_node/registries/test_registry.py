"""The domain registry: registration, soft state, every query form, who may write."""

from __future__ import annotations

from typing import cast

import pytest

from msg_node.kernel.changes import Journal, Table
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.registrations import Index, Status, StatusChange
from msg_node.registries.core.registry import DomainRegistry, identifiers_of
from msg_node.registries.core.registry_entry import Changed, read_changed
from protofly.errors import Code, PeerError
from protofly.limits import REGISTRY_EXPIRES_MAX_SECONDS, REGISTRY_RETENTION_SECONDS, REGISTRY_SWEPT_AT_ONCE
from tests.support.registry_entries import HYPERTY, QUERIES, ROOM, RUNTIME, USER, hyperty, room
from tests.support.state_house import DOMAIN, GRACE_SECONDS, REGISTRY, SM, StateHouse


@pytest.fixture
def house() -> StateHouse:
    return StateHouse()


@pytest.fixture
def ana(house: StateHouse) -> int:
    sid, _ = house.open("rt-ana", 1)
    assert register(house, sid, hyperty())["code"] == 200
    assert register(house, sid, room())["code"] == 200
    return sid


def register(house: StateHouse, sid: int, value: object) -> dict[str, object]:
    return house.reply(sid, REGISTRY, "create", {"value": value})


def read(house: StateHouse, sid: int, resource: str, **more: object) -> dict[str, object]:
    return house.reply(sid, REGISTRY, "read", {"resource": resource, **more})


def found(reply: dict[str, object]) -> list[str]:
    """Addresses in a reply that is a map."""
    return list(cast("dict[str, object]", reply.get("value", {})))


def listen(house: StateHouse) -> None:
    """Another domain listens to the status of both."""
    link = house.state.links.number("beta.example")
    addresses = [f"{url}/registration" for url in (HYPERTY, ROOM)]
    reply = house.reply(link, SM, "subscribe", {"resources": addresses}, from_="runtime://beta.example/mn")
    assert reply["code"] == 200


# Create.


def test_registered_hyperty_is_found_by_its_user_with_all_members(house: StateHouse, ana: int) -> None:
    reply = read(house, ana, f"/hyperty/user/{USER}")
    assert reply["code"] == 200
    assert reply["value"] == {
        HYPERTY: {
            "hypertyID": HYPERTY,
            "userID": USER,
            "guid": "user-guid://kS3Qd0x",
            "descriptor": "hyperty-catalogue://catalogue.alpha.example/.well-known/hyperty/Chat",
            "resources": ["chat"],
            "dataSchemes": ["comm"],
            "status": "live",
            "expires": 3600,
            "startingTime": "1970-01-12T13:46:40Z",
            "lastModified": "1970-01-12T13:46:40Z",
            "runtime": RUNTIME,
            "p2pHandler": f"{RUNTIME}/p2phandler/6f1",
        }
    }


def test_missing_mandatory_members_are_named(house: StateHouse) -> None:
    sid, _ = house.open("rt-ana", 1)
    reply = register(house, sid, {"url": HYPERTY, "runtime": RUNTIME})
    assert (reply["code"], reply["value"]) == (400, {"missing": ["user", "descriptor"]})
    reply = register(house, sid, {"url": ROOM})
    assert reply["value"] == {"missing": ["name", "schema", "reporter", "runtime"]}
    assert len(house.state.registry) == 0


def test_defaults_are_filled_in_and_old_names_are_understood(house: StateHouse) -> None:
    sid, _ = house.open("rt-ana", 1)
    value = {"hypertyURL": HYPERTY, "hypertyDescriptorURL": "d", "hypertyRuntimeURL": RUNTIME, "userID": USER}
    assert register(house, sid, value)["code"] == 200
    shown = cast("dict[str, object]", read(house, sid, HYPERTY)["value"])
    expected = {"status": "live", "expires": 3600, "resources": [], "dataSchemes": [], "descriptor": "d"}
    assert expected.items() <= shown.items()


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        "text",
        {"url": 5},
        hyperty(status="asleep"),
        hyperty(status=["live"]),
        hyperty(expires=0),
        hyperty(expires="soon"),
        hyperty(expires=True),
        hyperty(resources=[1]),
        hyperty(resources=["x"] * 1 + [f"r{n}" for n in range(101)]),
        hyperty(descriptor="x" * 3000),
        hyperty(user={"a": 1}),
        hyperty(url=" bad address <>"),
    ],
)
def test_nonsense_is_refused_and_leaves_nothing(house: StateHouse, value: object) -> None:
    sid, _ = house.open("rt-ana", 1)
    assert register(house, sid, value)["code"] == 400
    assert len(house.state.registry) == 0


@pytest.mark.parametrize(
    ("expires", "kept"), [(60, 60), ("60", 60), (1.9, 1), (10**12, REGISTRY_EXPIRES_MAX_SECONDS), (float("inf"), None)]
)
def test_expires_is_bounded(expires: object, kept: int | None) -> None:
    bounded = REGISTRY_EXPIRES_MAX_SECONDS if kept is None else kept
    assert read_changed({"expires": expires}).expires_seconds == bounded


def test_entries_per_session_are_bounded() -> None:
    registry = DomainRegistry(Journal(), per_session=1)
    registry.register(HYPERTY, read_changed(hyperty()), sid=1, now=0)
    registry.register(HYPERTY, read_changed(hyperty()), sid=1, now=1)
    with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
        registry.register(f"{HYPERTY}2", read_changed(hyperty()), sid=1, now=2)


# Rights.


def test_nobody_writes_about_an_address_of_another(house: StateHouse, ana: int) -> None:
    eve, _ = house.open("rt-eve", 2)
    assert register(house, eve, hyperty(user=f"user://{DOMAIN}/eve"))["code"] == 403
    for type_, body in (
        ("update", {"resource": HYPERTY, "attribute": "status", "value": "disconnected"}),
        ("update", {"resource": HYPERTY}),
        ("delete", {"resource": HYPERTY}),
        ("delete", {"value": {"name": "Room 51"}}),
    ):
        reply = house.reply(eve, REGISTRY, type_, body)
        assert (reply["code"], reply["reason"]) == (403, "not-owner")
    entry = house.state.registry.get(HYPERTY)
    assert entry is not None
    assert (entry.user, entry.status) == (USER, Status.LIVE)


def test_owned_address_is_registered_by_its_owner_only(house: StateHouse) -> None:
    ana, _ = house.open("rt-ana", 1)
    eve, _ = house.open("rt-eve", 2)
    house.reply(ana, SM, "subscribe", {"resources": [HYPERTY]})
    assert register(house, eve, hyperty())["code"] == 403
    assert register(house, ana, hyperty())["code"] == 200


def test_foreign_addresses_are_not_registered(house: StateHouse) -> None:
    sid, _ = house.open("rt-ana", 1)
    assert register(house, sid, hyperty(url="hyperty://beta.example/h"))["code"] == 403
    assert register(house, sid, hyperty(url="hyperty://alpha.example.evil/h"))["code"] == 403


def test_link_reads_and_does_not_write(house: StateHouse, ana: int) -> None:
    link = house.state.links.number("beta.example")
    from_ = "hyperty://beta.example/h-bo"
    body = {"resource": f"/hyperty/user/{USER}"}
    assert house.reply(link, REGISTRY, "read", body, from_=from_)["code"] == 200
    for type_ in ("create", "update", "delete"):
        reply = house.reply(link, REGISTRY, type_, {"resource": HYPERTY, "value": hyperty()}, from_=from_)
        assert (reply["code"], reply["reason"]) == (403, "policy")


def test_operator_deletes_any_entry() -> None:
    house = StateHouse(credentials=[Credential(digest_of("o"), f"runtime://{DOMAIN}/ops", frozenset({"operator"}))])
    sid, _ = house.open("rt-ana", 1)
    register(house, sid, hyperty())
    operator, _ = house.open("ops", 2, {"credentials": {"token": "o"}})
    assert house.reply(operator, REGISTRY, "delete", {"resource": HYPERTY})["code"] == 200


# Update, keep-alive, un-registration.


@pytest.mark.parametrize(
    "body",
    [
        {"resource": HYPERTY, "value": "disconnected", "attribute": "status"},
        {"resource": f"/hyperty/{HYPERTY}", "value": "disconnected", "attribute": "status"},
        {"resource": "/hyperty/h-ana", "value": {"status": "disconnected"}},
        {"value": {"url": HYPERTY, "status": "disconnected"}},
        {"resource": HYPERTY, "value": {"status": "disconnected"}, "method": "refresh"},
    ],
)
def test_every_form_of_un_registration_disconnects(house: StateHouse, ana: int, body: object) -> None:
    listen(house)
    result = house.ask(ana, REGISTRY, "update", body)
    (event,) = result.notifications
    assert (event.from_, event.to) == (REGISTRY, f"{HYPERTY}/registration")
    assert event.body == b'{"value":"disconnected","attribute":"status"}'
    reply = read(house, ana, f"/hyperty/user/{USER}")
    assert (reply["code"], reply["reason"], reply["description"]) == (
        408,
        "temporarily-unavailable",
        "Temporarily Unavailable",
    )
    assert found(reply) == [HYPERTY]


@pytest.mark.parametrize(
    "body",
    [
        {"resource": HYPERTY},
        {"resource": HYPERTY, "method": "refresh"},
        {"resource": HYPERTY, "value": {"status": "live"}, "method": "refresh"},
        {"resource": f"/hyperty/{HYPERTY}", "value": {"status": "live"}},
    ],
)
def test_keep_alive_refreshes_silently_and_revives(house: StateHouse, ana: int, body: object) -> None:
    listen(house)
    house.now += 3000
    assert not house.ask(ana, REGISTRY, "update", body).notifications
    house.now += 3000
    assert house.swept().notifications != []  # the room; the hyperty was refreshed
    house.ask(ana, REGISTRY, "update", {"resource": HYPERTY, "attribute": "status", "value": "disconnected"})
    (event,) = house.ask(ana, REGISTRY, "update", body).notifications
    assert b'"live"' in event.body


def test_update_changes_members_and_their_indexes(house: StateHouse, ana: int) -> None:
    house.ask(ana, REGISTRY, "update", {"resource": ROOM, "value": {"name": "Room 52", "resources": ["chat", "audio"]}})
    assert read(house, ana, "Room 51")["code"] == 404
    assert found(read(house, ana, "Room 52")) == [ROOM]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (None, 400),
        ({}, 400),
        ({"resource": HYPERTY, "value": "text"}, 400),
        ({"resource": "/dataObject/room-51"}, 400),
        ({"resource": HYPERTY, "value": "asleep", "attribute": "status"}, 400),
        ({"resource": f"{HYPERTY}-unknown"}, 404),
    ],
)
def test_updates_that_mean_nothing_are_refused(house: StateHouse, ana: int, body: object, code: int) -> None:
    assert house.reply(ana, REGISTRY, "update", body)["code"] == code


def test_object_path_with_scheme_names_the_object(house: StateHouse, ana: int) -> None:
    assert house.reply(ana, REGISTRY, "update", {"resource": f"/dataObject/{ROOM}"})["code"] == 200


@pytest.mark.parametrize(
    "body", [{"resource": ROOM}, {"value": {"url": ROOM, "user": USER}}, {"value": {"name": "Room 51"}}]
)
def test_every_form_of_delete_forgets(house: StateHouse, ana: int, body: object) -> None:
    assert house.reply(ana, REGISTRY, "delete", body)["code"] == 200
    assert read(house, ana, ROOM)["code"] == 404
    assert house.reply(ana, REGISTRY, "delete", {"resource": ROOM})["code"] == 404


def test_ambiguous_name_is_not_deleted(house: StateHouse, ana: int) -> None:
    register(house, ana, room(url=f"{ROOM}b"))
    reply = house.reply(ana, REGISTRY, "delete", {"value": {"name": "Room 51"}})
    assert (reply["code"], reply["reason"]) == (409, "duplicate")
    assert len(found(read(house, ana, "Room 51"))) == 2


# Read.


@pytest.mark.parametrize(("resource", "more", "expected"), QUERIES)
def test_every_query_form_finds_what_it_means(
    house: StateHouse, ana: int, resource: str, more: dict[str, object], expected: list[str]
) -> None:
    reply = read(house, ana, resource, **more)
    assert (reply["code"], found(reply)) == (200 if expected else 404, expected)


@pytest.mark.parametrize("resource", [HYPERTY, f"/hyperty/url/{HYPERTY}", f"/hyperty/{HYPERTY}", "/hyperty/h-ana"])
def test_single_address_gives_one_object(house: StateHouse, ana: int, resource: str) -> None:
    value = cast("dict[str, object]", read(house, ana, resource)["value"])
    assert value["hypertyID"] == HYPERTY


def test_reader_may_ask_for_a_list_and_for_pages(house: StateHouse, ana: int) -> None:
    for number in range(60):
        register(house, ana, hyperty(url=f"hyperty://{DOMAIN}/n{number}"))
    assert len(cast("list[object]", read(house, ana, USER, shape="list")["value"])) == 61
    assert len(found(read(house, ana, USER, page=1))) == 50
    assert len(found(read(house, ana, USER, page=0))) == 50
    assert len(found(read(house, ana, USER, page=2))) == 11


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, 400),
        ({"resource": ""}, 400),
        ({"resource": "/hyperty"}, 400),
        ({"resource": "/dataObject/unknown"}, 400),
        ({"resource": USER, "criteria": {"domain": "beta.example"}}, 403),
        ({"resource": "hyperty://a b"}, 400),
        ({"resource": "<>://x"}, 400),
    ],
)
def test_queries_that_mean_nothing_are_refused(house: StateHouse, ana: int, body: object, code: int) -> None:
    assert house.reply(ana, REGISTRY, "read", body)["code"] == code


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (USER, {"ana", "ana@alpha.example"}),
        ("user://idp.example/ana@mail.example", {"ana@mail.example"}),
        ("acct://alpha.example/ana", {"ana", "ana@alpha.example"}),
        ("", set()),
        ("<>", set()),
    ],
)
def test_identifiers_of_a_user(user: str, expected: set[str]) -> None:
    assert identifiers_of(user) == expected


# Soft state.


def test_entry_is_disconnected_when_nobody_refreshes_and_forgotten_a_day_later() -> None:
    registry = DomainRegistry(Journal())
    registry.register(HYPERTY, read_changed(hyperty(expires=10)), sid=1, now=0)
    assert registry.sweep(now=9.9) == []
    assert registry.sweep(now=10) == [StatusChange(HYPERTY, HYPERTY, Status.DISCONNECTED)]
    assert registry.sweep(now=11) == []
    assert len(registry) == 1
    assert registry.sweep(now=10 + REGISTRY_RETENTION_SECONDS) == []
    assert len(registry) == 0
    assert registry.find(Index.USER, USER) == []


def test_refreshed_entry_outlives_its_old_date() -> None:
    registry = DomainRegistry(Journal())
    registry.register(HYPERTY, read_changed(hyperty(expires=10)), sid=1, now=0)
    registry.update(HYPERTY, Changed(), sid=1, now=9)
    assert registry.sweep(now=12) == []
    assert registry.sweep(now=19) == [StatusChange(HYPERTY, HYPERTY, Status.DISCONNECTED)]


def test_registering_again_keeps_the_starting_time() -> None:
    registry = DomainRegistry(Journal())
    registry.register(HYPERTY, read_changed(hyperty()), sid=1, now=5)
    registry.register(HYPERTY, read_changed(hyperty()), sid=1, now=9)
    entry = registry.get(HYPERTY)
    assert entry is not None
    assert (entry.started_at, entry.refreshed_at) == (5, 9)


def test_many_keep_alives_use_bounded_memory() -> None:
    registry = DomainRegistry(Journal())
    registry.register(HYPERTY, read_changed(hyperty()), sid=1, now=0)
    for now in range(1000):
        registry.update(HYPERTY, Changed(), sid=1, now=now)
    assert len(registry._due) == 1


def test_end_of_session_disconnects_its_entries_and_tells_so(house: StateHouse, ana: int) -> None:
    listen(house)
    result = house.session_verb("close", RUNTIME, 1)
    assert sorted(event.to for event in result.notifications) == [f"{ROOM}/registration", f"{HYPERTY}/registration"]
    bo, _ = house.open("rt-bo", 2)
    assert read(house, bo, USER)["code"] == 408


def test_who_does_not_listen_costs_nothing(house: StateHouse, ana: int) -> None:
    body = {"resource": HYPERTY, "value": "disconnected", "attribute": "status"}
    assert not house.ask(ana, REGISTRY, "update", body).notifications


def test_a_session_with_very_many_entries_ends_in_several_steps(house: StateHouse) -> None:
    sid, _ = house.open("rt-ana", 1)
    number = 2 * REGISTRY_SWEPT_AT_ONCE + 1
    for one in range(number):
        assert register(house, sid, hyperty(f"hyperty://{DOMAIN}/h-{one}"))["code"] == 200
    house.keep(house.services.sessions.connection_lost(1, now=house.now).changes)
    house.now += GRACE_SECONDS
    steps = []
    for sweep in (house.services.sessions.sweep, house.services.sweep_registry):
        while (result := sweep(now=house.now)).changes:
            house.keep(result.changes)
            steps.append(sum(one.table is Table.REGISTRY for one in result.changes))
    assert (sum(steps), max(steps)) == (number, REGISTRY_SWEPT_AT_ONCE)
    assert not any(entry.is_connected or entry.sid for entry in house.state.registry._entries.values())


def test_runtime_that_comes_back_without_proof_revives_its_entries(house: StateHouse, ana: int) -> None:
    house.services.sessions.connection_lost(1, now=house.now)
    again, _ = house.open("rt-ana", 2)
    assert house.reply(again, REGISTRY, "update", {"resource": HYPERTY})["code"] == 200
    house.now += 200
    house.keep(house.swept().changes)  # the displaced session ends; the entry is not its own any more
    assert read(house, again, HYPERTY)["code"] == 200


def test_registry_is_back_after_a_restart(house: StateHouse, ana: int) -> None:
    listen(house)
    again = house.restarted()
    assert again.state.registry._entries == house.state.registry._entries
    link = again.state.links.number("beta.example")
    assert found(read(again, link, USER)) == [HYPERTY]
    again.now += 200
    result = again.swept()  # nobody came back within grace
    assert len(result.notifications) == 2


def test_entries_of_sessions_that_are_gone_are_disconnected_at_restart(house: StateHouse, ana: int) -> None:
    house.rows = {table: {} if table.value == "sessions" else rows for table, rows in house.rows.items()}
    again = house.restarted()
    assert [entry.status for entry in again.state.registry._entries.values()] == [Status.DISCONNECTED] * 2
