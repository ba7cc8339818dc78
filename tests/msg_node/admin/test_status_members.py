"""The table of the members of `/status`: the page is made from it, and it has what nodes show.

What whole nodes show is held against it where tests read it: `tests/system/`, by `unlisted`.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from catalogue_client.core.location import Location
from federation.core.discovery_errors import Attempt
from federation.core.stub_meters import StubMeters
from federation.discovery.resolver import Explanation, ResolverStatistics
from msg_node.admin.core.status_members import leaves, member_of, members
from msg_node.admin.core.status_reference import status_reference
from msg_node.records.writer import RecordsStatistics
from msg_node.storage.state_store import StoreStatistics
from stubs_cache.cache import CacheStatistics
from tests.support.status_members import unlisted

PAGE = Path(__file__).parents[3] / "docs" / "status.md"
SHOWN_WHOLE = {
    "records": RecordsStatistics,
    "state": StoreStatistics,
    "discovery": ResolverStatistics,
    "cache": CacheStatistics,
    "links[].discovery": Explanation,
    "links[].discovery.location": Location,
    "links[].discovery.attempts[]": Attempt,
}


def test_the_page_of_the_status_is_the_one_that_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == status_reference(), (
        "run: trapezoid config reference --status --output FILE"
    )


def test_no_member_stands_in_the_table_twice() -> None:
    paths = [one.path for one in members()]
    assert len(set(paths)) == len(paths)


@pytest.mark.parametrize("place", SHOWN_WHOLE)
def test_what_is_shown_as_a_whole_has_a_row_for_each_member_and_no_other(place: str) -> None:
    rows = {
        one.path.removeprefix(f"{place}.").partition(".")[0] for one in members() if one.path.startswith(f"{place}.")
    }
    names = {one.name for one in dataclasses.fields(SHOWN_WHOLE[place])}
    assert {row.removesuffix("[]") for row in rows} == names


def test_usage_of_stubs_has_a_row_for_each_meter() -> None:
    rows = {one.path.rpartition(".")[2] for one in members() if one.path.startswith("links[].usage.")}
    assert rows == set(StubMeters().totals())


def test_a_member_that_the_table_lacks_is_found_wherever_it_is() -> None:
    status: dict[str, Any] = {
        "domain": "a.example",
        "colour": 1,
        "insecure": ["x", "y"],
        "links": [{"domain": "b.example", "forged_names": {"c.d.example": 2}, "weight": 3, "stub": {"size": 4}}],
        "backends": {"connectors": {"discovery.a.example": {"state": "live", "speed": 5}}},
    }
    assert unlisted(status) == [
        "backends.connectors.discovery.a.example.speed",
        "colour",
        "links[].stub.size",
        "links[].weight",
    ]


def test_exact_names_win_over_those_that_differ() -> None:
    exact, other = member_of("backends.registry.url"), member_of("backends.registry.answered")
    assert (exact and exact.path, other and other.path) == ("backends.registry.url", "backends.registry.*")


@pytest.mark.parametrize(
    ("leaf", "path"),
    [
        ("backends.connectors.discovery.a.example.state", "backends.connectors.*.state"),
        ("backends.connectors.discovery.state", "backends.connectors.*.state"),
        ("backends.connectors.state.state", "backends.connectors.*.state"),
        ("backends.connectors.state", None),
        ("counters.frames in", "counters.*"),
        ("counters", None),
    ],
)
def test_a_star_stands_for_one_word_or_more(leaf: str, path: str | None) -> None:
    found = member_of(leaf)
    assert (found and found.path) == path


def test_a_list_of_texts_is_one_value_and_other_lists_are_looked_into() -> None:
    assert set(leaves({"insecure": ["a"], "expiries": [{"kind": "root"}], "links": []})) == {
        "insecure",
        "expiries[].kind",
    }


def test_a_list_that_the_table_does_not_have_as_one_is_followed() -> None:
    assert list(leaves({"domain": ["a"], "links": [{"domain": "b"}]})) == ["domain[]", "links[].domain"]
