"""Whether an entry that somebody else found has what a query names."""

from __future__ import annotations

from typing import Any

import pytest

from msg_node.registries.core.registry_entry import RegistryEntry
from msg_node.registries.core.registry_query import By, Query, is_named

URL = "hyperty://a.example/h"


@pytest.mark.parametrize(
    ("members", "by", "text", "is_so"),
    [
        ({}, By.URL, URL, True),
        ({}, By.URL, f"{URL}2", False),
        ({"user": "user://a.example/ana"}, By.USER, "user://a.example/ana", True),
        ({"user": "user://a.example/ana"}, By.USER, "user://a.example/bo", False),
        ({"user": "user://a.example/ana"}, By.IDENTIFIER, "ana@a.example", True),
        ({"user": "user://a.example/ana"}, By.IDENTIFIER, "bo@a.example", False),
        ({"guid": "user-guid://G1"}, By.GUID, "user-guid://G1", True),
        ({"guid": "user-guid://G1"}, By.GUID, "G1", True),
        ({"guid": "user-guid://G1"}, By.GUID, "user-guid://G2", False),
        ({}, By.GUID, "user-guid://G1", True),  # other registries leave it out
    ],
)
def test_an_entry_is_named_by_what_it_says(members: dict[str, Any], by: By, text: str, is_so: bool) -> None:
    entry = RegistryEntry(url=URL, sid=1, runtime="runtime://a.example/rt", **members)
    assert is_named(entry, Query(by, text)) is is_so
