"""Answers of an external registry that may be given again: how long, how many, and until what changes."""

from __future__ import annotations

import pytest

from msg_node.kernel.registrations import Status
from msg_node.registries.core.registry_cache import RegistryCache
from msg_node.registries.core.registry_entry import RegistryEntry
from msg_node.registries.core.registry_query import By, Query
from msg_node.registries.core.registry_rest import Record

NOW = 1_000_000.0
URL = "hyperty://alpha.example/h"
USER = "user://alpha.example/ana"
BY_URL, BY_USER = Query(By.URL, URL), Query(By.USER, USER)


def record(
    *, url: str = URL, age_seconds: float = 0.0, expires_seconds: int = 60, status: Status = Status.LIVE
) -> Record:
    refreshed = NOW - age_seconds
    entry = RegistryEntry(
        url=url, sid=1, runtime="", user=USER, status=status, expires_seconds=expires_seconds, refreshed_at=refreshed
    )
    return Record(entry, {})


@pytest.mark.parametrize(
    ("max_seconds", "age_seconds", "life_seconds"),
    [(10, 0, 10), (100, 0, 60), (100, 45, 15), (100, 59.5, 0.5), (0.25, 0, 0.25), (100, -5, 60)],
)
def test_an_answer_is_given_again_until_its_time_and_not_at_it(
    max_seconds: float, age_seconds: float, life_seconds: float
) -> None:
    for after, is_kept in ((0.0, True), (life_seconds - 0.125, True), (life_seconds, False), (life_seconds + 1, False)):
        cache = RegistryCache(max_seconds=max_seconds)
        records = [record(age_seconds=age_seconds)]
        cache.put(BY_URL, records, NOW)
        assert cache.get(BY_URL, NOW + after) == (records if is_kept else None)


def test_an_answer_lives_as_long_as_the_first_of_its_entries_that_ends() -> None:
    cache = RegistryCache(max_seconds=100)
    cache.put(BY_USER, [record(), record(url=f"{URL}-2", age_seconds=50), record(url=f"{URL}-3")], NOW)
    assert cache.get(BY_USER, NOW + 9) is not None
    assert cache.get(BY_USER, NOW + 10) is None


@pytest.mark.parametrize(
    "records",
    [[], [record(age_seconds=60)], [record(), record(age_seconds=61)], [record(status=Status.DISCONNECTED)]],
)
def test_nothing_and_what_has_ended_is_not_kept_and_takes_the_place_of_what_was(records: list[Record]) -> None:
    cache = RegistryCache(max_seconds=100)
    cache.put(BY_URL, [record()], NOW)
    cache.put(BY_URL, records, NOW)
    assert cache.get(BY_URL, NOW) is None


def test_without_time_nothing_is_kept() -> None:
    cache = RegistryCache(max_seconds=0)
    cache.put(BY_URL, [record()], NOW)
    assert cache.get(BY_URL, NOW) is None


def test_the_oldest_answer_goes_when_there_are_too_many() -> None:
    cache = RegistryCache(max_seconds=100, max_answers=2)
    queries = [Query(By.URL, f"{URL}-{number}") for number in range(3)]
    for query in queries[:2]:
        cache.put(query, [record(url=query.text)], NOW)
    cache.put(queries[0], [record(url=queries[0].text)], NOW)  # is the newest again
    cache.put(queries[2], [record(url=queries[2].text)], NOW)
    assert [cache.get(query, NOW) is not None for query in queries] == [True, False, True]


@pytest.mark.parametrize(
    "query",
    [
        BY_URL,
        BY_USER,
        Query(By.GUID, "user-guid://g-1"),
        Query(By.GUID, "g-1"),
        Query(By.NAME, "lamp"),
        Query(By.REPORTER, "hyperty://alpha.example/r"),
        Query(By.URL, URL.upper().replace("/H", "/h")),
    ],
)
def test_a_changed_entry_ends_every_answer_that_it_would_be_in(query: Query) -> None:
    changed = RegistryEntry(
        url=URL, sid=1, runtime="", user=USER, guid="user-guid://g-1", name="lamp", reporter="hyperty://alpha.example/r"
    )
    cache = RegistryCache(max_seconds=100)
    other = Query(By.URL, "hyperty://alpha.example/other")
    cache.put(query, [record(url="hyperty://alpha.example/else")], NOW)
    cache.put(other, [record(url=other.text)], NOW)
    cache.forget(changed)
    assert cache.get(query, NOW) is None
    assert cache.get(other, NOW) is not None


def test_a_changed_entry_ends_every_answer_that_it_is_in() -> None:
    cache = RegistryCache(max_seconds=100)
    cache.put(BY_USER, [record(), record(url=f"{URL}-2")], NOW)
    cache.forget(RegistryEntry(url=f"{URL}-2", sid=1, runtime=""))
    assert cache.get(BY_USER, NOW) is None


def test_what_has_ended_pushes_nothing_out() -> None:
    cache = RegistryCache(max_seconds=100, max_answers=1)
    cache.put(BY_URL, [record()], NOW)
    for age_seconds in (60, 61):
        cache.put(BY_USER, [record(age_seconds=age_seconds)], NOW)
        assert cache.get(BY_URL, NOW) is not None
