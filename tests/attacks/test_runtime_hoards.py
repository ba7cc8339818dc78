"""Runtimes that keep all they can at the node, or ask for a list of it: each has a part, and lists are bounded."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import msgspec
import pytest

from msg_node.addresses.core.allocation import Block, Owners, is_below_any
from msg_node.addresses.core.subscriptions import Listeners, Subscription
from msg_node.kernel.changes import Journal
from msg_node.kernel.service import Answer
from msg_node.registries.core import held_entries, registry_query
from msg_node.registries.core.registry import DomainRegistry, identifiers_of
from msg_node.registries.core.registry_entry import read_changed, shown
from msg_node.registries.core.registry_query import Query, find, read_query
from msg_node.registries.core.registry_service import found_answer
from msg_node.registries.core.twin import Slot, Twin
from msg_node.requests.core import inbox
from msg_node.requests.core.guaranteed_events import GuaranteedEvents
from msg_node.requests.core.inbox import Inboxes, Notice
from msg_node.requests.core.parked import Sender, Submission
from msg_node.requests.core.parking import Bounds, Parking
from protofly import codec
from protofly.errors import Code, PeerError
from protofly.limits import (
    GUARANTEED_BYTES_PER_SESSION,
    GUARANTEED_PER_SESSION,
    INBOX_BYTES_PER_RUNTIME,
    NAMES_CHARS_PER_SESSION,
    REGISTRY_ANSWER_CHARS,
    REGISTRY_CHARS_PER_SESSION,
    REGISTRY_ENTRY_CHARS,
    TWIN_BYTES_PER_RUNTIME,
    TWIN_DESCRIPTION_BYTES,
    TWIN_THINGS_PER_RUNTIME,
    TWIN_VALUE_BYTES,
)
from tests.support.runtime_rig import DOMAIN, runtime_rig

EVE, BO = 1, 2
USER = f"user://{DOMAIN}/ana"
OWN_DOMAINS = frozenset({DOMAIN})
NEARLY_ALL = "d" * (REGISTRY_ENTRY_CHARS // 4 - 100)


def is_refused(code: Code) -> pytest.RaisesExc[PeerError]:
    return pytest.raises(PeerError, check=lambda error: error.code is code)


def hyperty(number: int) -> str:
    return f"hyperty://{DOMAIN}/h-{number}"


def a_registration(**members: object) -> dict[str, object]:
    return {"user": USER, "descriptor": "d", "runtime": f"runtime://{DOMAIN}/rt", **members}


def register(registry: DomainRegistry, number: int, sid: int, **members: object) -> None:
    registry.register(hyperty(number), read_changed(a_registration(**members)), sid=sid, now=0.0)


def by_user(**criteria: object) -> Query:
    members = {"resource": USER, "criteria": criteria}
    return read_query(members, domain=DOMAIN, own_domains=OWN_DOMAINS)


# Registry.


def test_an_entry_of_long_lists_is_refused_whole() -> None:
    registry = DomainRegistry(Journal())
    with is_refused(Code.TOO_LARGE):
        register(registry, 1, EVE, resources=[f"{number:04}{'r' * 1990}" for number in range(100)])
    register(registry, 1, EVE)
    with is_refused(Code.TOO_LARGE):
        registry.update(
            hyperty(1), read_changed({"dataSchemes": [NEARLY_ALL + str(n) for n in range(5)]}), sid=EVE, now=1
        )
    assert [entry.data_schemes for entry in registry] == [()]


def test_entries_of_a_session_have_so_many_characters_and_others_have_theirs() -> None:
    registry = DomainRegistry(Journal())
    texts = {"descriptor": NEARLY_ALL[:2000], "p2pHandler": "h" * 2000, "p2pRequester": "r" * 2000}
    with is_refused(Code.QUOTA):
        for number in range(REGISTRY_CHARS_PER_SESSION // 6000 + 1):
            register(registry, number, EVE, **texts)
    full = len(registry)
    assert full > REGISTRY_CHARS_PER_SESSION // 7000
    register(registry, full + 1, BO, **texts)
    registry.update(hyperty(0), read_changed({}), sid=EVE, now=1.0)  # a keep-alive takes no room
    registry.delete(hyperty(0))
    register(registry, 0, EVE, **texts)


def test_an_answer_has_room_for_so_much_and_says_how_much_more_there_is() -> None:
    registry = DomainRegistry(Journal())
    for number in range(200):
        register(registry, number, EVE, p2pHandler="h" * 2000, p2pRequester="r" * 2000)
    found = find(registry, by_user())

    def answer(**members: object) -> tuple[int, int]:
        made: Answer = found_answer(members, by_user(), found, shown)
        assert isinstance(made.value, (dict, list))
        assert len(json.dumps(made.value)) < 2 * REGISTRY_ANSWER_CHARS
        more = (made.members or {}).get("more", 0)
        assert isinstance(more, int)
        return len(made.value), more

    listed, more = answer()
    assert listed > 100
    assert listed + more == 200
    assert answer(shape="list") == (listed, more)
    assert answer(page=1) == (50, 0)  # a page always has room
    assert answer(page=5) == (0, 0)


def test_who_leaves_and_comes_again_fills_a_bounded_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_entries, "REGISTRY_ABSENT_ENTRIES", 3)
    registry = DomainRegistry(Journal())
    register(registry, 100, BO)
    for sid in range(10, 20):
        register(registry, sid, sid)
        registry.disconnect_session(sid, now=float(sid))
        registry.sweep(now=float(sid))
    assert [entry.url for entry in registry] == [hyperty(number) for number in (100, 17, 18, 19)]


def test_who_leaves_and_comes_again_fills_bounded_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_entries, "REGISTRY_ABSENT_CHARS", 5000)
    registry = DomainRegistry(Journal())
    for sid in range(10, 20):
        register(registry, sid, sid, p2pHandler="h" * 2000)
        registry.disconnect_session(sid, now=float(sid))
        registry.sweep(now=float(sid))
    assert [entry.url for entry in registry] == [hyperty(18), hyperty(19)]


def test_a_filter_reads_a_user_of_thousands_of_entries_once(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = DomainRegistry(Journal())
    for number in range(100):
        register(registry, number, EVE)
    read: list[str] = []

    def reading(user: str) -> set[str]:
        read.append(user)
        return identifiers_of(user)

    monkeypatch.setattr(registry_query, "identifiers_of", reading)
    assert len(find(registry, by_user(filter="idp-identifier"))) == 100
    assert len(read) <= 2


@pytest.mark.parametrize(
    ("criteria", "count"),
    [
        ({}, 1),
        ({"scheme": "HYPERTY"}, 1),
        ({"scheme": "runtime"}, 1),
        ({"scheme": "comm"}, 0),
        ({"resources": ["x"]}, 0),
    ],
)
def test_filters_find_what_they_found_before(criteria: dict[str, object], count: int) -> None:
    registry = DomainRegistry(Journal())
    url = f"Hyperty-Runtime://{DOMAIN}/rt" if criteria.get("scheme") == "runtime" else f"HYPERTY://{DOMAIN}/h"
    registry.register(url, read_changed(a_registration(resources=["chat"])), sid=EVE, now=0.0)
    members = {"resource": url, "criteria": criteria}
    assert len(find(registry, read_query(members, domain=DOMAIN, own_domains=OWN_DOMAINS))) == count


# Addresses and subscriptions.


def test_addresses_and_allocation_keys_of_a_session_have_so_many_characters() -> None:
    owners = Owners(Journal())
    with is_refused(Code.QUOTA):
        for number in range(10_000):
            owners.claim(EVE, f"comm://{DOMAIN}/{'x' * 1900}{number}")
    claimed = owners.count(EVE)
    assert claimed <= NAMES_CHARS_PER_SESSION // 1900
    assert owners.claim(BO, f"comm://{DOMAIN}/{'y' * 1900}")
    owners.release({EVE}, f"comm://{DOMAIN}/{'x' * 1900}0")
    assert owners.claim(EVE, f"comm://{DOMAIN}/{'z' * 1900}")
    owners.release_all(EVE)
    with is_refused(Code.QUOTA):
        for number in range(100):
            owners.allocate(EVE, Block("comm", DOMAIN, 100, "k" * 2000, number.to_bytes(32, "big")))
    assert owners.count(EVE) <= NAMES_CHARS_PER_SESSION // 2000
    owners.release_all(EVE)
    owners.release_all(BO)
    assert dict(owners._chars) == {}


def test_subscriptions_of_a_session_have_so_many_characters() -> None:
    listeners = Listeners(Journal())
    urls = [f"comm://{DOMAIN}/{'x' * 1900}{number}/changes" for number in range(2000)]
    with is_refused(Code.QUOTA):
        for url in urls:
            listeners.add(EVE, [Subscription(url, url, f"hyperty://{DOMAIN}/h")])
    assert listeners.count(EVE) <= NAMES_CHARS_PER_SESSION // 1900
    listeners.add(EVE, [Subscription(urls[0], urls[0], f"hyperty://{DOMAIN}/h")])  # nothing new
    listeners.add(BO, [Subscription(urls[0], urls[0], "")])
    listeners.remove_all(EVE)
    listeners.remove_all(BO)
    assert (listeners._chars, listeners._sorted) == ({}, {})


def test_a_released_address_ends_subscriptions_to_it_and_its_parts_and_to_nothing_else() -> None:
    parts = ("", "/", "/a", "/a/b", "/*", "#1", "?q", "0", "-x", "~", "/../x", "%2Fa", "/children/")
    keys = [f"comm://{DOMAIN}/{name}{part}" for name, part in product(("room", "roo", "Room", "room-1"), parts)]
    for base in [f"comm://{DOMAIN}/room", f"comm://{DOMAIN}/room/a", f"comm://{DOMAIN}/roo"]:
        listeners = Listeners(Journal())
        listeners.add(EVE, [Subscription(key, key, source) for key in keys for source in ("", "s")])
        listeners.add(BO, [Subscription(key, key, "") for key in keys])
        listeners.remove_at(EVE, base)
        left = {one.key for one in listeners.subscriptions(EVE)}
        assert left == {key for key in keys if not is_below_any(key, {base})}
        assert listeners.count(BO) == len(keys)


# Twin.


def describe(twin: Twin, name: str, size: int, runtime: str) -> None:
    key = f"thing://{DOMAIN}/agent-of-{runtime}/{name}"
    twin.describe(key, key, b'{"@type":"' + b"x" * (size - 12) + b'"}', now=1.0, runtime=runtime)


def test_a_runtime_fills_a_part_of_the_twin_however_many_agents_it_has() -> None:
    journal = Journal()
    twin = Twin(journal)
    with is_refused(Code.QUOTA):
        for number in range(1000):
            describe(twin, str(number), TWIN_DESCRIPTION_BYTES, "eve")
    assert twin.statistics()["size_bytes"] == TWIN_BYTES_PER_RUNTIME
    slot = Slot(f"thing://{DOMAIN}/agent-of-eve/0", "events/x")
    assert not twin.keep(slot, b'"x"', "eve", now=1.0)  # values count as well
    describe(twin, "lamp", 100, "bo")
    twin.remove(slot.key)
    assert twin.keep(Slot(f"thing://{DOMAIN}/agent-of-eve/1", "events/x"), b'"x"', "eve", now=1.0)
    describe(twin, "0", TWIN_DESCRIPTION_BYTES - TWIN_VALUE_BYTES, "eve")
    for key, _ in twin.things():
        twin.remove(key)
    assert twin.statistics()["size_bytes"] == 0


def test_a_runtime_describes_so_many_things_and_others_have_theirs() -> None:
    twin = Twin(Journal())
    for number in range(TWIN_THINGS_PER_RUNTIME):
        key = f"thing://{DOMAIN}/agent-{number % 3}/{number}"
        twin.describe(key, key, b"{}", now=1.0, runtime="eve")
    key = f"thing://{DOMAIN}/agent-9/1"
    with is_refused(Code.QUOTA):
        twin.describe(key, key, b"{}", now=1.0, runtime="eve")
    twin.describe(key, key, b"{}", now=1.0, runtime="bo")
    known = f"thing://{DOMAIN}/agent-0/0"
    assert twin.describe(known, known, b'{"a":1}', now=2.0, runtime="eve").version == 2


@pytest.mark.parametrize(
    ("type_", "texts"), [("Lamp", {"Lamp"}), (["A", 1, {"x": 2}, "B"], {"A", "B"}), (7, set()), (None, set())]
)
def test_types_are_read_when_a_thing_is_described(type_: object, texts: set[str]) -> None:
    twin = Twin(Journal())
    key = f"thing://{DOMAIN}/agent/lamp"
    twin.describe(key, key, msgspec.json.encode({"@type": type_, "x": [1]}), now=1.0)
    assert twin.types_of(key) == texts
    twin.remove(key)
    assert twin.types_of(key) == set()


# Parked requests.


def test_a_sender_fills_a_part_of_what_may_wait_and_leaves_room_for_others() -> None:
    to = f"thing://{DOMAIN}/agent/lamp/actions/go"
    request = codec.build(id=7, type="execute", from_=hyperty(1), to=to, body={"class": "action", "x": "y" * 1000})
    size = len(request.raw)
    parking = Parking(Journal(), Bounds(bytes=4 * size, bytes_per_sender=2 * size))
    eve, bo = Sender("runtime://x/eve"), Sender("runtime://x/bo")
    entry = parking.submit(Submission(request, to, eve, "d-1", 60.0), 1.0)
    parking.submit(Submission(request, to, eve, "d-2", 60.0), 1.0)
    with is_refused(Code.QUOTA):
        parking.submit(Submission(request, to, eve, "d-3", 60.0), 1.0)
    parking.submit(Submission(request, to, bo, "d-4", 60.0), 1.0)
    parking.submit(Submission(request, to, bo, "d-5", 60.0), 1.0)
    with is_refused(Code.OVERLOAD):
        parking.submit(Submission(request, to, Sender("runtime://x/cleo"), "d-6", 60.0), 1.0)
    parking._remove(entry)
    parking.submit(Submission(request, to, eve, "d-7", 60.0), 1.0)


# Inboxes.


def deposit(inboxes: Inboxes, number: int, runtime: str, size: int, owner: str = "") -> None:
    body = msgspec.json.encode({"requestId": f"d-{number}", "status": "completed", "value": "v" * size})
    notice = Notice(owner or hyperty(number), Sender(runtime), f"d-{number}", "thing://q", body, is_final=True)
    inboxes.deposit(notice, float(number))


def waiting(inboxes: Inboxes, runtime: str) -> list[str]:
    return [one.request_id for one in inboxes if one.sender.runtime_key == runtime]


def test_results_for_one_runtime_have_a_bound_for_all_its_addresses_and_the_oldest_make_way() -> None:
    inboxes = Inboxes(Journal())
    deposit(inboxes, 0, "bo", 100)
    for number in range(1, 31):
        deposit(inboxes, number, "eve", INBOX_BYTES_PER_RUNTIME // 10)
    assert waiting(inboxes, "eve") == [f"d-{number}" for number in range(22, 31)]
    assert waiting(inboxes, "bo") == ["d-0"]
    assert inboxes.dropped == 21
    for owner in list(inboxes.owners()):
        inboxes.acknowledge(owner, [one.number for one in inboxes.of_owner(owner)])
    assert (inboxes._waiting, dict(inboxes._bytes), inboxes._of_runtime) == ({}, {}, {})


def test_where_all_inboxes_are_full_the_runtime_with_most_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "INBOX_BYTES", 5000)
    inboxes = Inboxes(Journal())
    deposit(inboxes, 0, "bo", 100)
    for number in range(1, 20):
        deposit(inboxes, number, "eve", 1000)
    deposit(inboxes, 20, "cleo", 1000)
    assert (waiting(inboxes, "bo"), waiting(inboxes, "cleo")) == (["d-0"], ["d-20"])
    assert waiting(inboxes, "eve") == ["d-17", "d-18", "d-19"]
    few = Inboxes(Journal(), max_entries=3)
    deposit(few, 0, "bo", 10)
    for number in range(1, 9):
        deposit(few, number, "eve", 10)
    assert (waiting(few, "bo"), waiting(few, "eve")) == (["d-0"], ["d-7", "d-8"])


async def test_a_page_of_long_results_fits_into_a_message_and_each_can_be_read(tmp_path: Path) -> None:
    async with runtime_rig(tmp_path) as rig:
        eve = await rig.opened("eve")
        service = f"domain://msg-node.{DOMAIN}/inbox"
        runtime_key = rig.state.sessions.get(rig.port_of("eve").sid or 0).runtime_key  # type: ignore[union-attr]
        for number in range(12):
            deposit(rig.state.delivery.inboxes, number, runtime_key, 100_000, owner=eve.address)
        listed = (await eve.ask("read", service))["body"]["value"]
        assert [one["requestId"] for one in listed] == [f"d-{number}" for number in range(12)]
        assert ["value" in one for one in listed] == [True] * 5 + [False] * 7
        (one,) = (await eve.ask("read", service, {"criteria": {"requestId": "d-9"}}))["body"]["value"]
        assert len(one["value"]) == 100_000
        completed = await eve.ask("read", service, {"criteria": {"status": "completed"}})
        assert len(completed["body"]["value"]) == 12
        assert (await eve.ask("read", service, {"criteria": {"status": "failed"}}))["body"]["value"] == []


# Guaranteed events.


def begin(guaranteed: GuaranteedEvents, number: int, sender: int, size: int = 1) -> bool:
    thing = f"thing://{DOMAIN}/agent/x"
    event = codec.build(id=number, type="update", from_=thing, to=f"{thing}/events/m", body={"value": "v" * size})
    return guaranteed.begin(event, [77], 1.0, 60.0, sender=sender)


def test_a_session_has_so_many_guaranteed_events_open_and_others_have_theirs() -> None:
    guaranteed = GuaranteedEvents()
    assert all(begin(guaranteed, number, EVE) for number in range(GUARANTEED_PER_SESSION))
    assert not begin(guaranteed, GUARANTEED_PER_SESSION, EVE)
    assert begin(guaranteed, 0, EVE)  # in place of the one with that id
    assert begin(guaranteed, 100_000, BO)
    while guaranteed.due(100.0, lives=lambda _: True):
        pass
    assert guaranteed.due(200.0, lives=lambda _: False) == []
    assert (len(guaranteed), dict(guaranteed._events_of), dict(guaranteed._bytes_of)) == (0, {}, {})
    assert begin(guaranteed, 1, EVE)


def test_guaranteed_events_of_a_session_have_so_many_bytes() -> None:
    guaranteed = GuaranteedEvents()
    part = GUARANTEED_BYTES_PER_SESSION // 4
    assert [begin(guaranteed, number, EVE, part) for number in range(4)] == [True, True, True, False]
    assert begin(guaranteed, 9, BO, part)
