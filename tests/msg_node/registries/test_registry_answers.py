"""What counts in the answers of a domain registry: entries that were asked for, well formed, of our domains."""

from __future__ import annotations

import json
from typing import Any

import pytest

from msg_node.kernel.registrations import Status
from msg_node.kernel.rest_calls import Answered
from msg_node.registries.core.registry_entry import new_entry, read_changed, url_of
from msg_node.registries.core.registry_query import By, Query, read_query
from msg_node.registries.core.registry_rest import delete_call, is_written, query_calls, records_in, statuses_in
from protofly.errors import Code, PeerError
from protofly.limits import (
    REGISTRY_ANSWER_ENTRIES,
    REGISTRY_CLOCK_SKEW_SECONDS,
    REGISTRY_EXPIRES_MAX_SECONDS,
    REGISTRY_LIST_ENTRIES,
    REGISTRY_TEXT_CHARS,
)
from tests.support.registry_entries import DOMAIN, HYPERTY, ROOM, USER, hyperty, room

DOMAINS = frozenset({DOMAIN})
BY_URL, BY_USER = Query(By.URL, HYPERTY), Query(By.USER, USER)
OTHER = f"hyperty://{DOMAIN}/h-other"
ABROAD = "hyperty://beta.example/h"


def answered(document: object, status: int = 200) -> Answered:
    return Answered(status, json.dumps(document).encode(), "application/json")


def urls(document: object, query: Query = BY_USER, *, status: int = 200) -> list[str]:
    return [one.url for one in records_in([answered(document, status)], query, DOMAINS)]


def refusal(document: object, query: Query = BY_USER, *, status: int = 200) -> Code:
    with pytest.raises(PeerError) as refused:
        urls(document, query, status=status)
    return refused.value.code


def without_url(**members: object) -> dict[str, object]:
    return {name: value for name, value in hyperty().items() if name != "url"} | members


@pytest.mark.parametrize("status", [200, 408])
@pytest.mark.parametrize(
    ("document", "query", "found"),
    [
        (hyperty(), BY_URL, [HYPERTY]),
        (without_url(hypertyID=HYPERTY), BY_URL, [HYPERTY]),
        (without_url(hypertyURL=HYPERTY), BY_URL, [HYPERTY]),
        ({HYPERTY: without_url()}, BY_URL, [HYPERTY]),
        ({HYPERTY: hyperty(), OTHER: hyperty(OTHER)}, BY_USER, [HYPERTY, OTHER]),
        ({HYPERTY.upper().replace("/H-ANA", "/h-ana"): hyperty()}, BY_USER, [HYPERTY]),
        ([hyperty(), hyperty(OTHER), hyperty()], BY_USER, [HYPERTY, OTHER]),
        ({"message": "none of them is connected", HYPERTY: hyperty()}, BY_USER, [HYPERTY]),
        ({"message": "nothing"}, BY_USER, []),
        ([], BY_USER, []),
        ({}, BY_USER, []),
        ([room()], Query(By.NAME, "Room 51"), [ROOM]),
    ],
)
def test_entries_come_alone_by_address_and_in_lists(
    document: object, query: Query, found: list[str], status: int
) -> None:
    assert urls(document, query, status=status) == found


@pytest.mark.parametrize(
    ("status", "code"), [(400, Code.BAD_BODY), (500, Code.BAD_REPLY), (302, Code.REDIRECT_REFUSED)]
)
def test_other_statuses_are_refusals_and_404_is_nothing(status: int, code: Code) -> None:
    assert refusal([hyperty()], status=status) is code
    assert urls("whatever it says", status=404) == []


@pytest.mark.parametrize("document", ["text", 7, None, True])
def test_an_answer_that_holds_no_records_is_a_bad_one(document: object) -> None:
    assert refusal(document) is Code.BAD_REPLY


def test_an_answer_has_so_many_records_and_no_more() -> None:
    most = [hyperty(f"{HYPERTY}-{number}") for number in range(REGISTRY_ANSWER_ENTRIES)]
    assert len(urls(most)) == REGISTRY_ANSWER_ENTRIES
    assert refusal([*most, hyperty()]) is Code.BAD_REPLY


STRANGERS: list[object] = [
    7,
    "text",
    hyperty(ABROAD),
    hyperty(OTHER, user=f"user://{DOMAIN}/bo"),
    hyperty("hyperty://[::1"),
    hyperty(status="asleep"),
    hyperty(hypertyID=OTHER),
    hyperty(hypertyURL=OTHER),
    hyperty(userID=f"user://{DOMAIN}/bo"),
    hyperty(hypertyDescriptorURL="hyperty-catalogue://x.example/.well-known/hyperty/X"),
    hyperty(hypertyRuntimeURL=f"runtime://{DOMAIN}/rt-other"),
    hyperty(expires=0),
    hyperty(""),
]


@pytest.mark.parametrize("stranger", STRANGERS)
def test_what_nobody_asked_for_is_left_out_and_alone_is_a_bad_answer(stranger: object) -> None:
    assert urls([stranger, hyperty(OTHER)]) == [OTHER]
    assert urls([hyperty(OTHER), stranger]) == [OTHER]
    assert refusal([stranger]) is Code.BAD_REPLY


def test_an_entry_under_the_address_of_another_is_left_out() -> None:
    assert urls({OTHER: hyperty(), HYPERTY: hyperty()}) == [HYPERTY]
    assert refusal({OTHER: hyperty()}) is Code.BAD_REPLY


def test_spellings_that_agree_are_no_fault() -> None:
    assert urls([hyperty(hypertyID=HYPERTY, hypertyURL=HYPERTY, userID=USER)]) == [HYPERTY]


def test_who_is_asked_for_by_a_part_of_the_identifier_may_be_another() -> None:
    query = Query(By.IDENTIFIER, f"ana@{DOMAIN}")
    assert urls([hyperty(OTHER, user=f"user://{DOMAIN}/bo")], query) == []
    assert urls([hyperty(OTHER, user=f"user://{DOMAIN}/bo"), hyperty()], query) == [HYPERTY]
    assert refusal([hyperty(ABROAD)], query) is Code.BAD_REPLY


def test_an_entry_that_the_filter_leaves_out_was_asked_for_all_the_same() -> None:
    query = Query(By.USER, USER, resources=frozenset({"video"}))
    assert urls([hyperty(), hyperty(ABROAD)], query) == []


def test_statuses_are_those_of_our_domains() -> None:
    found = statuses_in(answered([7, hyperty(ABROAD), hyperty(status="disconnected")]), DOMAINS)
    assert [(one.url, one.is_connected) for one in found] == [(HYPERTY, False)]


# Times.


@pytest.mark.parametrize(
    ("instant", "seconds"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("1970-01-01T00:01:00", 60.0),
        ("1970-01-01T01:01:00+01:00", 60.0),
        ("1970-01-01T00:01:00." + "0" * 14 + "+00:00", 60.0),
        ("1970-01-01T00:01:00." + "0" * 15 + "+00:00", 0.0),
        ("yesterday", 0.0),
        ("", 0.0),
        (60, 0.0),
        (None, 0.0),
    ],
)
def test_an_instant_is_read_in_every_zone_or_long_ago(instant: object, seconds: float) -> None:
    [record] = records_in([answered(hyperty(lastModified=instant, startingTime=instant))], BY_URL, DOMAINS)
    assert (record.entry.refreshed_at, record.entry.started_at) == (seconds, seconds)


@pytest.mark.parametrize(
    ("after", "status", "life"),
    [
        (0.0, "live", 100.0),
        (0.0, "created", 100.0),
        (40.0, "live", 60.0),
        (100.0, "live", 0.0),
        (200.0, "live", 0.0),
        (-REGISTRY_CLOCK_SKEW_SECONDS, "live", 100.0),
        (-REGISTRY_CLOCK_SKEW_SECONDS - 1, "live", 0.0),
        (0.0, "disconnected", 0.0),
    ],
)
def test_an_entry_lives_until_it_expires_unless_it_is_from_the_future(after: float, status: str, life: float) -> None:
    document = hyperty(lastModified="2026-01-05T12:00:00Z", expires=100, status=status)
    [record] = records_in([answered(document)], BY_URL, DOMAINS)
    assert record.life_seconds(record.entry.refreshed_at + after) == life


# Members.


@pytest.mark.parametrize(
    ("expires", "seconds"),
    [
        (1, 1),
        (1.9, 1),
        ("1", 1),
        ("0000000000000000001", 1),
        (REGISTRY_EXPIRES_MAX_SECONDS, REGISTRY_EXPIRES_MAX_SECONDS),
        (REGISTRY_EXPIRES_MAX_SECONDS + 1, REGISTRY_EXPIRES_MAX_SECONDS),
        (float("inf"), REGISTRY_EXPIRES_MAX_SECONDS),
        (None, None),
    ],
)
def test_a_life_is_whole_seconds_up_to_the_longest(expires: object, seconds: int | None) -> None:
    assert read_changed({"expires": expires}).expires_seconds == seconds


NO_LIVES: list[object] = [0, 0.9, -1, True, "0", "-1", "1.5", "٣", "", "1" * 20, [], float("nan")]


@pytest.mark.parametrize(
    "members",
    [
        *({"expires": value} for value in NO_LIVES),
        {"status": "asleep"},
        {"status": 1},
        {"status": []},
        {"guid": 7},
        {"name": "x" * (REGISTRY_TEXT_CHARS + 1)},
        {"resources": 7},
        {"resources": [str(number) for number in range(REGISTRY_LIST_ENTRIES + 1)]},
    ],
)
def test_members_that_are_none_are_a_bad_body(members: dict[str, Any]) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        read_changed(members)


def test_members_are_as_long_as_they_may_be_and_the_first_name_counts() -> None:
    texts = tuple(str(number) for number in range(REGISTRY_LIST_ENTRIES))
    changed = read_changed(
        {"name": "x" * REGISTRY_TEXT_CHARS, "resources": list(texts), "status": "dead", "user": None, "userID": "u"}
    )
    assert (changed.name, changed.resources, changed.status) == ("x" * REGISTRY_TEXT_CHARS, texts, Status("dead"))
    assert (changed.user, changed.guid, changed.data_schemes) == ("u", None, None)
    assert read_changed({"user": "a", "userID": "b"}).user == "a"


def test_the_address_of_an_entry_is_the_first_that_is_given() -> None:
    assert url_of({"hypertyID": "c", "hypertyURL": "b", "url": "a"}) == "a"
    assert url_of({"hypertyID": "c", "hypertyURL": "b", "url": ""}) == "b"
    assert url_of({"hypertyID": "c", "url": None}) == "c"
    assert url_of({}) == ""
    with pytest.raises(PeerError, check=lambda error: error.code is Code.BAD_BODY):
        url_of({"url": 7})


@pytest.mark.parametrize(
    ("resource", "by", "text"),
    [
        ("/hyperty/user/", By.URL, f"hyperty://{DOMAIN}/user/"),
        ("/hyperty/user/x", By.USER, "x"),
        ("/hyperty/other/x", By.URL, f"hyperty://{DOMAIN}/other/x"),
        ("/hyperty/url/comm://a.example/x", By.URL, "comm://a.example/x"),
    ],
)
def test_a_path_without_a_text_to_look_for_is_an_address(resource: str, by: By, text: str) -> None:
    query = read_query({"resource": resource}, domain=DOMAIN, own_domains=DOMAINS)
    assert (query.by, query.text) == (by, text)


@pytest.mark.parametrize("document", [{"x": "text"}, {"message": {}}, {"message": hyperty()}])
def test_in_a_map_only_the_text_of_a_message_is_no_record(document: dict[str, object]) -> None:
    assert refusal(document) is Code.BAD_REPLY


@pytest.mark.parametrize(("status", "is_taken"), [(200, True), (204, True), (299, True), (404, False)])
def test_a_write_is_taken_or_there_is_nothing_to_write_about(status: int, is_taken: bool) -> None:
    assert is_written(Answered(status)) is is_taken


@pytest.mark.parametrize(
    ("status", "code"),
    [(199, Code.BAD_REPLY), (300, Code.REDIRECT_REFUSED), (400, Code.BAD_BODY), (500, Code.BAD_REPLY)],
)
def test_a_write_that_failed_is_a_refusal(status: int, code: Code) -> None:
    with pytest.raises(PeerError, check=lambda error: error.code is code):
        is_written(Answered(status))


def test_hyperties_are_deleted_and_data_objects_disconnected() -> None:
    person = new_entry(HYPERTY, read_changed(hyperty()), sid=1, now=0)
    thing = new_entry(ROOM, read_changed(room()), sid=1, now=0)
    assert (delete_call(person).method, delete_call(person).document) == ("DELETE", None)
    assert (delete_call(thing).method, delete_call(thing).document) == ("PUT", {"status": "disconnected"})


def test_an_identifier_without_a_name_is_asked_for_as_a_whole_only() -> None:
    [call] = query_calls(Query(By.IDENTIFIER, "@a.example")).calls
    assert call.path == "/hyperty/email/%40a.example"
