from __future__ import annotations

import string
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interop.conformance.jsontext import Json, NotJsonError, parse, write
from interop.conformance.matching import (
    Anything,
    Comparison,
    Including,
    Keep,
    Maybe,
    Number,
    OneOf,
    Open,
    Text,
    Verbatim,
    describe,
)

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(string.printable)
    | st.decimals(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def paths(pattern: Json, got: Json) -> list[str]:
    comparison = Comparison()
    comparison.compare(pattern, got)
    return [difference.path for difference in comparison.differences]


@given(VALUES)
def test_a_value_is_equal_to_itself_and_to_nothing_wrapped_around_it(value: Json) -> None:
    assert paths(value, value) == []
    assert paths(value, [value]) != []
    assert paths({"a": value}, {"a": value, "b": value}) == ["b"]
    assert paths({"a": value, "b": value}, {"a": value}) == ["b"]


DIFFERENT: list[tuple[Json, Json]] = [
    (1, "1"),
    (1, True),
    (0, False),
    (1, Decimal("1.0")),
    (None, False),
    ("", None),
    ([], {}),
    ([1, 2], [2, 1]),
    ({"a": 1}, {"A": 1}),
    ({"a": 1}, {}),
    ({"a": None}, {}),
]


@pytest.mark.parametrize(("pattern", "got"), DIFFERENT, ids=repr)
def test_json_types_and_order_of_lists_matter(pattern: Json, got: Json) -> None:
    assert paths(pattern, got) != []


FITTING: list[tuple[Json, Json]] = [
    (Text("a.c"), "abc"),
    (Number(1, 3), 2),
    (Number(0, 3), Decimal("0.5")),
    (Anything(), None),
    ({"a": Maybe(1)}, {}),
    ({"a": Maybe(1)}, {"a": 1}),
    (OneOf((1, Text())), "x"),
    (Including((1, Text())), ["x", 2, 1]),
    (Open({"a": 1}), {"b": 2, "a": 1}),
    (Verbatim({"a": 1, "b": 2}), {"a": 1, "b": 2}),
]
NOT_FITTING: list[tuple[Json, Json]] = [
    (Text("a.c"), "abcd"),
    (Text(), ""),
    (Text(), 5),
    (Number(1, 3), 4),
    (Number(1, 3), True),
    (Number(1, 3, whole=True), Decimal("1.5")),
    ({"a": Maybe(1)}, {"a": 2}),
    ({"a": Maybe(1)}, {"b": 1}),
    (OneOf((1, 2)), 3),
    (Including((1, 1)), [1, 2]),
    (Including((1,)), {"1": 1}),
    (Open({"a": 1}), {"b": 2}),
    (Verbatim({"a": 1, "b": 2}), {"b": 2, "a": 1}),
]


@pytest.mark.parametrize(("pattern", "got"), FITTING, ids=repr)
def test_placeholders_fit(pattern: Json, got: Json) -> None:
    assert paths(pattern, got) == []


@pytest.mark.parametrize(("pattern", "got"), NOT_FITTING, ids=repr)
def test_placeholders_do_not_fit_all(pattern: Json, got: Json) -> None:
    assert paths(pattern, got) != []
    assert describe(pattern)


def test_what_comes_closest_is_the_alternative_that_is_reported() -> None:
    pattern = OneOf(({"a": 1, "b": 2}, {"c": 3, "d": 4}))
    assert paths(pattern, {"c": 3, "d": 5}) == ["d"]


def test_values_are_kept_by_name_also_inside_lists() -> None:
    comparison = Comparison()
    comparison.compare({"all": [Keep("one", Text()), Keep("two", Number())]}, {"all": ["x", 7]})
    assert comparison.kept == {"one": "x", "two": "7"}


@given(VALUES)
def test_what_is_written_is_read_again_digit_by_digit(value: Json) -> None:
    assert paths(value, parse(write(value))) == [] or any(isinstance(part, Decimal) for part in parts(value))
    assert write(parse(write(value))) == write(parse(write(parse(write(value)))))


def parts(value: Json) -> list[Json]:
    if isinstance(value, dict):
        return [part for entry in value.values() for part in parts(entry)]
    return [part for entry in value for part in parts(entry)] if isinstance(value, list) else [value]


NOT_JSON = ["", "{", "NaN", '{"a":Infinity}', '{"a":1,"a":1}', '{"x":{"a":1,"a":2}}', "[" * 100_000, "{}{}", "'a'"]


@pytest.mark.parametrize("text", NOT_JSON, ids=lambda text: text[:12])
def test_what_no_node_may_write_is_not_read(text: str) -> None:
    with pytest.raises(NotJsonError):
        parse(text)


def test_big_numbers_keep_every_digit() -> None:
    text = '{"a":123456789012345678901234567890,"b":0.12345678901234567890123,"c":1.5E+400}'
    assert write(parse(text)) == text
