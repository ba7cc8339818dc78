"""How often one address may do something, and which addresses are remembered."""

from __future__ import annotations

from msg_node.kernel.keyed_rates import KeyedRates


def test_each_address_has_a_burst_and_then_its_rate() -> None:
    rates = KeyedRates(per_second=2.0, burst_seconds=1.5, most=8)
    assert [rates.take("a", 10.0) for _ in range(3)] == [0.0] * 3
    assert rates.take("a", 10.0) > 0.0
    assert rates.take("b", 10.0) == 0.0
    assert rates.take("a", 10.5) == 0.0
    assert rates.take("a", 10.5) > 0.0


def test_what_was_right_costs_nothing() -> None:
    rates = KeyedRates(per_second=1.0, burst_seconds=2.0, most=8)
    for _ in range(9):
        assert rates.take("a", 0.0) == 0.0
        rates.give_back("a")
    assert [rates.take("a", 0.0) > 0.0 for _ in range(3)] == [False, False, True]
    rates.give_back("nobody")
    assert len(rates) == 1


def test_the_addresses_that_were_seen_last_are_remembered() -> None:
    rates = KeyedRates(per_second=1.0, burst_seconds=1.0, most=2)
    for group in ("a", "b"):
        assert rates.take(group, 0.0) == 0.0
        assert rates.take(group, 0.0) > 0.0
    assert rates.take("a", 0.0) > 0.0
    assert len(rates) == 2
    assert rates.take("c", 0.0) == 0.0
    assert len(rates) == 2
    assert rates.take("a", 0.0) > 0.0  # seen after b
    assert rates.take("b", 0.0) == 0.0
