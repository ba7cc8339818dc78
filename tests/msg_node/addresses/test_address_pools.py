"""Addresses that are lent, and addresses of guests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.kernel.credentials import Credential, digest_of
from tests.support.state_rig import ALLOCATION, DOMAIN, SM, StateRig

NUMBERS = [f"sip://{number}@pbx.{DOMAIN}" for number in (100, 101, 102)]


@pytest.fixture
def rig() -> StateRig:
    return StateRig(pools={"sip": NUMBERS})


def borrow(rig: StateRig, sid: int, number: int = 1, **more: object) -> dict[str, object]:
    return rig.reply(sid, ALLOCATION, "create", {"scheme": "sip", "value": {"number": number, **more}})


def lent(reply: dict[str, object]) -> list[str]:
    assert isinstance(reply["value"], dict)
    addresses = reply["value"]["allocated"]
    assert isinstance(addresses, list)
    return addresses


def test_addresses_are_lent_in_order_and_belong_to_the_session(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    assert lent(borrow(rig, ana, 2)) == NUMBERS[:2]
    assert rig.state.owners.owner(NUMBERS[0]) == ana
    assert rig.state.owners.pools.free("sip") == 1


def test_an_empty_pool_is_reported_and_nothing_is_lent_in_part(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    reply = borrow(rig, ana, 4)
    assert (reply["code"], reply["reason"]) == (503, "pool-empty")
    assert rig.state.owners.pools.free("sip") == 3


def test_the_address_that_rested_longest_is_lent_next(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    bo, _ = rig.open("rt-bo", 2)
    borrow(rig, ana, 1, allocationKey="k")
    rig.reply(ana, ALLOCATION, "delete", {"resource": "k"})
    assert lent(borrow(rig, bo, 3)) == [*NUMBERS[1:], NUMBERS[0]]


def test_a_lease_ends_with_the_session(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    borrow(rig, ana, 3)
    rig.session_verb("close", f"runtime://{DOMAIN}/rt-ana", 1)
    assert rig.state.owners.pools.free("sip") == 3


def test_what_is_lent_is_lent_after_a_restart(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    borrow(rig, ana, 2)
    again = rig.restarted()
    assert (again.state.owners.pools.free("sip"), again.state.owners.owner(NUMBERS[0])) == (1, ana)


def test_other_pools_lend_what_is_new_and_take_nothing_from_those_who_have_it(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    borrow(rig, ana, 2)
    owners, fresh = rig.state.owners, f"sip://103@pbx.{DOMAIN}"
    owners.pools.follow({"sip": [fresh, *NUMBERS[1:]]}, is_lent=lambda key: owners.claimant(key) is not None)
    assert owners.owner(NUMBERS[0]) == ana  # it is in no pool any more
    assert owners.pools.free("sip") == 2
    rig.reply(ana, ALLOCATION, "delete", {"resources": NUMBERS[:2]})
    assert lent(borrow(rig, ana, 3)) == [NUMBERS[2], fresh, NUMBERS[1]]


def test_a_scheme_without_a_pool_lends_nothing_more(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    rig.state.owners.pools.follow({}, is_lent=lambda _: False)
    assert lent(borrow(rig, ana))[0] not in NUMBERS


def test_nobody_claims_an_address_of_a_pool(rig: StateRig) -> None:
    ana, _ = rig.open("rt-ana", 1)
    reply = rig.reply(ana, SM, "subscribe", {"resources": [NUMBERS[0]]})
    assert (reply["code"], reply["reason"]) == (403, "not-owner")
    assert rig.state.owners.claim(ana, NUMBERS[0]) is False


@given(steps=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), max_size=12))
def test_every_address_is_free_or_has_one_owner(steps: list[tuple[int, int]]) -> None:
    rig = StateRig(pools={"sip": NUMBERS})
    sids = [rig.open("rt-ana", 1)[0], rig.open("rt-bo", 2)[0]]
    for who, number in steps:
        if number:
            borrow(rig, sids[who], number)
        else:
            rig.reply(sids[who], ALLOCATION, "delete", {"resources": NUMBERS})
        owned = sum(rig.state.owners.count(sid) for sid in sids)
        assert owned + rig.state.owners.pools.free("sip") == len(NUMBERS)


def test_a_guest_gets_marked_addresses_of_ours_that_end_with_its_connection() -> None:
    guest_credential = Credential(digest_of("g"), "runtime://beta.example/rt-bo")
    rig = StateRig(credentials=[guest_credential], allows_guests=True)
    opened = rig.session_verb(
        "open", "runtime://beta.example/rt-bo", 1, {"credentials": {"kind": "bearer", "token": "g"}}
    )
    assert b'"code":200' in opened.replies[0].body
    sid = rig.state.sessions.by_connection(1)
    assert sid is not None
    (url,) = lent(rig.reply(sid, ALLOCATION, "create"))
    claimed = f"hyperty://{DOMAIN}/self-made"
    assert rig.reply(sid, SM, "subscribe", {"resources": [claimed]})["reason"] == "not-owner"
    shown = rig.reply(sid, ALLOCATION, "read")["value"]
    assert shown == {"resources": [{"url": url, "origin": "allocated", "guest": True}]}
    rig.keep(rig.services.sessions.connection_lost(1, now=rig.now).changes)
    assert rig.state.owners.owner(url) is None
