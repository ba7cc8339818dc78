"""Schemas of data objects: what they say about changes, and what hostile ones may cost."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msg_node.kernel.data_schemas import DataSchema
from protofly.errors import Code, PeerError
from protofly.limits import SCHEMA_DEPTH, SCHEMA_PARTS, SCHEMA_PATTERN_CHARS, SCHEMA_WORK

PERSON = {"type": "object", "properties": {"name": {"type": "string", "minLength": 1}}, "required": ["name"]}
ROOM: dict[str, object] = {
    "$schema": "http://json-schema.org/draft-04/schema#",
    "id": "Communication",
    "type": "object",
    "definitions": {"person": PERSON},
    "properties": {
        "scheme": {"constant": "comm"},
        "children": {"constant": ["chatMessages", "files", "bad/name", 7, "files"]},
        "topic": {"type": "string"},
        "id": {"type": "integer"},
        "owner": {"$ref": "#/definitions/person"},
        "people": {"type": "array", "items": {"$ref": "#/definitions/person"}},
        "a/b~c": {"type": "boolean"},
        "open": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "closed": {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False},
        "named": {"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": False},
    },
    "required": ["topic"],
}


def check(schema: DataSchema, **members: object) -> None:
    schema.check_change(members, len(json.dumps(members)))


@pytest.mark.parametrize(
    "members",
    [
        {"attribute": "topic", "value": "lunch"},
        {"attribute": "id", "value": 7},
        {"attribute": "owner", "value": {"name": "Ana"}},
        {"attribute": "owner.name", "value": "Ana"},
        {"attribute": "people.0", "value": {"name": "Ana"}},
        {"attribute": "people.0.name", "value": "Ana"},
        {"attribute": "people.1", "attributeType": "array", "operation": "add", "value": [{"name": "Ana"}]},
        {"attribute": "people.1", "attributeType": "array", "operation": "remove", "value": 1},
        {"attribute": "open.whatever", "value": None},
        {"attribute": "open.whatever"},
        {"attribute": "named.x1", "value": 1},
        {"attribute": "unknown.to.the.schema", "value": 1},
        {"attribute": "a/b~c", "value": True},
        {"attribute": "owner"},
        {"value": {"topic": "lunch"}},
        {"value": "an unnamed field"},
        {"version": 3},
    ],
)
def test_changes_that_fit_pass(members: dict[str, object]) -> None:
    check(DataSchema(ROOM), **members)


@pytest.mark.parametrize(
    ("members", "detail"),
    [
        ({"attribute": "topic", "value": 7}, "7 is not of type"),
        ({"attribute": "topic", "value": None}, "null is not of type"),
        ({"attribute": "topic"}, "topic is required"),
        ({"attribute": "", "value": {}}, '"topic" is a required property'),
        ({"attribute": 7, "value": {}}, '"topic" is a required property'),
        ({"attribute": "topic", "operation": "remove", "value": 7}, "7 is not of type"),
        ({"attribute": "topic", "operation": "add", "value": ["lunch"]}, "is not of type"),
        ({"attribute": "topic", "attributeType": "array", "value": ["lunch"]}, "is not of type"),
        ({"attribute": "owner", "value": {}}, '"name" is a required property'),
        ({"attribute": "owner.name"}, "owner.name is required"),
        ({"attribute": "owner.name", "value": ""}, "shorter than 1"),
        ({"attribute": "people.3.name", "value": 1}, "not of type"),
        ({"attribute": "people.0", "attributeType": "array", "operation": "add", "value": [{"name": "A"}, {}]}, "name"),
        ({"attribute": "people.0", "attributeType": "array", "operation": "add", "value": {}}, "name"),
        ({"attribute": "closed.x", "value": 1}, "there is no such attribute"),
        ({"attribute": "a/b~c", "value": 1}, "boolean"),
        ({"value": {"topic": "x", "people": [{"name": 1}]}}, "/people/0/name"),
        ({"value": {}}, '"topic" is a required property'),
    ],
)
def test_changes_that_break_the_schema_are_refused_with_the_place(members: dict[str, object], detail: str) -> None:
    with pytest.raises(PeerError) as refused:
        check(DataSchema(ROOM), **members)
    assert refused.value.code is Code.SCHEMA
    assert detail in refused.value.detail


def test_an_attribute_is_held_against_its_own_part_of_the_schema_however_deep_references_lead() -> None:
    deeper = {f"d{n}": {"properties": {"a": {"$ref": f"#/definitions/d{n + 1}"}}} for n in range(39, -1, -1)}
    definitions = {"d40": {"type": "integer"}, **deeper}
    schema = DataSchema({"definitions": definitions, "properties": {"a": {"$ref": "#/definitions/d1"}}})
    check(schema, attribute=".".join("a" * 40), value=7)
    check(schema, attribute=".".join("a" * 39), value={"a": 7})
    for depth, value in ((40, "x"), (39, {"a": "x"})):
        with pytest.raises(PeerError, match="integer"):
            check(schema, attribute=".".join("a" * depth), value=value)


def test_children_are_those_that_the_schema_lists() -> None:
    assert DataSchema(ROOM).children == ("chatMessages", "files")


@pytest.mark.parametrize(
    "children",
    [None, True, {}, {"constant": "x"}, {"constant": [["x"]]}, {"const": ["*", "", "x y", "a:b", "x" * 200]}],
)
def test_what_lists_no_names_gives_no_children(children: object) -> None:
    assert DataSchema({"properties": {"children": children}} if children is not None else {}).children == ()


# Hostile schemas.


def doubling() -> dict[str, object]:
    return {f"d{n}": {"anyOf": [{"$ref": f"#/definitions/d{n + 1}"}] * 2} for n in range(13)} | {
        "d13": {"type": "null"}
    }


def nested(levels: int) -> dict[str, object]:
    schema: dict[str, object] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ({"$ref": "#"}, "as a whole"),
        ({"$ref": "https://evil.example/schema"}, "refer to others"),
        ({"$ref": "file:///etc/passwd"}, "refer to others"),
        ({"$ref": 7}, "refer to others"),
        ({"$ref": "#/definitions/%61", "definitions": {"a": {}}}, "refer to others"),
        ({"$ref": "#/definitions/a~1b", "definitions": {"a/b": {}}}, "refer to others"),
        ({"$ref": "#/definitions/b", "definitions": {"a": {}}}, "is not in the schema"),
        ({"definitions": {"a": {"allOf": [{"$ref": "#/definitions/a"}]}}, "$ref": "#/definitions/a"}, "circle"),
        ({"properties": {"x": {"$ref": "#/properties/y"}, "y": {"$ref": "#/properties/x"}}}, "circle"),
        ({"properties": {"enum": {"$ref": "#/properties/enum"}}}, "circle"),
        ({"odd": {"$ref": "#/odd"}, "$ref": "#/odd"}, "circle"),
        ({"definitions": doubling(), "$ref": "#/definitions/d0"}, "parts"),
        ({"anyOf": [{"type": "string"}] * (SCHEMA_PARTS + 1)}, "parts"),
        ({"enum": list(range(SCHEMA_PARTS + 1))}, "parts"),
        ({"enum": list(range(SCHEMA_PARTS - 20)), "multipleOf": 2}, "parts"),
        (nested(100), "too deep"),
        (nested(SCHEMA_DEPTH + 1), "too deep"),
        ({"$ref": "#/anyOf/2", "anyOf": [{}, {}]}, "is not in the schema"),
        ({"$ref": "#/anyOf/x", "anyOf": [{}, {}]}, "is not in the schema"),
        ({"$ref": "#/anyOf/01", "anyOf": [{}, {}]}, "is not in the schema"),
        ({"$ref": "#/anyOf/\u0661", "anyOf": [{}, {}]}, "is not in the schema"),
        ({"$ref": "#/anyOf/" + "1" * 5000, "anyOf": [{}, {}]}, "is not in the schema"),
        ({"$ref": "#/title/x", "title": "x"}, "is not in the schema"),
        ({"pattern": "a" * (SCHEMA_PATTERN_CHARS + 1)}, "longer than"),
        ({"properties": {"x": {"$id": "other", "$ref": "#/definitions/a"}}, "definitions": {"a": {}}}, "$id"),
        ({"properties": {"x": {"id": "other"}}}, "id"),
        ({"$dynamicRef": "#x"}, "$dynamicRef"),
        ({"$anchor": "x"}, "$anchor"),
        ({"pattern": "a" * 300}, "longer than"),
        ({"patternProperties": {"b" * 300: {}}}, "longer than"),
        ({"pattern": "(a{1000}){1000}"}, "no usable"),
        ({"pattern": "(?=a)b"}, "no usable"),
        ({"type": "nonsense"}, "no usable"),
        ({"$schema": "https://evil.example/meta"}, "no usable"),
    ],
)
def test_schemas_whose_cost_is_not_bounded_are_not_used(source: dict[str, object], detail: str) -> None:
    with pytest.raises(PeerError) as refused:
        DataSchema(source)
    assert refused.value.code is Code.SCHEMA
    assert detail in refused.value.detail


def test_a_part_that_is_dear_to_check_counts_as_twenty() -> None:
    DataSchema({"enum": list(range(SCHEMA_PARTS - 21)), "multipleOf": 2})


@pytest.mark.parametrize(
    "source",
    [
        {"enum": list(range(SCHEMA_PARTS - 1))},
        {"anyOf": [{}] * (SCHEMA_PARTS - 1)},
        {"anyOf": [{"enum": list(range(SCHEMA_PARTS - 4))}, {}]},
    ],
)
def test_a_schema_may_have_so_many_parts_and_not_one_more(source: dict[str, list[object]]) -> None:
    DataSchema(source)
    ((name, parts),) = source.items()
    with pytest.raises(PeerError, match="parts"):
        DataSchema({name: [*parts, {}, {}] if name == "anyOf" else [*parts, -1]})


def test_a_value_is_checked_up_to_what_its_part_of_the_schema_costs_times_its_length() -> None:
    dear = {"anyOf": [{"minLength": n, "type": "string"} for n in range(500)]}
    schema = DataSchema({"properties": {"dear": dear, "cheap": {"type": "string"}}})
    schema.check_change({"attribute": "dear", "value": "x" * 600}, 700)
    for members in ({"attribute": "dear", "value": "x"}, {"value": {"dear": "x"}}):
        with pytest.raises(PeerError, match="too large"):
            schema.check_change(members, SCHEMA_WORK // 500)
    schema.check_change({"attribute": "cheap", "value": "x"}, SCHEMA_WORK // 500)


@pytest.mark.parametrize(
    "source",
    [
        nested(SCHEMA_DEPTH),
        {"pattern": "a" * SCHEMA_PATTERN_CHARS},
        {"patternProperties": {"b" * SCHEMA_PATTERN_CHARS: {}}},
        {"properties": {"x": {"$ref": "#/anyOf/1"}}, "anyOf": [{}, {"type": "null"}]},
        {"properties": {"$id": {"type": "string"}, "$anchor": {"type": "string"}}},
        {"$id": "whatever", "id": 7},
    ],
)
def test_schemas_up_to_their_bounds_are_used(source: dict[str, object]) -> None:
    assert outcome(lambda: DataSchema(source)) is None


def test_a_value_may_be_as_long_as_its_check_may_take() -> None:
    schema = DataSchema({"type": "string"})
    assert outcome(lambda: schema.check_change({"attribute": "", "value": {}}, SCHEMA_WORK)) is Code.SCHEMA
    plain = DataSchema({})
    plain.check_change({"value": {}}, SCHEMA_WORK)
    with pytest.raises(PeerError, match="too large"):
        plain.check_change({"value": {}}, SCHEMA_WORK + 1)


@pytest.mark.parametrize(("size", "is_one"), [(1, True), (128, True), (129, False)])
def test_a_child_has_a_name_of_so_many_characters(size: int, is_one: bool) -> None:
    name = "x" * size
    schema = DataSchema({"properties": {"children": {"constant": [name]}}})
    assert schema.children == ((name,) if is_one else ())


def calls_of(action: Callable[[], object]) -> int:
    calls = 0

    def count(_frame: object, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def test_looking_at_a_schema_that_doubles_itself_stops_early() -> None:
    def look() -> None:
        with pytest.raises(PeerError):
            DataSchema({"definitions": doubling(), "$ref": "#/definitions/d0"})

    assert calls_of(look) < 100 * SCHEMA_PARTS


_TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["#/properties/a", "#", "string", "^a+$"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "$ref",
                    "properties",
                    "a",
                    "items",
                    "type",
                    "pattern",
                    "allOf",
                    "not",
                    "enum",
                    "children",
                    "constant",
                    "id",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


def outcome(action: Callable[[], object]) -> Code | None:
    try:
        action()
    except PeerError as exc:
        return exc.code
    return None


@given(st.dictionaries(st.sampled_from(["$ref", "properties", "items", "allOf", "not", "type"]), _TREES), _TREES)
def test_any_object_is_a_schema_or_refused_and_any_change_fits_or_does_not(
    source: dict[str, object], value: object
) -> None:
    assert outcome(lambda: DataSchema(source)) in (None, Code.SCHEMA)
    if outcome(lambda: DataSchema(source)) is None:
        schema = DataSchema(source)
        assert all(isinstance(name, str) for name in schema.children)
        for members in ({"value": value}, {"attribute": "a.0.a", "value": value}, {"attribute": "a"}):
            assert outcome(lambda members=members: check(schema, **members)) in (None, Code.SCHEMA)  # type: ignore[misc]


def test_a_format_says_what_is_meant_and_refuses_nothing() -> None:
    schema = DataSchema(
        {"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"at": {"format": "ipv4"}}}
    )
    check(schema, attribute="at", value="here")


def test_nothing_more_is_looked_at_once_a_schema_has_too_many_parts() -> None:
    def refused(parts: int) -> None:
        with pytest.raises(PeerError, match="parts"):
            DataSchema({"anyOf": [{}] * parts})

    assert calls_of(lambda: refused(3 * SCHEMA_PARTS)) == calls_of(lambda: refused(2 * SCHEMA_PARTS))
    own = calls_of(lambda: refused_own({"anyOf": [{}]}))
    assert own == calls_of(lambda: refused_own({"anyOf": [{}] * SCHEMA_PARTS}))


def refused_own(more: dict[str, object]) -> None:
    with pytest.raises(PeerError, match="parts"):
        DataSchema({"enum": [None] * (SCHEMA_PARTS + 1), **more})


def test_a_schema_has_nobody_fetch_anything() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        with pytest.raises(PeerError, match="no usable"):
            DataSchema({"$schema": f"http://127.0.0.1:{server.getsockname()[1]}/meta"})
        with pytest.raises(BlockingIOError):
            server.accept()
