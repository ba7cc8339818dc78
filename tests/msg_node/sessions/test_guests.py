"""Runtimes of other domains: what they lease is counted for their domain as a whole, and ends with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from msg_node.kernel.credentials import Credential, digest_of
from msg_node.kernel.links import NODES
from msg_node.kernel.rules import Rules
from msg_node.kernel.session import SessionRow
from msg_node.sessions.core.guests import Guests
from protofly.errors import Code, PeerError
from tests.support.runtime_rig import (
    ALLOCATION,
    DOMAIN,
    FOREIGN,
    SESSION,
    SM,
    Json,
    Runtime,
    RuntimeRig,
    code_and_reason,
    runtime_address,
    runtime_rig,
)
from tests.support.state_rig import StateRig

THIRD = "gamma.example"
CREDENTIALS = [
    Credential(digest_of("beta"), f"runtime://{FOREIGN}/*"),
    Credential(digest_of("gamma"), f"runtime://{THIRD}/*"),
    Credential(digest_of("ops"), runtime_address("ops"), frozenset({"operator"})),
]


def test_what_another_domain_sends_goes_on_to_our_runtimes_and_nodes_and_to_no_third_domain() -> None:
    guests, node, link, runtime, guest = Guests(3, lambda _sid: 0, {DOMAIN}), NODES - 1, -1, 1, 2
    assert guests.without_transit(f"comm://{THIRD}/room", (runtime, link, node)) == (runtime, node)
    guests._domains[guest] = FOREIGN
    for to, heard in ((f"comm://{DOMAIN}/room", (runtime, guest, node)), (f"comm://{THIRD}/room", (runtime, node))):
        assert guests.without_transit(to, (runtime, guest, link, node)) == heard


@asynccontextmanager
async def guest_rig(folder: Path) -> AsyncIterator[RuntimeRig]:
    rules = Rules(guest_addresses=3, strict_release=False)
    async with runtime_rig(folder, credentials=CREDENTIALS, allows_guests=True, rules=rules) as rig:
        yield rig


async def session_of(rig: RuntimeRig, address: str, token: str) -> Runtime:
    runtime = await rig.runtime(bearer=token)
    runtime.address = address
    assert (await runtime.ask("open", SESSION))["body"]["code"] == 200
    return runtime


async def guest(rig: RuntimeRig, name: str) -> Runtime:
    return await session_of(rig, f"runtime://{FOREIGN}/{name}", "beta")


async def leased(runtime: Runtime, number: int) -> Json:
    return await runtime.ask("create", ALLOCATION, {"value": {"number": number}})


async def test_guests_of_one_domain_share_its_quota_and_others_do_not_notice(tmp_path: Path) -> None:
    async with guest_rig(tmp_path) as rig:
        bo, eve = await guest(rig, "bo"), await guest(rig, "eve")
        other = await session_of(rig, f"runtime://{THIRD}/rt", "gamma")
        ana = await rig.opened("ana")
        assert code_and_reason(await leased(bo, 2)) == (200, "")
        assert code_and_reason(await leased(eve, 2)) == (429, "quota")
        assert code_and_reason(await leased(eve, 1)) == (200, "")
        claim = {"resources": [f"hyperty://{FOREIGN}/p2phandler/1"]}
        assert code_and_reason(await eve.ask("subscribe", SM, claim)) == (429, "quota")
        assert code_and_reason(await leased(other, 3)) == (200, "")
        assert code_and_reason(await leased(ana, 50)) == (200, "")


async def test_what_a_guest_leased_is_free_again_when_its_connection_ends(tmp_path: Path) -> None:
    async with guest_rig(tmp_path) as rig:
        bo, eve = await guest(rig, "bo"), await guest(rig, "eve")
        assert code_and_reason(await leased(bo, 3)) == (200, "")
        assert code_and_reason(await leased(eve, 1)) == (429, "quota")
        await bo.wire.cut()
        await rig.until("sessions closed")
        assert code_and_reason(await leased(eve, 3)) == (200, "")


async def test_released_leases_can_be_had_again(tmp_path: Path) -> None:
    async with guest_rig(tmp_path) as rig:
        bo = await guest(rig, "bo")
        allocated = (await leased(bo, 3))["body"]["value"]["allocated"]
        assert code_and_reason(await leased(bo, 1)) == (429, "quota")
        await bo.ask("delete", ALLOCATION, {"childrenResources": allocated[:1]})
        assert code_and_reason(await leased(bo, 1)) == (200, "")


async def test_guests_release_nothing_of_others_where_runtimes_do(tmp_path: Path) -> None:
    async with guest_rig(tmp_path) as rig:
        bo, ana, cy = await guest(rig, "bo"), await rig.opened("ana"), await rig.opened("cy")
        [hers] = (await leased(ana, 1))["body"]["value"]["allocated"]
        reply = await bo.ask("delete", ALLOCATION, {"childrenResources": [hers]})
        assert (reply["body"]["code"], reply["body"]["value"]) == (200, {"refused": [hers]})
        assert code_and_reason(await cy.ask("delete", ALLOCATION, {"childrenResources": [hers]})) == (200, "")


async def test_operators_see_what_the_guests_of_a_domain_have(tmp_path: Path) -> None:
    async with guest_rig(tmp_path) as rig:
        bo, eve = await guest(rig, "bo"), await guest(rig, "eve")
        await leased(bo, 1)
        await leased(eve, 1)
        ops = await session_of(rig, runtime_address("ops"), "ops")
        value = (await ops.ask("read", ALLOCATION, {"resource": FOREIGN}))["body"]["value"]
        assert (value["limit"], [one["guest"] for one in value["resources"]]) == (3, [True, True])
        assert (await ops.ask("read", ALLOCATION, {"resource": THIRD}))["body"]["value"] == {"resources": []}
        own = (await eve.ask("read", ALLOCATION, {"resource": FOREIGN}))["body"]["value"]
        assert len(own["resources"]) == 1


# The rules by themselves.

OURS = f"hyperty://{DOMAIN}/h"


def of_guests(per_domain: int, owned: dict[int, int], *sids: int) -> Guests:
    """Guests of one domain with so many addresses each."""
    guests = Guests(per_domain, lambda sid: owned.get(sid, 0), {DOMAIN})
    for sid in sids:
        address = f"runtime://{FOREIGN}/rt-{sid}"
        guests.came(
            SessionRow(sid=sid, runtime=address, runtime_key=address, token_digest="", is_guest=True).parked_session(
                frozenset(), now=0.0
            )
        )
    return guests


@pytest.mark.parametrize(
    ("guests", "to", "numbers", "left"),
    [
        ((), OURS, (1, 2), (1, 2)),
        ((), OURS, (2, -1, 1), (2, 1)),
        ((), OURS, (-1, -2), ()),
        ((), OURS, (), ()),
        ((), f"hyperty://{THIRD}/h", (1, -1), (1,)),
        ((2,), OURS, (1, 2, -1), (1, 2)),
        ((2,), f"hyperty://{THIRD}/h", (1, 2, -1), (1,)),
        ((2,), f"hyperty://{FOREIGN}/h", (2, 1), (1,)),
        ((2, 3), f"hyperty://{THIRD}/h", (2, 3, -1), ()),
    ],
)
def test_what_a_domain_says_reaches_our_runtimes_and_guests_only_at_addresses_of_ours(
    guests: tuple[int, ...], to: str, numbers: tuple[int, ...], left: tuple[int, ...]
) -> None:
    assert of_guests(3, {}, *guests).without_transit(to, numbers) == left


def test_the_quota_of_guests_counts_all_of_a_domain_to_the_last_and_nobody_else() -> None:
    guests = of_guests(3, {2: 1, 3: 1, 1: 50}, 2, 3)
    guests.check_quota(1, 100)
    guests.check_quota(2, 1)
    with pytest.raises(PeerError) as refused:
        guests.check_quota(3, 2)
    assert refused.value.code is Code.QUOTA


def test_who_has_gone_is_no_guest_any_more() -> None:
    guests = of_guests(3, {}, 2, 3)
    guests.went(2)
    guests.went(7)
    assert (set(guests.of(FOREIGN)), guests.domain(2), guests.domain(3)) == ({3}, "", FOREIGN)
    guests.went(3)
    assert set(guests.of(FOREIGN)) == set()


def test_the_end_of_a_connection_without_a_session_changes_nothing() -> None:
    rig = StateRig()
    sid, _ = rig.open("rt-ana", 1)
    lifecycle = rig.state.lifecycle
    assert lifecycle.lost(7, now=rig.now) == (None, [])
    assert lifecycle.lost(1, now=rig.now) == (sid, [])
    assert lifecycle.lost(1, now=rig.now) == (None, [])


def test_a_guest_changes_objects_of_its_domain_and_runtimes_of_ours_none_that_nobody_reports() -> None:
    rig = StateRig(credentials=CREDENTIALS, allows_guests=True)
    rig.session_verb("open", f"runtime://{FOREIGN}/rt", 1, {"credentials": {"token": "beta"}})
    guest_number, (own, _) = rig.state.sessions.by_connection(1), rig.open("rt", 2)
    assert guest_number is not None
    objects = [f"comm://{domain}/room" for domain in (DOMAIN, FOREIGN, THIRD)]
    may = {sid: [rig.state.senders.may_change(sid, one, one) for one in objects] for sid in (guest_number, own)}
    assert may == {guest_number: [False, True, False], own: [False] * 3}
