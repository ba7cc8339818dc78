"""The digital twin: who describes things, what is kept of them, who reads it, and what survives."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import trio

from msg_node.kernel.changes import Journal, Table
from msg_node.kernel.credentials import Credential, digest_of
from msg_node.registries.core.twin import Slot, ThingRow, Twin, is_thing, slot_of
from msg_node.registries.core.twin_service import keep_value
from protofly.errors import Code, PeerError
from protofly.limits import TWIN_DESCRIPTION_BYTES, TWIN_THINGS_PER_AGENT, TWIN_VALUE_BYTES, TWIN_VALUES_PER_THING
from protofly.message import Message
from tests.support.http_runtime import opened_http
from tests.support.runtime_rig import (
    DOMAIN,
    Json,
    Runtime,
    RuntimeRig,
    a_message,
    code_and_reason,
    parsed,
    runtime_rig,
)
from tests.support.state_rig import StateRig

TWIN = f"domain://msg-node.{DOMAIN}/twin"
AGENT = f"thing://{DOMAIN}/agent-4"
LAMP = f"{AGENT}/lamp-1"
MOTION = f"{LAMP}/events/motion"
DESCRIPTION = {"@type": "Lamp", "title": "Lamp in the hall", "events": {"motion": {}}}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RuntimeRig]:
    async with runtime_rig(tmp_path) as rig:
        yield rig


async def described(rig: RuntimeRig) -> Runtime:
    """A runtime that is the agent of a lamp."""
    agent = await rig.opened("agent")
    reply = await agent.ask("create", TWIN, {"resource": LAMP, "value": DESCRIPTION})
    assert reply["body"]["value"] == {"resource": LAMP, "version": 1}
    return agent


async def read(runtime: Runtime, resource: str = "", **more: object) -> Json:
    reply = await runtime.ask("read", TWIN, {**({"resource": resource} if resource else {}), **more})
    assert reply["body"]["code"] == 200, reply
    value: Json = reply["body"]["value"]
    return value


# Descriptions.


async def test_a_description_is_read_back_as_it_was_written(rig: RuntimeRig) -> None:
    agent, ana = await described(rig), await rig.opened("ana")
    found = await read(ana, LAMP)
    assert found["description"] == DESCRIPTION
    assert (found["resource"], found["status"], found["version"], found["values"]) == (LAMP, "live", 1, {})
    assert (await read(agent, AGENT))["total"] == 1


async def test_who_describes_a_thing_of_a_free_agent_is_its_agent(rig: RuntimeRig) -> None:
    agent, other = await described(rig), await rig.opened("other")
    assert rig.state.owners.owner(AGENT) == rig.port_of("agent").sid
    for type_ in ("create", "update", "delete"):
        reply = await other.ask(type_, TWIN, {"resource": LAMP, "value": {"title": "mine"}})
        assert code_and_reason(reply) == (403, "not-owner")
    reply = await agent.ask("update", TWIN, {"resource": LAMP, "value": {"title": "new"}})
    assert reply["body"]["value"]["version"] == 2
    assert (await read(other, LAMP))["description"] == {"title": "new"}


async def test_the_same_description_again_is_no_new_version(rig: RuntimeRig) -> None:
    agent = await described(rig)
    reply = await agent.ask("create", TWIN, {"resource": LAMP, "value": DESCRIPTION})
    assert reply["body"]["value"]["version"] == 1


async def test_a_deleted_thing_is_gone_with_its_values(rig: RuntimeRig) -> None:
    agent = await described(rig)
    await agent.say(a_message("update", LAMP, MOTION, {"value": True}))
    assert (await agent.ask("delete", TWIN, {"resource": LAMP}))["body"]["value"] == {"removed": 1}
    for resource in (LAMP, MOTION):
        assert code_and_reason(await agent.ask("read", TWIN, {"resource": resource})) == (404, "not-registered")
    assert not rig.state.twin.watches
    assert code_and_reason(await agent.ask("delete", TWIN, {"resource": LAMP})) == (404, "not-registered")


async def test_deleting_an_agent_removes_all_its_things(rig: RuntimeRig) -> None:
    agent = await described(rig)
    await agent.ask("create", TWIN, {"resource": f"{AGENT}/lamp-2", "value": {}})
    assert (await agent.ask("delete", TWIN, {"resource": AGENT}))["body"]["value"] == {"removed": 2}
    assert (await read(agent))["total"] == 0


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"resource": LAMP}, (400, "bad-body")),
        ({"resource": LAMP, "value": []}, (400, "bad-body")),
        ({"resource": LAMP, "value": "x"}, (400, "bad-body")),
        ({"resource": AGENT, "value": {}}, (400, "bad-body")),
        ({"resource": f"{LAMP}/events/x", "value": {}}, (400, "bad-body")),
        ({"resource": "thing://beta.example/a/b", "value": {}}, (403, "not-owner")),
        ({"resource": f"thing://{DOMAIN}", "value": {}}, (400, "bad-body")),
        ({"resource": "nonsense", "value": {}}, (400, "bad-body")),
        ({"resource": LAMP, "value": {"x": "y" * TWIN_DESCRIPTION_BYTES}}, (413, "too-large")),
        ({"resource": LAMP, "queue": 5}, (400, "bad-body")),
    ],
)
async def test_what_is_no_description_of_a_thing_of_ours_is_refused_and_changes_nothing(
    rig: RuntimeRig, body: Json, code: tuple[int, str]
) -> None:
    agent = await rig.opened("agent")
    assert code_and_reason(await agent.ask("create", TWIN, body)) == code
    assert (await read(agent))["total"] == 0
    assert rig.state.owners.owner(AGENT) is None


async def test_an_agent_says_how_requests_wait_for_it(rig: RuntimeRig) -> None:
    agent = await rig.opened("agent")
    reply = await agent.ask("create", TWIN, {"resource": AGENT, "queue": {"expires": 60, "max": 3}})
    assert reply["body"]["value"] == {"resource": AGENT, "queue": {"expires": 60, "max": 3}}
    assert rig.state.delivery.queues.rules(AGENT) == (60.0, 3)


async def test_the_directory_is_read_in_pages_and_by_criteria(rig: RuntimeRig) -> None:
    agent = await described(rig)
    for number in range(60):
        reply = await agent.ask("create", TWIN, {"resource": f"{AGENT}/n{number}", "value": {"@type": ["A", "B"]}})
        assert reply["body"]["code"] == 200
    first, second = await read(agent), await read(agent, page=2)
    assert (len(first["things"]), len(second["things"]), first["pages"], first["total"]) == (50, 11, 2, 61)
    assert [one["resource"] for one in (await read(agent, criteria={"type": "Lamp"}))["things"]] == [LAMP]
    assert (await read(agent, criteria={"type": "B"}))["total"] == 60
    assert (await read(agent, criteria={"since": 4e9}))["total"] == 0
    wrongs: list[Json] = [{"page": 0}, {"page": "1"}, {"criteria": []}, {"criteria": {"since": "x"}}]
    for wrong in wrongs:
        assert code_and_reason(await agent.ask("read", TWIN, wrong)) == (400, "bad-body")


async def test_a_page_that_would_not_fit_into_a_message_leaves_descriptions_out(rig: RuntimeRig) -> None:
    agent = await rig.opened("agent")
    for number in range(6):
        value = {"x": "y" * (TWIN_DESCRIPTION_BYTES - 100)}
        await agent.ask("create", TWIN, {"resource": f"{AGENT}/n{number}", "value": value})
    things = (await read(agent))["things"]
    assert ["description" in one for one in things] == [True] * 4 + [False] * 2


# Values.


async def test_the_latest_value_of_each_event_and_property_is_kept(rig: RuntimeRig) -> None:
    agent, ana = await described(rig), await rig.opened("ana")
    await agent.say(
        a_message("update", LAMP, MOTION, {"value": 1}),
        a_message("update", LAMP, MOTION, {"value": 2, "timestamp": "2031-04-01T08:00:00Z"}),
        a_message("update", LAMP, f"{LAMP}/properties/on", {"value": {"is": True}}),
        a_message("update", LAMP, f"{LAMP}/changes", {"attribute": "colour", "value": "red"}),
    )
    await agent.heard()
    values = (await read(ana, LAMP))["values"]
    assert {name: one["value"] for name, one in values.items()} == {
        "events/motion": 2,
        "properties/on": {"is": True},
        "properties/colour": "red",
    }
    assert values["events/motion"]["timestamp"] == "2031-04-01T08:00:00Z"
    assert values["events/motion"]["source"] == LAMP
    assert (await read(ana, MOTION))["value"] == 2


async def test_listeners_get_events_of_a_thing_that_is_kept_too(rig: RuntimeRig) -> None:
    agent, ana = await described(rig), await rig.opened("ana")
    reply = await ana.subscribed(f"{LAMP}/changes")
    assert reply["body"]["code"] == 200
    await agent.say(a_message("update", LAMP, f"{LAMP}/changes", {"attribute": "on", "value": 1}))
    assert (await ana.next())["body"] == {"attribute": "on", "value": 1}
    assert (await read(ana, LAMP))["values"]["properties/on"]["value"] == 1


async def test_only_the_agent_gives_values(rig: RuntimeRig) -> None:
    agent, ana = await described(rig), await rig.opened("ana")
    await ana.say(
        a_message("update", ana.address, MOTION, {"value": "forged"}),
        a_message("update", LAMP, MOTION, {"value": "forged"}),
        a_message("event", ana.address, MOTION, {"value": "forged"}),
    )
    await ana.heard()
    assert (await read(agent, LAMP))["values"] == {}


async def test_values_without_a_description_are_not_kept(rig: RuntimeRig) -> None:
    agent = await described(rig)
    other = f"{AGENT}/lamp-2"
    await agent.say(a_message("update", other, f"{other}/events/motion", {"value": 1}))
    await agent.heard()
    assert code_and_reason(await agent.ask("read", TWIN, {"resource": other})) == (404, "not-registered")


@pytest.mark.parametrize("body", [None, {}, {"attribute": "x"}, {"attribute": 5, "value": 1}, {"timestamp": 7}])
async def test_events_without_a_value_pass_and_leave_nothing(rig: RuntimeRig, body: Json | None) -> None:
    agent = await described(rig)
    await agent.say(a_message("update", LAMP, f"{LAMP}/changes", body), a_message("update", LAMP, MOTION, body))
    await agent.heard()
    values = (await read(agent, LAMP))["values"]
    assert [one["value"] for one in values.values()] == ([1] if body and "value" in body else [])


async def test_objects_that_the_operator_names_are_kept_as_well(tmp_path: Path) -> None:
    room = f"comm://{DOMAIN}/room"
    async with runtime_rig(tmp_path, kept_objects=[f"{room}/*"]) as rig:
        ana, bob = await rig.opened("ana"), await rig.opened("bob")
        await ana.subscribed(f"{room}/a/subscription", f"{room}/a")
        await ana.say(a_message("update", f"{room}/a", f"{room}/a/changes", {"attribute": "topic", "value": "x"}))
        await ana.heard()
        values = (await read(bob, f"{room}/a"))["values"]
        assert values["topic"]["value"] == "x"


@pytest.fixture
def kept() -> StateRig:
    """A state whose twin keeps a lamp and a room; session 1 is the agent of both, session 2 is not."""
    rig = StateRig(kept_objects=[f"comm://{DOMAIN}/room"])
    agent, _ = rig.open("agent", 1)
    rig.open("other", 2)
    for key in (AGENT, f"comm://{DOMAIN}/room"):
        rig.state.owners.claim(agent, key)
    rig.state.twin.describe("", LAMP, b"{}", now=0.0)
    return rig


@pytest.mark.parametrize("thing", [LAMP, f"comm://{DOMAIN}/room", f"{AGENT}/undescribed"])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    ("type_", "end", "body", "name"),
    [
        ("update", "/events/motion", b'{"value":1}', "events/motion"),
        ("event", "/events/motion", b'{"value":1}', "events/motion"),
        ("create", "/properties/on", b'{"value":1}', "properties/on"),
        ("update", "/changes", b'{"value":1,"attribute":"on"}', "on"),
        ("update", "/changes", b'{"value":1,"attribute":"a"}', "a"),
        ("update", "/changes", b'{"value":1,"attribute":"%b"}' % (b"x" * 256), "x" * 256),
        ("update", "/changes", b'{"value":1,"attribute":"%b"}' % (b"x" * 257), ""),
        ("update", "/changes", b'{"value":1,"attribute":"a b"}', ""),
        ("update", "/changes", b'{"value":1,"attribute":""}', ""),
        ("update", "/changes", b'{"value":1,"attribute":7}', ""),
        ("update", "/changes", b'{"attribute":"on"}', ""),
        ("update", "", b'{"value":1,"attribute":"on"}', ""),
        ("update", "/changes", b"", ""),
        ("update", "/changes", b"[1]", ""),
        ("update", "/changes", b'{"value":1,"attribute":"\xff"}', ""),
        ("update", "/changes", b'{"value":1,"attribute":' + b"[" * 100_000, ""),
        *((type_, "/events/motion", b'{"value":1}', "") for type_ in ("read", "execute", "response", "delete")),
    ],
)
def test_only_values_that_the_agent_of_a_kept_thing_or_object_reports_are_kept(
    kept: StateRig, type_: str, end: str, body: bytes, name: str, number: int, thing: str
) -> None:
    message = Message(b"1", type_, thing, thing + end, body, b"")
    keep_value(kept.state, message, number, 5.0)
    is_kept = bool(name) and number == 1 and thing != f"{AGENT}/undescribed"
    is_kept = is_kept and (thing == LAMP or end == "/changes")
    if thing == LAMP and end == "/changes":
        name = f"properties/{name}"
    values = {key: bytes(one.value) for key, one in kept.state.twin.values(thing).items()}
    assert values == ({name: b"1"} if is_kept else {})


@pytest.mark.parametrize(
    ("timestamp", "kept_text"), [(b'"%b"' % (b"x" * 64), "x" * 64), (b'"%b"' % (b"x" * 65), "x" * 64), (b"7", "")]
)
def test_a_timestamp_is_a_text_that_is_cut(kept: StateRig, timestamp: bytes, kept_text: str) -> None:
    keep_value(
        kept.state, Message(b"1", "update", LAMP, MOTION, b'{"value":1,"timestamp":%b}' % timestamp, b""), 1, 5.0
    )
    assert kept.state.twin.values(LAMP)["events/motion"].timestamp == kept_text


def test_of_objects_that_are_not_kept_any_more_nothing_is_kept_and_of_things_all() -> None:
    journal = Journal()
    twin, room = Twin(journal, objects=[f"comm://{DOMAIN}/*"]), f"comm://{DOMAIN}/room"
    twin.describe(LAMP, LAMP, b"{}", now=0.0)
    for key in (LAMP, room):
        assert twin.keep(Slot(key, "on"), b"1", "", now=1.0)
    twin.store_values()
    journal.take()
    twin.follow([f"comm://{DOMAIN}/other"])
    assert (list(twin.values(LAMP)), twin.values(room)) == (["on"], {})
    assert (twin.keeps(room), twin.keeps(f"comm://{DOMAIN}/other"), twin.keeps(LAMP)) == (False, True, True)
    assert [change.key for change in journal.take()] == [f"{room} on"]
    assert twin.statistics()["size_bytes"] == 3  # the description, and one value


# Who reads.


async def test_the_twin_is_not_for_other_domains(rig: RuntimeRig) -> None:
    await described(rig)
    asked = parsed(a_message("read", "hyperty://beta.example/h", TWIN, {"resource": LAMP}, id_=1))
    rig.bus.from_links.take("beta.example", [asked])
    while not (refusals := rig.domains.take()):
        await trio.lowlevel.checkpoint()
    [refusal] = refusals
    assert (refusal["body"]["code"], refusal["body"]["reason"]) == (403, "policy")


async def test_an_operator_deletes_what_nobody_answers_for(tmp_path: Path) -> None:
    credential = Credential(digest_of("secret"), f"runtime://{DOMAIN}/op", frozenset({"operator"}))
    async with runtime_rig(tmp_path, credentials=[credential]) as rig:
        agent = await described(rig)
        await agent.wire.cut()
        operator = await rig.runtime(bearer="secret")
        await operator.open("op")
        await rig.until("sessions lost")
        assert (await read(operator, LAMP))["status"] == "disconnected"
        assert (await operator.ask("delete", TWIN, {"resource": LAMP}))["body"]["code"] == 200


async def test_the_twin_is_read_over_http_without_a_message(rig: RuntimeRig) -> None:
    agent, ana = await described(rig), await opened_http(rig)
    await agent.say(a_message("update", LAMP, MOTION, {"value": 7}))
    await agent.heard()
    for target, expected in ((LAMP, DESCRIPTION), (MOTION, 7), ("", 1)):
        answer = await ana.posts.fetch("GET", f"/twin?resource={target}", headers=ana.headers)
        assert answer.status == 200
        found = json.loads(answer.body)
        assert expected in (found.get("description"), found.get("value"), found.get("total"))
    answer = await ana.posts.fetch("GET", f"/twin?resource={AGENT}/none", headers=ana.headers)
    assert (answer.status, json.loads(answer.body)["reason"]) == (404, "not-registered")
    for resource in ("nonsense", "thing://beta.example/a/b", "%00"):
        answer = await ana.posts.fetch("GET", f"/twin?resource={resource}", headers=ana.headers)
        assert answer.status >= 400
    assert (await ana.posts.fetch("GET", f"/twin?resource={LAMP}")).status == 401


# What survives, and bounds.


async def test_descriptions_and_values_survive_a_restart(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        agent = await described(rig)
        await agent.say(a_message("update", LAMP, MOTION, {"value": [1, 2]}))
        await agent.heard()
        rig.bus.effects.sweep_sessions(time.time())
    async with runtime_rig(tmp_path) as rig:
        ana = await rig.opened("ana")
        found = await read(ana, LAMP)
        assert (found["description"], found["status"]) == (DESCRIPTION, "disconnected")
        assert found["values"]["events/motion"]["value"] == [1, 2]


def test_slots_are_events_and_properties_of_things() -> None:
    assert slot_of(MOTION) == Slot(LAMP, "events/motion")
    assert slot_of(f"{LAMP}/properties/on") == Slot(LAMP, "properties/on")
    for key in (LAMP, f"{LAMP}/events", f"{LAMP}/events/a/b", f"{LAMP}/actions/x", f"comm://{DOMAIN}/a/b/events/c"):
        assert slot_of(key) is None
    for key in (f"{LAMP}/events/", f"{AGENT}//events/x", f"thing://{DOMAIN}//lamp/events/x", f"{AGENT}/events/x"):
        assert slot_of(key) is None


@pytest.mark.parametrize(
    ("key", "is_so"),
    [
        (LAMP, True),
        (AGENT, False),
        (f"{AGENT}/", False),
        (f"{LAMP}/x", False),
        (f"thing://{DOMAIN}//lamp", False),
        (f"comm://{DOMAIN}/a/b", False),
    ],
)
def test_a_thing_is_named_by_its_agent_and_its_name(key: str, is_so: bool) -> None:
    assert is_thing(key) is is_so


def test_descriptions_and_values_have_so_many_bytes_and_no_more() -> None:
    twin = Twin(Journal())
    longest = b'"' + b"x" * (TWIN_DESCRIPTION_BYTES - 2) + b'"'
    assert twin.describe("", LAMP, longest, now=0.0).version == 1
    with pytest.raises(PeerError, match=Code.TOO_LARGE.word):
        twin.describe("", LAMP, longest + b" ", now=0.0)
    assert twin.keep(Slot(LAMP, "events/x"), b"1" * TWIN_VALUE_BYTES, "", now=0.0)
    assert not twin.keep(Slot(LAMP, "events/y"), b"1" * (TWIN_VALUE_BYTES + 1), "", now=0.0)
    assert twin.size_of(LAMP, has_values=True) == TWIN_DESCRIPTION_BYTES + TWIN_VALUE_BYTES
    assert twin.size_of(LAMP, has_values=False) == TWIN_DESCRIPTION_BYTES


def test_only_things_are_described_and_the_same_words_are_no_new_version() -> None:
    journal = Journal()
    twin = Twin(journal)
    for key in (AGENT, f"{LAMP}/events/motion", f"comm://{DOMAIN}/a/b"):
        with pytest.raises(PeerError, match=Code.BAD_BODY.word):
            twin.describe("", key, b"{}", now=0.0)
    assert [twin.describe("", LAMP, raw, now=float(len(raw))).version for raw in (b"{}", b"{}", b"{ }")] == [1, 1, 2]
    assert len(journal.take()) == 2


def test_a_full_twin_takes_a_changed_description_of_as_many_bytes() -> None:
    twin = Twin(Journal(), max_things=1, max_bytes=7)
    assert twin.describe("", LAMP, b'{"a":1}', now=0.0).version == 1
    assert twin.describe("", LAMP, b'{"b":1}', now=0.0).version == 2
    with pytest.raises(PeerError, match=Code.QUOTA.word):
        twin.describe("", LAMP, b'{"b":12}', now=0.0)
    with pytest.raises(PeerError, match=Code.QUOTA.word):
        twin.describe("", f"{AGENT}/other", b"", now=0.0)
    assert twin.statistics()["size_bytes"] == 7
    assert (twin.remove(LAMP), twin.remove(LAMP), twin.statistics()["size_bytes"]) == (True, False, 0)


def thing(description: bytes, modified_at: float) -> ThingRow:
    return ThingRow(url=LAMP, description=msgspec.Raw(description), version=1, modified_at=modified_at)


@pytest.mark.parametrize(
    ("key", "row", "is_taken", "size_bytes"),
    [
        (LAMP, thing(b'{"b":1}', 2.0), True, 7),
        (LAMP, thing(b'{"b":12}', 2.0), True, 8),
        (LAMP, thing(b'{"b":123}', 2.0), False, 7),
        (LAMP, thing(b"{}", 2.0), True, 2),
        (LAMP, thing(b'{"b":1}', 1.0), False, 7),
        (f"{AGENT}/other", thing(b"1", 2.0), False, 7),
    ],
)
def test_a_newer_thing_is_taken_over_from_another_node_where_there_is_room(
    key: str, row: ThingRow, is_taken: bool, size_bytes: int
) -> None:
    journal = Journal()
    twin = Twin(journal, max_things=1, max_bytes=8)
    twin.describe(LAMP, LAMP, b'{"a":1}', now=1.0)
    journal.take()
    assert twin.adopt(key, row) is is_taken
    assert twin.statistics()["size_bytes"] == size_bytes
    assert journal.take() == [], "it is not stored yet"


def test_a_twin_watches_while_it_keeps_a_thing_or_an_object() -> None:
    twin, objects = Twin(Journal()), Twin(Journal(), objects=[f"comm://{DOMAIN}/*"])
    assert (twin.watches, objects.watches) == (False, True)
    for one in (twin, objects):
        for key in (LAMP, f"{AGENT}/other"):
            one.describe(key, key, b"{}", now=0.0)
        one.remove(LAMP)
        assert one.watches
        assert [key for key, _ in one.things(AGENT)] == [f"{AGENT}/other"]
        one.remove(f"{AGENT}/other")
        assert list(one.things(AGENT)) == list(one.things()) == []
    assert (twin.watches, objects.watches) == (False, True)


def test_a_twin_takes_so_many_things_values_and_bytes_and_no_more() -> None:
    twin = Twin(Journal(), max_things=TWIN_THINGS_PER_AGENT + 1, max_bytes=1_000_000)
    for number in range(TWIN_THINGS_PER_AGENT):
        twin.describe("", f"{AGENT}/{number}", b"{}", now=0.0)
    with pytest.raises(PeerError, match=Code.QUOTA.word):
        twin.describe("", f"{AGENT}/more", b"{}", now=0.0)
    twin.describe("", f"{AGENT}-2/one", b"{}", now=0.0)
    with pytest.raises(PeerError, match=Code.QUOTA.word):
        twin.describe("", f"{AGENT}-2/two", b"{}", now=0.0)
    key = f"{AGENT}/0"
    taken = [twin.keep(Slot(key, f"events/{number}"), b"1", "", now=0.0) for number in range(TWIN_VALUES_PER_THING + 1)]
    assert taken == [True] * TWIN_VALUES_PER_THING + [False]
    assert not twin.keep(Slot(key, "events/0"), b"1" * (TWIN_VALUE_BYTES + 1), "", now=0.0)
    assert twin.statistics()["values_refused"] == 2
    small = Twin(Journal(), max_bytes=10)
    small.describe("", f"{AGENT}/0", b'{"a":1}', now=0.0)
    assert not small.keep(Slot(key, "events/0"), b"12345", "", now=0.0)
    assert small.keep(Slot(key, "events/0"), b"123", "", now=0.0)
    with pytest.raises(PeerError, match=Code.QUOTA.word):
        small.describe("", f"{AGENT}/1", b"{}", now=0.0)
    small.remove(key)
    small.describe("", f"{AGENT}/1", b"{}", now=0.0)


def test_a_first_value_that_is_refused_leaves_nothing() -> None:
    twin = Twin(Journal(), objects=[f"comm://{DOMAIN}/*"])
    slot = Slot(f"comm://{DOMAIN}/room", "properties/x")
    assert not twin.keep(slot, b"1" * (TWIN_VALUE_BYTES + 1), "", now=0.0)
    assert twin._values == {}
    assert twin.keep(slot, b"1", "", now=0.0)
    assert list(twin.values(slot.key)) == ["properties/x"]


def test_a_value_that_changes_often_is_written_once() -> None:
    journal = Journal()
    twin = Twin(journal)
    twin.describe("", LAMP, b"{}", now=0.0)
    journal.take()
    for number in range(100):
        twin.keep(Slot(LAMP, "events/motion"), str(number).encode(), LAMP, now=0.0)
    twin.store_values()
    [change] = journal.take()
    assert change.table is Table.TWIN_VALUES
    twin.store_values()
    assert journal.take() == []
