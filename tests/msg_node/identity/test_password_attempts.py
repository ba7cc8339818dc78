"""How often passwords may be tried, and whom the attempts of others make wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.identity.core.password_attempts import (
    FAMILIAR_NETWORKS,
    FAMILIAR_SECONDS,
    FORGOTTEN_SECONDS,
    FREE_ATTEMPTS,
    NETWORK_ATTEMPTS,
    USER_ATTEMPTS,
    Bound,
    PasswordAttempts,
)

NOW = 1000.0
DAY = 86_400.0


def bound_at(attempts: PasswordAttempts, user: str, network: str, now: float = NOW) -> Bound | None:
    pause = attempts.admit(user, network, now)
    assert pause is None or pause.seconds > 0.0
    return None if pause is None else pause.bound


def guess_everywhere(attempts: PasswordAttempts, user: str, number: int = USER_ATTEMPTS) -> None:
    """Wrong guesses from as many networks."""
    for network in range(number):
        assert attempts.admit(user, f"bot {network}", NOW) is None


def test_pauses_double_from_one_second_to_five_minutes_and_are_forgotten_after_an_hour() -> None:
    attempts, waits, now = PasswordAttempts(), [], NOW
    for _ in range(20):
        pause = attempts.admit("ana", "home", now)
        waits.append(0.0 if pause is None else pause.seconds)
        now += waits[-1]
        if pause is not None:
            assert pause.bound is Bound.HERE
            assert attempts.admit("ana", "home", now) is None
    assert waits[:FREE_ATTEMPTS] == [0.0] * FREE_ATTEMPTS
    assert waits[FREE_ATTEMPTS : FREE_ATTEMPTS + 4] == [1.0, 2.0, 4.0, 8.0]
    assert max(waits) == 300.0
    later = now + FORGOTTEN_SECONDS + 1
    assert [bound_at(attempts, "ana", "home", later) for _ in range(FREE_ATTEMPTS)] == [None] * FREE_ATTEMPTS
    assert bound_at(attempts, "ana", "home", later) is Bound.HERE


def test_guesses_in_one_network_make_nobody_wait_in_another() -> None:
    attempts = PasswordAttempts()
    for _ in range(10_000):
        attempts.admit("ana", "evil", NOW)
    assert bound_at(attempts, "ana", "evil") is Bound.HERE
    assert bound_at(attempts, "ana", "home") is None
    assert bound_at(attempts, "bob", "evil") is None


def test_a_network_that_never_gives_up_does_not_use_up_what_a_user_has_elsewhere() -> None:
    attempts, now = PasswordAttempts(), NOW
    for second in range(int(DAY)):
        now = NOW + second
        attempts.admit("ana", "evil", now)
        attempts.admit("ana", "evil too", now)
    assert bound_at(attempts, "ana", "a hotel", now) is None


def test_one_network_tries_one_password_for_many_users_at_a_rate() -> None:
    attempts = PasswordAttempts()
    bounds = [bound_at(attempts, f"user {number}", "evil") for number in range(100)]
    assert bounds.index(Bound.NETWORK) == NETWORK_ATTEMPTS == 30
    assert bound_at(attempts, "user 99", "home") is None
    assert bound_at(attempts, "too soon", "evil", NOW + 9.0) is Bound.NETWORK
    assert bound_at(attempts, "another", "evil", NOW + 10.0) is None
    assert bound_at(attempts, "one more", "evil", NOW + 10.0) is Bound.NETWORK


def test_guesses_from_many_networks_are_bounded_for_a_user_but_where_the_user_was_before() -> None:
    attempts = PasswordAttempts()
    assert bound_at(attempts, "ana", "home") is None
    attempts.succeeded("ana", "home", NOW)
    guess_everywhere(attempts, "ana")
    assert bound_at(attempts, "ana", "bot 777") is Bound.USER
    assert bound_at(attempts, "ana", "home") is None
    assert bound_at(attempts, "bob", "bot 778") is None
    assert bound_at(attempts, "ana", "home", NOW + FAMILIAR_SECONDS - 1) is None
    guess_everywhere(other := PasswordAttempts(), "ana")
    other.succeeded("ana", "home", NOW - FAMILIAR_SECONDS - 1)
    guess_everywhere(other, "bob")
    assert other.admit("ana", "bot 1000", NOW) is None, "the right one was taken back"
    assert bound_at(other, "ana", "home") is Bound.USER, "too long ago"


def test_a_user_has_a_hundred_guesses_from_new_networks_and_one_more_each_minute() -> None:
    attempts = PasswordAttempts()
    bounds = [bound_at(attempts, "ana", f"bot {number}") for number in range(USER_ATTEMPTS + 1)]
    assert bounds.index(Bound.USER) == 100
    assert bound_at(attempts, "ana", "too soon", NOW + 59.0) is Bound.USER
    assert bound_at(attempts, "ana", "another", NOW + 60.0) is None
    assert bound_at(attempts, "ana", "one more", NOW + 60.0) is Bound.USER


@pytest.mark.parametrize(("pause", "is_forgotten"), [(3_600.0, False), (3_601.0, True)])
def test_wrong_passwords_are_forgotten_after_an_hour_without_attempts(pause: float, is_forgotten: bool) -> None:
    attempts = PasswordAttempts()
    for _ in range(5):
        assert attempts.admit("ana", "home", NOW) is None
    assert attempts.admit("ana", "home", NOW + pause) is None
    assert (bound_at(attempts, "ana", "home", NOW + pause) is None) is is_forgotten


@pytest.mark.parametrize(("days", "bound"), [(30, None), (30.1, Bound.USER)])
def test_a_network_is_familiar_for_thirty_days(days: float, bound: Bound | None) -> None:
    attempts = PasswordAttempts()
    assert attempts.admit("ana", "home", NOW - days * DAY) is None
    attempts.succeeded("ana", "home", NOW - days * DAY)
    guess_everywhere(attempts, "ana")
    assert bound_at(attempts, "ana", "home") is bound


def test_what_waits_for_the_bound_of_a_user_costs_its_network_nothing() -> None:
    attempts = PasswordAttempts()
    guess_everywhere(attempts, "ana")
    assert {bound_at(attempts, "ana", "office") for _ in range(1000)} == {Bound.USER}
    assert bound_at(attempts, "bob", "office") is None


def test_right_passwords_cost_nothing_and_forget_wrong_ones_of_that_user_in_that_network_only() -> None:
    attempts = PasswordAttempts()
    for _ in range(10 * NETWORK_ATTEMPTS):
        assert attempts.admit("ana", "office", NOW) is None
        attempts.succeeded("ana", "office", NOW)
    assert len(attempts) == 0
    for _ in range(FREE_ATTEMPTS):
        assert attempts.admit("bob", "office", NOW) is None
        assert attempts.admit("ana", "office", NOW) is None
        attempts.succeeded("ana", "office", NOW)
    assert bound_at(attempts, "bob", "office") is Bound.HERE, "who has an account cannot so try others"


def test_networks_where_a_user_was_are_forgotten_when_others_follow() -> None:
    attempts = PasswordAttempts()
    for number in range(FAMILIAR_NETWORKS + 1):
        assert attempts.admit("ana", f"home {number}", NOW) is None
        attempts.succeeded("ana", f"home {number}", NOW)
    guess_everywhere(attempts, "ana")
    assert bound_at(attempts, "ana", "home 0") is Bound.USER
    assert bound_at(attempts, "ana", "home 1") is None


def test_counts_are_bounded() -> None:
    attempts = PasswordAttempts(most=10)
    for number in range(100):
        attempts.admit(f"user {number}", f"network {number}", NOW)
        attempts.succeeded(f"friend {number}", f"network {number}", NOW)
    sizes = [len(attempts), len(attempts._networks), len(attempts._users), len(attempts._familiar)]
    assert sizes == [10] * 4


def test_a_clock_that_is_set_back_keeps_nobody_waiting_longer() -> None:
    attempts = PasswordAttempts()
    for _ in range(FREE_ATTEMPTS):
        assert attempts.admit("ana", "home", NOW) is None
    pause = attempts.admit("ana", "home", NOW - 10_000)
    assert pause is None or pause.seconds <= 1.0


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["ana", "bob"]), st.integers(0, 3), st.floats(0.0, 900.0), st.booleans()),
        max_size=200,
    )
)
def test_a_user_is_never_kept_out_by_what_happens_in_other_networks(
    steps: list[tuple[str, int, float, bool]],
) -> None:
    """Up to four networks of guessers, whatever they do: somebody at home with a right password comes in."""
    attempts, now = PasswordAttempts(), NOW
    for user, network, pause, is_right in steps:
        now += pause
        if attempts.admit(user, f"evil {network}", now) is None and is_right:
            attempts.succeeded(user, f"evil {network}", now)
        if attempts.admit("ana", "home", now) is None:
            attempts.succeeded("ana", "home", now)
        else:
            raise AssertionError(f"{user} {network} {now}")


def test_of_too_many_familiar_networks_the_one_that_was_used_longest_ago_is_forgotten() -> None:
    attempts = PasswordAttempts()
    networks = [f"net {number}" for number in range(FAMILIAR_NETWORKS)]
    for network in (*networks, networks[0], "one more"):
        assert attempts.admit("ana", network, NOW) is None
        attempts.succeeded("ana", network, NOW)
    familiar = [network for network in networks if attempts._is_familiar("ana", network, NOW)]
    assert familiar == [networks[0], *networks[2:]]


def test_of_too_many_attempts_and_users_those_of_longest_ago_are_forgotten() -> None:
    attempts = PasswordAttempts(most=2)
    for name in ("ana", "bo", "ana", "cy"):
        assert attempts.admit(name, "home", NOW) is None
    assert list(attempts._counts) == [("ana", "home"), ("cy", "home")]
    for name in ("ana", "bo", "ana", "cy"):
        attempts.succeeded(name, "home", NOW)
    assert [attempts._is_familiar(name, "home", NOW) for name in ("ana", "bo", "cy")] == [True, False, True]
