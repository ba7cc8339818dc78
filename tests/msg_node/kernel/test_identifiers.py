"""Unguessable names out of random bytes."""

from __future__ import annotations

from itertools import islice
from uuid import UUID

import pytest

from msg_node.kernel.identifiers import SEED_BYTES, identifier, identifiers

SEED = bytes(range(SEED_BYTES))


def test_names_are_random_uuids_each_another_and_the_same_by_number() -> None:
    names = list(islice(identifiers(SEED), 50))
    assert names == [identifier(SEED, number) for number in range(50)]
    assert len(set(names)) == 50
    assert {(UUID(name).version, UUID(name).variant, str(UUID(name)) == name) for name in names} == {
        (4, UUID(int=1 << 63).variant, True)
    }


def test_the_first_name_says_nothing_of_a_half_of_the_seed_that_is_as_long_as_a_name() -> None:
    shown, hidden = SEED[:16], SEED[16:]
    assert len(hidden) == len(UUID(int=0).bytes)
    other = shown + hidden[::-1]
    assert identifier(SEED, 0) == identifier(other, 0)
    assert not {identifier(SEED, number) for number in range(1, 9)} & {identifier(other, n) for n in range(1, 9)}


@pytest.mark.parametrize("place", range(SEED_BYTES))
def test_each_byte_of_the_seed_changes_all_later_names(place: int) -> None:
    other = bytes(byte ^ (0x55 if at == place else 0) for at, byte in enumerate(SEED))
    assert all(identifier(SEED, number) != identifier(other, number) for number in (1, 2, 300))


@pytest.mark.parametrize("digit", "0123456789abcdef")
def test_the_variant_keeps_the_two_free_bits_of_its_digit(digit: str) -> None:
    seed = bytes.fromhex("11" * 8 + digit + "1" + "11" * 7) + bytes(16)
    assert identifier(seed, 0) == f"11111111-1111-4111-{'89ab'[int(digit, 16) % 4]}111-111111111111"
