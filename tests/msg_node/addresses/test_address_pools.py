"""Addresses that are lent, and addresses of guests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.kernel.credentials import Credential, digest_of
from tests.support.state_house import ALLOCATION, DOMAIN, SM, StateHouse

NUMBERS = [f"sip://{number}@pbx.{DOMAIN}" for number in (100, 101, 102)]


@pytest.fixture
def house() -> StateHouse:
    return StateHouse(pools={"sip": NUMBERS})


def borrow(house: StateHouse, sid: int, number: int = 1, **more: object) -> dict[str, object]:
    return house.reply(sid, ALLOCATION, "create", {"scheme": "sip", "value": {"number": number, **more}})


def lent(reply: dict[str, object]) -> list[str]:
    assert isinstance(reply["value"], dict)
    addresses = reply["value"]["allocated"]
    assert isinstance(addresses, list)
    return addresses


def test_addresses_are_lent_in_order_and_belong_to_the_session(house: StateHouse) -> None:
    ana, _ = house.open("rt-ana", 1)
    assert lent(borrow(house, ana, 2)) == NUMBERS[:2]
    assert house.state.owners.owner(NUMBERS[0]) == ana
    assert house.state.owners.pools.free("sip") == 1


def test_an_empty_pool_is_told_and_nothing_is_lent_in_part(house: StateHouse) -> None:
    ana, _ = house.open("rt-ana", 1)
    reply = borrow(house, ana, 4)
    assert (reply["code"], reply["reason"]) == (503, "pool-empty")
    assert house.state.owners.pools.free("sip") == 3


def test_the_address_that_rested_longest_is_lent_next(house: StateHouse) -> None:
    ana, _ = house.open("rt-ana", 1)
    bo, _ = house.open("rt-bo", 2)
    borrow(house, ana, 1, allocationKey="k")
    house.reply(ana, ALLOCATION, "delete", {"resource": "k"})
    assert lent(borrow(house, bo, 3)) == [*NUMBERS[1:], NUMBERS[0]]


def test_a_lease_ends_with_the_session(house: StateHouse) -> None:
    ana, _ = house.open("rt-ana", 1)
    borrow(house, ana, 3)
    house.session_verb("close", f"runtime://{DOMAIN}/rt-ana", 1)
    assert house.state.owners.pools.free("sip") == 3


def test_what_is_lent_is_lent_after_a_restart(house: StateHouse) -> None:
    ana, _ = house.open("rt-ana", 1)
    borrow(house, ana, 2)
    again = house.restarted()
    assert (again.state.owners.pools.free("sip"), again.state.owners.owner(NUMBERS[0])) == (1, ana)


def test_nobody_claims_an_address_of_a_pool(house: StateHouse) -> None:
    ana, _ = house.open("rt-ana", 1)
    reply = house.reply(ana, SM, "subscribe", {"resources": [NUMBERS[0]]})
    assert (reply["code"], reply["reason"]) == (403, "not-owner")
    assert house.state.owners.claim(ana, NUMBERS[0]) is False


@given(steps=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), max_size=12))
def test_every_address_is_free_or_has_one_owner(steps: list[tuple[int, int]]) -> None:
    house = StateHouse(pools={"sip": NUMBERS})
    sids = [house.open("rt-ana", 1)[0], house.open("rt-bo", 2)[0]]
    for who, number in steps:
        if number:
            borrow(house, sids[who], number)
        else:
            house.reply(sids[who], ALLOCATION, "delete", {"resources": NUMBERS})
        owned = sum(house.state.owners.count(sid) for sid in sids)
        assert owned + house.state.owners.pools.free("sip") == len(NUMBERS)


def test_a_guest_gets_marked_addresses_of_ours_that_end_with_its_connection() -> None:
    guest_credential = Credential(digest_of("g"), "runtime://beta.example/rt-bo")
    house = StateHouse(credentials=[guest_credential], allows_guests=True)
    opened = house.session_verb(
        "open", "runtime://beta.example/rt-bo", 1, {"credentials": {"kind": "bearer", "token": "g"}}
    )
    assert b'"code":200' in opened.replies[0].body
    sid = house.state.sessions.by_connection(1)
    assert sid is not None
    (url,) = lent(house.reply(sid, ALLOCATION, "create"))
    claimed = f"hyperty://{DOMAIN}/self-made"
    house.reply(sid, SM, "subscribe", {"resources": [claimed]})
    shown = house.reply(sid, ALLOCATION, "read")["value"]
    assert shown == {
        "resources": [
            {"url": url, "origin": "allocated", "guest": True},
            {"url": claimed, "origin": "claimed", "guest": True},
        ]
    }
    house.keep(house.services.sessions.connection_lost(1, now=house.now).changes)
    assert house.state.owners.owner(url) is None
