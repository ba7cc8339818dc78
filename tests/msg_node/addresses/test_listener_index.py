"""Who listens to a key: what is remembered, and what is said when the first one comes and the last one goes."""

from __future__ import annotations

import pytest

from msg_node.addresses.core import listener_index
from msg_node.addresses.core.listener_index import ListenerIndex
from msg_node.kernel.links import NODES
from protofly.limits import REMEMBERED_CHARS

ROOM = "comm://a.example/room"


def test_news_are_the_first_listener_here_and_the_last_one_and_other_nodes_are_none() -> None:
    index, heard = ListenerIndex(), list[tuple[str, bool]]()
    index.on_heard = lambda key, is_heard: heard.append((key, is_heard))
    for number in (NODES, 1, -1, 2):
        index.add(number, ROOM)
    assert heard == [(ROOM, True)]
    for number in (1, 2):
        assert index.discard(number, ROOM)
    assert heard == [(ROOM, True)]
    assert index.discard(-1, ROOM)
    assert heard == [(ROOM, True), (ROOM, False)]
    assert not index.discard(NODES, ROOM)
    index.add(1, f"{ROOM}/*")
    assert heard[2:] == [(f"{ROOM}/*", True)]
    assert list(index.heard_here()) == [f"{ROOM}/*"]


@pytest.mark.parametrize(("chars", "is_remembered"), [(0, True), (1, False)])
def test_only_keys_of_usual_length_are_remembered(chars: int, is_remembered: bool) -> None:
    index = ListenerIndex()
    key = "k" * (REMEMBERED_CHARS + chars)
    for listeners in ((), (7,)):
        assert index.targets(key) == listeners
        assert (key in index._resolved) is is_remembered
        if not listeners:
            index.add(7, key)


def test_so_many_keys_are_remembered_and_then_all_are_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_index, "TARGETS_REMEMBERED", 3)
    index = ListenerIndex()
    sizes = []
    for number in range(7):
        index.targets(f"k{number}")
        sizes.append(len(index._resolved))
    assert sizes == [1, 2, 3, 1, 2, 3, 1]
