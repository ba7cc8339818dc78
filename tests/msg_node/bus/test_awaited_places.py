"""Messages that wait for their user to be found, and places that are known."""

from __future__ import annotations

from msg_node.bus.core.awaited_places import AwaitedPlaces, WaitingMessage
from msg_node.registries.core.user_places import UserPlaces
from protofly.errors import Code, HostError
from protofly.limits import USER_PLACES_KNOWN, USER_WAITING_BYTES, USER_WAITING_MESSAGES, USER_WAITING_PER_SENDER
from tests.support.runtime_rig import a_message, parsed, runtime_address

NOWHERE = HostError(Code.NO_ROUTE)


def waiting(number: int = 1, id_: int = 1) -> WaitingMessage:
    message = parsed(a_message("read", runtime_address("ana"), runtime_address("bo"), id_=id_))
    return WaitingMessage(message, number, frozenset(), 0.0)


def test_only_the_first_message_for_a_user_asks_for_a_look_up() -> None:
    users = AwaitedPlaces[UserPlaces]()
    assert [users.wait("g", waiting(id_=number)) for number in (1, 2)] == [True, False]
    assert users.wait("h", waiting())
    assert users.awaited() == ["g", "h"]


def test_messages_are_released_in_order_and_leave_nothing_behind() -> None:
    users = AwaitedPlaces[UserPlaces]()
    first, second = waiting(id_=1), waiting(2, id_=2)
    users.wait("g", first)
    users.wait("g", second)
    assert users.conclude("g", NOWHERE, until=10.0) == [first, second]
    assert (users.count, users.size_bytes, users.senders, users.awaited()) == (0, 0, 0, [])


def test_a_result_counts_until_its_time_is_over_and_not_while_messages_wait() -> None:
    users = AwaitedPlaces[UserPlaces]()
    places = UserPlaces((), (), 99.0)
    users.conclude("g", places, until=10.0)
    assert users.known("g", 9.9) is places
    assert users.known("g", 10.0) is None
    users.wait("g", waiting())
    assert users.known("g", 9.9) is None


def test_one_sender_cannot_take_the_room_of_another() -> None:
    users = AwaitedPlaces[UserPlaces]()
    for number in range(USER_WAITING_PER_SENDER):
        assert users.has_room(waiting())
        users.wait(f"g{number}", waiting())
    assert not users.has_room(waiting())
    assert users.has_room(waiting(2))


def test_all_senders_together_are_bounded() -> None:
    users = AwaitedPlaces[UserPlaces]()
    for number in range(USER_WAITING_MESSAGES):
        users.wait("g", waiting(number))
    assert not users.has_room(waiting(USER_WAITING_MESSAGES))


def test_the_oldest_results_are_forgotten() -> None:
    users = AwaitedPlaces[UserPlaces]()
    for number in range(USER_PLACES_KNOWN + 1):
        users.conclude(str(number), NOWHERE, until=10.0)
    assert users.places == USER_PLACES_KNOWN
    assert users.known("0", 0.0) is None
    assert users.known("1", 0.0) is NOWHERE


def test_waiting_messages_are_bounded_in_bytes() -> None:
    users = AwaitedPlaces[UserPlaces]()
    one = waiting()
    users.size_bytes = USER_WAITING_BYTES - len(one.message.raw)
    assert users.has_room(one)
    users.size_bytes += 1
    assert not users.has_room(one)


def test_what_was_found_anew_is_not_the_oldest_result() -> None:
    users = AwaitedPlaces[UserPlaces]()
    for number in (*range(USER_PLACES_KNOWN), 0, USER_PLACES_KNOWN):
        users.conclude(str(number), NOWHERE, until=10.0)
    assert users.known("0", 0.0) is NOWHERE
    assert users.known("1", 0.0) is None


def test_a_sender_is_congested_from_half_of_what_may_wait_of_it() -> None:
    users = AwaitedPlaces[UserPlaces]()
    for number in range(USER_WAITING_PER_SENDER // 2):
        assert not users.is_congested(1)
        users.wait(f"g{number}", waiting())
    assert users.is_congested(1)
    assert not users.is_congested(2)


def test_all_senders_are_congested_from_half_of_what_may_wait_of_all() -> None:
    users = AwaitedPlaces[UserPlaces]()
    for number in range(USER_WAITING_MESSAGES // 2):
        assert not users.is_congested(-1)
        users.wait("g", waiting(number))
    assert users.is_congested(-1)
    users = AwaitedPlaces[UserPlaces]()
    users.size_bytes = USER_WAITING_BYTES // 2 - 1
    assert not users.is_congested(-1)
    users.size_bytes += 1
    assert users.is_congested(-1)


def test_after_all_is_forgotten_every_recipient_is_looked_up_anew() -> None:
    users = AwaitedPlaces[UserPlaces]()
    for name in "gh":
        users.conclude(name, NOWHERE, until=10.0)
    users.forget_all()
    assert [users.known(name, 1.0) for name in "gh"] == [None, None]
