"""Look-ups of domains have bounds per asker and in all, and what is refused is not counted."""

from __future__ import annotations

from federation.core.lookup_rates import LookupRates

PER_ASKER, IN_ALL = 10, 100  # at once: ten seconds of 60 and of 600 a minute


def taken(rates: LookupRates, asked_by: str, *, is_peer: bool = False, now: float = 0.0) -> int:
    """How many look-ups an asker may cause at once."""
    count = 0
    while count < 1_000 and not rates.take(asked_by, is_peer=is_peer, now=now):
        count += 1
    return count


def test_each_asker_has_a_bound_and_gets_one_more_each_second() -> None:
    rates = LookupRates()
    assert (taken(rates, "ana"), taken(rates, "bo")) == (PER_ASKER, PER_ASKER)
    assert 0.99 < rates.take("ana", is_peer=False, now=0.0) <= 1.0
    assert taken(rates, "ana", now=1.0) == 1


def test_all_askers_together_have_a_bound_and_who_is_refused_by_it_is_not_charged() -> None:
    rates = LookupRates()
    assert sum(taken(rates, f"user-{number}") for number in range(9)) == 90
    assert taken(rates, "") == 10  # the node itself has no other bound
    assert taken(rates, "ana") == 0
    assert taken(rates, "ana", is_peer=True) == PER_ASKER
    assert taken(rates, "bo", now=1.0) == 10


def test_peers_do_not_count_towards_what_is_for_all() -> None:
    rates = LookupRates()
    assert taken(rates, "", is_peer=True) == 1_000
    assert taken(rates, "ana", is_peer=True) == PER_ASKER
    assert taken(rates, "") == IN_ALL


def test_an_asker_over_its_bound_takes_nothing_of_what_is_for_all() -> None:
    rates = LookupRates()
    taken(rates, "ana")
    for _ in range(200):
        assert rates.take("ana", is_peer=False, now=0.0) > 0.0
    assert taken(rates, "") == IN_ALL - PER_ASKER


def test_of_more_than_a_thousand_askers_the_one_that_asked_least_lately_is_forgotten() -> None:
    rates = LookupRates()
    for asked_by in ("ana", "bo"):
        taken(rates, asked_by, is_peer=True)
    for number in range(998):
        rates.take(f"user-{number}", is_peer=True, now=0.0)
    assert taken(rates, "ana", is_peer=True) == 0
    rates.take("carl", is_peer=True, now=0.0)
    assert taken(rates, "ana", is_peer=True) == 0
    assert taken(rates, "bo", is_peer=True) == PER_ASKER
