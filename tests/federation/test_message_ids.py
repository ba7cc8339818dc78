"""Ids of messages: UUIDs of version 7 that never repeat and follow the clock."""

from __future__ import annotations

from uuid import RFC_4122, UUID

from federation.core.message_ids import MessageIds


def test_an_id_is_the_time_a_counter_and_what_is_left_of_the_randomness() -> None:
    ids = MessageIds(bytes(7) + b"\x05")
    assert ids.next(1.5) == bytes.fromhex("0000000005dc70018000000000000006")
    assert ids.next(1.5) == bytes.fromhex("0000000005dc70028000000000000007")
    assert ids.next(1e9) == bytes.fromhex("00e8d4a5100070038000000000000008")


def test_the_counter_and_the_randomness_go_around() -> None:
    ids = MessageIds(b"\xff" * 8)
    made = [ids.next(0.0) for _ in range(4_097)]
    assert made[0] == bytes.fromhex("00000000000070018000000000000000")
    assert [one[6:8].hex() for one in made[-3:]] == ["7fff", "7000", "7001"]
    assert len(set(made)) == len(made)
    assert {(UUID(bytes=one).version, UUID(bytes=one).variant) for one in made} == {(7, RFC_4122)}
