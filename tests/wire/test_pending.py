"""The table of connections that have proved nothing: nobody's share is at the cost of somebody with less."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.core.pending import Pending, PendingTable

HONEST = "192.0.2.1"


def table(most: int = 8, most_per_address: int = 4, *, replaces_own: bool = False) -> PendingTable[str]:
    return PendingTable(most=most, most_per_address=most_per_address, replaces_own=replaces_own)


def entered(pending: PendingTable[str], *addresses: str) -> list[Pending[str]]:
    found = []
    for number, address in enumerate(addresses):
        entry, displaced = pending.enter(address, f"{address} {number}")
        assert entry is not None
        assert displaced is None
        found.append(entry)
    return found


def test_an_address_with_its_share_is_refused_and_others_are_not() -> None:
    pending = table()
    entered(pending, *["10.0.0.1"] * 4)
    assert pending.enter("10.0.0.1", "fifth") == (None, None)
    assert (len(pending), pending.count_of("10.0.0.1")) == (4, 4)
    entered(pending, HONEST)


def test_a_full_table_displaces_the_oldest_of_the_address_with_the_most() -> None:
    pending = table()
    honest, *greedy = entered(pending, HONEST, *["10.0.0.1"] * 4, "10.0.0.2", "10.0.0.2", "10.0.0.3")
    entry, displaced = pending.enter("198.51.100.1", "new")
    assert entry is not None
    assert displaced is greedy[0]
    assert (len(pending), pending.count_of("10.0.0.1"), pending.count_of(HONEST)) == (8, 3, 1)
    pending.leave(honest)
    assert len(pending) == 7


def test_of_two_with_the_most_the_one_that_had_as_many_first_gives() -> None:
    pending = table()
    one, *_ = entered(pending, "10.0.0.1", "10.0.0.1")
    other, *_ = entered(pending, "10.0.0.2", "10.0.0.2")
    pending.leave(entered(pending, "10.0.0.1")[0])  # so it has had two once more, and later
    entered(pending, "192.0.2.1", "192.0.3.1", "192.0.4.1", "192.0.5.1")
    assert [pending.enter(f"198.51.{number}.1", "new")[1] for number in (1, 2)] == [other, one]


def test_sixteen_addresses_that_fill_the_table_displace_each_other_and_never_an_honest_one() -> None:
    pending = table(256, 16, replaces_own=True)
    (honest,) = entered(pending, HONEST)
    for round_ in range(4):
        for number in range(16):
            for _ in range(16):
                _, displaced = pending.enter(f"10.0.{number}.1", f"{round_}")
                assert displaced is not honest
    assert len(pending) == 256
    assert pending.count_of(HONEST) == 1


def test_when_all_have_one_the_network_with_the_most_gives() -> None:
    for spread in ("10.1.2.{}", "2001:db8:7:{:x}::/64"):
        pending = table()
        first, *rest = entered(pending, HONEST, "198.51.100.1", *(spread.format(number) for number in range(6)))
        newcomers = [pending.enter(spread.format(number), "")[1] for number in range(6, 40)]
        assert first not in newcomers
        assert rest[0] not in newcomers
        assert newcomers[0] is rest[1]
        assert pending.count_of(HONEST) == 1


def test_an_address_that_replaces_its_own_gives_up_the_oldest_that_does_not_wait_for_us() -> None:
    pending = table(replaces_own=True)
    entries = entered(pending, *["10.0.0.1"] * 4)
    entries[0].waits_for_us = True
    entry, displaced = pending.enter("10.0.0.1", "fifth")
    assert entry is not None
    assert displaced is entries[1]
    for one in (entries[2], entries[3], entry):
        one.waits_for_us = True
    assert pending.enter("10.0.0.1", "sixth") == (None, None)
    assert pending.count_of("10.0.0.1") == 4


def test_a_full_table_of_those_who_wait_for_us_still_makes_room() -> None:
    pending = table()
    entries = entered(pending, *["10.0.0.1"] * 4, *["10.0.0.2"] * 4)
    for one in entries:
        one.waits_for_us = True
    assert pending.enter(HONEST, "new")[1] is entries[0]


def test_of_the_greediest_address_those_that_wait_for_us_stay_longest() -> None:
    pending = table()
    waiting, other, *_ = entered(pending, *["10.0.0.1"] * 4, *["10.0.0.2"] * 3, HONEST)
    waiting.waits_for_us = True
    assert pending.enter("198.51.100.1", "new")[1] is other


def test_bounds_that_change_count_for_those_that_come_from_then_on() -> None:
    pending = table(8, 2)
    entered(pending, HONEST, "10.0.0.1", "10.0.0.1")
    assert pending.enter("10.0.0.1", "third") == (None, None)
    pending.bound(most=6, most_per_address=4)
    _, second, *_ = entered(pending, "10.0.0.1", "10.0.0.1", HONEST)
    assert pending.enter("10.0.0.1", "fifth") == (None, None)
    _, displaced = pending.enter("10.0.0.2", "new")
    assert displaced is not None
    assert (displaced.address, pending.count_of("10.0.0.1"), len(pending)) == ("10.0.0.1", 3, 6)
    pending.bound(most=6, most_per_address=1)
    assert pending.enter(HONEST, "third") == (None, None)
    pending.leave(second)
    assert pending.enter("10.0.0.1", "third") == (None, None)
    assert pending.count_of("10.0.0.1") == 2


def test_leaving_twice_counts_once() -> None:
    pending = table()
    one, _ = entered(pending, "10.0.0.1", "10.0.0.1")
    pending.leave(one)
    pending.leave(one)
    assert (len(pending), pending.count_of("10.0.0.1")) == (1, 1)


ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.1.1", "2001:db8::/64", "2001:db8:0:1::/64", "somewhere"]
STEPS = st.lists(st.tuples(st.booleans(), st.sampled_from(ADDRESSES), st.integers(0, 20)), max_size=120)


@given(STEPS, st.booleans())
def test_bounds_and_counts_hold_after_any_steps(steps: list[tuple[bool, str, int]], replaces_own: bool) -> None:
    pending = table(6, 3, replaces_own=replaces_own)
    inside: list[Pending[str]] = []
    for is_entering, address, number in steps:
        if not is_entering:
            if inside:
                pending.leave(inside.pop(number % len(inside)))
            continue
        before = Counter(one.address for one in inside)
        entry, displaced = pending.enter(address, "")
        if displaced is not None:
            inside.remove(displaced)
            most = max(before.values()) if before[address] < 3 else before[address]
            assert before[displaced.address] == most
            assert displaced not in [one for one in inside if one.address == displaced.address]
        if entry is None:
            assert before[address] == 3
        else:
            inside.append(entry)
        counts = Counter(one.address for one in inside)
        assert len(pending) == len(inside) <= 6
        assert {name: pending.count_of(name) for name in ADDRESSES} == {name: counts[name] for name in ADDRESSES}
        assert max(counts.values(), default=0) <= 3
    for one in inside:
        pending.leave(one)
    assert not pending._entries
    assert not pending._network_of
    assert not any(pending._levels)
    assert not pending._networks


@pytest.mark.parametrize(
    ("network", "addresses"),
    [
        ("10.1.2.0/24", ["10.1.2.1", "10.1.2.2", "10.1.2.254", "10.1.2.255"]),
        ("2001:db8:7::/48", [f"2001:db8:7:{part}::/64" for part in ("0", "1", "8000", "ffff")]),
    ],
)
def test_a_network_counts_as_one_in_both_of_its_halves(network: str, addresses: list[str]) -> None:
    pending = table(most=7)
    others = ["2001:db8:9:1::/64", "2001:db8:9:2::/64", "2001:db8:9:3::/64"]
    entries = entered(pending, *others, *addresses)
    assert pending.enter(HONEST, "new")[1] is entries[3]


@pytest.mark.parametrize(
    "addresses",
    [
        ["10.1.2.1", "10.1.2.2", "10.1.3.1", "10.1.3.2"],
        [f"2001:db8:{part}::/64" for part in ("6", "6:1", "7", "7:1")],
    ],
)
def test_neighbouring_networks_count_each_for_itself(addresses: list[str]) -> None:
    pending = table(most=7)
    others = ["2001:db8:9:1::/64", "2001:db8:9:2::/64", "2001:db8:9:3::/64"]
    entries = entered(pending, *addresses, *others)
    assert pending.enter(HONEST, "new")[1] is entries[4]


@pytest.mark.parametrize(("lone", "displaced"), [(127, 127), (128, 0)])
def test_to_find_the_greediest_network_the_first_128_addresses_are_compared(lone: int, displaced: int) -> None:
    pending = table(most=lone + 2)
    entries = entered(pending, *(f"10.0.{number}.1" for number in range(lone)), "10.9.9.1", "10.9.9.2")
    assert pending.enter(HONEST, "new")[1] is entries[displaced]


def test_the_last_of_an_address_leaves_once_however_often_it_says_so() -> None:
    pending = table()
    [entry] = entered(pending, "10.0.0.1")
    for _ in range(2):
        pending.leave(entry)
        assert (len(pending), pending.count_of("10.0.0.1")) == (0, 0)
