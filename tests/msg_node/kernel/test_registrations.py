"""Which addresses name a user."""

from __future__ import annotations

import pytest

from msg_node.kernel.registrations import Index, user_named


@pytest.mark.parametrize(
    ("key", "index"),
    [
        ("user://a.example/ana", Index.USER),
        ("acct://a.example/ana", Index.USER),
        ("user-guid://G1", Index.GUID),
        ("user://anonymous", None),
        ("user-guid://anonymous", None),
        ("hyperty://a.example/ana", None),
        ("runtime://a.example/ana", None),
        ("plain", None),
    ],
)
def test_users_are_named_by_address_account_or_guid_and_nobody_is_none(key: str, index: Index | None) -> None:
    assert user_named(key) == (None if index is None else (index, key))
