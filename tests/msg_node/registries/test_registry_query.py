"""Whether an entry that somebody else found has what a query names."""

from __future__ import annotations

from typing import Any

import pytest

from msg_node.registries.core.registry_entry import RegistryEntry
from msg_node.registries.core.registry_query import By, Query, is_named, read_query
from protofly.errors import Code, PeerError

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
        ({"user": "no address"}, By.USER, "no address", True),
        ({"user": "no address"}, By.USER, "another", False),
        ({}, By.GUID, "user-guid://G1", True),  # other registries leave it out
    ],
)
def test_an_entry_is_named_by_what_it_says(members: dict[str, Any], by: By, text: str, is_so: bool) -> None:
    entry = RegistryEntry(url=URL, sid=1, runtime="runtime://a.example/rt", **members)
    assert is_named(entry, Query(by, text)) is is_so


def asked(resource: str, **criteria: object) -> Query:
    members = {"resource": resource, "criteria": criteria}
    return read_query(members, domain="a.example", own_domains=frozenset({"a.example"}))


@pytest.mark.parametrize(
    "criteria",
    [
        *({name: 7} for name in ("domain", "reporter", "scheme", "filter")),
        {"filter": "everything"},
        {"filter": "Identifier"},
    ],
)
def test_criteria_that_are_not_understood_are_refused(criteria: dict[str, object]) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        asked("/hyperty/user/ana", **criteria)


@pytest.mark.parametrize(
    ("resource", "by", "text", "identifier"),
    [
        ("/hyperty/user/ana@a.example", By.USER, "ana@a.example", "ana@a.example"),
        ("user-guid://G1", By.GUID, "user-guid://G1", "user-guid://G1"),
        ("ana", By.IDENTIFIER, "ana", ""),
        (URL, By.URL, URL, ""),
    ],
)
def test_a_filter_by_identifier_is_about_a_person_or_makes_a_name_one(
    resource: str, by: By, text: str, identifier: str
) -> None:
    query = asked(resource, filter=By.IDENTIFIER.value)
    assert (query.by, query.text, query.identifier) == (by, text, identifier)
    plain = asked(resource)
    assert (plain.by is By.IDENTIFIER, plain.identifier) == (False, "")
