"""The breaker of a back-end and its retry budget: tables, and what holds whatever happens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msg_node.backends.core.circuit_breaker import Circuit, CircuitBreaker, RetryBudget


def breaker() -> CircuitBreaker:
    return CircuitBreaker(failures=3, open_seconds=10, open_max_seconds=25)


def test_failures_in_a_row_open_it_and_a_success_between_them_does_not() -> None:
    circuit = breaker()
    for _ in range(2):
        assert not circuit.failed(0)
    assert not circuit.succeeded()
    assert not circuit.failed(1)
    assert not circuit.failed(1)
    assert circuit.failed(1)
    assert circuit.state is Circuit.OPEN
    assert not circuit.may_call(10.9)


def test_one_trial_decides_and_every_failed_one_doubles_the_pause_up_to_its_bound() -> None:
    circuit = breaker()
    for _ in range(3):
        circuit.failed(0)
    now = 0.0
    for pause in (10, 20, 25, 25):
        assert not circuit.may_call(now + pause - 0.1)
        now += pause
        assert circuit.may_call(now)
        assert not circuit.may_call(now)  # one trial at a time
        assert circuit.failed(now)
    now += 25
    assert circuit.may_call(now)
    assert circuit.succeeded()
    assert circuit.state is Circuit.CLOSED
    for _ in range(3):
        circuit.failed(now)
    assert circuit.may_call(now + 10)  # the pause is the first one again


def test_a_trial_that_was_given_up_leaves_room_for_the_next() -> None:
    circuit = breaker()
    for _ in range(3):
        circuit.failed(0)
    assert circuit.may_call(10)
    circuit.abandoned(11)
    assert circuit.may_call(11)


@given(
    steps=st.lists(st.tuples(st.sampled_from(["call", "fail", "succeed", "abandon"]), st.floats(0, 30)), max_size=60)
)
def test_it_is_never_stuck(steps: list[tuple[str, float]]) -> None:
    circuit, now = breaker(), 0.0
    for verb, pause in steps:
        now += pause
        match verb:
            case "call":
                circuit.may_call(now)
            case "fail":
                circuit.failed(now)
            case "succeed":
                circuit.succeeded()
            case "abandon":
                circuit.abandoned(now)
    if circuit.state is Circuit.TRIAL:
        circuit.failed(now)
    assert circuit.may_call(now + 25)
    circuit.succeeded()
    assert circuit.state is Circuit.CLOSED


def test_retries_are_a_fraction_of_the_calls() -> None:
    budget = RetryBudget(per_call=0.25, stock=2)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    taken = 0
    for _ in range(100):
        budget.called()
        taken += budget.take()
    assert taken == 25


def test_a_failure_of_a_call_from_before_the_opening_changes_nothing() -> None:
    circuit = breaker()
    for _ in range(3):
        circuit.failed(0)
    assert not circuit.failed(9)
    assert (circuit.state, circuit.may_call(9.9), circuit.may_call(10)) == (Circuit.OPEN, False, True)


def test_a_call_that_was_given_up_opens_no_closed_circuit_and_shortens_no_pause() -> None:
    circuit = breaker()
    circuit.abandoned(0)
    assert circuit.state is Circuit.CLOSED
    for _ in range(3):
        circuit.failed(0)
    circuit.abandoned(1)
    assert (circuit.may_call(9.9), circuit.may_call(10)) == (False, True)


def test_one_whole_retry_is_a_retry_and_less_is_none() -> None:
    budget = RetryBudget(per_call=0.5, stock=1)
    assert [budget.take(), budget.take()] == [True, False]
    budget.called()
    assert not budget.take()
    budget.called()
    assert budget.take()
