"""The filter of a read is understood or refused: no answer is to another question than the one that was asked."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.registry_entries import HYPERTY, USER, hyperty
from tests.support.state_rig import DOMAIN, REGISTRY, SM, StateRig

SERVICES = [REGISTRY, SM, *(f"domain://msg-node.{DOMAIN}{path}" for path in ("", "/delivery", "/inbox", "/twin"))]
BY_USER = {"resource": f"/hyperty/user/{USER}"}


@pytest.fixture
def rig() -> StateRig:
    rig = StateRig()
    sid, _ = rig.open("rt-ana", 1)
    assert rig.reply(sid, REGISTRY, "create", {"value": hyperty()})["code"] == 200
    return rig


def read(rig: StateRig, to: str, body: dict[str, object], *, is_link: bool = False) -> dict[str, object]:
    number = rig.state.links.number("beta.example") if is_link else 1
    return rig.reply(number, to, "read", body, from_="runtime://beta.example/rt" if is_link else "")


@pytest.mark.parametrize("syntax", [None, "", "key-value", "Key-Value"])
def test_names_with_values_are_understood(rig: StateRig, syntax: str | None) -> None:
    found = read(rig, REGISTRY, {**BY_USER, "criteriaSyntax": syntax, "criteria": {"resources": ["chat"]}})
    assert (found["code"], list(found["value"])) == (200, [HYPERTY])  # type: ignore[call-overload]
    none = read(rig, REGISTRY, {**BY_USER, "criteriaSyntax": syntax, "criteria": {"resources": ["video"]}})
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
    rig: StateRig, to: str, body: dict[str, object], is_link: bool
) -> None:
    reply = read(rig, to, {**BY_USER, **body}, is_link=is_link)
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
def test_criteria_of_a_wrong_type_are_refused(rig: StateRig, body: dict[str, object]) -> None:
    reply = read(rig, REGISTRY, {**BY_USER, **body})
    assert (reply["code"], reply["reason"]) == (400, "bad-body")


@pytest.mark.parametrize("name", ["to", "from"])
def test_open_requests_are_not_listed_by_something_that_is_no_address(rig: StateRig, name: str) -> None:
    reply = read(rig, f"domain://msg-node.{DOMAIN}/delivery", {"criteria": {name: [HYPERTY]}})
    assert (reply["code"], reply["reason"]) == (400, "bad-body")


@given(st.text(max_size=12))
def test_any_other_word_for_a_syntax_is_refused(word: str) -> None:
    rig = StateRig()
    rig.open("rt-ana", 1)
    reply = read(rig, REGISTRY, {**BY_USER, "criteriaSyntax": word})
    assert reply["code"] == (404 if word == "" or word.lower() == "key-value" else 501)
