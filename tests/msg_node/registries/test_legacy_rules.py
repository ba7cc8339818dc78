"""What an interworking stub may register, and what readers learn of legacy users, as plain decisions."""

from __future__ import annotations

import pytest

from msg_node.kernel.registrations import Status
from msg_node.registries.core.legacy_users import (
    LegacyUser,
    check_stub_entry,
    legacy_query,
    marked,
    of_stub,
    unregistered,
)
from msg_node.registries.core.registry_entry import Changed, RegistryEntry
from msg_node.registries.core.registry_query import By, Query
from protofly.errors import Code, PeerError
from tests.msg_node.registries.test_legacy_users import BO, BO_HYPERTY, STUB, all_verified

LINK = -3
STUBS = all_verified()


def entry(sid: int, status: Status = Status.LIVE) -> RegistryEntry:
    return RegistryEntry(url=BO_HYPERTY, sid=sid, runtime="", status=status)


@pytest.mark.parametrize(
    ("domain", "key", "known", "code"),
    [
        (STUB, BO_HYPERTY, None, None),
        (STUB, BO_HYPERTY, entry(LINK), None),
        (STUB, BO_HYPERTY, entry(7, Status.DISCONNECTED), None),
        (STUB, BO_HYPERTY, entry(7), Code.NOT_OWNER),
        (STUB, "hyperty://tel.legacy.example/bo", None, Code.NOT_OWNER),
        (STUB, f"sip://bo@{STUB}", None, Code.NOT_OWNER),
        (STUB, BO, None, Code.NOT_OWNER),
        ("beta.example", "hyperty://beta.example/bo", None, Code.POLICY),
    ],
)
def test_a_stub_writes_about_addresses_of_its_domain_that_nobody_else_holds(
    domain: str, key: str, known: RegistryEntry | None, code: Code | None
) -> None:
    if code is None:
        check_stub_entry(STUBS, domain, key, known, number=LINK)
        return
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        check_stub_entry(STUBS, domain, key, known, number=LINK)


@pytest.mark.parametrize(
    ("changed", "is_its"),
    [
        (Changed(), True),
        (Changed(user=""), True),
        (Changed(user=BO), True),
        (Changed(user=f"user://{STUB}/bo"), True),
        (Changed(user="tel:+4930"), False),
        (Changed(user="user://alpha.example/ana"), False),
        (Changed(user=f"user://bo@{STUB}"), False),
        (Changed(user=BO, guid="user-guid://g"), False),
    ],
)
def test_a_stub_registers_users_of_its_ranges_and_domain_in_its_own_name(changed: Changed, is_its: bool) -> None:
    if not is_its:
        with pytest.raises(PeerError, check=lambda error: error.code is Code.NOT_OWNER):
            of_stub(STUBS, STUB, changed, is_hyperty=True)
        return
    given = Changed(user=changed.user, reporter="r", runtime="x", p2p_handler="h", p2p_requester="q")
    stub = STUBS.stub_address(STUB)
    assert of_stub(STUBS, STUB, given, is_hyperty=True) == Changed(user=changed.user, reporter="r", runtime=stub)
    assert of_stub(STUBS, STUB, given, is_hyperty=False) == Changed(user=changed.user, reporter=stub, runtime=stub)


def test_a_read_of_a_legacy_address_means_its_user() -> None:
    chat = frozenset({"chat"})
    assert legacy_query(STUBS, Query(By.URL, BO, "comm", chat, chat)) == Query(By.USER, BO, "", chat, chat)
    for query in (Query(By.URL, BO_HYPERTY), Query(By.NAME, BO), Query(By.USER, BO, "comm")):
        assert legacy_query(STUBS, query) is query


@pytest.mark.parametrize(
    "query",
    [
        Query(By.URL, BO),
        Query(By.NAME, BO),
        Query(By.USER, BO, resources=frozenset({"chat"})),
        Query(By.USER, BO, data_schemes=frozenset({"comm"})),
        Query(By.USER, "user://alpha.example/ana"),
        Query(By.USER, "two words"),
    ],
)
def test_only_a_read_of_a_legacy_user_without_filters_finds_who_is_not_registered(query: Query) -> None:
    assert unregistered(STUBS, query) == []
    assert unregistered(STUBS, Query(By.USER, BO)) == [LegacyUser(BO, STUBS.stub_address(STUB), is_connected=False)]


@pytest.mark.parametrize(("is_connected", "status"), [(True, "live"), (False, "disconnected")])
def test_a_legacy_user_who_is_not_registered_is_shown_without_abilities(is_connected: bool, status: str) -> None:
    assert LegacyUser(BO, "runtime://s", is_connected).shown() == {
        "hypertyID": BO,
        "userID": BO,
        "resources": [],
        "dataSchemes": [],
        "status": status,
        "runtime": "runtime://s",
        "legacy": True,
    }


def test_only_entries_of_stubs_are_marked() -> None:
    assert marked(STUBS, BO_HYPERTY, {"a": 1}) == {"a": 1, "legacy": True}
    assert marked(STUBS, "hyperty://alpha.example/h", {"a": 1, "legacy": True}) == {"a": 1}
    plain = {"a": 1}
    assert marked(STUBS, "hyperty://alpha.example/h", plain) is plain
