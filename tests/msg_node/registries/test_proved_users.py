"""Whom runtimes may register where users are to be proved."""

from __future__ import annotations

import pytest

from msg_node.registries.core.proved_users import is_same_user

OURS = frozenset({"a.example", "alias.example"})


@pytest.mark.parametrize(
    ("user", "proved", "is_same"),
    [
        ("user://a.example/ana", "user://a.example/ana", True),
        ("user://A.EXAMPLE/ana", "user://a.example/ana", True),
        ("user://a.example/mallory", "user://a.example/ana", False),
        ("user://idp.example/ana", "user://a.example/ana", False),
        ("user://a.example/ana", "ana@a.example", True),
        ("user://idp.example/ana@a.example", "ana@a.example", True),
        ("user://evil.example/ana", "ana@a.example", False),
        ("user://a.example/ana", "ana@evil.example", False),
        ("user://a.example/ana", "ana", True),
        ("user://alias.example/ana", "ana", True),
        ("user://evil.example/ana", "ana", False),
        ("user://a.example/anabel", "ana", False),
        ("no address", "user://a.example/ana", False),
        ("no address", "ana", False),
        ("", "ana", False),
    ],
)
def test_an_address_is_that_of_a_proved_user_or_it_is_not(user: str, proved: str, is_same: bool) -> None:
    assert is_same_user(user, proved, OURS) is is_same
