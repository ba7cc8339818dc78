"""How much of the twin each runtime may use."""

from __future__ import annotations

import pytest

from msg_node.registries.core import twin_room
from msg_node.registries.core.twin_room import TwinRoom
from protofly.errors import Code, PeerError


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> TwinRoom:
    monkeypatch.setattr(twin_room, "TWIN_BYTES_PER_RUNTIME", 100)
    monkeypatch.setattr(twin_room, "TWIN_THINGS_PER_RUNTIME", 2)
    return TwinRoom(150)


def test_a_runtime_has_a_part_of_the_room_and_all_together_have_the_whole(room: TwinRoom) -> None:
    room.count("ana", 90)
    assert [room.has_room("ana", growth) for growth in (10, 11)] == [True, False]
    assert [room.has_room("bo", growth) for growth in (60, 61)] == [True, False]
    assert [room.has_room("", growth) for growth in (60, 61)] == [True, False]
    room.count("", 60)  # nobody in particular
    assert (room.size_bytes, room.has_room("bo", 1), room.has_room("bo", 0)) == (150, False, True)
    room.count("ana", -90)
    room.count("", -60)
    assert [room.has_room("ana", growth) for growth in (100, 101)] == [True, False]
    assert [room.has_room("", growth) for growth in (150, 151)] == [True, False]


def test_what_has_become_too_large_for_its_part_may_shrink(room: TwinRoom) -> None:
    room.count("ana", 120)
    assert [room.has_room("ana", growth) for growth in (-1, 0, 1)] == [True, True, False]


def test_a_runtime_describes_so_many_things_and_nobody_in_particular_any_number(room: TwinRoom) -> None:
    for _ in range(2):
        for runtime in ("ana", ""):
            room.check_thing(runtime)
            room.count(runtime, 1, things=1)
    room.count("", 1, things=9)
    room.check_thing("")
    room.check_thing("bo")
    with pytest.raises(PeerError) as refused:
        room.check_thing("ana")
    assert refused.value.code is Code.QUOTA
    room.count("ana", -1, things=-1)
    room.check_thing("ana")
    room.count("ana", 0)
    room.count("ana", 0, things=1)
    with pytest.raises(PeerError):
        room.check_thing("ana")
    room.count("ana", -1)  # a thing without a byte is one
    with pytest.raises(PeerError):
        room.check_thing("ana")
    room.count("ana", 0, things=-2)
    assert (room._bytes, room._things) == ({}, {})
