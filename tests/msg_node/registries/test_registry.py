"""The domain registry: registration, soft state, every query form, who may write."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest

from msg_node.kernel.changes import Journal, Table
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.registrations import Index, Status, StatusChange
from msg_node.kernel.rules import Rules
from msg_node.registries.core import held_entries, registry_service
from msg_node.registries.core.registry import DomainRegistry, identifiers_of
from msg_node.registries.core.registry_entry import Changed, RegistryEntry, read_changed, shown
from msg_node.registries.core.registry_query import By, Query
from msg_node.registries.core.registry_service import changed_by, found_answer
from protofly.errors import Code, PeerError
from protofly.limits import (
    PAGE_ENTRIES,
    REGISTRY_EXPIRES_MAX_SECONDS,
    REGISTRY_RETENTION_SECONDS,
    REGISTRY_SWEPT_AT_ONCE,
)
from tests.support.registry_entries import HYPERTY, QUERIES, ROOM, RUNTIME, USER, hyperty, room
from tests.support.state_rig import DOMAIN, GRACE_SECONDS, REGISTRY, SM, StateRig


@pytest.fixture
def rig() -> StateRig:
    return StateRig()


@pytest.fixture
def ana(rig: StateRig) -> int:
    sid, _ = rig.open("rt-ana", 1)
    assert register(rig, sid, hyperty())["code"] == 200
    assert register(rig, sid, room())["code"] == 200
    return sid


def register(rig: StateRig, sid: int, value: object) -> dict[str, object]:
    return rig.reply(sid, REGISTRY, "create", {"value": value})


def read(rig: StateRig, sid: int, resource: str, **more: object) -> dict[str, object]:
    return rig.reply(sid, REGISTRY, "read", {"resource": resource, **more})


def found(reply: dict[str, object]) -> list[str]:
    """Addresses in a reply that is a map."""
    return list(cast("dict[str, object]", reply.get("value", {})))


def listen(rig: StateRig) -> None:
    """Another domain listens to the status of both."""
    link = rig.state.links.number("beta.example")
    addresses = [f"{url}/registration" for url in (HYPERTY, ROOM)]
    reply = rig.reply(link, SM, "subscribe", {"resources": addresses}, from_="runtime://beta.example/mn")
    assert reply["code"] == 200


# Create.


def test_registered_hyperty_is_found_by_its_user_with_all_members(rig: StateRig, ana: int) -> None:
    reply = read(rig, ana, f"/hyperty/user/{USER}")
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


def test_missing_mandatory_members_are_named(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    reply = register(rig, sid, {"url": HYPERTY, "runtime": RUNTIME})
    assert (reply["code"], reply["value"]) == (400, {"missing": ["user", "descriptor"]})
    reply = register(rig, sid, {"url": ROOM})
    assert reply["value"] == {"missing": ["name", "schema", "reporter", "runtime"]}
    assert len(rig.state.registry) == 0


def test_defaults_are_filled_in_and_old_names_are_understood(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    value = {"hypertyURL": HYPERTY, "hypertyDescriptorURL": "d", "hypertyRuntimeURL": RUNTIME, "userID": USER}
    assert register(rig, sid, value)["code"] == 200
    shown = cast("dict[str, object]", read(rig, sid, HYPERTY)["value"])
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
def test_nonsense_is_refused_and_leaves_nothing(rig: StateRig, value: object) -> None:
    sid, _ = rig.open("rt-ana", 1)
    assert register(rig, sid, value)["code"] == 400
    assert len(rig.state.registry) == 0


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


def test_nobody_writes_about_an_address_of_another(rig: StateRig, ana: int) -> None:
    eve, _ = rig.open("rt-eve", 2)
    assert register(rig, eve, hyperty(user=f"user://{DOMAIN}/eve"))["code"] == 403
    for type_, body in (
        ("update", {"resource": HYPERTY, "attribute": "status", "value": "disconnected"}),
        ("update", {"resource": HYPERTY}),
        ("delete", {"resource": HYPERTY}),
        ("delete", {"value": {"name": "Room 51"}}),
    ):
        reply = rig.reply(eve, REGISTRY, type_, body)
        assert (reply["code"], reply["reason"]) == (403, "not-owner")
    entry = rig.state.registry.get(HYPERTY)
    assert entry is not None
    assert (entry.user, entry.status) == (USER, Status.LIVE)


def test_owned_address_is_registered_by_its_owner_only(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    rig.reply(ana, SM, "subscribe", {"resources": [HYPERTY]})
    assert register(rig, eve, hyperty())["code"] == 403
    assert register(rig, ana, hyperty())["code"] == 200


@pytest.mark.parametrize(("shares_domain", "of_nobody"), [(False, 200), (True, 403)])
def test_where_nodes_share_the_domain_an_address_is_registered_by_who_speaks_for_it(
    shares_domain: bool, of_nobody: int
) -> None:
    rig = StateRig(rules=Rules(shares_domain=shares_domain))
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    rig.state.owners.claim(ana, HYPERTY)
    free = f"hyperty://{DOMAIN}/free"
    codes = [register(rig, sid, hyperty(url=url))["code"] for sid, url in ((ana, HYPERTY), (ana, f"{HYPERTY}/below"))]
    assert codes == [200, 200]
    assert register(rig, eve, hyperty(url=HYPERTY))["code"] == 403
    assert register(rig, eve, hyperty(url=free))["code"] == of_nobody


@pytest.mark.parametrize("shares_domain", [False, True])
def test_an_entry_is_written_by_who_owns_its_address_now_and_not_by_who_registered_it(*, shares_domain: bool) -> None:
    rig = StateRig(rules=Rules(shares_domain=shares_domain))
    ana, _ = rig.open("rt-ana", 1)
    eve, _ = rig.open("rt-eve", 2)
    rig.state.owners.claim(ana, HYPERTY)
    assert register(rig, ana, hyperty())["code"] == 200
    assert rig.state.owners.release({ana}, HYPERTY) == [HYPERTY]
    rig.state.owners.claim(eve, HYPERTY)
    assert register(rig, ana, hyperty())["code"] == 403


def test_foreign_addresses_are_not_registered(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    assert register(rig, sid, hyperty(url="hyperty://beta.example/h"))["code"] == 403
    assert register(rig, sid, hyperty(url="hyperty://alpha.example.evil/h"))["code"] == 403


def test_link_reads_and_does_not_write(rig: StateRig, ana: int) -> None:
    link = rig.state.links.number("beta.example")
    from_ = "hyperty://beta.example/h-bo"
    body = {"resource": f"/hyperty/user/{USER}"}
    assert rig.reply(link, REGISTRY, "read", body, from_=from_)["code"] == 200
    for type_ in ("create", "update", "delete"):
        reply = rig.reply(link, REGISTRY, type_, {"resource": HYPERTY, "value": hyperty()}, from_=from_)
        assert (reply["code"], reply["reason"]) == (403, "policy")


def test_operator_deletes_any_entry() -> None:
    rig = StateRig(credentials=[Credential(digest_of("o"), f"runtime://{DOMAIN}/ops", frozenset({"operator"}))])
    sid, _ = rig.open("rt-ana", 1)
    register(rig, sid, hyperty())
    operator, _ = rig.open("ops", 2, {"credentials": {"token": "o"}})
    assert rig.reply(operator, REGISTRY, "delete", {"resource": HYPERTY})["code"] == 200


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
def test_every_form_of_un_registration_disconnects(rig: StateRig, ana: int, body: object) -> None:
    listen(rig)
    result = rig.ask(ana, REGISTRY, "update", body)
    (event,) = result.notifications
    assert (event.from_, event.to) == (REGISTRY, f"{HYPERTY}/registration")
    assert event.body == b'{"value":"disconnected","attribute":"status"}'
    reply = read(rig, ana, f"/hyperty/user/{USER}")
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
        {"resource": HYPERTY, "value": {}},
        {"resource": HYPERTY, "method": "refresh"},
        {"resource": HYPERTY, "value": {"status": "live"}, "method": "refresh"},
        {"resource": f"/hyperty/{HYPERTY}", "value": {"status": "live"}},
    ],
)
def test_keep_alive_refreshes_silently_and_revives(rig: StateRig, ana: int, body: object) -> None:
    listen(rig)
    rig.now += 3000
    assert not rig.ask(ana, REGISTRY, "update", body).notifications
    rig.now += 3000
    assert rig.swept().notifications != []  # the room; the hyperty was refreshed
    rig.ask(ana, REGISTRY, "update", {"resource": HYPERTY, "attribute": "status", "value": "disconnected"})
    (event,) = rig.ask(ana, REGISTRY, "update", body).notifications
    assert b'"live"' in event.body


def test_update_changes_members_and_their_indexes(rig: StateRig, ana: int) -> None:
    rig.ask(ana, REGISTRY, "update", {"resource": ROOM, "value": {"name": "Room 52", "resources": ["chat", "audio"]}})
    assert read(rig, ana, "Room 51")["code"] == 404
    assert found(read(rig, ana, "Room 52")) == [ROOM]


@pytest.mark.parametrize("keeps", [False, True])
def test_entries_that_a_runtime_left_behind_count_when_it_refreshes_them(keeps: bool) -> None:
    registry = DomainRegistry(Journal(), per_session=2, keeps_registered=keeps)
    urls = [f"hyperty://{DOMAIN}/{number}" for number in range(4)]
    for sid, pair in ((1, urls[:2]), (2, urls[2:])):
        for url in pair:
            registry.register(url, read_changed(hyperty()), sid=sid, now=0)
        registry.disconnect_session(sid, now=1)
    for url in urls[:2]:
        registry.update(url, Changed(), sid=3, now=2)
    with pytest.raises(PeerError, check=lambda error: error.code is Code.QUOTA):
        registry.update(urls[2], Changed(), sid=3, now=2)
    registry.update(urls[0], Changed(), sid=3, now=3)  # its own ones are refreshed as before
    left = registry.get(urls[2])
    assert left is not None
    assert (left.sid, left.refreshed_at, left.is_connected) == (0, 0 if keeps else 1, keeps)


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
def test_updates_that_mean_nothing_are_refused(rig: StateRig, ana: int, body: object, code: int) -> None:
    assert rig.reply(ana, REGISTRY, "update", body)["code"] == code


def test_object_path_with_scheme_names_the_object(rig: StateRig, ana: int) -> None:
    assert rig.reply(ana, REGISTRY, "update", {"resource": f"/dataObject/{ROOM}"})["code"] == 200


@pytest.mark.parametrize(
    "body", [{"resource": ROOM}, {"value": {"url": ROOM, "user": USER}}, {"value": {"name": "Room 51"}}]
)
def test_every_form_of_delete_forgets(rig: StateRig, ana: int, body: object) -> None:
    assert rig.reply(ana, REGISTRY, "delete", body)["code"] == 200
    assert read(rig, ana, ROOM)["code"] == 404
    assert rig.reply(ana, REGISTRY, "delete", {"resource": ROOM})["code"] == 404


def test_ambiguous_name_is_not_deleted(rig: StateRig, ana: int) -> None:
    register(rig, ana, room(url=f"{ROOM}b"))
    reply = rig.reply(ana, REGISTRY, "delete", {"value": {"name": "Room 51"}})
    assert (reply["code"], reply["reason"]) == (409, "duplicate")
    assert len(found(read(rig, ana, "Room 51"))) == 2


# Read.


@pytest.mark.parametrize(("resource", "more", "expected"), QUERIES)
def test_every_query_form_finds_what_it_means(
    rig: StateRig, ana: int, resource: str, more: dict[str, object], expected: list[str]
) -> None:
    reply = read(rig, ana, resource, **more)
    assert (reply["code"], found(reply)) == (200 if expected else 404, expected)


@pytest.mark.parametrize("resource", [HYPERTY, f"/hyperty/url/{HYPERTY}", f"/hyperty/{HYPERTY}", "/hyperty/h-ana"])
def test_single_address_gives_one_object(rig: StateRig, ana: int, resource: str) -> None:
    value = cast("dict[str, object]", read(rig, ana, resource)["value"])
    assert value["hypertyID"] == HYPERTY


def test_reader_may_ask_for_a_list_and_for_pages(rig: StateRig, ana: int) -> None:
    for number in range(60):
        register(rig, ana, hyperty(url=f"hyperty://{DOMAIN}/n{number}"))
    assert len(cast("list[object]", read(rig, ana, USER, shape="list")["value"])) == 61
    assert len(found(read(rig, ana, USER, page=1))) == 50
    assert len(found(read(rig, ana, USER, page=0))) == 50
    assert len(found(read(rig, ana, USER, page=2))) == 11


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
def test_queries_that_mean_nothing_are_refused(rig: StateRig, ana: int, body: object, code: int) -> None:
    assert rig.reply(ana, REGISTRY, "read", body)["code"] == code


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        (USER, {"ana", "ana@alpha.example"}),
        ("user://idp.example/ana@mail.example", {"ana@mail.example"}),
        ("acct://alpha.example/ana", {"ana", "ana@alpha.example"}),
        ("", set()),
        ("<>", set()),
        ("user://@alpha.example", set()),
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


def test_end_of_session_disconnects_its_entries_and_reports_it(rig: StateRig, ana: int) -> None:
    listen(rig)
    result = rig.session_verb("close", RUNTIME, 1)
    assert sorted(event.to for event in result.notifications) == [f"{ROOM}/registration", f"{HYPERTY}/registration"]
    bo, _ = rig.open("rt-bo", 2)
    assert read(rig, bo, USER)["code"] == 408


def test_who_does_not_listen_costs_nothing(rig: StateRig, ana: int) -> None:
    body = {"resource": HYPERTY, "value": "disconnected", "attribute": "status"}
    assert not rig.ask(ana, REGISTRY, "update", body).notifications


def test_a_session_with_very_many_entries_ends_in_several_steps(rig: StateRig) -> None:
    sid, _ = rig.open("rt-ana", 1)
    number = 2 * REGISTRY_SWEPT_AT_ONCE + 1
    for one in range(number):
        assert register(rig, sid, hyperty(f"hyperty://{DOMAIN}/h-{one}"))["code"] == 200
    rig.keep(rig.services.sessions.connection_lost(1, now=rig.now).changes)
    rig.now += GRACE_SECONDS
    steps = []
    for sweep in (rig.services.sessions.sweep, rig.services.sweep_registry):
        while (result := sweep(now=rig.now)).changes:
            rig.keep(result.changes)
            steps.append(sum(one.table is Table.REGISTRY for one in result.changes))
    assert (sum(steps), max(steps)) == (number, REGISTRY_SWEPT_AT_ONCE)
    assert not any(entry.is_connected or entry.sid for entry in rig.state.registry._entries.values())


def test_runtime_that_comes_back_without_proof_revives_its_entries(rig: StateRig, ana: int) -> None:
    rig.services.sessions.connection_lost(1, now=rig.now)
    again, _ = rig.open("rt-ana", 2)
    assert rig.reply(again, REGISTRY, "update", {"resource": HYPERTY})["code"] == 200
    rig.now += 200
    rig.keep(rig.swept().changes)  # the displaced session ends; the entry is not its own any more
    assert read(rig, again, HYPERTY)["code"] == 200


def test_registry_is_back_after_a_restart(rig: StateRig, ana: int) -> None:
    listen(rig)
    again = rig.restarted()
    assert again.state.registry._entries == rig.state.registry._entries
    link = again.state.links.number("beta.example")
    assert found(read(again, link, USER)) == [HYPERTY]
    again.now += 200
    result = again.swept()  # nobody came back within grace
    assert len(result.notifications) == 2


def test_entries_of_sessions_that_are_gone_are_disconnected_at_restart(rig: StateRig, ana: int) -> None:
    rig.rows = {table: {} if table.value == "sessions" else rows for table, rows in rig.rows.items()}
    again = rig.restarted()
    assert [entry.status for entry in again.state.registry._entries.values()] == [Status.DISCONNECTED] * 2


# Entries that outlive their session, where the operator wants it.


@pytest.fixture
def keeping() -> tuple[StateRig, int]:
    rig = StateRig(rules=Rules(keeps_registered=True))
    sid, _ = rig.open("rt-ana", 1)
    assert register(rig, sid, hyperty())["code"] == 200
    assert register(rig, sid, {**room(), "expires": 60})["code"] == 200
    return rig, sid


def test_entries_that_are_kept_are_found_after_the_close_and_expire_in_time(keeping: tuple[StateRig, int]) -> None:
    rig, _ = keeping
    listen(rig)
    bo, _ = rig.open("rt-bo", 2)
    assert not rig.session_verb("close", RUNTIME, 1).notifications
    assert read(rig, bo, f"/hyperty/user/{USER}")["code"] == 200
    rig.now += 61
    assert [one.to for one in rig.swept().notifications] == [f"{ROOM}/registration"]
    assert read(rig, bo, ROOM)["code"] == 408
    rig.now += 3600
    rig.swept()
    assert read(rig, bo, HYPERTY)["code"] == 408


def test_only_the_runtime_of_a_kept_entry_writes_it_when_it_is_back(keeping: tuple[StateRig, int]) -> None:
    rig, _ = keeping
    rig.session_verb("close", RUNTIME, 1)
    bo, _ = rig.open("rt-bo", 2)
    for type_, body in (
        ("update", {"resource": HYPERTY, "value": {"status": "disconnected"}}),
        ("create", {"value": hyperty()}),
        ("delete", {"value": {"url": HYPERTY}}),
    ):
        assert rig.reply(bo, REGISTRY, type_, body)["reason"] == Code.NOT_OWNER.word
    sid, _ = rig.open("rt-ana", 3)
    rig.now += 3000
    assert rig.reply(sid, REGISTRY, "update", {"resource": HYPERTY})["code"] == 200
    rig.now += 3000
    rig.swept()
    assert read(rig, bo, HYPERTY)["code"] == 200
    assert rig.reply(sid, REGISTRY, "delete", {"value": {"url": HYPERTY}})["code"] == 200


def test_nobody_is_reached_by_a_kept_entry_without_its_runtime(keeping: tuple[StateRig, int]) -> None:
    rig, sid = keeping
    assert rig.state.users.live_numbers(rig.state.users.hyperties_of([(Index.USER, USER)]), 0) == (sid,)
    rig.session_verb("close", RUNTIME, 1)
    assert rig.state.users.live_numbers(rig.state.users.hyperties_of([(Index.USER, USER)]), 0) == ()


@pytest.mark.parametrize(("is_kept", "status"), [(True, Status.LIVE), (False, Status.DISCONNECTED)])
def test_entries_of_sessions_that_ended_before_a_restart_are_as_after_a_close(is_kept: bool, status: Status) -> None:
    journal = Journal()
    registry = DomainRegistry(journal)
    registry.register(HYPERTY, read_changed(hyperty()), sid=5, now=0)
    rows = {change.key: msgspec.json.encode(change.row) for change in journal.take()}
    again = DomainRegistry(Journal(), keeps_registered=is_kept)
    again.restore(rows, sids=(), now=10)
    (entry,) = again.find(Index.USER, USER)
    assert (entry.status, entry.sid) == (status, 0)


def test_entries_of_a_stub_end_with_it_although_those_of_runtimes_are_kept() -> None:
    registry = DomainRegistry(Journal(), keeps_registered=True)
    registry.register(HYPERTY, read_changed(hyperty()), sid=-5, now=0)
    (change,) = registry.disconnect_session(-5, now=10)
    assert change.status is Status.DISCONNECTED


@pytest.mark.parametrize("was_live", [True, False])
def test_the_end_of_a_session_is_reported_for_entries_that_were_live(*, was_live: bool) -> None:
    registry = DomainRegistry(Journal())
    registry.unreported.is_kept = True
    status = {} if was_live else {"status": "disconnected"}
    registry.register(HYPERTY, read_changed({**hyperty(), **status}), sid=5, now=0)
    registry.disconnect_session(5, now=10)
    assert (HYPERTY in registry.unreported) is was_live


def test_a_kept_entry_is_not_reported_to_another_registry() -> None:
    registry = DomainRegistry(Journal(), keeps_registered=True)
    registry.unreported.is_kept = True
    registry.register(HYPERTY, read_changed(hyperty()), sid=5, now=0)
    assert registry.disconnect_session(5, now=10) == []
    assert HYPERTY not in registry.unreported


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("status", [Status.DISCONNECTED, Status.DEAD])
def test_what_was_disconnected_before_its_session_ended_stays_so_from_its_end_on(status: Status, is_kept: bool) -> None:
    registry = DomainRegistry(Journal(), keeps_registered=is_kept)
    registry.register(HYPERTY, read_changed(hyperty(status=status.value)), sid=5, now=0)
    assert registry.disconnect_session(5, now=10) == []
    (entry,) = registry.find(Index.USER, USER)
    assert (entry.status, entry.sid, entry.refreshed_at) == (status, 0, 10)


def test_what_another_registry_reports_changes_known_entries_whose_status_is_another() -> None:
    journal = Journal()
    registry = DomainRegistry(journal)
    assert registry.observe(HYPERTY, Status.LIVE, now=1) == []
    registry.register(HYPERTY, read_changed(hyperty()), sid=5, now=0)
    before, _ = registry.get(HYPERTY), journal.take()
    assert registry.observe(HYPERTY, Status.LIVE, now=1) == []
    assert (registry.get(HYPERTY), journal.take()) == (before, [])
    (change,) = registry.observe(HYPERTY, Status.DISCONNECTED, now=2)
    entry = registry.get(HYPERTY)
    assert entry is not None
    assert (change.status, entry.status, entry.refreshed_at, entry.sid) == (Status.DISCONNECTED,) * 2 + (2, 5)


def test_what_an_entry_does_not_say_is_nothing_to_find_it_by_and_not_shown() -> None:
    registry = DomainRegistry(Journal())
    registry.register(HYPERTY, read_changed({**hyperty(), "guid": ""}), sid=5, now=0)
    (entry,) = registry.find(Index.USER, USER)
    assert [registry.find(index, "") for index in Index] == [[]] * len(Index)
    assert "guid" not in shown(entry)


def test_a_write_without_an_address_and_one_of_an_unknown_type_are_refused_as_such(rig: StateRig, ana: int) -> None:
    nameless = {name: value for name, value in hyperty().items() if name != "url"}
    assert rig.reply(ana, REGISTRY, "create", {"value": nameless})["reason"] == Code.BAD_BODY.word
    assert rig.reply(ana, REGISTRY, "update", {"value": {"resources": ["x"]}})["reason"] == Code.BAD_BODY.word
    assert rig.reply(ana, REGISTRY, "execute", {"resource": HYPERTY})["reason"] == Code.BAD_TYPE.word
    link = rig.state.links.number("beta.example")
    for type_ in ("create", "update", "delete"):
        reply = rig.reply(link, REGISTRY, type_, {}, from_="runtime://beta.example/mn")
        assert reply["reason"] == Code.POLICY.word


def test_who_registered_an_entry_writes_it_whatever_runtime_it_names(rig: StateRig, ana: int) -> None:
    url = f"{HYPERTY}-2"
    assert register(rig, ana, hyperty(url, runtime="runtime://alpha.example/another"))["code"] == 200
    assert rig.reply(ana, REGISTRY, "update", {"resource": url})["code"] == 200


@pytest.mark.parametrize(
    ("statuses", "code"),
    [(["live", "disconnected"], 200), (["disconnected", "live"], 200), (["disconnected"] * 2, 408), (["dead"], 408)],
)
def test_an_answer_is_good_while_one_of_its_entries_can_be_reached(
    rig: StateRig, statuses: list[str], code: int
) -> None:
    sid, _ = rig.open("rt-bo", 2)
    for number, status in enumerate(statuses):
        register(rig, sid, hyperty(f"{HYPERTY}-{number}", status=status))
    assert read(rig, sid, USER)["code"] == code


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ({"attribute": "status", "value": "disconnected"}, Changed(status=Status.DISCONNECTED)),
        ({"value": {"status": "disconnected", "name": "n"}}, Changed(status=Status.DISCONNECTED, name="n")),
        ({"method": "refresh", "value": {"status": "disconnected"}}, Changed(status=Status.DISCONNECTED)),
        ({"method": "refresh", "value": {"name": "n"}}, Changed()),
        ({"method": "refresh"}, Changed()),
        ({"value": {"name": "n"}}, Changed(name="n")),
        ({"resource": "x"}, Changed()),
        ({"resource": "x", "value": {}}, Changed()),
        ({"resource": "x", "value": None}, Changed()),
        ({"attribute": "name", "value": "n", "resource": "x"}, None),
        ({"attribute": "status", "value": 7, "resource": "x"}, None),
        ({"attribute": "status", "value": "asleep", "resource": "x"}, None),
        ({"value": "live", "resource": "x"}, None),
        ({}, None),
        ({"value": {}}, None),
    ],
)
def test_an_update_says_its_changes_in_these_forms(body: dict[str, Any], changed: Changed | None) -> None:
    value = body["value"] if isinstance(body.get("value"), dict) else {}
    if changed is not None:
        assert changed_by(body, value) == changed
        return
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        changed_by(body, value)


@pytest.mark.parametrize(
    ("page", "count"), [(None, 51), (True, 51), ("2", 51), (1, 50), (0, 50), (-1, 50), (2, 1), (3, 0)]
)
def test_who_asks_for_a_page_by_its_number_gets_it_and_all_others_everything(page: object, count: int) -> None:
    found = [RegistryEntry(url=f"{HYPERTY}-{number}", sid=1, runtime="") for number in range(PAGE_ENTRIES + 1)]
    assert PAGE_ENTRIES == 50
    for shape in ("list", "map"):
        answer = found_answer({"page": page, "shape": shape}, Query(By.USER, USER), found, lambda one: {"url": one.url})
        assert isinstance(answer.value, list | dict)
        assert len(answer.value) == count


def test_one_address_is_answered_with_one_entry_and_nothing_is_said_to_be_missing() -> None:
    found = [RegistryEntry(url=HYPERTY, sid=1, runtime="")]
    answer = found_answer({}, Query(By.URL, HYPERTY), found, lambda one: {"url": one.url})
    assert (answer.value, answer.members) == ({"url": HYPERTY}, None)


@pytest.mark.parametrize(("room", "shown"), [(1, 1), (20, 1), (39, 1), (40, 2), (59, 2), (60, 3)])
@pytest.mark.parametrize(("page", "total"), [(None, 60), (1, PAGE_ENTRIES)])
def test_an_answer_has_as_many_entries_as_there_is_room_for_and_at_least_one(
    page: int | None, total: int, room: int, shown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_service, "REGISTRY_ANSWER_CHARS", room)
    found = [RegistryEntry(url=f"{HYPERTY}-{number}", sid=1, runtime="") for number in range(60)]
    asked = {"page": page, "shape": "list"}
    answer = found_answer(
        asked, Query(By.USER, USER), found, lambda _: {"user": "x" * 12, "of": ["y" * 5, "zzz"], "n": 7}
    )
    assert isinstance(answer.value, list)
    assert (len(answer.value), answer.members) == (shown, {"more": total - shown})


def test_of_entries_that_nobody_holds_too_many_are_deleted_and_their_ends_are_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(held_entries, "REGISTRY_ABSENT_ENTRIES", 1)
    registry = DomainRegistry(Journal(), keeps_registered=True)
    for number in range(3):
        url = f"{HYPERTY}-{number}"
        registry.register(url, Changed(user=USER, descriptor="d", runtime=RUNTIME), sid=1, now=0.0)
    registry.disconnect_session(1, now=1.0)
    changes = registry.sweep(now=2.0)
    assert [(one.url, one.status) for one in changes] == [
        (f"{HYPERTY}-{number}", Status.DISCONNECTED) for number in range(2)
    ]
    assert [one.url for one in registry] == [f"{HYPERTY}-2"]
