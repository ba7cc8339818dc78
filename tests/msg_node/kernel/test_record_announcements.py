"""What nodes of a domain announce of records that were replaced."""

from __future__ import annotations

import pytest

from msg_node.kernel.domain_records import ANNOUNCED_BYTES, announcement, keys_of


@pytest.mark.parametrize(
    ("payloads", "keys"),
    [
        (None, None),
        ([], []),
        (["users ana", "users bo"], ["ana", "bo"]),
        (["users ana", "guids g1", "use x"], ["ana"]),
        (["users two words"], ["two words"]),
        (["users "], None),
        (["users"], None),
        (["users ana", "users "], None),
        (["guids "], []),
    ],
)
def test_keys_of_a_kind_are_those_announced_unless_any_may_have_been_replaced(
    payloads: list[str] | None, keys: list[str] | None
) -> None:
    assert keys_of("users", payloads) == keys


@pytest.mark.parametrize(("more", "is_named"), [(0, True), (1, False)])
def test_an_announcement_names_the_key_as_long_as_it_fits(more: int, is_named: bool) -> None:
    key = "\u00e4" * ((ANNOUNCED_BYTES - len("users ")) // 2) + "x" * more
    assert ANNOUNCED_BYTES % 2 == 0
    assert keys_of("users", [announcement("users", key)]) == ([key] if is_named else None)
