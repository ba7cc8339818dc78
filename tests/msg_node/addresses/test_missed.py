"""The window of changes that observers miss: its bounds, its order, its gaps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msg_node.addresses.core.missed import CatchUp, Missed
from protofly.limits import MISSED_GAPS
from protofly.message import Message
from tests.support.runtime_rig import a_message, parsed

ROOM = "comm://alpha.example/room"


def change(number: int, *, of: str = ROOM, ttl: float | None = None) -> Message:
    body: dict[str, object] = {"version": number}
    return parsed(a_message("update", of, f"{of}/changes", body if ttl is None else {**body, "ttl": ttl}))


def missed(*, seconds: float = 10.0, messages: int = 3, each: int = 10_000, all_: int = 100_000) -> Missed:
    return Missed(seconds=seconds, messages=messages, bytes_per_session=each, bytes_in_all=all_)


def test_what_was_missed_comes_once_and_in_order() -> None:
    window, changes = missed(), [change(n) for n in range(3)]
    for one in changes:
        window.keep([7, 8], one, 0.0)
    assert window.take(7, 1.0) == CatchUp(changes)
    assert window.take(7, 1.0) == CatchUp([])
    assert (window.has(8), len(window)) == (True, 1)


def test_the_oldest_give_way_and_their_object_is_a_gap() -> None:
    window, other = missed(messages=2), "comm://alpha.example/other"
    for one in (change(1, of=other), change(1), change(2)):
        window.keep([7], one, 0.0)
    assert window.take(7, 0.0) == CatchUp([change(1), change(2)], (other,))


def test_what_is_older_than_the_window_is_a_gap() -> None:
    window = missed(seconds=10.0)
    window.keep([7], change(1), 0.0)
    window.keep([7], change(2), 6.0)
    assert window.take(7, 12.0) == CatchUp([change(2)], (ROOM,))


def test_bytes_are_bounded_for_one_session() -> None:
    size = len(change(1).raw)
    window = missed(each=2 * size)
    for number in range(3):
        window.keep([7], change(number), 0.0)
    assert window.take(7, 0.0) == CatchUp([change(1), change(2)], (ROOM,))


def test_who_was_away_first_gives_way_to_all_others() -> None:
    size = len(change(1).raw)
    window = missed(all_=3 * size)
    for sid in (7, 8, 9, 10):
        window.keep([sid], change(1), 0.0)
    assert window.take(7, 0.0) == CatchUp([], (ROOM,))
    assert all(window.take(sid, 0.0) == CatchUp([change(1)]) for sid in (8, 9, 10))
    assert window.bytes == 0


def test_gaps_are_bounded_and_then_say_so() -> None:
    window = missed(messages=1)
    for number in range(MISSED_GAPS + 2):
        window.keep([7], change(1, of=f"{ROOM}{number}"), 0.0)
    handed_over = window.take(7, 0.0)
    assert (len(handed_over.gaps), handed_over.is_vague) == (MISSED_GAPS, True)


def test_time_away_is_off_the_time_to_live() -> None:
    window = missed()
    window.keep([7], change(1, ttl=2.0), 0.0)
    window.keep([7], change(2, ttl=60.0), 0.0)
    (left,) = window.take(7, 5.0).messages
    assert left.ttl == b"55.000"


def test_only_changes_and_children_of_objects_are_kept() -> None:
    window = missed()
    for to in (ROOM, f"{ROOM}/subscription", f"{ROOM}/status", "runtime://alpha.example/rt", "x"):
        window.keep([7], parsed(a_message("update", ROOM, to)), 0.0)
    window.keep([7], parsed(a_message("response", ROOM, f"{ROOM}/changes", {"code": 200}, id_=1)), 0.0)
    assert not window.has(7)
    window.keep([7], parsed(a_message("create", ROOM, f"{ROOM}/children/messages", id_=1)), 0.0)
    assert window.has(7)


def test_of_a_session_that_is_over_nothing_is_left() -> None:
    window = missed()
    window.keep([7], change(1), 0.0)
    window.forget(7)
    window.forget(8)
    assert (window.bytes, len(window), window.take(7, 0.0)) == (0, 0, CatchUp([]))


def test_what_is_not_known_is_said() -> None:
    window = missed()
    window.unknown([7])
    window.keep([7], change(1), 0.0)
    assert window.take(7, 0.0) == CatchUp([change(1)], (), is_vague=True)


def test_room_is_made_by_those_of_whom_something_is_kept() -> None:
    window = missed(all_=len(change(1).raw) * 2)
    window.unknown([6])
    for sid in (7, 8, 9):
        window.keep([sid], change(1), 0.0)
    assert window.take(6, 0.0) == CatchUp([], (), is_vague=True)
    assert window.take(7, 0.0) == CatchUp([], (ROOM,))
    assert window.take(8, 0.0) == window.take(9, 0.0) == CatchUp([change(1)])


@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 3]), st.integers(0, 3), st.integers(0, 4), st.sampled_from(["keep", "take"])),
        max_size=60,
    )
)
def test_each_change_is_handed_over_or_its_object_is_a_gap(steps: list[tuple[int, int, int, str]]) -> None:
    window, now = missed(messages=2, seconds=5.0, all_=600), 0.0
    away: dict[int, list[Message]] = {}
    for number, (sid, room, pause, action) in enumerate(steps):
        now += pause
        if action == "keep":
            one = change(number, of=f"{ROOM}{room}")
            window.keep([sid], one, now)
            away.setdefault(sid, []).append(one)
        else:
            handed_over, expected = window.take(sid, now), away.pop(sid, [])
            assert handed_over.messages == expected[len(expected) - len(handed_over.messages) :]
            lost = expected[: len(expected) - len(handed_over.messages)]
            assert {one.to_key.removesuffix("/changes") for one in lost} == set(handed_over.gaps)
    for sid in away:
        window.forget(sid)
    assert window.bytes == 0
