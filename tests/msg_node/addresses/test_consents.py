"""Which observers the node has seen reporters accept, and how much of that it remembers."""

from __future__ import annotations

import pytest

from msg_node.addresses.core import consents
from msg_node.addresses.core.consents import Consents

ROOM = "comm://alpha.example/room"


def accept(seen: Consents, object_key: str, observer: str) -> None:
    seen.grant(object_key, observer)


def observers(seen: Consents, *rooms: str) -> list[list[str]]:
    return [list(seen.observers(room)) for room in rooms]


def test_an_object_remembers_so_many_and_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consents, "CONSENTS_PER_OBJECT", 2)
    seen = Consents()
    for observer in ("a", "b", "a", "c"):
        accept(seen, ROOM, observer)
    assert observers(seen, ROOM) == [["a", "c"]]


def test_all_objects_together_remember_so_many_and_the_oldest_object_goes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consents, "CONSENTS", 4)
    one, two, three = (f"{ROOM}-{number}" for number in range(3))
    seen = Consents()
    for room, observer in ((one, "a"), (one, "b"), (two, "a"), (two, "a"), (three, "a")):
        accept(seen, room, observer)
    assert observers(seen, one, two, three) == [["a", "b"], ["a"], ["a"]]
    accept(seen, three, "b")
    assert observers(seen, one, two, three) == [[], ["a"], ["a", "b"]]
    seen.forget(three)
    for observer in ("c", "d", "e"):
        accept(seen, two, observer)
    assert observers(seen, two) == [["a", "c", "d", "e"]]


def test_what_an_object_forgets_counts_no_more_among_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consents, "CONSENTS_PER_OBJECT", 2)
    monkeypatch.setattr(consents, "CONSENTS", 3)
    seen = Consents()
    for observer in ("a", "b", "c", "d", "e"):
        accept(seen, ROOM, observer)
    accept(seen, f"{ROOM}-1", "a")
    assert observers(seen, ROOM, f"{ROOM}-1") == [["d", "e"], ["a"]]


def test_an_object_with_a_new_observer_is_the_newest_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consents, "CONSENT_OBJECTS", 2)
    one, two, three = (f"{ROOM}-{number}" for number in range(3))
    seen = Consents()
    for room, observer in ((one, "a"), (two, "a"), (one, "b"), (three, "a")):
        accept(seen, room, observer)
    assert observers(seen, one, two, three) == [["a", "b"], [], ["a"]]
