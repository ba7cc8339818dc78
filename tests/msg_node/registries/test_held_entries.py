"""How many registry entries a session may hold, and how large they may be together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from msg_node.registries.core import held_entries
from msg_node.registries.core.held_entries import HeldEntries
from protofly.errors import Code, PeerError


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> HeldEntries:
    for name, bound in (("CHARS_PER_SESSION", 100), ("ABSENT_ENTRIES", 2), ("ABSENT_CHARS", 50), ("SWEPT_AT_ONCE", 3)):
        monkeypatch.setattr(held_entries, f"REGISTRY_{name}", bound)
    return HeldEntries(2)


def is_refused(check: Callable[[], None]) -> bool:
    try:
        check()
    except PeerError as exc:
        return exc.code is Code.QUOTA
    return False


def is_refused_number(held: HeldEntries, sid: int, key: str) -> bool:
    return is_refused(lambda: held.check_number(sid, key))


def is_refused_growth(held: HeldEntries, sid: int, growth: int) -> bool:
    return is_refused(lambda: held.check_chars(sid, growth))


def test_a_session_has_so_many_entries_and_an_entry_that_it_has_may_change(held: HeldEntries) -> None:
    held.add(1, "a", 1)
    assert not is_refused_number(held, 1, "b")
    held.add(1, "b", 1)
    assert [is_refused_number(held, 1, key) for key in "abc"] == [False, False, True]
    assert not is_refused_number(held, 2, "c")
    held.discard(1, "a", 1)
    assert not is_refused_number(held, 1, "c")


def test_the_entries_of_a_session_have_so_many_characters_together_and_may_always_shrink(held: HeldEntries) -> None:
    held.add(1, "a", 60)
    held.grow(1, 20)
    assert [is_refused_growth(held, 1, growth) for growth in (20, 21)] == [False, True]
    assert not is_refused_growth(held, 2, 100)
    held.grow(1, 40)
    assert [is_refused_growth(held, 1, growth) for growth in (-1, 0, 1)] == [False, False, True]
    held.grow(1, -100)
    assert [is_refused_growth(held, 1, growth) for growth in (80, 81)] == [False, True]
    held.add(1, "b", 30)
    held.discard(1, "b", 30)
    assert [is_refused_growth(held, 1, growth) for growth in (80, 81)] == [False, True]
    held.discard(1, "a", 20)
    assert (list(held.of(1)), held._chars) == ([], {})


def test_of_what_nobody_holds_the_oldest_are_too_many_and_so_many_at_a_time(held: HeldEntries) -> None:
    assert held.too_many() == []
    for number in range(2):
        held.add(0, str(number), 1)
        held.add(7, str(number), 60)  # a session has bounds of its own
    assert held.too_many() == []
    for number in range(2, 7):
        held.add(0, str(number), 1)
    assert held.too_many() == ["0", "1", "2"]
    for key in "01234":
        held.discard(0, key, 1)
    assert (held.too_many(), list(held.of(0))) == ([], ["5", "6"])


@pytest.mark.parametrize(("chars", "too_many"), [(50, []), (51, ["old"])])
def test_what_nobody_holds_is_too_large_one_entry_at_a_time(chars: int, too_many: list[str], held: HeldEntries) -> None:
    held.add(0, "old", chars - 1)
    held.add(0, "new", 1)
    assert held.too_many() == too_many
