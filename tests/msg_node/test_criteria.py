"""The filter of a read is understood or refused: no answer is to another question than the one that was asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.registry_entries import HYPERTY, USER, hyperty
from tests.support.state_house import DOMAIN, REGISTRY, SM, StateHouse

SERVICES = [REGISTRY, SM, *(f"domain://msg-node.{DOMAIN}{path}" for path in ("", "/delivery", "/inbox", "/twin"))]
BY_USER = {"resource": f"/hyperty/user/{USER}"}


@pytest.fixture
def house() -> StateHouse:
    house = StateHouse()
    sid, _ = house.open("rt-ana", 1)
    assert house.reply(sid, REGISTRY, "create", {"value": hyperty()})["code"] == 200
    return house


def read(house: StateHouse, to: str, body: dict[str, object], *, is_link: bool = False) -> dict[str, object]:
    number = house.state.links.number("beta.example") if is_link else 1
    return house.reply(number, to, "read", body, from_="runtime://beta.example/rt" if is_link else "")


@pytest.mark.parametrize("syntax", [None, "", "key-value", "Key-Value"])
def test_names_with_values_are_understood(house: StateHouse, syntax: str | None) -> None:
    found = read(house, REGISTRY, {**BY_USER, "criteriaSyntax": syntax, "criteria": {"resources": ["chat"]}})
    assert (found["code"], list(found["value"])) == (200, [HYPERTY])  # type: ignore[call-overload]
    none = read(house, REGISTRY, {**BY_USER, "criteriaSyntax": syntax, "criteria": {"resources": ["video"]}})
    assert none["code"] == 404


@pytest.mark.parametrize("is_link", [False, True])
@pytest.mark.parametrize("to", SERVICES)
@pytest.mark.parametrize(
    "body",
    [
        {"criteriaSyntax": "mongodb", "criteria": {"resources": {"$in": ["video"]}}},
        {"criteriaSyntax": "mongodb"},
        {"criteriaSyntax": "key-value ", "criteria": {"resources": ["chat"]}},
        {"criteria": {"$and": [{"resources": "video"}]}},
        {"criteria": {"reporter": {"$eq": "hyperty://x/y"}}},
    ],
)
def test_another_syntax_is_refused_by_every_service(
    house: StateHouse, to: str, body: dict[str, object], is_link: bool
) -> None:
    reply = read(house, to, {**BY_USER, **body}, is_link=is_link)
    assert (reply["code"], reply["reason"]) == (501, "criteria-syntax")
    assert "value" not in reply


@pytest.mark.parametrize(
    "body",
    [
        {"criteriaSyntax": 1},
        {"criteriaSyntax": ["mongodb"]},
        {"criteria": [{"resources": "video"}]},
        {"criteria": "resources=video"},
        {"criteria": {"filter": "guid"}},
        *({"criteria": {name: ["x"]}} for name in ("scheme", "reporter", "filter", "domain")),
    ],
)
def test_criteria_of_a_wrong_type_are_refused(house: StateHouse, body: dict[str, object]) -> None:
    reply = read(house, REGISTRY, {**BY_USER, **body})
    assert (reply["code"], reply["reason"]) == (400, "bad-body")


@pytest.mark.parametrize("name", ["to", "from"])
def test_open_requests_are_not_listed_by_something_that_is_no_address(house: StateHouse, name: str) -> None:
    reply = read(house, f"domain://msg-node.{DOMAIN}/delivery", {"criteria": {name: [HYPERTY]}})
    assert (reply["code"], reply["reason"]) == (400, "bad-body")


@given(st.text(max_size=12))
def test_any_other_word_for_a_syntax_is_refused(word: str) -> None:
    house = StateHouse()
    house.open("rt-ana", 1)
    reply = read(house, REGISTRY, {**BY_USER, "criteriaSyntax": word})
    assert reply["code"] == (404 if word == "" or word.lower() == "key-value" else 501)
