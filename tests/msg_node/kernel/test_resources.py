"""Texts in bodies that name resources."""

from __future__ import annotations

import pytest

from msg_node.kernel.resources import (
    Shape,
    check_criteria,
    check_texts,
    children_base,
    expand,
    is_child_form,
    is_claimable,
    is_of_no_domain,
    is_p2p_stub,
    key_or_refuse,
    may_observe_abroad,
    object_of_events,
    object_or_refuse,
    shape_of,
    text_of,
    texts_of,
)
from protofly.errors import Code, PeerError
from protofly.limits import ADDRESS_LEVELS, HEADER_CHARS, NESTING_LEVELS, RESOURCES_ENTRIES

ROOM = "comm://alpha.example/room"


def nested(levels: int) -> object:
    value: object = "x"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ({"a": "x", "b": "y"}, "x"),
        ({"b": "y"}, "y"),
        ({"a": "", "b": "y"}, "y"),
        ({"a": None, "b": "y"}, "y"),
        ({"a": 7, "b": "y"}, "y"),
        ({"a": ["x"], "b": "y"}, "y"),
        ({"a": 0}, ""),
        ({"a": True}, ""),
        ({}, ""),
        ({"a": "x" * HEADER_CHARS}, "x" * HEADER_CHARS),
    ],
)
def test_the_first_member_that_is_a_text_counts(members: dict[str, object], text: str) -> None:
    assert text_of(members, "a", "b") == text


def test_a_text_longer_than_an_address_is_refused() -> None:
    for read in (text_of, texts_of):
        with pytest.raises(PeerError) as refused:
            read({"a": "x" * (HEADER_CHARS + 1)}, "a")
        assert refused.value.code is Code.BAD_BODY


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        ("x", ["x"]),
        (["x", "y", "x"], ["x", "y"]),
        ([["x"], None, "y"], ["x", "y"]),
        ([{"name": "x"}, {"y": ""}], ["x", "y"]),
        ([], []),
        (None, []),
        ("x" * HEADER_CHARS, ["x" * HEADER_CHARS]),
        (nested(NESTING_LEVELS), ["x"]),
        ([str(number) for number in range(RESOURCES_ENTRIES)], [str(number) for number in range(RESOURCES_ENTRIES)]),
    ],
)
def test_texts_are_found_in_every_form(value: object, texts: list[str]) -> None:
    assert texts_of({"a": value}, "a") == texts


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (7, Code.BAD_BODY),
        ("", Code.BAD_BODY),
        ({"name": "x"}, Code.BAD_BODY),
        ([{"name": "x", "y": ""}], Code.BAD_BODY),
        ([{}], Code.BAD_BODY),
        ([{"name": 7}], Code.BAD_BODY),
        (nested(NESTING_LEVELS + 1), Code.BAD_BODY),
        ([str(number) for number in range(RESOURCES_ENTRIES + 1)], Code.TOO_LARGE),
    ],
)
def test_what_is_no_resource_or_too_many_is_refused(value: object, code: Code) -> None:
    with pytest.raises(PeerError) as refused:
        texts_of({"a": value}, "a")
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        (ROOM, Shape.BASE),
        (f"{ROOM}/m", Shape.BASE),
        (f"{ROOM}/*", Shape.BELOW),
        (f"{ROOM}/changes", Shape.EVENTS),
        (f"{ROOM}/status", Shape.EVENTS),
        (f"{ROOM}/registration", Shape.EVENTS),
        (f"{ROOM}/children/*", Shape.EVENTS),
        (f"{ROOM}/children/n", Shape.EVENTS),
        (f"{ROOM}/subscription", Shape.CONTROL),
        (f"{ROOM}/inbox", Shape.CONTROL),
        (f"{ROOM}/children", Shape.CONTROL),
    ],
)
def test_the_shape_of_an_address_is_in_its_text(key: str, shape: Shape) -> None:
    assert shape_of(key) is shape


@pytest.mark.parametrize(
    ("key", "is_so"),
    [
        (ROOM, True),
        ("comm:/room", True),
        ("hyperty://alpha.example/h", True),
        ("comm://alpha.example", False),
        ("comm://alpha.example/a//b", False),
        (f"{ROOM}/changes", False),
        (f"{ROOM}/*", False),
        ("runtime://alpha.example/rt", False),
        ("domain://alpha.example/x", False),
        ("comm://alpha.example/" + "/".join("x" * ADDRESS_LEVELS), True),
        ("comm://alpha.example/" + "/".join("x" * (ADDRESS_LEVELS + 1)), False),
    ],
)
def test_which_addresses_a_runtime_may_make_itself(key: str, is_so: bool) -> None:
    assert is_claimable(key) is is_so


@pytest.mark.parametrize(
    ("key", "is_child", "is_seen_abroad"),
    [
        (ROOM, False, False),
        (f"{ROOM}/m", True, True),
        ("hyperty://alpha.example/h/x", False, False),
        (f"{ROOM}/changes", False, True),
        (f"{ROOM}/children/m", False, True),
        (f"{ROOM}/subscription", False, False),
        (f"{ROOM}/*", False, False),
    ],
)
def test_what_may_be_a_child_and_what_is_observed_abroad(key: str, is_child: bool, is_seen_abroad: bool) -> None:
    assert (is_child_form(key), may_observe_abroad(key)) == (is_child, is_seen_abroad)


@pytest.mark.parametrize(
    ("key", "is_so"),
    [("comm:/room", True), ("hyperty:/h", True), ("mn:/session", False), (ROOM, False), ("plain", False)],
)
def test_which_addresses_are_of_no_domain(key: str, is_so: bool) -> None:
    assert is_of_no_domain(key) is is_so


@pytest.mark.parametrize(
    ("key", "is_so"),
    [
        ("runtime://alpha.example/p2phandler/x", True),
        ("runtime://alpha.example/p2phandler/", False),
        ("runtime://alpha.example/p2phandler", False),
        ("runtime://alpha.example/p2phandler/x/y", False),
        ("runtime://alpha.example/rt/x", False),
        ("runtime:/p2phandler/x", False),
    ],
)
def test_which_addresses_are_p2p_stubs(key: str, is_so: bool) -> None:
    assert is_p2p_stub(key) is is_so


def test_keys_in_bodies_are_canonical_or_refused() -> None:
    assert key_or_refuse("COMM://Alpha.example/room") == ROOM
    assert key_or_refuse("*") == "* "
    with pytest.raises(PeerError) as refused:
        key_or_refuse("comm://[::1")
    assert refused.value.code is Code.BAD_BODY


@pytest.mark.parametrize(
    ("resource", "children", "is_owner", "addresses"),
    [
        (ROOM, [], False, [f"{ROOM}/changes"]),
        (ROOM, [], True, [f"{ROOM}/changes", ROOM]),
        (f"{ROOM}/", [], False, [f"{ROOM}/changes"]),
        (f"{ROOM}/changes", [], True, [f"{ROOM}/changes"]),
        (ROOM, ["m"], False, [f"{ROOM}/changes", f"{ROOM}/children/m", f"{ROOM}/m", f"{ROOM}/children/"]),
        (f"{ROOM}/status", ["m"], True, [f"{ROOM}/status", f"{ROOM}/children/m", f"{ROOM}/m", f"{ROOM}/children/"]),
        (ROOM, ["comm://x.example/y"], False, [f"{ROOM}/changes", "comm://x.example/y", f"{ROOM}/children/"]),
        (ROOM, ["m/a:b"], False, [f"{ROOM}/changes", f"{ROOM}/children/m/a:b", f"{ROOM}/m/a:b", f"{ROOM}/children/"]),
    ],
)
def test_a_resource_and_its_children_stand_for_these_addresses(
    resource: str, children: list[str], is_owner: bool, addresses: list[str]
) -> None:
    assert expand(resource, children, is_owner=is_owner) == addresses


@pytest.mark.parametrize("resource", [ROOM, f"{ROOM}/", f"{ROOM}/changes", f"{ROOM}/children/m", f"{ROOM}/children"])
def test_children_of_a_sub_resource_are_those_of_its_object(resource: str) -> None:
    assert children_base(resource) == f"{ROOM}/children/"


def test_no_resource_has_no_children() -> None:
    assert children_base("") == ""


@pytest.mark.parametrize("value", [7, "x", [], False])
def test_a_member_that_is_to_be_an_object_is_one_or_absent(value: object) -> None:
    assert object_or_refuse({"a": {"x": 1}}, "a") == {"x": 1}
    assert object_or_refuse({"a": None}, "a") == object_or_refuse({}, "a") == {}
    with pytest.raises(PeerError) as refused:
        object_or_refuse({"a": value}, "a")
    assert refused.value.code is Code.BAD_BODY


def test_criteria_that_are_to_be_texts_are_texts_or_absent() -> None:
    check_texts({"a": "x", "b": None, "c": 7}, "a", "b")
    with pytest.raises(PeerError) as refused:
        check_texts({"a": "x", "b": 0}, "a", "b")
    assert refused.value.code is Code.BAD_BODY


@pytest.mark.parametrize(
    ("key", "object_key"),
    [
        (f"{ROOM}/changes", ROOM),
        (f"{ROOM}/children/m", ROOM),
        (f"{ROOM}/children/m/changes", f"{ROOM}/children/m"),
        (f"{ROOM}/children/m/children/n", ROOM),
        (f"{ROOM}/children", ""),
        (f"{ROOM}/status", ""),
        (ROOM, ""),
    ],
)
def test_the_object_of_an_event_stands_before_its_changes_or_children(key: str, object_key: str) -> None:
    assert object_of_events(key) == object_key


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({}, None),
        ({"criteria": {"a": 1}}, None),
        ({"criteriaSyntax": "key-value", "criteria": {"a": {"b": 1}}}, None),
        ({"criteriaSyntax": "Key-Value"}, None),
        ({"criteriaSyntax": ""}, None),
        ({"criteriaSyntax": None, "criteria": None}, None),
        ({"criteriaSyntax": "mongo"}, Code.CRITERIA_SYNTAX),
        ({"criteriaSyntax": 7}, Code.BAD_BODY),
        ({"criteriaSyntax": []}, Code.BAD_BODY),
        ({"criteria": ["a"]}, Code.BAD_BODY),
        ({"criteria": {"$or": []}}, Code.CRITERIA_SYNTAX),
        ({"criteria": {"a": {"$gt": 1}}}, Code.CRITERIA_SYNTAX),
        ({"criteria": {"a": "$gt", "b": ["$gt"], "c": 7}}, None),
    ],
)
def test_criteria_are_names_with_values_or_refused(members: dict[str, object], code: Code | None) -> None:
    found = None
    try:
        check_criteria(members)
    except PeerError as exc:
        found = exc.code
    assert found is code


@pytest.mark.parametrize("is_owner", [True, False])
@pytest.mark.parametrize("suffix", ["/changes", "/children/m", "/subscription"])
def test_a_part_of_an_object_that_is_named_without_children_stands_for_itself(suffix: str, is_owner: bool) -> None:
    assert expand(ROOM + suffix, [], is_owner=is_owner) == [ROOM + suffix]
